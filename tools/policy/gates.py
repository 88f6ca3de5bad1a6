"""The one authorization function, used for listing, explaining, executing and claiming.

The gates are in ruling 9's order and never call each other. The default is refusal: a tool is
allowed when every gate passes.
"""

from collections.abc import Iterator

from tools import metrics
from tools.accounts.grants.grants import grants, permissions_of
from tools.authorization.known_names import group_label, known_part
from tools.catalog.group_openings import is_reached, openings_of
from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.implementations.tool_types import ASK_MODEL, RUN_AGENT, RUN_BATCH
from tools.definitions.texts.names import WILDCARD
from tools.errors import Malformed, Refused
from tools.policy.availability import (
    AVAILABILITY,
    TIMELESS,
    group_open,
    in_group,
    in_state,
    told,
)
from tools.policy.license_gates import LICENSE, tier_now
from tools.policy.permissions import PERMISSION, object_permission
from tools.policy.questions import AccessRequest, EffectiveRequest, Gate, Verdict

GATES: tuple[Gate, ...] = AVAILABILITY + PERMISSION + LICENSE

# A batch at its own address needs no grant of the tool that runs it: it gives no access, since
# every gate checks each of its calls. It can be disabled, licensed and limited like any other. The
# same holds for a run of an agent, and for the questions that it asks a model, which are only text.
LENT: tuple[Gate, ...] = (in_group, group_open, in_state, object_permission)
_LENDS_NOTHING = frozenset({RUN_BATCH, RUN_AGENT, ASK_MODEL})


def _lends_nothing(tool: CatalogTool) -> bool:
    return tool.definition.entry_point in _LENDS_NOTHING


def explain(question: AccessRequest) -> list[Verdict]:
    """Every gate's verdict, also after one has refused."""
    return [gate(question) for gate in GATES]


def authorize(question: AccessRequest, gates: tuple[Gate, ...] = GATES) -> None:
    """Raises `Refused` with the first gate's reason."""
    lent = LENT if question.at_its_door and _lends_nothing(question.tool) else ()
    for gate in gates:
        if gate in lent:
            continue
        verdict = gate(question)
        if not verdict.passed:
            raise Refused(told(verdict, question), code=verdict.code, gate=verdict.gate)


def check_standing(caller: Caller) -> None:
    """Raises `Refused` for a caller who became inactive after the call was accepted."""
    if not caller.active:
        raise Refused(
            "The caller was suspended, or its token revoked, before the call began.",
            code="caller_suspended",
            gate="standing",
        )


def check_groups(caller: Caller, asked: EffectiveRequest, snapshot: Snapshot) -> list[str]:
    """Privileges never come from the request: what is asked for must have been granted (ruling 5).

    Returns warnings about names no group has; a strict caller gets `Malformed` for them (ruling 6).
    """
    try:
        return groups_granted(caller, asked, snapshot)
    except Refused as refusal:
        _count_escalation(frozenset(refusal.details["groups"]), snapshot)
        raise


def groups_granted(caller: Caller, asked: EffectiveRequest, snapshot: Snapshot) -> list[str]:
    """The same for a hypothetical request: an attempt is not counted."""
    granted = caller.granted_groups
    beyond = frozenset() if WILDCARD in granted else asked.groups - granted
    if beyond:
        names = ", ".join(sorted(beyond))
        raise Refused(
            f"The request names groups the caller was not granted: {names}. "
            "Leave them out or ask an administrator.",
            code="group_not_granted",
            gate="granted_groups",
            groups=sorted(beyond),
        )
    unknown = sorted(
        name for name in asked.groups if name != WILDCARD and not snapshot.knows_group(name)
    )
    if unknown and caller.strict:
        raise Malformed(
            f"There is no group {', '.join(unknown)}.", code="group_unknown", groups=unknown
        )
    return [f"There is no group {name}; it was ignored." for name in unknown]


def usable_tools(caller: Caller, asked: EffectiveRequest, snapshot: Snapshot) -> list[CatalogTool]:
    """The tools that exist for this request, in the order of their names.

    Cached for the caller as long as nothing changes that the gates depend on: the catalog, whose
    revision also covers grants, the closed groups, and the tier, which may expire.
    """
    asked, closed = known_part(asked, snapshot), openings_of(snapshot).closed
    held = (
        caller.user_id,
        grants.of(caller, snapshot.revision),
        permissions_of(caller, snapshot),
        caller.token_tools,
    )
    usable = snapshot.remember(
        ("usable", asked, closed, tier_now(snapshot).pk, held),
        lambda: tuple(_usable(caller, asked, snapshot, closed)),
    )
    return list(usable)


def _usable(
    caller: Caller, asked: EffectiveRequest, snapshot: Snapshot, closed: frozenset[str]
) -> Iterator[CatalogTool]:
    left = snapshot.remember(
        ("available", asked, closed), lambda: _available(caller, asked, snapshot, closed)
    )
    return (tool for tool in left if _permits(AccessRequest(caller, tool, asked, snapshot)))


def _available(
    caller: Caller, asked: EffectiveRequest, snapshot: Snapshot, closed: frozenset[str]
) -> tuple[CatalogTool, ...]:
    """Status, groups and state depend on the request alone: the remaining tools are shared by all
    callers.

    `closed` is part of the cache key, so that all gates see the same moment.
    """
    return tuple(
        tool
        for tool in snapshot.sorted_tools
        if all(gate(AccessRequest(caller, tool, asked, snapshot)).passed for gate in TIMELESS)
        and is_reached(tool, asked.groups, snapshot, closed)
    )


def _permits(question: AccessRequest) -> bool:
    return all(gate(question).passed for gate in PERMISSION + LICENSE)


def _count_escalation(groups: frozenset[str], snapshot: Snapshot) -> None:
    metrics.escalation_attempts.labels("wildcard" if WILDCARD in groups else "group").inc()
    for name in groups:
        metrics.group_access_denied.labels(group_label(name, snapshot)).inc()
