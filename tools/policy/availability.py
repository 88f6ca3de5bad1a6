"""The gates that decide which tools exist for a request (Tool groups specification, 4.2, and
rulings 1 to 3), and the gates for what the caller was granted.
"""

from typing import TYPE_CHECKING

from tools.definitions.callers import Caller, CallerKind
from tools.definitions.texts.names import WILDCARD
from tools.definitions.vocabulary import SIGNATURE_INVALID, ToolType
from tools.policy.questions import Facts, Gate, Question, Verdict, passed

if TYPE_CHECKING:
    from tools.catalog.snapshot import CatalogTool, Snapshot

_ABOUT_THE_TOOL = {
    SIGNATURE_INVALID, "tool_disabled", "tool_pending", "tool_quarantined", "service_unavailable",
    "tool_not_in_state",
}  # fmt: skip


def matches_groups(tool_groups: frozenset[str], requested: frozenset[str]) -> bool:
    return WILDCARD in requested or not tool_groups.isdisjoint(requested)


def matches_state(tool_states: frozenset[str], current: str) -> bool:
    return WILDCARD in tool_states or current in tool_states


def in_service(question: Question) -> Verdict:
    if question.tool.flaw:
        return Verdict(Gate.STATUS, False, SIGNATURE_INVALID, question.tool.flaw)
    if question.tool.enabled:
        return passed(Gate.STATUS)
    status = question.tool.status
    why = question.tool.status_reason or "An administrator can enable it."
    reason = f"The tool {question.tool.name} is {status}. {why}"
    return Verdict(Gate.STATUS, False, f"tool_{status}", reason)


def source_open(question: Question) -> Verdict:
    """Of a tool whose service announced itself: the service is approved and available."""
    raw = question.tool.definition.raw
    if raw["type"] == ToolType.SERVICE:
        service = question.snapshot.services.get(raw["implementation"]["service"])
        closed = service.closed_because if service else "Its tool service is not there any more."
        if closed:
            return Verdict(Gate.SOURCE_OPEN, False, "service_unavailable", closed)
    return passed(Gate.SOURCE_OPEN)


def in_group(question: Question) -> Verdict:
    tool, asked = question.tool, question.asked
    held = question.snapshot.groups_of(tool)
    if matches_groups(held, asked.groups):
        return passed(Gate.GROUP)
    groups = ", ".join(sorted(held)) or "none"
    reason = f"The tool {tool.name} is not in a requested group. Its groups: {groups}."
    return Verdict(Gate.GROUP, False, "tool_not_in_group", reason)


def group_open(question: Question) -> Verdict:
    """One open path to the tool is enough. The gate before has checked that there is a path."""
    tool, requested, snapshot = question.tool, question.asked.groups, question.snapshot
    openings = question.facts.openings(snapshot)
    if openings.reach(tool, requested, snapshot):
        return passed(Gate.GROUP_OPEN)
    reasons = openings.reasons(openings.on_paths(tool, requested, snapshot))
    if not reasons:
        return passed(Gate.GROUP_OPEN)
    return Verdict(Gate.GROUP_OPEN, False, "group_closed", " ".join(reasons))


def in_state(question: Question) -> Verdict:
    tool, asked = question.tool, question.asked
    if matches_state(tool.definition.states, asked.state):
        return passed(Gate.STATE)
    states = ", ".join(sorted(tool.definition.states)) or "none"
    reason = (
        f"The tool {tool.name} is not available in the state {asked.state!r}, only in: {states}."
    )
    return Verdict(Gate.STATE, False, "tool_not_in_state", reason)


def object_permission(question: Question) -> Verdict:
    caller, tool, snapshot = question.caller, question.tool, question.snapshot
    if caller.token_tools is not None and tool.name not in caller.token_tools:
        covered = ", ".join(sorted(caller.token_tools)) or "none"
        reason = f"This token is not good for the tool {tool.name}, only for: {covered}."
        return Verdict(Gate.OBJECT_PERMISSION, False, "token_excludes_tool", reason)
    if question.facts.grants(caller, snapshot).cover(tool, snapshot):
        return passed(Gate.OBJECT_PERMISSION)
    reason = f"The caller was not granted the tool {tool.name}. Ask an administrator for it."
    return Verdict(Gate.OBJECT_PERMISSION, False, "tool_not_granted", reason)


def permissions_held(question: Question) -> Verdict:
    held = question.facts.permissions(question.caller, question.snapshot)
    required = question.tool.definition.raw["required_permissions"]
    missing = [name for name in required if WILDCARD not in held and name not in held]
    if not missing:
        return passed(Gate.REQUIRED_PERMISSIONS)
    reason = (
        f"The caller lacks permissions that {question.tool.name} requires: {', '.join(missing)}."
    )
    return Verdict(Gate.REQUIRED_PERMISSIONS, False, "permission_missing", reason)


def may_know(caller: Caller, tool: "CatalogTool", snapshot: "Snapshot", facts: Facts) -> bool:
    """A tool that the caller may execute by a grant on it or on its group, or that is in a group it
    was granted: whatever its status, its states and the license."""
    held, only = facts.grants(caller, snapshot), caller.token_tools
    if not held.cover(tool, snapshot) or (only is not None and tool.name not in only):
        return False
    groups = caller.granted_groups  # a wildcard also covers tools in no group
    return not held.every or WILDCARD in groups or not groups.isdisjoint(snapshot.groups_of(tool))


def reason_for_caller(verdict: Verdict, question: Question) -> str:
    """The reason as its own caller may read it: an agent learns of no group that it was not
    granted and nothing about a tool that it may not know, as in an explanation."""
    caller, tool, snapshot = question.caller, question.tool, question.snapshot
    if caller.kind != CallerKind.AGENT:
        return verdict.reason
    if verdict.code in _ABOUT_THE_TOOL and not may_know(caller, tool, snapshot, question.facts):
        return f"You may not use the tool {tool.name} here. GET /api/v1/tools lists yours."
    granted = caller.granted_groups
    if WILDCARD in granted:
        return verdict.reason
    if verdict.code == "tool_not_in_group":
        groups = ", ".join(sorted(snapshot.groups_of(tool) & granted))
        known = f" Of its groups you were granted: {groups}." if groups else ""
        return f"The tool {tool.name} is not in a requested group.{known}"
    if verdict.code == "group_closed":
        openings = question.facts.openings(snapshot)
        closed = openings.on_paths(tool, question.asked.groups, snapshot)
        reasons = openings.reasons(closed & granted)
        return " ".join(reasons) or f"A group that leads to the tool {tool.name} is closed now."
    return verdict.reason
