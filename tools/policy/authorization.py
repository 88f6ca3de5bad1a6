"""The one authorization function. Listing, explaining, executing and claiming all ask it.

The gates stand in ruling 9's order and never call each other. To refuse is the default: a tool is
allowed when every gate has said yes.
"""

from tools import metrics
from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.names import WILDCARD
from tools.errors import Malformed, Refused
from tools.policy.availability import AVAILABILITY
from tools.policy.decision import Asked, Gate, Question, Verdict
from tools.policy.licensing import LICENSE
from tools.policy.permissions import PERMISSION

GATES: tuple[Gate, ...] = AVAILABILITY + PERMISSION + LICENSE


def explain(question: Question) -> list[Verdict]:
    """Every gate's answer, also after one has refused."""
    return [gate(question) for gate in GATES]


def authorize(question: Question, gates: tuple[Gate, ...] = GATES) -> None:
    """Raises `Refused` with the first gate's reason."""
    for gate in gates:
        verdict = gate(question)
        if not verdict.passed:
            raise Refused(verdict.reason, code=verdict.code, gate=verdict.gate)


def check_standing(caller: Caller) -> None:
    """Raises `Refused` for a caller who was good when the call was accepted and is not now."""
    if not caller.active:
        raise Refused(
            "The caller was suspended, or its token revoked, before the call began.",
            code="caller_suspended",
            gate="standing",
        )


def check_groups(caller: Caller, asked: Asked, snapshot: Snapshot) -> list[str]:
    """Privileges never come from the request: what is asked for must have been granted (ruling 5).

    Returns warnings about names no group has; a strict caller gets `Malformed` for them (ruling 6).
    """
    granted = caller.granted_groups
    beyond = frozenset() if WILDCARD in granted else asked.groups - granted
    if beyond:
        _count_escalation(beyond, snapshot)
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


def usable_tools(caller: Caller, asked: Asked, snapshot: Snapshot) -> list[CatalogTool]:
    """The tools that exist for this request, in the order of their names."""
    left = snapshot.remember(("available", asked), lambda: _available(caller, asked, snapshot))
    return [tool for tool in left if _permits(Question(caller, tool, asked, snapshot))]


def _available(caller: Caller, asked: Asked, snapshot: Snapshot) -> tuple[CatalogTool, ...]:
    """Status, groups and state look at the request alone: what they leave is everybody's."""
    return tuple(
        tool
        for tool in snapshot.sorted_tools
        if all(gate(Question(caller, tool, asked, snapshot)).passed for gate in AVAILABILITY)
    )


def _permits(question: Question) -> bool:
    return all(gate(question).passed for gate in PERMISSION + LICENSE)


def count_request(asked: Asked, snapshot: Snapshot) -> None:
    for name in asked.groups:
        metrics.group_requests.labels(_bounded(name, snapshot)).inc()


def _count_escalation(groups: frozenset[str], snapshot: Snapshot) -> None:
    metrics.escalation_attempts.labels("wildcard" if WILDCARD in groups else "group").inc()
    for name in groups:
        metrics.group_access_denied.labels(_bounded(name, snapshot)).inc()


def _bounded(name: str, snapshot: Snapshot) -> str:
    known = name == WILDCARD or snapshot.knows_group(name)
    return name if known else metrics.UNKNOWN
