"""`manage.py verify_tools`: holds every stored version against what was signed."""

from typing import Any

from django.core.management.base import CommandParser

from tools.catalog.actions import find_tool
from tools.catalog.trust import Checked, check_versions, resign_tool
from tools.management import agents, arguments
from tools.management.command import DONE, FAILED, ToolcribCommand, operator


class Command(ToolcribCommand):
    help = (
        "Checks each version of each tool of an organization, and that the one in use is the one "
        "that was signed as such. Exit code 1 when one is not what was signed."
    )

    def arguments(self, parser: CommandParser) -> None:
        arguments.add_organization(parser)
        parser.add_argument(
            "--resign",
            action="extend",
            nargs="+",
            default=[],
            metavar="TOOL",
            help="answer for what these tools are now, after reading it: their versions in use "
            "are signed with today's key",
        )
        parser.add_argument("--reason", default="", metavar="TEXT", help="for the audit log")

    def perform(self, options: dict[str, Any]) -> int:
        organization = agents.find_organization(options["organization"])
        for name in options["resign"]:
            tool = find_tool(organization, name)
            resign_tool(tool=tool, by=operator(organization.slug), reason=options["reason"][:200])
        found = list(check_versions(organization))
        bad = [one for one in found if not one.good]
        document = {"checked": len(found), "results": [one.as_dict() for one in bad]}
        self.answer(options, document, _shown(found, bad))
        return FAILED if bad else DONE


def _shown(found: list[Checked], bad: list[Checked]) -> str:
    lines = [f"{one.tool} {one.version}: {_fault(one)}" for one in bad]
    return "\n".join([*lines, f"{len(found)} versions checked, {len(bad)} not what was signed."])


def _fault(one: Checked) -> str:
    return "not what was signed" if not one.signed else "not the version that was put in use"
