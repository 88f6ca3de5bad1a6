"""The gates that decide which tools exist for a request (Tool groups specification, 4.2, and
rulings 1 to 3)."""

from tools.catalog.group_openings import in_the_way, is_reached, openings_of
from tools.catalog.signatures.verified import INVALID
from tools.definitions.callers import CallerKind
from tools.definitions.texts.names import WILDCARD
from tools.definitions.vocabulary import ToolType
from tools.models import ToolStatus
from tools.policy.permissions import may_know
from tools.policy.questions import AccessRequest, Verdict, passed

STATE = "state"  # the gate of the tool's states
_OF_THE_TOOL = {
    INVALID, *(f"tool_{status}" for status in ToolStatus), "service_unavailable",
    "tool_not_in_state",
}  # fmt: skip


def matches_groups(tool_groups: frozenset[str], requested: frozenset[str]) -> bool:
    return WILDCARD in requested or not tool_groups.isdisjoint(requested)


def matches_state(tool_states: frozenset[str], current: str) -> bool:
    return WILDCARD in tool_states or current in tool_states


def in_service(question: AccessRequest) -> Verdict:
    if question.tool.flaw:
        return Verdict("status", False, INVALID, question.tool.flaw)
    status = question.tool.status
    if status == ToolStatus.ACTIVE:
        return passed("status")
    why = question.tool.status_reason or "An administrator can enable it."
    reason = f"The tool {question.tool.name} is {status}. {why}"
    return Verdict("status", False, f"tool_{status}", reason)


def source_open(question: AccessRequest) -> Verdict:
    """Of a tool whose service announced itself: the service is approved and available."""
    raw = question.tool.definition.raw
    if raw["type"] == ToolType.SERVICE:
        service = question.snapshot.services.get(raw["implementation"]["service"])
        closed = service.closed_because if service else "Its tool service is not there any more."
        if closed:
            return Verdict("source_open", False, "service_unavailable", closed)
    return passed("source_open")


def told(verdict: Verdict, question: AccessRequest) -> str:
    """The reason as its own caller may read it: an agent learns of no group that it was not
    granted and nothing about a tool that it may not know, as in an explanation."""
    tool, granted = question.tool, question.caller.granted_groups
    if question.caller.kind != CallerKind.AGENT:
        return verdict.reason
    if verdict.code in _OF_THE_TOOL and not may_know(question.caller, tool, question.snapshot):
        return f"You may not use the tool {tool.name} here. GET /api/v1/tools lists yours."
    if WILDCARD in granted:
        return verdict.reason
    if verdict.code == "tool_not_in_group":
        groups = ", ".join(sorted(question.snapshot.groups_of(tool) & granted))
        known = f" Of its groups you were granted: {groups}." if groups else ""
        return f"The tool {tool.name} is not in a requested group.{known}"
    if verdict.code == "group_closed":
        between = in_the_way(tool, question.asked.groups, question.snapshot) & granted
        reasons = openings_of(question.snapshot).reasons(between)
        return " ".join(reasons) or f"A group that leads to the tool {tool.name} is closed now."
    return verdict.reason


def in_group(question: AccessRequest) -> Verdict:
    tool, asked = question.tool, question.asked
    held = question.snapshot.groups_of(tool)
    if matches_groups(held, asked.groups):
        return passed("group")
    groups = ", ".join(sorted(held)) or "none"
    reason = f"The tool {tool.name} is not in a requested group. Its groups: {groups}."
    return Verdict("group", False, "tool_not_in_group", reason)


def group_open(question: AccessRequest) -> Verdict:
    """One open path to the tool is enough. The gate before has checked that there is a path."""
    tool, requested, snapshot = question.tool, question.asked.groups, question.snapshot
    openings = openings_of(snapshot)
    if not openings.closed or is_reached(tool, requested, snapshot, openings.closed):
        return passed("group_open")
    reasons = openings.reasons(in_the_way(tool, requested, snapshot))
    if not reasons:
        return passed("group_open")
    return Verdict("group_open", False, "group_closed", " ".join(reasons))


def in_state(question: AccessRequest) -> Verdict:
    tool, asked = question.tool, question.asked
    if matches_state(tool.definition.states, asked.state):
        return passed(STATE)
    states = ", ".join(sorted(tool.definition.states)) or "none"
    reason = (
        f"The tool {tool.name} is not available in the state {asked.state!r}, only in: {states}."
    )
    return Verdict(STATE, False, "tool_not_in_state", reason)


TIMELESS = (in_service, source_open, in_group, in_state)  # independent of time within one snapshot
AVAILABILITY = (in_service, source_open, in_group, group_open, in_state)
