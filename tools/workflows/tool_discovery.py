"""`find_tools`: search tools for a task, for agents that do not load them all.

What is found is what a listing would hold for this caller in this request, and nothing else.
"""

from typing import Any

from tools.authorization.listings import usable_tools
from tools.catalog.registry import CatalogTool
from tools.catalog.search.tool_search import rank_tools, relevant_tools
from tools.catalog.search.tool_words import note_search
from tools.definitions.implementations.tool_types import CALL_TOOL, FIND_TOOLS
from tools.definitions.results import Status
from tools.execution import sessions
from tools.execution.composing import CannotGoOn, Composition
from tools.execution.context import Result
from tools.policy.questions import EffectiveRequest

MOST = 25
_USUAL = 5


def turn(view: Composition) -> Result:
    wanted = view.parameters
    query, capabilities = wanted.get("query"), wanted.get("capabilities")
    if not isinstance(query, str) or not isinstance(capabilities, list):
        raise CannotGoOn("PARAMETERS_WRONG", "query is a text and capabilities a list.")
    usable = _usable(view)
    able = set(map(str, capabilities))
    fit = [tool for tool in usable if able <= set(tool.definition.raw["capabilities"])]
    found = _in_order(view, query, fit)
    shown = [_shown(tool) for tool in found[: _limit(wanted.get("limit"))]]
    every = sum(tool.definition.token_price for tool in usable)
    output = {"tools": shown, "total": len(found), "tokens_of_all": every}
    return Result(Status.SUCCESS, output=output)


def _usable(view: Composition) -> list[CatalogTool]:
    """But for the pair itself: a caller of one has it."""
    performance, execution = view.performance, view.execution
    asked = EffectiveRequest.of(execution.requested_groups, sessions.state_before(execution))
    found = usable_tools(performance.caller, asked, performance.snapshot)
    return [tool for tool in found if tool.definition.entry_point not in (FIND_TOOLS, CALL_TOOL)]


def _in_order(view: Composition, query: str, tools: list[CatalogTool]) -> list[CatalogTool]:
    """The best first; by name where nothing is looked for."""
    if not query.strip():
        return tools
    found = [
        hit.tool for hit in relevant_tools(rank_tools(view.performance.snapshot, query, tools))
    ]
    note_search(view.performance.caller, query, found)
    return found


def _limit(given: Any) -> int:
    whole = isinstance(given, int) and not isinstance(given, bool)
    return max(1, min(MOST, given)) if whole else _USUAL


def _shown(tool: CatalogTool) -> dict[str, Any]:
    raw = tool.definition.raw
    return {
        "name": tool.name,
        "title": raw["title"],
        "description": raw["description"],
        "capabilities": raw["capabilities"],
        "parameters": raw["input_schema"],
        "requires_confirmation": raw["requires_confirmation"],
        "cost": raw["cost_per_invocation"],
        "tokens": tool.definition.token_price,
    }
