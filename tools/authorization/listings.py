"""Decides which tools a person or agent may see: all with `view_tool`, otherwise those they could
call."""

from tools.accounts.user_permissions import may
from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.errors import NotFound
from tools.policy import gates
from tools.policy.questions import DEFAULT_STATE, AccessRequest, EffectiveRequest

PASSING = frozenset({"state", "group_open", "source_open"})


def visible_tools(caller: Caller, snapshot: Snapshot) -> tuple[CatalogTool, ...]:
    """In the order of their names."""
    if may(caller, "view_tool"):
        return snapshot.sorted_tools
    return tuple(tool for tool in snapshot.sorted_tools if _could_call(caller, tool, snapshot))


def visible_tool(caller: Caller, snapshot: Snapshot, name: str) -> CatalogTool:
    """Raises `NotFound`, also for an existing tool that this caller may not see."""
    tool = snapshot.tool(name)
    if tool is not None and (may(caller, "view_tool") or _could_call(caller, tool, snapshot)):
        return tool
    raise NotFound(f"There is no tool {name[:128]!r} for you.", code="tool_not_found")


def _could_call(caller: Caller, tool: CatalogTool, snapshot: Snapshot) -> bool:
    """In some state and at some time: neither affects visibility."""
    asked = EffectiveRequest(caller.granted_groups, DEFAULT_STATE)
    verdicts = gates.explain(AccessRequest(caller, tool, asked, snapshot))
    return all(verdict.passed for verdict in verdicts if verdict.gate not in PASSING)
