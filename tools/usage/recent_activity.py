"""Current and recent activity: small results for a page that many users keep open.

Each query reads a part of the table that an index bounds: open calls, failed ones, or the last
days.
"""

import time
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db.models import DateTimeField, F, Func, Q
from django.db.models.functions import TruncDate
from django.utils import timezone

from tools.accounts.user_permissions import may
from tools.definitions.callers import Caller
from tools.definitions.results import Status
from tools.execution.outputs import readable_executions, reads_all_executions
from tools.limits.allowances import midnight
from tools.models import DayFigures, RollupPart
from tools.models.execution_queryset import ExecutionQuerySet
from tools.usage.usage_rollups import COUNTS, LATENCIES, DaySpan, combine_rollups

MOST_COUNTED = 1_000
HOURS, DAYS = 24, 14
CACHE_S = 600.0
_MAX_READERS, _MAX_ORGANIZATIONS = 100, 50  # readers of each organization
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ActivityCounts:
    """How many calls are in each state; more than `MOST_COUNTED` are not counted."""

    running: int
    waiting: int
    awaiting_approval: int
    failed: int


@dataclass(frozen=True, slots=True)
class UsageStatistics:
    """`calls` counts every request, also a refused one. Latencies are None without a run."""

    calls: int = 0
    failures: int = 0
    denials: int = 0
    cost: Decimal = Decimal(0)
    median_ms: float | None = None
    p95_ms: float | None = None

    def with_late_calls(self, late: "UsageStatistics") -> "UsageStatistics":
        """With calls that ended after the day was aggregated; its latencies follow with the next
        pass."""
        return replace(
            self,
            calls=self.calls + late.calls,
            failures=self.failures + late.failures,
            denials=self.denials + late.denials,
            cost=self.cost + late.cost,
        )


type Series = list[tuple[datetime | date, UsageStatistics]]  # each hour or day from its beginning


def activity_counts(caller: Caller) -> ActivityCounts:
    rows = readable_executions(caller).order_by()
    return ActivityCounts(
        running=_count(rows.at_stage(Status.RUNNING)),
        waiting=_count(rows.at_stage(Status.PENDING)),
        awaiting_approval=_count(rows.at_stage(Status.REQUIRES_CONFIRMATION)),
        failed=_count(failed_recently(caller).order_by()),
    )


def failed_recently(caller: Caller) -> ExecutionQuerySet:
    """Within the last 24 hours, the newest first."""
    since = timezone.now() - HOURS * _HOUR
    return (
        readable_executions(caller).failed().filter(created_at__gte=since).order_by("-created_at")
    )


def longest_running(caller: Caller) -> ExecutionQuerySet:
    return readable_executions(caller).at_stage(Status.RUNNING).order_by("started_at")


def usage_by_hour(caller: Caller, zone: ZoneInfo) -> Series:
    """The current hour and those before it; where clocks are set back, one comes twice."""
    local = timezone.now().astimezone(zone).replace(minute=0, second=0, microsecond=0)
    first = local.astimezone(UTC) - (HOURS - 1) * _HOUR
    bins = Func(_HOUR, F("created_at"), first, function="date_bin", output_field=DateTimeField())
    found = dict(_read_executions(caller, Q(created_at__gte=first), bins))
    hours = [first + at * _HOUR for at in range(HOURS)]
    return [(hour.astimezone(zone), found.get(hour, UsageStatistics())) for hour in hours]


def usage_by_day(caller: Caller, zone: ZoneInfo) -> Series:
    """Today and the days before it, in the time zone.

    Past days are read once in `CACHE_S` seconds: their calls that end late appear then.
    """
    today = timezone.now().astimezone(zone).date()
    days = [today - timedelta(days=DAYS - 1 - at) for at in range(DAYS)]
    permitted = may(caller, "view_execution")
    key = (caller.user_id, caller.token_id, permitted, zone.key, today)
    past_days = _past_days_of(caller.organization_id)
    found = past_days.get(key)
    if found is None:
        found = _read_days(caller, DaySpan(caller.organization_id, zone, days[0], today))
        past_days.store(key, {day: usage for day, usage in found.items() if day != today})
    else:
        part = TruncDate("created_at", tzinfo=zone)
        found = found | dict(
            _read_executions(caller, Q(created_at__gte=midnight(today, zone)), part)
        )
    return [(day, found.get(day, UsageStatistics())) for day in days]


class _PastDays:
    """A cache of past days by reader and permission. Two threads that miss it at once both read."""

    def __init__(self) -> None:
        self._entries: dict[Any, tuple[float, dict[Any, UsageStatistics]]] = {}

    def get(self, key: Any) -> dict[Any, UsageStatistics] | None:
        until, found = self._entries.get(key, (0.0, None))
        return found if time.monotonic() < until else None

    def store(self, key: Any, found: dict[Any, UsageStatistics]) -> None:
        if len(self._entries) >= _MAX_READERS:
            self._entries.clear()
        self._entries[key] = (time.monotonic() + CACHE_S, found)


@lru_cache(maxsize=_MAX_ORGANIZATIONS)
def _past_days_of(_: UUID) -> _PastDays:
    """The organization's own cache: its users and tokens evict no entries of another."""
    return _PastDays()


def _count(rows: ExecutionQuerySet) -> int:
    return rows[: MOST_COUNTED + 1].count()


def _read_days(caller: Caller, span: DaySpan) -> dict[Any, UsageStatistics]:
    def read_live(condition: Q) -> list[tuple[Any, UsageStatistics]]:
        return _read_executions(caller, condition, TruncDate("created_at", tzinfo=span.zone))

    if not reads_all_executions(caller):
        return dict(read_live(span.created))
    found: dict[Any, UsageStatistics] = {}
    for day, usage in combine_rollups(span, _read_rollups, read_live):
        found[day] = found[day].with_late_calls(usage) if day in found else usage
    return found


def _read_rollups(days: tuple[int, ...]) -> list[tuple[Any, UsageStatistics]]:
    rows = DayFigures.objects.filter(day__in=days, part=RollupPart.ALL)
    columns = ("calls", "failures", "denials", "cost", "median_ms", "p95_ms")
    return [
        (day, UsageStatistics(*values)) for day, *values in rows.values_list("day__day", *columns)
    ]


def _read_executions(caller: Caller, condition: Q, part: Any) -> list[tuple[Any, UsageStatistics]]:
    """One statement."""
    rows = readable_executions(caller).filter(condition).order_by().values(part=part)
    found: Any = rows.annotate(**COUNTS, **LATENCIES)
    return [(row["part"], _statistics(row)) for row in found]


def _statistics(row: dict[str, Any]) -> UsageStatistics:
    return UsageStatistics(
        row["calls"], row["failures"], row["denials"], row["spent"], *(row["latencies"] or ())
    )
