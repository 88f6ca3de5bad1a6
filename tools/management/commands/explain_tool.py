"""`manage.py explain_tool`: why an agent may use a tool, or which gates say no."""

from typing import Any

from django.core.management.base import CommandParser

from tools.catalog.registry import CatalogTool, Snapshot, registry
from tools.definitions.callers import Caller
from tools.errors import NotFound, ToolcribError
from tools.management import agents, arguments, text
from tools.management.command import DONE, ToolcribCommand
from tools.policy import authorization
from tools.policy.callers import caller_of_agent
from tools.policy.decision import Asked, Question, Verdict

HEADER = ("GATE", "PASSED", "CODE", "REASON")


class Command(ToolcribCommand):
    help = "Asks every gate about one tool, one agent and one request, and shows all answers."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME")
        arguments.add_agent(parser, required=True)
        arguments.add_request(parser)

    def perform(self, options: dict[str, Any]) -> int:
        organization = agents.find_organization(options["organization"])
        caller = caller_of_agent(agents.find_agent(organization, options["agent"]))
        snapshot = registry.snapshot(organization.pk, organization.revision)
        tool = _tool(snapshot, options["name"])
        asked = Asked.of(arguments.groups_of(options), options["state"])
        verdicts = every_verdict(Question(caller, tool, asked, snapshot))
        available = all(verdict.passed for verdict in verdicts)
        document = {
            "tool": tool.name,
            "agent": caller.name,
            "groups": sorted(asked.groups),
            "state": asked.state,
            "available": available,
            "gates": [verdict.as_dict() for verdict in verdicts],
        }
        self.answer(options, document, _shown(document, verdicts))
        return DONE


def every_verdict(question: Question) -> list[Verdict]:
    """The gates of the catalog, behind the two that ask about the caller and its request alone."""
    return [
        _standing(question.caller),
        _granted_groups(question),
        *authorization.explain(question),
    ]


def _standing(caller: Caller) -> Verdict:
    try:
        authorization.check_standing(caller)
    except ToolcribError:
        return Verdict("standing", False, "agent_suspended", f"{caller.name} is suspended.")
    return Verdict("standing", True)


def _granted_groups(question: Question) -> Verdict:
    try:
        authorization.check_groups(question.caller, question.asked, question.snapshot)
    except ToolcribError as refusal:
        return Verdict("granted_groups", False, refusal.code, refusal.message)
    return Verdict("granted_groups", True)


def _tool(snapshot: Snapshot, name: str) -> CatalogTool:
    tool = snapshot.tool(name)
    if tool is None:
        raise NotFound(
            f"There is no tool {name[:128]!r} in the organization {snapshot.organization}.",
            code="tool_not_found",
        )
    return tool


def _shown(document: dict[str, Any], verdicts: list[Verdict]) -> str:
    rows = [(v.gate, "yes" if v.passed else "no", v.code, v.reason) for v in verdicts]
    may = "may" if document["available"] else "may not"
    groups = text.names(document["groups"]) or "no groups"
    head = f"{document['agent']} {may} use {document['tool']} (groups: {groups}; state: "
    return f"{head}{document['state']}).\n\n{text.table(HEADER, rows)}"
