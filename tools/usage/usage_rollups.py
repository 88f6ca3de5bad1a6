"""Daily usage rollups: a day that is over is aggregated once. Its rollup equals its executions: a
finished call does not change, unfinished ones are listed and read live, and a trigger deletes the
rollup of a day that gains or loses an execution."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from tools.limits.allowances import midnight
from tools.models import DayFigures, DayOfCalls, Execution, Organization, RollupPart
from tools.models.execution_queryset import ExecutionQuerySet
from tools.usage.figures import COUNTS, LATENCIES

MOST_DAYS = 400
MOST_UNFINISHED = 5_000  # of a day; one with more is read as it is
SETTLED = timedelta(hours=1)  # since the end of a day: no transaction of it is open any more
_FEW = 3  # today, and yesterday until it is settled
_AT_ONCE = 50  # of one organization in one pass
_TRIES = 3
_BY: dict[RollupPart, tuple[str, ...]] = {
    RollupPart.AGENT: ("agent_id",),
    RollupPart.TOOL: ("tool_name",),
    RollupPart.PAIR: ("agent_id", "tool_name"),
}
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class DaySpan:
    """Days of a time zone; both are included."""

    organization_id: UUID
    zone: ZoneInfo
    since: date
    until: date

    @property
    def moments(self) -> Q:
        return _moments(self.since, self.until + _DAY, self.zone)

    @property
    def days(self) -> Iterator[date]:
        return (self.since + _DAY * at for at in range((self.until - self.since).days + 1))


def told[Found](
    span: DaySpan,
    kept: Callable[[tuple[int, ...]], Iterable[Found]],
    live: Callable[[Q], Iterable[Found]],
    live_day: Callable[[date, Q], Iterable[Found]] | None = None,
) -> list[Found]:
    """Combine what `kept` makes of the rollup rows, and `live` of the executions that are not among
    them. If a day was aggregated again meanwhile, all is read again. If only a few days have no
    rollup, `live_day` reads each by itself, and need not compute the day of a call.

    The values of a row never change, and no other row gets its key: they may be cached.
    """
    for _ in range(_TRIES):
        days = {row.pk: row for row in _rows(span)}
        found = list(kept(tuple(sorted(days)))) if days else []
        left = sorted({*span.days} - {row.day for row in days.values()})
        if live_day is not None and len(left) <= _FEW:
            for day in left:
                found += live_day(day, _moments(day, day + _DAY, span.zone))
        elif left:
            found += live(moments_of(left, span.zone))
        if unfinished := [pk for row in days.values() for pk in row.unfinished]:
            found += live(Q(pk__in=unfinished))
        if not days or DayOfCalls.objects.filter(pk__in=days).count() == len(days):
            return found
    return list(live(span.moments))


def add_up() -> int:
    """One pass, each day in a transaction of its own; how many days. Safe to run concurrently."""
    return sum(
        _add(organization, zone, day)
        for organization in Organization.objects.order_by("slug")
        for zone in [ZoneInfo(organization.time_zone)]
        for day in _due(organization, zone)
    )


def _rows(span: DaySpan) -> QuerySet[DayOfCalls]:
    return DayOfCalls.objects.filter(
        organization=span.organization_id, zone=span.zone.key, day__range=(span.since, span.until)
    )


def moments_of(days: list[date], zone: ZoneInfo) -> Q:
    """Of days in their order; those that follow each other are asked for as one time."""
    found = Q()
    begins = days[0]
    for day, following in zip(days, [*days[1:], None], strict=True):
        if following != day + _DAY:
            found |= _moments(begins, day + _DAY, zone)
            begins = following or day
    return found


def _moments(first: date, end: date, zone: ZoneInfo) -> Q:
    return Q(created_at__gte=midnight(first, zone), created_at__lt=midnight(end, zone))


def _due(organization: Organization, zone: ZoneInfo) -> list[date]:
    """The newest first: days without a rollup, and days of which calls ended since."""
    first = Execution.objects.filter(organization=organization).order_by("created_at").first()
    if first is None:
        return []
    last = (timezone.now() - SETTLED).astimezone(zone).date() - _DAY
    since = max(first.created_at.astimezone(zone).date(), last - _DAY * (MOST_DAYS - 1))
    rows = DayOfCalls.objects.filter(organization=organization)
    rows.exclude(zone=zone.key, day__gte=since).delete()
    known = dict(rows.values_list("day", "unfinished"))
    open_ones = [pk for unfinished in known.values() for pk in unfinished]
    over = set(
        Execution.objects.filter(pk__in=open_ones, completed_at__isnull=False).values_list(
            "pk", flat=True
        )
    )
    days = DaySpan(organization.pk, zone, since, last).days
    due = [day for day in days if day not in known or not over.isdisjoint(known[day])]
    return due[::-1][:_AT_ONCE]


@transaction.atomic
def _add(organization: Organization, zone: ZoneInfo, day: date) -> bool:
    """False where too many executions of the day are unfinished."""
    with connection.cursor() as cursor:
        cursor.execute(_ALONE, [f"toolcrib:days:{organization.pk}"])
    rows = Execution.objects.filter(_moments(day, day + _DAY, zone), organization=organization)
    DayOfCalls.objects.filter(organization=organization, zone=zone.key, day=day).delete()
    unfinished = list(rows.filter(completed_at__isnull=True).values_list("pk", flat=True))
    if len(unfinished) > MOST_UNFINISHED:
        return False
    row = DayOfCalls.objects.create(
        organization=organization, zone=zone.key, day=day, unfinished=unfinished
    )
    # What was over by then stays as it is; what ends while this reads is among the unfinished.
    over = rows.exclude(pk__in=unfinished).order_by()
    _of_all(row, over)
    for part, by in _BY.items():
        _of_each(row, part, by, over)
    return True


def _of_all(row: DayOfCalls, over: ExecutionQuerySet) -> None:
    every: Any = {**COUNTS, **LATENCIES}
    found = over.aggregate(**every)
    median, p95 = found.pop("latencies") or (None, None)
    if found["calls"]:
        told = {"cached": found.pop("hits"), "cost": found.pop("spent"), **found}
        DayFigures.objects.create(
            day=row, part=RollupPart.ALL, median_ms=median, p95_ms=p95, **told
        )


def _of_each(
    row: DayOfCalls, part: RollupPart, by: tuple[str, ...], over: ExecutionQuerySet
) -> None:
    """There may be many, and no object is made of them."""
    counted, values = over.values(*by).annotate(**COUNTS).query.sql_with_params()
    columns = {"agent_id": "NULL::uuid", "tool_name": "''"} | {name: f"c.{name}" for name in by}
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO tools_dayfigures (day_id, part, agent_id, tool_name, calls, failures,"  # noqa: S608
            " denials, cached, cost)"
            f" SELECT %s, %s, {columns['agent_id']}, {columns['tool_name']}, c.calls, c.failures,"
            f" c.denials, c.hits, c.spent FROM ({counted}) c",
            [row.pk, part, *values],
        )
