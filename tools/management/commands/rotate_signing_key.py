"""`manage.py rotate_signing_key`: another key signs an organization's versions from now on."""

from typing import Any

from django.core.management.base import CommandParser

from tools.catalog.trust import distrust_signing_key, rotate_signing_key
from tools.management import agents, arguments
from tools.management.command import DONE, ToolcribCommand, operator


class Command(ToolcribCommand):
    help = (
        "Makes a new key for an organization's tool versions. What the one before signed stays "
        "valid, and is signed by the new key too where it is good. After a key was lost to "
        "somebody else, distrust it first."
    )

    def arguments(self, parser: CommandParser) -> None:
        arguments.add_organization(parser)
        parser.add_argument("--reason", default="", metavar="TEXT", help="for the audit log")
        parser.add_argument(
            "--distrust",
            metavar="KEY_ID",
            help="stop believing this key first: what it alone signed runs no more",
        )
        parser.add_argument("--no-resign", action="store_true", help="leave signatures as they are")

    def perform(self, options: dict[str, Any]) -> int:
        organization = agents.find_organization(options["organization"])
        by, reason = operator(organization.slug), options["reason"][:200]
        if options["distrust"]:
            distrust_signing_key(
                organization=organization, key_id=options["distrust"], by=by, reason=reason
            )
        row = rotate_signing_key(
            organization=organization, by=by, reason=reason, resign=not options["no_resign"]
        )
        document = {"key_id": row.key_id, "public_key": row.public_key}
        self.answer(options, document, f"Signing with {row.key_id} from now on.")
        return DONE
