"""Tool discovery for agents that do not load the definitions of all tools: `find_tools` searches
tools for a task, `call_tool` calls one by its name.

The search finds only what a listing would contain for this caller in this request. The call that
`call_tool` makes is an ordinary one: its cost, its approval and its end are those of the call.
"""

from typing import Any

from tools.authorization.listings import usable_tools
from tools.catalog.search.tool_search import rank_tools, relevant_tools
from tools.catalog.search.tool_words import note_search
from tools.catalog.snapshot import CatalogTool
from tools.definitions.implementations.tool_types import CALL_TOOL, FIND_TOOLS
from tools.definitions.results import Status
from tools.execution import sessions
from tools.execution.call import Result
from tools.policy.questions import EffectiveRequest
from tools.workflows.composition import CompositeKind, WaitCondition, register_kind
from tools.workflows.nested_calls import Composition, CompositionFailed, NestedCall

MOST_TOOLS = 25
PLACE = "call"  # of the call that `call_tool` makes
_DEFAULT_LIMIT = 5


def run_search_turn(view: Composition) -> Result:
    wanted = view.parameters
    query, capabilities = wanted.get("query"), wanted.get("capabilities")
    if not isinstance(query, str) or not isinstance(capabilities, list):
        raise CompositionFailed("PARAMETERS_WRONG", "query is a text and capabilities a list.")
    discovery = (FIND_TOOLS, CALL_TOOL)
    usable = [one for one in listed_tools(view) if one.definition.entry_point not in discovery]
    required = set(map(str, capabilities))
    fit = [tool for tool in usable if required <= set(tool.definition.raw["capabilities"])]
    found = _rank(view, query, fit)
    shown = [_describe(tool) for tool in found[: _parse_limit(wanted.get("limit"))]]
    tokens = sum(tool.definition.token_price for tool in usable)
    output = {"tools": shown, "total": len(found), "tokens_of_all": tokens}
    return Result(Status.SUCCESS, output=output)


def listed_tools(view: Composition) -> list[CatalogTool]:
    """The tools that a listing would contain for the caller of a composite call."""
    performance, execution = view.performance, view.execution
    asked = EffectiveRequest.from_options(
        execution.requested_groups, sessions.state_before(execution)
    )
    return usable_tools(performance.caller, asked, performance.snapshot)


def _rank(view: Composition, query: str, tools: list[CatalogTool]) -> list[CatalogTool]:
    """The best first; by name for an empty query."""
    if not query.strip():
        return tools
    found = [
        hit.tool for hit in relevant_tools(rank_tools(view.performance.snapshot, query, tools))
    ]
    note_search(view.performance.caller, query, found)
    return found


def _parse_limit(value: Any) -> int:
    integer = isinstance(value, int) and not isinstance(value, bool)
    return max(1, min(MOST_TOOLS, value)) if integer else _DEFAULT_LIMIT


def _describe(tool: CatalogTool) -> dict[str, Any]:
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


def run_call_turn(view: Composition) -> Result | WaitCondition:
    name, parameters = view.parameters.get("tool_name"), view.parameters.get("parameters")
    if not isinstance(name, str) or not isinstance(parameters, dict):
        raise CompositionFailed("PARAMETERS_WRONG", "tool_name is a text and parameters an object.")
    asked = view.raw_parameters.get("parameters")
    made = view.begin_call(
        PLACE, name, asked if isinstance(asked, dict) else parameters, references=True
    )
    if made.open:
        return WaitCondition()
    return _call_result(view, made)


def _call_result(view: Composition, made: NestedCall) -> Result:
    identifier = str(made.id) if made.id else None
    if made.succeeded:
        output = {"execution_id": identifier, "output": view.load_output(PLACE)}
        return Result(Status.SUCCESS, output={"tool_name": made.tool_name, **output})
    invalid = made.status == Status.VALIDATION_ERROR  # that of the call that was made, not of this
    return Result(
        Status.FAILED if invalid else made.status,
        error_code=made.error_code,
        error_message=made.error_message,
        error_details={**(made.error_details or {}), "call": identifier},
    )


register_kind(CALL_TOOL, CompositeKind(run_call_turn))
register_kind(FIND_TOOLS, CompositeKind(run_search_turn))
