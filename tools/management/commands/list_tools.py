"""`manage.py list_tools`: list every tool, or exactly the tools that one agent sees."""

from typing import Any

from django.core.management.base import CommandParser

from tools.authorization.facts import check_groups
from tools.authorization.listings import usable_tools
from tools.catalog.registry import registry
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.management import arguments, command
from tools.management.command import DONE, ToolcribCommand
from tools.policy.availability import matches_groups, matches_state
from tools.policy.questions import EffectiveRequest
from tools.shapes.catalog import tool_shape

HEADER = ("NAME", "VERSION", "TYPE", "GROUPS", "STATES", "STATUS", "TOKENS", "DESCRIPTION")
LONGEST = 60
Found = tuple[list[CatalogTool], list[str], Snapshot]  # tools, warnings, and their snapshot


class Command(ToolcribCommand):
    help = (
        "Lists the tools of an organization. With --agent: those that exist for that agent and "
        "this request, or why the request is refused."
    )

    def arguments(self, parser: CommandParser) -> None:
        arguments.add_request(parser)
        arguments.add_agent(parser, required=False)

    def perform(self, options: dict[str, Any]) -> int:
        found = tools_for_agent(options) if options["agent"] else all_tools(options)
        tools, warnings, snapshot = found
        document = {"results": [tool_shape(tool) for tool in tools], "warnings": warnings}
        rows = [row(tool, snapshot) for tool in tools]
        shown = command.format_table(HEADER, rows) if tools else "No tools."
        self.answer(options, document, "\n".join([*warnings, shown]))
        return DONE


def tools_for_agent(options: dict[str, Any]) -> Found:
    """Raises `Refused` where the agent's own request would be refused."""
    caller = arguments.find_caller(options["organization"], options["agent"])
    snapshot = registry.snapshot(caller.organization_id, caller.revision)
    asked = EffectiveRequest.from_options(arguments.requested_groups(options), options["state"])
    warnings = check_groups(caller, asked, snapshot)
    return usable_tools(caller, asked, snapshot), warnings, snapshot


def all_tools(options: dict[str, Any]) -> Found:
    """Every tool whatever its status; groups and a state narrow the list where they are given."""
    organization = arguments.find_organization(options["organization"])
    snapshot = registry.snapshot(organization.pk, organization.revision)
    groups, state = arguments.requested_groups(options), options["state"]
    wanted = None if groups is None else frozenset(groups)
    tools = [
        tool
        for tool in snapshot.sorted_tools
        if (wanted is None or matches_groups(snapshot.groups_of(tool), wanted))
        and (state is None or matches_state(tool.definition.states, state))
    ]
    return tools, [], snapshot


def row(tool: CatalogTool, snapshot: Snapshot) -> tuple[str, ...]:
    raw = tool.definition.raw
    return (
        tool.name,
        tool.version,
        raw["type"],
        command.join_names(sorted(snapshot.groups_of(tool))),
        command.join_names(sorted(tool.definition.states)),
        tool.status,
        str(tool.definition.token_price),
        shorten_description(raw["description"]),
    )


def shorten_description(description: str) -> str:
    line = " ".join(description.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
