"""Latency percentiles of runs: the 95th percentile in milliseconds by day, and of all days under
None. Both ways give the same result.

Finished runs never change: the lengths of aggregated days are cached, since those of one tool are
far apart in their table.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import date
from itertools import groupby
from operator import itemgetter
from zoneinfo import ZoneInfo

from django.db import connection
from django.db.models import Q, QuerySet
from django.db.models.functions import TruncDate

from tools.models import DayOfCalls, Execution
from tools.models.execution_queryset import ExecutionQuerySet
from tools.usage.organization_cache import by_organization
from tools.usage.usage_rollups import DaySpan, moments_of, told

MOST_KEPT = 100_000  # lengths of one tool
_KEPT, _ORGANIZATIONS = 4, 8  # tools of each
_SHARE = 0.95

type Lengths = tuple[date, array[float]]
type Durations = dict[date | None, float]


def of_tool(tool: str, span: DaySpan) -> Durations:
    """Of all its runs, which should be no more than `MOST_KEPT`."""
    rows = Execution.objects.filter(organization_id=span.organization_id, tool_name=tool)
    found: defaultdict[date | None, array[float]] = defaultdict(lambda: array("d"))

    def live(moments: Q) -> Iterable[Lengths]:
        return _read(rows.filter(moments), span.zone)

    kept = _kept(span.organization_id)
    for day, lengths in told(span, lambda days: kept(tool, days), live):
        found[day] += lengths
        found[None] += lengths
    return {day: _slowest(lengths) for day, lengths in found.items()}


def of_rows(rows: ExecutionQuerySet, span: DaySpan) -> Durations:
    """Of any; one statement."""
    ran = _ran(rows.filter(span.moments), span.zone)
    read, values = ran.values("day", "duration_ms").query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT r.day, percentile_cont({_SHARE}) WITHIN GROUP (ORDER BY r.duration_ms)"  # noqa: S608
            f" FROM ({read}) r GROUP BY GROUPING SETS ((r.day), ())",
            values,
        )
        return {day: length for day, length in cursor.fetchall() if length is not None}


@by_organization(each=_KEPT, organizations=_ORGANIZATIONS)
def _kept(tool: str, days: tuple[int, ...]) -> tuple[Lengths, ...]:
    """Of days that were added up; those that were not over by then are left out."""
    known = list(DayOfCalls.objects.filter(pk__in=days).order_by("day"))
    if not known:
        return ()
    zone = ZoneInfo(known[0].zone)
    rows = Execution.objects.filter(
        moments_of([row.day for row in known], zone),
        organization_id=known[0].organization_id,
        tool_name=tool,
    )
    unfinished = [pk for row in known for pk in row.unfinished]
    return tuple(_read(rows.exclude(pk__in=unfinished), zone))


def _read(rows: ExecutionQuerySet, zone: ZoneInfo) -> Iterator[Lengths]:
    found = _ran(rows, zone).filter(duration_ms__isnull=False).values_list("day", "duration_ms")
    for day, lengths in groupby(found.order_by("day", "duration_ms"), key=itemgetter(0)):
        yield day, array("d", [length for _, length in lengths])


def _ran(rows: ExecutionQuerySet, zone: ZoneInfo) -> QuerySet:
    ran = rows.filter(started_at__isnull=False, completed_at__isnull=False, cached=False)
    return ran.order_by().annotate(day=TruncDate("created_at", tzinfo=zone))


def _slowest(lengths: Iterable[float]) -> float:
    """`percentile_cont`: between two lengths, as much of the way as is left over."""
    ordered = sorted(lengths)
    at = _SHARE * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])
