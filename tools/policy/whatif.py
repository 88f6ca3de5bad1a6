"""What a change would make different before anybody makes it: to what each agent sees, and to the
calls of the last day. The same gates are asked twice; nothing is written, counted or spent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.utils import timezone

from tools.catalog.registry import Snapshot
from tools.definitions.callers import Caller
from tools.errors import Malformed, NotFound
from tools.models import Agent
from tools.policy.changes import Change, Grant
from tools.policy.kinds import Kinds, kinds_among, kinds_in, names_of, passing
from tools.policy.people import may, require
from tools.policy.reach import Reach, is_licensed, known_callers
from tools.policy.replay import Replay, World, combinations_of, hours_count, replay

LAST_DAY = timedelta(days=1)
LONGEST = timedelta(days=7)
MOST_AGENTS = 200
_MOST_QUESTIONS = 500_000


@dataclass(frozen=True)
class Seen:
    """What one agent would see in its own groups, in some state, beside what it sees now."""

    agent: str
    added: list[str]
    removed: list[str]


@dataclass(frozen=True)
class Difference:
    """`calls` is None for who may not see executions; `cut` where there are more agents."""

    since: datetime
    until: datetime
    agents: dict[UUID, str]
    cut: bool
    seen: list[Seen]
    calls: Replay | None


def what_if(
    *, viewer: Caller, change: Change, snapshot: Snapshot, since: datetime | None = None
) -> Difference:
    """Raises `Forbidden` for who may not make the change or may not see agents and tools."""
    for permission in (change.permission, "view_agent", "view_tool"):
        require(viewer, permission)
    until = timezone.now()
    since = _checked(since, until) if since else until - LAST_DAY
    after = change.catalog(snapshot)
    touched = _touched(change, snapshot, after)
    agents, cut = _agents(change, snapshot, len(touched))
    callers = {caller.name: caller for caller in known_callers(agents, snapshot.revision)}
    before = World(snapshot, {agent.pk: callers[agent.slug] for agent in agents})
    changed = {pk: change.caller(one, snapshot) for pk, one in before.callers.items()}
    then = World(after, changed)
    return Difference(
        since=since,
        until=until,
        agents={agent.pk: agent.slug for agent in agents},
        cut=cut,
        seen=list(_seen(touched, before, then)),
        calls=_calls(before, then, since, until) if may(viewer, "view_execution") else None,
    )


def _checked(since: datetime, until: datetime) -> datetime:
    if not until - LONGEST <= since < until:
        raise Malformed(
            f"since must lie in the past, {LONGEST.days} days back at most.", code="since_invalid"
        )
    return since


def _agents(change: Change, snapshot: Snapshot, tools: int) -> tuple[list[Agent], bool]:
    """Those the change concerns, and whether there are more than can be looked at."""
    rows = Agent.objects.filter(organization_id=snapshot.organization_id, active=True)
    rows = rows.select_related("service_account", "organization").order_by("slug")
    if isinstance(change, Grant):
        found = list(rows.filter(slug=change.agent))
        if not found:
            raise NotFound(f"There is no active agent {change.agent!r}.", code="agent_not_found")
        return found, False
    most = min(MOST_AGENTS, max(1, _MOST_QUESTIONS // (2 * max(1, tools))))
    found = list(rows[: most + 1])
    return found[:most], len(found) > most


def _seen(touched: list[str], before: World, after: World) -> Iterator[Seen]:
    reached, would_be = (Reach(kinds, of) for kinds, of in _worlds(touched, before, after))
    names = sorted(touched)
    for pk, caller in before.callers.items():
        now, then = reached.of(caller), would_be.of(after.callers[pk])
        if now != then:
            yield Seen(caller.name, _some(names, then - now), _some(names, now - then))


def _some(names: list[str], wanted: set[str]) -> list[str]:
    return [name for name in names if name in wanted] if wanted else []


def _worlds(touched: list[str], before: World, after: World) -> Iterator[tuple[Kinds, Snapshot]]:
    """Another tier makes no tool another one, so the kinds of the tools stay what they are."""
    now, then = before.snapshot, after.snapshot
    kinds = kinds_among(touched, now)
    yield kinds, now
    yield kinds if then.tools is now.tools else kinds_among(touched, then), then


def _touched(change: Change, before: Snapshot, after: Snapshot) -> list[str]:
    """The tools about which the change may alter an answer."""
    if isinstance(change, Grant):
        return list(before.tools)
    groups = {name for name, group in after.groups.items() if before.groups.get(name) is not group}
    licensed = _licensed_otherwise(before, after)
    return [
        name
        for name, tool in after.tools.items()
        if before.tools[name] is not tool
        or (groups and not groups.isdisjoint(before.groups_of(tool) | after.groups_of(tool)))
        or (groups and tool.definition.raw["required_permissions"])
        or name in licensed
    ]


def _licensed_otherwise(before: Snapshot, after: Snapshot) -> set[str]:
    """The tools that one tier includes and the other does not."""
    if before.tier is after.tier:
        return set()
    kinds = kinds_in(before)
    one, other = (names_of(passing(kinds, of, is_licensed)) for of in (before, after))
    return one ^ other


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
