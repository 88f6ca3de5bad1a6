"""Listings of tools: those that a caller may use in a request, those that it may see, and
alternatives for a tool that it may not use now (checklist S1, 15).

The gates decide. An alternative is named only where the caller may use it in the very same request,
and only to a caller who was granted the tool it asked for: a refusal reveals no other tools.
"""

from collections.abc import Iterator
from typing import Any

from tools.accounts.grants.grants import grants, permissions_of
from tools.accounts.user_permissions import may
from tools.authorization.facts import question_of
from tools.authorization.known_names import drop_unknown_names
from tools.catalog.group_openings import is_reached, openings_of
from tools.catalog.search.similar_tools import rank_similar
from tools.catalog.search.tool_search import relevant_tools
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.catalog.tiers import tier_now
from tools.definitions.callers import Caller
from tools.errors import NotFound
from tools.policy import gates
from tools.policy.gates import GateCheck, Stage
from tools.policy.questions import DEFAULT_STATE, EffectiveRequest, Gate, Question

MOST_ALTERNATIVES = 3
# Refusals that say "not now" or "not here", and not "not you".
REPLACEABLE = frozenset(
    {"tool_not_in_group", "tool_not_in_state", "group_closed", "tool_disabled", "tool_quarantined"}
)
# In some state and at some time a tool may be called: these gates do not affect visibility.
SKIPPED_BY_VISIBILITY = frozenset({Gate.STATE, Gate.GROUP_OPEN, Gate.SOURCE_OPEN})
_MOST_CANDIDATES = 50  # for which the gates are asked
_MOST_INDEX_ENTRIES = 10_000  # a refusal must stay cheap
# These depend on the groups and the state of the request, and on no caller.
_SHARED_BY_CALLERS = frozenset(
    {Gate.STATUS, Gate.SOURCE_OPEN, Gate.GROUP, Gate.GROUP_OPEN, Gate.STATE}
)
_GRANTS = frozenset({Gate.OBJECT_PERMISSION, Gate.REQUIRED_PERMISSIONS})


def usable_tools(caller: Caller, asked: EffectiveRequest, snapshot: Snapshot) -> list[CatalogTool]:
    """The tools that exist for this request, in the order of their names.

    Cached for the caller as long as nothing changes that the gates depend on: the catalog, whose
    revision also covers grants, the closed groups, and the tier, which may expire.
    """
    asked, closed = drop_unknown_names(asked, snapshot), openings_of(snapshot).closed
    held = (
        caller.user_id,
        grants.find_grants(caller, snapshot.revision),
        permissions_of(caller, snapshot),
        caller.token_tools,
    )
    usable = snapshot.remember(
        ("usable", asked, closed, tier_now(snapshot).pk, held),
        lambda: tuple(_usable(caller, asked, snapshot, closed)),
    )
    return list(usable)


def visible_tools(caller: Caller, snapshot: Snapshot) -> tuple[CatalogTool, ...]:
    """All with `view_tool`, otherwise those that the caller could call; in the order of their
    names."""
    if may(caller, "view_tool"):
        return snapshot.sorted_tools
    return tuple(tool for tool in snapshot.sorted_tools if _could_call(caller, tool, snapshot))


def visible_tool(caller: Caller, snapshot: Snapshot, name: str) -> CatalogTool:
    """Raises `NotFound`, also for an existing tool that this caller may not see."""
    tool = snapshot.tool(name)
    if tool is not None and (may(caller, "view_tool") or _could_call(caller, tool, snapshot)):
        return tool
    raise NotFound(f"There is no tool {name[:128]!r} for you.", code="tool_not_found")


def describe_alternatives(question: Question, code: str) -> dict[str, Any]:
    """What a refusal adds to its details; empty where there is no alternative."""
    names = find_alternatives(question) if code in REPLACEABLE else []
    return {"alternatives": names} if names else {}


def find_alternatives(question: Question) -> list[str]:
    """At most three tools like the one asked for, the likest first, that the caller may use."""
    checks = _listed()
    if not gates.passes(question, tuple(one for one in checks if one.name in _GRANTS)):
        return []
    found: list[str] = []
    for at, tool in enumerate(_similar_tools(question.tool, question.snapshot)):
        if at == _MOST_CANDIDATES or len(found) == MOST_ALTERNATIVES:
            break
        other = question_of(question.caller, tool, question.asked, question.snapshot)
        if gates.passes(other, checks):
            found.append(tool.name)
    return found


def _listed() -> tuple[GateCheck, ...]:
    return gates.select(Stage.ACCESS, skip=gates.SKIPPED_BY_LISTINGS)


def _usable(
    caller: Caller, asked: EffectiveRequest, snapshot: Snapshot, closed: frozenset[str]
) -> Iterator[CatalogTool]:
    checks = tuple(check for check in _listed() if check.name not in _SHARED_BY_CALLERS)
    available = snapshot.remember(
        ("available", asked, closed), lambda: _available(caller, asked, snapshot, closed)
    )
    return (
        tool
        for tool in available
        if gates.passes(question_of(caller, tool, asked, snapshot), checks)
    )


def _available(
    caller: Caller, asked: EffectiveRequest, snapshot: Snapshot, closed: frozenset[str]
) -> tuple[CatalogTool, ...]:
    """Status, groups and state depend on the request alone: the remaining tools are shared by all
    callers.

    `closed` is part of the cache key, so that all gates see the same moment: the gate of opening
    hours would read the groups that are closed now.
    """
    timeless = _SHARED_BY_CALLERS - {Gate.GROUP_OPEN}
    checks = tuple(check for check in _listed() if check.name in timeless)
    return tuple(
        tool
        for tool in snapshot.sorted_tools
        if gates.passes(question_of(caller, tool, asked, snapshot), checks)
        and is_reached(tool, asked.groups, snapshot, closed)
    )


def _could_call(caller: Caller, tool: CatalogTool, snapshot: Snapshot) -> bool:
    asked = EffectiveRequest(caller.granted_groups, DEFAULT_STATE)
    verdicts = gates.explain(question_of(caller, tool, asked, snapshot))
    return all(one.passed for one in verdicts if one.gate not in SKIPPED_BY_VISIBILITY)


def _similar_tools(tool: CatalogTool, snapshot: Snapshot) -> Iterator[CatalogTool]:
    """Tools in service of the same category, or that can do one of the same things."""
    raw = tool.definition.raw
    able = frozenset(raw["capabilities"])
    words = " ".join([tool.name, *raw["capabilities"], raw["title"] or "", raw["description"]])
    candidates = rank_similar(snapshot, words, _MOST_INDEX_ENTRIES)
    for found in relevant_tools(one for one in candidates if one.tool != tool):
        other = found.tool.definition.raw
        same = other["category"] == raw["category"] or not able.isdisjoint(other["capabilities"])
        if same and found.tool.enabled:
            yield found.tool
