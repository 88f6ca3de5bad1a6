"""`manage.py install_license`: verify a signed license offline, and install it for the
organization that it names."""

import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from tools.definitions.licenses import MOST_BYTES, read_license
from tools.errors import Malformed, NotFound
from tools.licensing import licenses
from tools.licensing.licenses import TierImpact
from tools.management import arguments, command
from tools.management.command import DONE, ToolcribCommand, operator
from tools.models import Organization
from tools.shapes.accounts import license_shape


class Command(ToolcribCommand):
    help = (
        "Installs a signed licence: it sets the tier of the organization it names, and until "
        "when. --remove takes an organization's licence away; the lowest tier counts then."
    )

    def arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument(
            "file", nargs="?", type=file, metavar="FILE", help="- reads standard input"
        )
        what.add_argument("--remove", action="store_true", help="with --organization")
        parser.add_argument(
            "--organization",
            type=arguments.parse_slug,
            metavar="O",
            help="refuse a licence for another",
        )

    def perform(self, options: dict[str, Any]) -> int:
        slug = options["organization"]
        place = _organization(slug or _licensed_organization(options))
        by = operator(place.slug)
        if options["remove"]:
            change = licenses.remove_license(organization=place, by=by)
        else:
            change = licenses.install_license(organization=place, file=options["file"], by=by)
        place = _organization(place.slug)
        document = {"organization": place.slug, "license": license_shape(place)}
        self.answer(
            options, document | {"tier_change": change.as_dict()}, _format_license(document, change)
        )
        return DONE


def file(name: str) -> bytes:
    """The content of the file, up to one byte more than the largest license."""
    try:
        if name == "-":
            return sys.stdin.buffer.read(MOST_BYTES + 1)
        with Path(name).open("rb") as source:
            return source.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ArgumentTypeError(f"{name!r} cannot be read: {error}") from None


def _licensed_organization(options: dict[str, Any]) -> str:
    if options["remove"]:
        raise Malformed("--remove needs --organization.", code="organization_missing")
    return read_license(options["file"], settings.LICENSE_KEYS)[0].organization


def _organization(slug: str) -> Organization:
    found = Organization.objects.select_related("tier").filter(slug=slug).first()
    if found is None:
        raise NotFound(f"There is no organization {slug!r}.", code="organization_not_found")
    return found


def _format_license(document: dict[str, Any], change: TierImpact) -> str:
    license = document["license"]
    lines = [
        ("Organization", document["organization"]),
        ("Tier", f"{change.tier} (before: {change.tier_before})"),
        ("License", license["id"] or ""),
        ("Expires", license["expires_at"] or ""),
        ("Days of grace until", license["grace_ends_at"] or ""),
    ]
    said = change.as_dict()
    moved = [(word.capitalize(), command.join_names(said[word])) for word in _WORDS if said[word]]
    return command.format_fields(lines + moved)


_WORDS = ("disabled", "enabled", "gated", "opened", "profiles")
