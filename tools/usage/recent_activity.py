"""Current and recent activity: small answers for a page that many users keep open.

Each reads a part of the table that an index bounds: what is open, what failed, or the last days.
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
from tools.definitions.results import OPEN, Status
from tools.execution.reading import readable, reads_all
from tools.limits.allowances import midnight
from tools.models import DayFigures, RollupPart
from tools.models.execution_queryset import ExecutionQuerySet
from tools.usage.figures import COUNTS, LATENCIES
from tools.usage.usage_rollups import DaySpan, told

MOST_COUNTED = 1_000
HOURS, DAYS = 24, 14
KEPT_S = 600.0
_MOST_KEPT, _ORGANIZATIONS = 100, 50  # readers of each
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Now:
    """How many there are of each; more than `MOST_COUNTED` are not counted."""

    running: int
    waiting: int
    held: int
    failed: int


@dataclass(frozen=True, slots=True)
class UsageStatistics:
    """`calls` are all that were asked for. Latencies are of what ran; None where nothing did."""

    calls: int = 0
    failures: int = 0
    denials: int = 0
    cost: Decimal = Decimal(0)
    median_ms: float | None = None
    p95_ms: float | None = None

    def and_late(self, late: "UsageStatistics") -> "UsageStatistics":
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


def now_of(caller: Caller) -> Now:
    rows = readable(caller).filter(status__in=sorted(OPEN)).order_by()
    return Now(
        running=_some(rows.at_stage(Status.RUNNING)),
        waiting=_some(rows.at_stage(Status.PENDING)),
        held=_some(rows.at_stage(Status.REQUIRES_CONFIRMATION)),
        failed=_some(failed_lately(caller).order_by()),
    )


def failed_lately(caller: Caller) -> ExecutionQuerySet:
    """Within the last 24 hours, the newest first."""
    since = timezone.now() - HOURS * _HOUR
    return readable(caller).failed().filter(created_at__gte=since).order_by("-created_at")


def longest_running(caller: Caller) -> ExecutionQuerySet:
    running = readable(caller).filter(status__in=sorted(OPEN)).at_stage(Status.RUNNING)
    return running.order_by("started_at")


def by_hour(caller: Caller, zone: ZoneInfo) -> Series:
    """The hour that runs, and those before it; where clocks are set back, one comes twice."""
    local = timezone.now().astimezone(zone).replace(minute=0, second=0, microsecond=0)
    first = local.astimezone(UTC) - (HOURS - 1) * _HOUR
    bins = Func(_HOUR, F("created_at"), first, function="date_bin", output_field=DateTimeField())
    found = dict(_read(caller, Q(created_at__gte=first), bins))
    hours = [first + at * _HOUR for at in range(HOURS)]
    return [(hour.astimezone(zone), found.get(hour, UsageStatistics())) for hour in hours]


def by_day(caller: Caller, zone: ZoneInfo) -> Series:
    """Today, and the days before it as the time zone has them.

    Days that are over are read once in `KEPT_S` seconds: calls of them that end late appear then.
    """
    today = timezone.now().astimezone(zone).date()
    days = [today - timedelta(days=DAYS - 1 - at) for at in range(DAYS)]
    who = (caller.user_id, caller.token_id)
    whose = (*who, may(caller, "view_execution"), zone.key, today)
    over = _over(caller.organization_id)
    found = over.get(whose)
    if found is None:
        found = _days(caller, DaySpan(caller.organization_id, zone, days[0], today))
        over.keep(whose, {day: figures for day, figures in found.items() if day != today})
    else:
        part = TruncDate("created_at", tzinfo=zone)
        found = found | dict(_read(caller, Q(created_at__gte=midnight(today, zone)), part))
    return [(day, found.get(day, UsageStatistics())) for day in days]


class _PastDays:
    """Days that are over, by who may see what. Two threads that miss it at once both read."""

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[float, dict[Any, UsageStatistics]]] = {}

    def get(self, whose: Any) -> dict[Any, UsageStatistics] | None:
        until, found = self._kept.get(whose, (0.0, None))
        return found if time.monotonic() < until else None

    def keep(self, whose: Any, found: dict[Any, UsageStatistics]) -> None:
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[whose] = (time.monotonic() + KEPT_S, found)


@lru_cache(maxsize=_ORGANIZATIONS)
def _over(_: UUID) -> _PastDays:
    """The organization's own cache: requests of its users and tokens evict no other
    organization's."""
    return _PastDays()


def _some(rows: ExecutionQuerySet) -> int:
    return rows[: MOST_COUNTED + 1].count()


def _days(caller: Caller, span: DaySpan) -> dict[Any, UsageStatistics]:
    def live(moments: Q) -> list[tuple[Any, UsageStatistics]]:
        return _read(caller, moments, TruncDate("created_at", tzinfo=span.zone))

    if not reads_all(caller):
        return dict(live(span.moments))
    found: dict[Any, UsageStatistics] = {}
    for day, figures in told(span, _kept, live):
        found[day] = found[day].and_late(figures) if day in found else figures
    return found


def _kept(days: tuple[int, ...]) -> list[tuple[Any, UsageStatistics]]:
    rows = DayFigures.objects.filter(day__in=days, part=RollupPart.ALL)
    columns = ("calls", "failures", "denials", "cost", "median_ms", "p95_ms")
    return [
        (day, UsageStatistics(*figures)) for day, *figures in rows.values_list("day__day", *columns)
    ]


def _read(caller: Caller, moments: Q, part: Any) -> list[tuple[Any, UsageStatistics]]:
    """One statement."""
    rows = readable(caller).filter(moments).order_by().values(part=part)
    found: Any = rows.annotate(**COUNTS, **LATENCIES)
    return [(row["part"], _figures(row)) for row in found]


def _figures(row: dict[str, Any]) -> UsageStatistics:
    return UsageStatistics(
        row["calls"], row["failures"], row["denials"], row["spent"], *(row["latencies"] or ())
    )
