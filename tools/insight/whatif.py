"""Previews the effect of a change on what each agent sees, and on the calls of the last day. The
same gates are asked twice; nothing is written, counted or spent.
"""

from collections.abc import Iterator, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.utils import timezone

from tools.accounts.user_permissions import may, require
from tools.catalog.snapshot import Snapshot
from tools.definitions.callers import Caller
from tools.errors import Malformed, NotFound
from tools.insight.changes import GrantChange, PreviewedChange
from tools.insight.replay import Replay, World, combinations_of, hours_count, replay
from tools.insight.tool_reach import (
    CallerToolReach,
    is_available_to_any,
    is_licensed,
    known_callers,
)
from tools.licensing.tool_kinds import Kinds, filter_kinds, kinds_after, kinds_in, names_of, passing
from tools.models import Agent

LAST_DAY = timedelta(days=1)
LONGEST = timedelta(days=7)
MOST_AGENTS = 200
_MOST_QUESTIONS = 500_000


@dataclass(frozen=True)
class VisibilityDifference:
    """What one agent would see in its own groups, in some state, beside what it sees now."""

    agent: str
    added: list[str]
    removed: list[str]


@dataclass(frozen=True)
class ImpactPreview:
    """`calls` is None for a reader who may not view executions; `cut` where there are more
    agents."""

    since: datetime
    until: datetime
    agents: dict[UUID, str]
    cut: bool
    seen: list[VisibilityDifference]
    calls: Replay | None


def what_if(
    *, viewer: Caller, change: PreviewedChange, snapshot: Snapshot, since: datetime | None = None
) -> ImpactPreview:
    """Raises `Forbidden` for a caller who may not make the change, or not view agents and tools."""
    for permission in (change.permission, "view_agent", "view_tool"):
        require(viewer, permission)
    until = timezone.now()
    since = _checked(since, until) if since else until - LAST_DAY
    after = change.catalog(snapshot)
    kinds = kinds_in(snapshot), kinds_after(snapshot, after)
    touched = _touched(change, snapshot, after, kinds)
    agents, cut = _agents(change, snapshot, len(touched))
    callers = {caller.name: caller for caller in known_callers(agents, snapshot.revision)}
    known = {agent.pk: callers[agent.slug] for agent in agents}
    changed = {pk: change.caller(one, snapshot) for pk, one in known.items()}
    before = World(snapshot, known, _available_names(snapshot, kinds[0]))
    then = World(after, changed, _available_names(after, kinds[1]))
    return ImpactPreview(
        since=since,
        until=until,
        agents={agent.pk: agent.slug for agent in agents},
        cut=cut,
        seen=list(_visibility_differences(touched, before, then, kinds)),
        calls=_calls(before, then, since, until) if may(viewer, "view_execution") else None,
    )


def _checked(since: datetime, until: datetime) -> datetime:
    if not until - LONGEST <= since < until:
        raise Malformed(
            f"since must lie in the past, {LONGEST.days} days back at most.", code="since_invalid"
        )
    return since


def _agents(change: PreviewedChange, snapshot: Snapshot, tools: int) -> tuple[list[Agent], bool]:
    """Agents that the change affects, and whether there are more than can be examined."""
    rows = Agent.objects.filter(organization_id=snapshot.organization_id, active=True)
    rows = rows.select_related("service_account", "organization").order_by("slug")
    if isinstance(change, GrantChange):
        found = list(rows.filter(slug=change.agent))
        if not found:
            raise NotFound(f"There is no active agent {change.agent!r}.", code="agent_not_found")
        return found, False
    most = min(MOST_AGENTS, max(1, _MOST_QUESTIONS // (2 * max(1, tools))))
    found = list(rows[: most + 1])
    return found[:most], len(found) > most


def _available_names(snapshot: Snapshot, kinds: Kinds) -> set[str]:
    return names_of(passing(kinds, snapshot, is_available_to_any))


def _visibility_differences(
    touched: list[str], before: World, after: World, kinds: tuple[Kinds, Kinds]
) -> Iterator[VisibilityDifference]:
    names, some = sorted(touched), frozenset(touched)
    reached, would_be = (
        CallerToolReach(filter_kinds(of, lambda tool: tool.name in some), world.snapshot)
        for of, world in zip(kinds, (before, after), strict=True)
    )
    for pk, caller in before.callers.items():
        now, then = reached.reachable_names(caller), would_be.reachable_names(after.callers[pk])
        if now != then:
            yield VisibilityDifference(
                caller.name, _in_order(then - now, names), _in_order(now - then, names)
            )


def _in_order(some: Set[str], names: list[str]) -> list[str]:
    return [name for name in names if name in some] if some else []


def _touched(
    change: PreviewedChange, before: Snapshot, after: Snapshot, kinds: tuple[Kinds, Kinds]
) -> list[str]:
    """The tools for which the change may alter a verdict."""
    if isinstance(change, GrantChange):
        return list(before.tools)
    groups = {name for name, group in after.groups.items() if before.groups.get(name) is not group}
    licensed: set[str] = set()
    if before.tier is not after.tier:
        licensed = _licensed(before, kinds[0]) ^ _licensed(after, kinds[1])
    return [
        name
        for name, tool in after.tools.items()
        if before.tools[name] is not tool
        or (groups and not groups.isdisjoint(before.groups_of(tool) | after.groups_of(tool)))
        or (groups and tool.definition.raw["required_permissions"])
        or name in licensed
    ]


def _licensed(snapshot: Snapshot, kinds: Kinds) -> set[str]:
    return names_of(passing(kinds, snapshot, is_licensed))


def _calls(before: World, after: World, since: datetime, until: datetime) -> Replay:
    hourly = hours_count(before.snapshot, after.snapshot)
    found, cut = combinations_of(
        organization_id=before.snapshot.organization_id,
        agents=before.callers,
        since=since,
        until=until,
        hourly=hourly,
    )
    result = replay(found, before, after)
    result.cut = cut
    return result
