"""The execution queue: the order in which waiting calls start, and how many there are.

Plain rows, no objects: a worker with a backlog asks for each call, and every process once a second.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Self
from uuid import UUID

from django.conf import settings
from django.db import connection

# Tools that run as many calls as they may: only tools with running calls.
_BUSY = """
    busy (organization_id, tool_name, room) AS MATERIALIZED (
        SELECT r.organization_id, r.tool_name, min(t.max_concurrency) - count(*)
        FROM tools_openexecution r
        JOIN tools_toolversion v ON v.id = r.tool_version_id JOIN tools_tool t ON t.id = v.tool_id
        WHERE r.status = 'Running' AND t.max_concurrency IS NOT NULL
        GROUP BY 1, 2
    )
"""
_WAITS = """
    ({row}.parked_below IS NOT NULL
    AND NOT ({cancel_unseen})
    AND ({row}.wake_at IS NULL OR {row}.wake_at > clock_timestamp())
    AND {row}.parked_below <= (SELECT count(*) FROM tools_openexecution c
        WHERE c.parent_id = {row}.{id}))
"""
_CANCEL_UNSEEN = (
    "{row}.cancel_requested_at IS NOT NULL AND NOT jsonb_exists({row}.memory, 'ending')"
)


def waiting_condition(row: str) -> str:
    """SQL: whether a composite call has to wait for its own calls, or for a time; `row` is that of
    its execution.

    Not when it was cancelled, until a turn has seen that and begun to end it.
    """
    return _WAITS.format(row=row, id="id", cancel_unseen=_CANCEL_UNSEEN.format(row=row))


# Calls of one organization that may start: not those that wait for another call's result. Written
# so that the planner expects most rows to pass, and reads the index in order instead of sorting the
# queue.
_CLAIMABLE = f"""
    e.organization_id = here.id AND e.status = 'Pending'
    AND (e.parked_below IS NOT NULL OR e.queued_at > statement_timestamp() - %(age)s)
    AND (e.parked_below IS NULL OR NOT
        {_WAITS.format(row="e", id="execution_id", cancel_unseen="e.cancel_unseen")})
    AND NOT here.full_tools @> ARRAY[e.tool_name::text]
    AND (e.cache_key = '' OR NOT EXISTS (
        SELECT FROM tools_cacheentry c JOIN tools_openexecution leader USING (execution_id)
        WHERE c.key = e.cache_key AND NOT c.ready AND c.execution_id <> e.execution_id
            AND leader.status IN ('Pending', 'Running')))
"""
_RUNNING = """
    (SELECT count(*) FROM tools_openexecution r
        WHERE r.organization_id = o.id AND r.status = 'Running') AS running,
    ARRAY(SELECT b.tool_name::text FROM busy b
        WHERE b.organization_id = o.id AND b.room <= 0) AS full_tools
"""
# The organizations are found by jumps along the index, so that a long queue of one costs nothing.
# The organization that would run the fewest calls after this one is first; among equals, the one
# that has waited longest.
_NEXT = f"""
    WITH RECURSIVE place (id) AS (
        (SELECT organization_id FROM tools_openexecution
            WHERE status = 'Pending' ORDER BY organization_id, queued_at LIMIT 1)
        UNION ALL
        SELECT (SELECT e.organization_id FROM tools_openexecution e
            WHERE e.status = 'Pending' AND e.organization_id > place.id
            ORDER BY e.organization_id, e.queued_at LIMIT 1)
        FROM place WHERE place.id IS NOT NULL
    ), {_BUSY}, here AS MATERIALIZED (
        SELECT o.id, o.max_concurrency, {_RUNNING}
        FROM place JOIN tools_organization o ON o.id = place.id
        WHERE o.id <> ALL(%(full)s::uuid[])
    ), candidate AS (
        SELECT w.execution_id AS id, here.id AS organization_id, w.queued_at,
            coalesce(b.room, t.max_concurrency) AS room, here.max_concurrency AS most,
            here.running + row_number() OVER (PARTITION BY here.id ORDER BY w.queued_at) AS turn,
            row_number() OVER (PARTITION BY here.id, w.tool_name ORDER BY w.queued_at) AS beside
        FROM here
        CROSS JOIN LATERAL (
            SELECT e.execution_id, e.queued_at, e.tool_name, e.tool_version_id
            FROM tools_openexecution e
            WHERE {_CLAIMABLE}
            ORDER BY e.organization_id, e.queued_at
            LIMIT {{most}}
        ) w
        JOIN tools_toolversion v ON v.id = w.tool_version_id
        JOIN tools_tool t ON t.id = v.tool_id
        LEFT JOIN busy b ON b.organization_id = here.id AND b.tool_name = w.tool_name
    )
    SELECT id, organization_id FROM candidate
    WHERE (room IS NULL OR beside <= room) AND (most IS NULL OR turn <= most)
    ORDER BY organization_id = ANY(%(last)s::uuid[]), turn, queued_at LIMIT {{most}}
"""  # noqa: S608
_BEHIND = f"""
    WITH {_BUSY}, here AS (
        SELECT o.id, o.max_concurrency, {_RUNNING} FROM tools_organization o WHERE o.id = %(place)s
    )
    SELECT e.execution_id FROM here JOIN tools_openexecution e ON {_CLAIMABLE}
    WHERE here.max_concurrency IS NULL OR here.running < here.max_concurrency
    ORDER BY e.organization_id, e.queued_at LIMIT 1
"""  # noqa: S608
_PLACES = f"""
    WITH {_BUSY}, here AS (
        SELECT o.id, o.slug, o.max_queue_depth, o.max_concurrency, {_RUNNING}
        FROM tools_organization o
    )
    SELECT here.id, here.slug, here.max_queue_depth, (
            SELECT count(*) FROM tools_openexecution e
            WHERE e.organization_id = here.id AND e.status = 'Pending' AND e.parked_below IS NULL
        ), first.age_s, coalesce(first.bounded, false)
    FROM here LEFT JOIN LATERAL (
        SELECT extract(epoch FROM clock_timestamp() - e.queued_at)::float8 AS age_s,
            here.max_concurrency IS NOT NULL OR here.running >= %(crowded)s OR EXISTS (
                SELECT FROM tools_toolversion v JOIN tools_tool t ON t.id = v.tool_id
                WHERE v.id = e.tool_version_id AND t.max_concurrency IS NOT NULL) AS bounded
        FROM tools_openexecution e WHERE {_CLAIMABLE}
            AND (here.max_concurrency IS NULL OR here.running < here.max_concurrency)
        ORDER BY e.organization_id, e.queued_at LIMIT 1
    ) first ON true
"""  # noqa: S608
_BOUND_AGENTS = "SELECT id, max_in_flight FROM tools_agent WHERE max_in_flight IS NOT NULL"
_OPEN_CALLS = """
    SELECT a.id, count(*) FROM tools_agent a
    JOIN tools_openexecution e ON e.user_id = a.service_account_id
    WHERE a.id = ANY(%s) AND NOT e.composite
    GROUP BY a.id
"""


class Shares(NamedTuple):
    """How many slots of a worker one organization may hold: `half` while another waits for one,
    `most` in any case. A worker with one slot has none to keep free."""

    half: int
    most: int

    @classmethod
    def of(cls, places: int) -> Self:
        """The last quarter, rounded up, stays free for another organization."""
        return cls(max(1, places // 2), max(1, places - -(-places // 4)))


class WaitingCall(NamedTuple):
    """A call that may start."""

    id: UUID
    organization_id: UUID


class QueuePosition(NamedTuple):
    """An organization's queue. `oldest_s` is None where nothing waits that could begin.

    A `bounded` queue may have waited for its own limit or share, and not for a worker.
    """

    id: UUID
    slug: str
    max_depth: int
    depth: int
    oldest_s: float | None
    bounded: bool = False


@dataclass(frozen=True, slots=True)
class InFlight:
    """An agent's open calls, where their number is limited."""

    most: int
    open: int


def next_waiting(
    most: int, *, full: Sequence[UUID] = (), last: Sequence[UUID] = ()
) -> list[WaitingCall]:
    """The order of organizations in the queue: those that run the fewest calls first.

    Calls without room beside the running ones, those that wait for another's result or waited too
    long are left out, and so are organizations that are `full`. Those in `last` come after all
    others.
    """
    with connection.cursor() as cursor:
        # A literal in the SQL: with a parameter as its limit PostgreSQL would sort the whole queue.
        asked = _NEXT.replace("{most}", str(int(most)))
        cursor.execute(asked, _values(full=[*full], last=[*last]))
        return [WaitingCall(*row) for row in cursor.fetchall()]


def next_of_organization(organization_id: UUID) -> list[UUID]:
    """The oldest call of one organization that may start, if any."""
    with connection.cursor() as cursor:
        cursor.execute(_BEHIND, _values(place=organization_id))
        return [row[0] for row in cursor.fetchall()]


def queue_positions() -> list[QueuePosition]:
    with connection.cursor() as cursor:
        cursor.execute(_PLACES, _values(crowded=Shares.of(settings.WORKER_THREADS).half))
        return [QueuePosition(*row) for row in cursor.fetchall()]


def in_flight() -> dict[UUID, InFlight]:
    """By agent."""
    with connection.cursor() as cursor:
        cursor.execute(_BOUND_AGENTS)
        bounds = dict(cursor.fetchall())
        if not bounds:
            return {}
        cursor.execute(_OPEN_CALLS, [list(bounds)])
        count = dict(cursor.fetchall())
    return {agent: InFlight(most, count.get(agent, 0)) for agent, most in bounds.items()}


def _values(**more: Any) -> dict[str, Any]:
    return more | {"age": timedelta(seconds=settings.EXECUTION_QUEUE_S)}
