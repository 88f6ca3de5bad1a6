"""Usage totals of calls by day, agent and tool: from daily rollups where they cover the query, else
from executions. Plain tuples, since there may be one for each tool."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import F, Q, QuerySet
from django.db.models.functions import TruncDate

from tools.errors import Malformed
from tools.models import DayFigures, RollupPart
from tools.models.execution_queryset import ExecutionQuerySet
from tools.usage.figures import COUNTS, SUMS
from tools.usage.organization_cache import by_organization
from tools.usage.usage_rollups import DaySpan, told

MOST_READ = 100_000

type Line = tuple[Any, ...]  # a value for each column; then calls, failures, denials, cached, cost
type Batch = tuple[str, list[Line]]  # the column that its lines are of


@dataclass(frozen=True)
class UsageRollupQuery:
    """What is asked of days that were added up; `tools` are those that are wanted, where not all
    are. Lines have a value for each of `columns`, in their order."""

    columns: tuple[str, ...]
    agent: str | None = None
    tool: str | None = None
    tools: tuple[str, ...] | None = None

    @property
    def part(self) -> RollupPart:
        """The coarsest rollup that still answers the query."""
        by_tool = "tool" in self.columns or (self.tool, self.tools) != (None, None)
        if "agent" in self.columns or self.agent is not None:
            return RollupPart.PAIR if by_tool else RollupPart.AGENT
        return RollupPart.TOOL if by_tool else RollupPart.ALL

    def read(self, organization: UUID, days: tuple[int, ...]) -> list[Line]:
        """One statement; none if the result is cached and has few rows."""
        one = self.part != RollupPart.PAIR or (self.agent, self.tool) != (None, None)
        few = one and "day" not in self.columns
        return _remembered(organization)(self, days) if few else self.added(days)

    def added(self, days: tuple[int, ...]) -> list[Line]:
        rows = DayFigures.objects.filter(day__in=days, part=self.part).order_by()
        if self.part == RollupPart.TOOL:
            rows = rows.filter(agent=None)  # as all of that part: the index has it before the tool
        if self.agent is not None:
            rows = rows.filter(agent__slug=self.agent)
        if self.tool is not None:
            rows = rows.filter(tool_name=self.tool)
        if self.tools is not None:
            rows = rows.filter(tool_name__in=self.tools)
        parts = {"agent": F("agent__slug"), "tool": F("tool_name"), "day": F("day__day")}
        return _lines(rows, {f"by_{name}": parts[name] for name in self.columns}, SUMS)


@by_organization(each=4, organizations=16)  # of as many lines as there are agents, or tools
def _remembered(asked: UsageRollupQuery, days: tuple[int, ...]) -> list[Line]:
    return asked.added(days)


def sums(
    rows: ExecutionQuerySet, asked: UsageRollupQuery, span: DaySpan, *, every: bool
) -> list[Line]:
    """`rows` are the executions the query covers; `every` means that no caller's are left out."""

    def live(moments: Q) -> list[Line]:
        return _read(rows.filter(moments), asked.columns, span.zone)

    kept = partial(asked.read, span.organization_id)
    found = told(span, kept, live) if every else live(span.moments)
    return together(found, len(asked.columns))


def days_and(
    rows: ExecutionQuerySet, asked: UsageRollupQuery, span: DaySpan, *, every: bool
) -> tuple[list[Line], list[Line]]:
    """The totals of each day, and those by the one requested column. A day without a rollup is read
    once for both."""
    (column,) = asked.columns
    by_day = UsageRollupQuery(("day",), asked.agent, asked.tool, asked.tools)

    def kept(days: tuple[int, ...]) -> Iterable[Batch]:
        of = span.organization_id
        return [("day", by_day.read(of, days)), (column, asked.read(of, days))]

    def live(moments: Q) -> Iterable[Batch]:
        here = rows.filter(moments)
        return [(name, _read(here, (name,), span.zone)) for name in ("day", column)]

    def live_day(day: date, moments: Q) -> Iterable[Batch]:
        lines = _read(rows.filter(moments), asked.columns, span.zone)
        return [("day", [(day, *total(lines))] if lines else []), (column, lines)]

    batches = told(span, kept, live, live_day) if every else live(span.moments)
    return _of("day", batches), _of(column, batches)


def _of(column: str, batches: Iterable[Batch]) -> list[Line]:
    return together((line for name, lines in batches if name == column for line in lines), 1)


def together(lines: Iterable[Line], columns: int) -> list[Line]:
    """Those of the same values as one."""
    found: dict[Any, Line] = {}
    for line in lines:
        key = line[0] if columns == 1 else line[:columns]
        known = found.get(key)
        found[key] = line if known is None else (*known[:-5], *plus(known[-5:], line[-5:]))
    return list(found.values())


def plus(one: Line, other: Line) -> Line:
    calls, failures, denials, cached, cost = one
    return (
        calls + other[0],
        failures + other[1],
        denials + other[2],
        cached + other[3],
        cost + other[4],
    )


def total(lines: Iterable[Line]) -> Line:
    """Of one line or more."""
    return tuple(map(sum, zip(*(line[-5:] for line in lines), strict=True)))


def _read(rows: ExecutionQuerySet, columns: Sequence[str], zone: ZoneInfo) -> list[Line]:
    parts = {
        "agent": F("agent__slug"),
        "tool": F("tool_name"),
        "day": TruncDate("created_at", tzinfo=zone),
    }
    return _lines(rows.order_by(), {f"by_{name}": parts[name] for name in columns}, COUNTS)


def _lines(rows: QuerySet[Any], named: dict[str, Any], counted: dict[str, Any]) -> list[Line]:
    """One statement. Raises `Malformed` for too many rows."""
    counts = rows.values(**named).annotate(**counted).values_list(*named, *counted)
    try:
        read, values = counts[: MOST_READ + 1].query.sql_with_params()
    except EmptyResultSet:  # of no tool at all
        return []
    with connection.cursor() as cursor:  # what the driver reads is what is wanted
        cursor.execute(read, values)
        found = cursor.fetchall()
    if len(found) > MOST_READ:
        raise Malformed("That are too many figures: ask for fewer days, or for one agent or tool.")
    return found
