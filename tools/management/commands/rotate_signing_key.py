"""`manage.py rotate_signing_key`: create a new signing key for an organization's tools."""

from typing import Any

from django.core.management.base import CommandParser

from tools.catalog.signatures.keys import distrust_key, rotate_key
from tools.management import arguments
from tools.management.arguments import find_organization
from tools.management.command import DONE, ToolcribCommand, operator
from tools.shapes.catalog import signing_key_shape


class Command(ToolcribCommand):
    help = (
        "Retires an organization's signing key for a new one. What the old one signed stays good, "
        "unless it is distrusted."
    )

    def arguments(self, parser: CommandParser) -> None:
        arguments.add_organization(parser)
        parser.add_argument(
            "--distrust",
            metavar="KEY",
            help="believe nothing that this key signed; see verify_tools --resign",
        )

    def perform(self, options: dict[str, Any]) -> int:
        place = find_organization(options["organization"])
        by = operator(place.slug)
        if options["distrust"]:
            distrust_key(organization=place, key_id=options["distrust"], by=by)
        row = rotate_key(organization=place, by=by)
        text = f"{place.slug} signs with the key {row.key_id} from now on."
        self.answer(options, signing_key_shape(row), text)
        return DONE
