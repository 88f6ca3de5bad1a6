"""`manage.py explain_tool`: why an agent may use a tool, or which gates refuse it."""

from typing import Any

from django.core.management.base import CommandParser

from tools.accounts.callers import caller_of_agent
from tools.catalog.registry import registry
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.errors import NotFound
from tools.insight.explain import Explained, Explanation
from tools.management import arguments, command
from tools.management.command import DONE, ToolcribCommand
from tools.policy.questions import EffectiveRequest
from tools.shapes.reports import explained_shape, request_shape

HEADER = ("GATE", "PASSED", "CODE", "REASON")


class Command(ToolcribCommand):
    help = (
        "Asks every gate about one tool, one agent and one request. Shows all answers, and what "
        "would change a no."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME")
        arguments.add_agent(parser, required=True)
        arguments.add_request(parser)

    def perform(self, options: dict[str, Any]) -> int:
        organization = arguments.find_organization(options["organization"])
        caller = caller_of_agent(arguments.find_agent(organization, options["agent"]))
        snapshot = registry.snapshot(organization.pk, organization.revision)
        tool = _tool(snapshot, options["name"])
        asked = EffectiveRequest.from_options(arguments.requested_groups(options), options["state"])
        explanation = Explanation(caller, asked, snapshot, everything=True)
        explained = explanation.explain(tool)
        document = _document(explanation, explained)
        self.answer(options, document, _format_explanation(document))
        return DONE


def _document(explanation: Explanation, explained: Explained) -> dict[str, Any]:
    """The gates of the request before those of the tool, in the order of their evaluation."""
    request = request_shape(explanation)
    tool = explained_shape(explained, explanation.snapshot)
    refusals = (row.gate for row in explanation.request if not row.passed)
    return {
        "tool": explained.tool.name,
        "agent": request["caller"],
        "groups": request["groups"],
        "state": request["state"],
        "available": explained.available,
        "refused_by": next(refusals, tool["refused_by"]),
        "held": explained.needs_approval,
        "gates": [*request["gates"], *tool["gates"]],
    }


def _tool(snapshot: Snapshot, name: str) -> CatalogTool:
    tool = snapshot.tool(name)
    if tool is None:
        raise NotFound(
            f"There is no tool {name[:128]!r} in the organization {snapshot.organization}.",
            code="tool_not_found",
        )
    return tool


def _format_explanation(document: dict[str, Any]) -> str:
    gates = document["gates"]
    rows = [(g["gate"], "yes" if g["passed"] else "no", g["code"], g["reason"]) for g in gates]
    groups = command.join_names(document["groups"]) or "no groups"
    permission = _format_permission(document)
    head = f"{document['agent']} {permission} use {document['tool']} (groups: {groups}; state: "
    parts = [f"{head}{document['state']}).", command.format_table(HEADER, rows)]
    remedies = [f"  {g['gate']}: {g['remedy']}" for g in gates if g["remedy"]]
    if remedies:
        parts.append("\n".join(["What would change it:", *remedies]))
    return "\n\n".join(parts)


def _format_permission(document: dict[str, Any]) -> str:
    if not document["available"]:
        return "may not"
    if document["refused_by"]:
        return "may, but not now,"
    return "may, once a person agrees," if document["held"] else "may"
