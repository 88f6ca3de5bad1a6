"""Daily usage rollups, their metrics, and a cache of their results by organization.

A day that is over is aggregated once. Its rollup equals its executions: a finished call does not
change, unfinished ones are listed and read live, and a trigger deletes the rollup of a day that
gains or loses an execution.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.contrib.postgres.fields import ArrayField
from django.db import connection, transaction
from django.db.models import Aggregate, Count, DecimalField, FloatField, Q, QuerySet, Sum, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from tools.definitions.results import FAILURES, FINAL, REFUSED, Status
from tools.limits.allowances import midnight
from tools.models import DayFigures, DayOfCalls, Execution, Organization, RollupPart
from tools.models.advisory_locks import take_lock
from tools.models.execution_queryset import ExecutionQuerySet

MOST_DAYS = 400
MOST_UNFINISHED = 5_000  # executions of a day; one with more is not aggregated
SETTLE_TIME = timedelta(hours=1)  # since the end of a day: no transaction of it is open any longer
_MAX_DAYS_READ_SINGLY = 3  # today, and yesterday until it is settled
_MAX_DAYS_PER_PASS = 50  # of one organization in one pass
_MAX_ATTEMPTS = 3
_PART_COLUMNS: dict[RollupPart, tuple[str, ...]] = {
    RollupPart.AGENT: ("agent_id",),
    RollupPart.TOOL: ("tool_name",),
    RollupPart.PAIR: ("agent_id", "tool_name"),
}
_DAY = timedelta(days=1)
_NEVER_STARTED = Q(status=Status.CANCELLED, started_at__isnull=True)
PAID = Q(status__in=sorted(FINAL - REFUSED)) & ~_NEVER_STARTED
RAN = Q(duration_ms__isnull=False) & ~Q(status__in=sorted(REFUSED))


class Percentiles(Aggregate):
    """The exact median and 95th percentile; None without values."""

    function = "percentile_cont"
    template = "%(function)s(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY %(expressions)s)%(filter)s"
    output_field = ArrayField(FloatField())


def zero_if_none(total: Any) -> Any:
    money = DecimalField(max_digits=24, decimal_places=6)
    return Coalesce(total, Value(Decimal(0)), output_field=money)


COUNTS = {
    "calls": Count("pk"),
    "failures": Count("pk", filter=Q(status__in=sorted(FAILURES))),
    "denials": Count("pk", filter=Q(status__in=sorted(REFUSED))),
    "hits": Count("pk", filter=Q(cached=True)),
    "spent": zero_if_none(Sum("cost", filter=PAID)),
}
LATENCIES = {"latencies": Percentiles("duration_ms", filter=RAN)}
# The same from rollup rows.
SUMS = {
    "calls": Sum("calls"),
    "failures": Sum("failures"),
    "denials": Sum("denials"),
    "hits": Sum("cached"),
    "spent": zero_if_none(Sum("cost")),
}


@dataclass(frozen=True)
class DaySpan:
    """Days of a time zone; both are included."""

    organization_id: UUID
    zone: ZoneInfo
    since: date
    until: date

    @property
    def created(self) -> Q:
        """The condition that an execution was created within the span."""
        return _created_between(self.since, self.until + _DAY, self.zone)

    @property
    def days(self) -> Iterator[date]:
        return (self.since + _DAY * at for at in range((self.until - self.since).days + 1))


def combine_rollups[Found](
    span: DaySpan,
    read_rollups: Callable[[tuple[int, ...]], Iterable[Found]],
    read_live: Callable[[Q], Iterable[Found]],
    read_live_day: Callable[[date, Q], Iterable[Found]] | None = None,
) -> list[Found]:
    """Combine the results of `read_rollups`, and of `read_live` for executions without a rollup. If
    a day was aggregated again meanwhile, all is read again. If only a few days have no rollup,
    `read_live_day` reads each by itself, and need not compute the day of a call.

    The values of a row never change, and no other row gets its key: they may be cached.
    """
    for _ in range(_MAX_ATTEMPTS):
        days = {row.pk: row for row in _rollup_rows(span)}
        found = list(read_rollups(tuple(sorted(days)))) if days else []
        days_left = sorted({*span.days} - {row.day for row in days.values()})
        if read_live_day is not None and len(days_left) <= _MAX_DAYS_READ_SINGLY:
            for day in days_left:
                found += read_live_day(day, _created_between(day, day + _DAY, span.zone))
        elif days_left:
            found += read_live(created_on_days(days_left, span.zone))
        if unfinished := [pk for row in days.values() for pk in row.unfinished]:
            found += read_live(Q(pk__in=unfinished))
        if not days or DayOfCalls.objects.filter(pk__in=days).count() == len(days):
            return found
    return list(read_live(span.created))


def aggregate_days() -> int:
    """One pass, each day in a transaction of its own; how many days were aggregated. Safe to run
    concurrently."""
    return sum(
        _aggregate_day(organization, zone, day)
        for organization in Organization.objects.order_by("slug")
        for zone in [ZoneInfo(organization.time_zone)]
        for day in _days_due(organization, zone)
    )


def _rollup_rows(span: DaySpan) -> QuerySet[DayOfCalls]:
    return DayOfCalls.objects.filter(
        organization=span.organization_id, zone=span.zone.key, day__range=(span.since, span.until)
    )


def created_on_days(days: list[date], zone: ZoneInfo) -> Q:
    """The condition for sorted days; consecutive days become one range."""
    condition = Q()
    first = days[0]
    for day, following in zip(days, [*days[1:], None], strict=True):
        if following != day + _DAY:
            condition |= _created_between(first, day + _DAY, zone)
            first = following or day
    return condition


def _created_between(first: date, end: date, zone: ZoneInfo) -> Q:
    return Q(created_at__gte=midnight(first, zone), created_at__lt=midnight(end, zone))


def _days_due(organization: Organization, zone: ZoneInfo) -> list[date]:
    """Days to aggregate, the newest first: without a rollup, or with calls that ended since."""
    first = Execution.objects.filter(organization=organization).order_by("created_at").first()
    if first is None:
        return []
    last = (timezone.now() - SETTLE_TIME).astimezone(zone).date() - _DAY
    since = max(first.created_at.astimezone(zone).date(), last - _DAY * (MOST_DAYS - 1))
    rows = DayOfCalls.objects.filter(organization=organization)
    rows.exclude(zone=zone.key, day__gte=since).delete()
    known = dict(rows.values_list("day", "unfinished"))
    unfinished = [pk for of_day in known.values() for pk in of_day]
    finished = set(
        Execution.objects.filter(pk__in=unfinished, completed_at__isnull=False).values_list(
            "pk", flat=True
        )
    )
    days = DaySpan(organization.pk, zone, since, last).days
    due = [day for day in days if day not in known or not finished.isdisjoint(known[day])]
    return due[::-1][:_MAX_DAYS_PER_PASS]


@transaction.atomic
def _aggregate_day(organization: Organization, zone: ZoneInfo, day: date) -> bool:
    """False where too many executions of the day are unfinished."""
    take_lock(f"toolcrib:days:{organization.pk}")
    rows = Execution.objects.filter(
        _created_between(day, day + _DAY, zone), organization=organization
    )
    DayOfCalls.objects.filter(organization=organization, zone=zone.key, day=day).delete()
    unfinished = list(rows.open().values_list("pk", flat=True))
    if len(unfinished) > MOST_UNFINISHED:
        return False
    row = DayOfCalls.objects.create(
        organization=organization, zone=zone.key, day=day, unfinished=unfinished
    )
    # A finished execution does not change; one that finishes meanwhile is among the unfinished.
    finished = rows.exclude(pk__in=unfinished).order_by()
    _store_total(row, finished)
    for part, columns in _PART_COLUMNS.items():
        _store_by(row, part, columns, finished)
    return True


def _store_total(row: DayOfCalls, finished: ExecutionQuerySet) -> None:
    metrics: Any = {**COUNTS, **LATENCIES}
    totals = finished.aggregate(**metrics)
    median, p95 = totals.pop("latencies") or (None, None)
    if totals["calls"]:
        columns = {"cached": totals.pop("hits"), "cost": totals.pop("spent"), **totals}
        DayFigures.objects.create(
            day=row, part=RollupPart.ALL, median_ms=median, p95_ms=p95, **columns
        )


def _store_by(
    row: DayOfCalls, part: RollupPart, columns: tuple[str, ...], finished: ExecutionQuerySet
) -> None:
    """By one SQL statement: there may be many rows, and no object is made of them."""
    counts, values = finished.values(*columns).annotate(**COUNTS).query.sql_with_params()
    unused = {"agent_id": "NULL::uuid", "tool_name": "''"}
    sources = unused | {name: f"c.{name}" for name in columns}
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO tools_dayfigures (day_id, part, agent_id, tool_name, calls, failures,"  # noqa: S608
            " denials, cached, cost)"
            f" SELECT %s, %s, {sources['agent_id']}, {sources['tool_name']}, c.calls, c.failures,"
            f" c.denials, c.hits, c.spent FROM ({counts}) c",
            [row.pk, part, *values],
        )


def cached_by_organization[Result](
    *, each: int, organizations: int
) -> Callable[[Callable[..., Result]], Callable[[UUID], Callable[..., Result]]]:
    """An in-process cache of the last `each` results of each of the last `organizations`. Users of
    an organization evict no entries of another."""

    def decorate(function: Callable[..., Result]) -> Callable[[UUID], Callable[..., Result]]:
        @lru_cache(maxsize=organizations)
        def cache_of(_: UUID) -> Callable[..., Result]:
            return lru_cache(maxsize=each)(function)

        return cache_of

    return decorate
