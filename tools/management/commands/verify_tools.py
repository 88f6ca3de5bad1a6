"""`manage.py verify_tools`: verify the signature of every version of every tool."""

from typing import Any

from django.core.management.base import CommandParser

from tools.catalog.actions import find_tool
from tools.catalog.signatures import verification
from tools.catalog.signatures.verification import DISTRUSTED, Wrong, wrong_in
from tools.management import arguments
from tools.management.arguments import find_organization
from tools.management.command import DONE, FAILED, ToolcribCommand, operator
from tools.models import Organization

_SAID = {
    "altered": "is not what was signed",
    DISTRUSTED: "was signed under a key that is distrusted now; --resign signs it again",
    "rolled_back": "is older than one that was in use; --accept-rollback if that is meant",
}


class Command(ToolcribCommand):
    help = (
        "Checks the digest, signature and key of every version of every tool, and that the one in "
        "use is the newest that was seen. Exit code 1 when one is wrong."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--organization",
            type=arguments.parse_slug,
            metavar="O",
            help="absent: every organization",
        )
        parser.add_argument(
            "--resign",
            action="store_true",
            help="sign again what is in use and of which only the key is distrusted",
        )
        parser.add_argument(
            "--accept-rollback",
            action="store_true",
            help="the versions in use are meant: a backup was restored",
        )

    def perform(self, options: dict[str, Any]) -> int:
        slug = options["organization"]
        places = [find_organization(slug)] if slug else Organization.objects.order_by("slug")
        results = [self._about(place, options) for place in places]
        wrong = any(result["wrong"] for result in results)
        self.answer(options, {"results": results}, "\n".join(map(_format_result, results)))
        return FAILED if wrong else DONE

    def _about(self, place: Organization, options: dict[str, Any]) -> dict[str, Any]:
        by = operator(place.slug)
        accepted = (
            verification.accept_rollback(organization=place, by=by)
            if options["accept_rollback"]
            else []
        )
        looked_at, found = wrong_in(place)
        resigned = [one.tool for one in found if one.current and one.problem == DISTRUSTED]
        if not options["resign"]:
            resigned = []
        for name in resigned:
            verification.resign(tool=find_tool(place, name), by=by)
        left = [one for one in found if not _is_resolved(one, resigned)]
        return {
            "organization": place.slug,
            "versions": looked_at,
            "wrong": [one.as_dict() for one in left],
            "resigned": resigned,
            "accepted": accepted,
        }


def _is_resolved(one: Wrong, resigned: list[str]) -> bool:
    return one.current and one.problem == DISTRUSTED and one.tool in resigned


def _format_result(result: dict[str, Any]) -> str:
    lines = [f"{one['tool']} {one['version']} {_SAID[one['problem']]}" for one in result["wrong"]]
    lines += [f"{name} was signed again" for name in result["resigned"]]
    lines += [f"{name} is accepted as it is" for name in result["accepted"]]
    head = f"{result['organization']}: {result['versions']} versions, {len(result['wrong'])} wrong."
    return "\n  ".join([head, *lines])
