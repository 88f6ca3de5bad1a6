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

from tools.models.pipeline_sql import (
    BUSY,
    CLAIMABLE,
    NEXT_OF_ORGANIZATION,
    NEXT_WAITING,
    RUNNING_HERE,
)

_PLACES = f"""
    WITH {BUSY}, here AS (
        SELECT o.id, o.slug, o.max_queue_depth, o.max_concurrency, {RUNNING_HERE}
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
        FROM tools_openexecution e WHERE {CLAIMABLE}
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
        asked = NEXT_WAITING.filled(most=str(int(most)))
        cursor.execute(asked, _values(full=[*full], last=[*last]))
        return [WaitingCall(*row) for row in cursor.fetchall()]


def next_of_organization(organization_id: UUID) -> list[UUID]:
    """The oldest call of one organization that may start, if any."""
    with connection.cursor() as cursor:
        cursor.execute(NEXT_OF_ORGANIZATION.text, _values(place=organization_id))
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
