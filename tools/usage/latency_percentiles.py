"""Latency percentiles of runs: the 95th percentile in milliseconds by day, and of all days under
None. Both functions give the same result.

Finished runs never change: the durations of aggregated days are cached, since the rows of one tool
are far apart in their table.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import date
from functools import partial
from itertools import groupby
from operator import itemgetter
from zoneinfo import ZoneInfo

from django.db import connection
from django.db.models import Q, QuerySet
from django.db.models.functions import TruncDate

from tools.models import DayOfCalls, Execution
from tools.models.execution_queryset import ExecutionQuerySet
from tools.usage.usage_rollups import (
    DaySpan,
    cached_by_organization,
    combine_rollups,
    created_on_days,
)

MOST_RUNS = 100_000  # of one tool
_MAX_TOOLS, _MAX_ORGANIZATIONS = 4, 8  # tools of each organization
_FRACTION = 0.95

type DayDurations = tuple[date, array[float]]
type PercentilesByDay = dict[date | None, float]


def tool_percentiles(tool: str, span: DaySpan) -> PercentilesByDay:
    """Of all runs of a tool, which should be no more than `MOST_RUNS`."""
    rows = Execution.objects.filter(organization_id=span.organization_id, tool_name=tool)
    found: defaultdict[date | None, array[float]] = defaultdict(lambda: array("d"))

    def read_live(condition: Q) -> Iterable[DayDurations]:
        return _read_durations(rows.filter(condition), span.zone)

    read_rollups = partial(_rollup_durations(span.organization_id), tool)
    for day, durations in combine_rollups(span, read_rollups, read_live):
        found[day] += durations
        found[None] += durations
    return {day: _percentile(durations) for day, durations in found.items()}


def execution_percentiles(rows: ExecutionQuerySet, span: DaySpan) -> PercentilesByDay:
    """Of any executions; one statement."""
    runs = _finished_runs(rows.filter(span.created), span.zone)
    statement, values = runs.values("day", "duration_ms").query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT r.day, percentile_cont({_FRACTION}) WITHIN GROUP (ORDER BY r.duration_ms)"  # noqa: S608
            f" FROM ({statement}) r GROUP BY GROUPING SETS ((r.day), ())",
            values,
        )
        return {day: duration for day, duration in cursor.fetchall() if duration is not None}


@cached_by_organization(each=_MAX_TOOLS, organizations=_MAX_ORGANIZATIONS)
def _rollup_durations(tool: str, days: tuple[int, ...]) -> tuple[DayDurations, ...]:
    """Of aggregated days, without executions that were unfinished then."""
    known = list(DayOfCalls.objects.filter(pk__in=days).order_by("day"))
    if not known:
        return ()
    zone = ZoneInfo(known[0].zone)
    rows = Execution.objects.filter(
        created_on_days([row.day for row in known], zone),
        organization_id=known[0].organization_id,
        tool_name=tool,
    )
    unfinished = [pk for row in known for pk in row.unfinished]
    return tuple(_read_durations(rows.exclude(pk__in=unfinished), zone))


def _read_durations(rows: ExecutionQuerySet, zone: ZoneInfo) -> Iterator[DayDurations]:
    found = (
        _finished_runs(rows, zone)
        .filter(duration_ms__isnull=False)
        .values_list("day", "duration_ms")
    )
    for day, durations in groupby(found.order_by("day", "duration_ms"), key=itemgetter(0)):
        yield day, array("d", [duration for _, duration in durations])


def _finished_runs(rows: ExecutionQuerySet, zone: ZoneInfo) -> QuerySet:
    runs = rows.filter(started_at__isnull=False, completed_at__isnull=False, cached=False)
    return runs.order_by().annotate(day=TruncDate("created_at", tzinfo=zone))


def _percentile(durations: Iterable[float]) -> float:
    """As PostgreSQL's `percentile_cont`, by linear interpolation."""
    ordered = sorted(durations)
    at = _FRACTION * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])
