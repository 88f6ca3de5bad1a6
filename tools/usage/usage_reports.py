"""Usage reports: calls and costs by agent, tool, group and day of the organization."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, overload
from uuid import UUID
from zoneinfo import ZoneInfo

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import F, Q, QuerySet
from django.db.models.functions import TruncDate
from django.utils import timezone

from tools.accounts.user_permissions import may
from tools.catalog.snapshot import Snapshot
from tools.definitions.callers import Caller
from tools.definitions.texts.names import WILDCARD
from tools.errors import Malformed
from tools.execution.outputs import readable_executions, reads_all_executions
from tools.models import DayFigures, RollupPart
from tools.models.execution_queryset import ExecutionQuerySet
from tools.usage import latency_percentiles
from tools.usage.latency_percentiles import PercentilesByDay
from tools.usage.usage_rollups import (
    COUNTS,
    MOST_DAYS,
    SUMS,
    DaySpan,
    cached_by_organization,
    combine_rollups,
)

MOST_READ = 100_000

# A value for each column; then calls, failures, denials, cached, cost.
type TotalsRow = tuple[Any, ...]
type TotalsBatch = tuple[str, list[TotalsRow]]  # the column of the rows, and the rows


@dataclass(frozen=True)
class UsageRollupQuery:
    """A query of daily rollups; `tools` are the only tools to include, None all. Rows have a value
    for each of `columns`, in their order."""

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

    def read(self, organization: UUID, days: tuple[int, ...]) -> list[TotalsRow]:
        """One statement; none if the result has few rows and is cached."""
        single = self.part != RollupPart.PAIR or (self.agent, self.tool) != (None, None)
        few = single and "day" not in self.columns
        return _cached_totals(organization)(self, days) if few else self.fetch(days)

    def fetch(self, days: tuple[int, ...]) -> list[TotalsRow]:
        rows = DayFigures.objects.filter(day__in=days, part=self.part).order_by()
        if self.part == RollupPart.TOOL:
            rows = rows.filter(
                agent=None
            )  # as in all rows of that part: the index has it before the tool
        if self.agent is not None:
            rows = rows.filter(agent__slug=self.agent)
        if self.tool is not None:
            rows = rows.filter(tool_name=self.tool)
        if self.tools is not None:
            rows = rows.filter(tool_name__in=self.tools)
        parts = {"agent": F("agent__slug"), "tool": F("tool_name"), "day": F("day__day")}
        return _fetch_totals(rows, {f"by_{name}": parts[name] for name in self.columns}, SUMS)


@cached_by_organization(
    each=4, organizations=16
)  # each of as many rows as there are agents, or tools
def _cached_totals(query: UsageRollupQuery, days: tuple[int, ...]) -> list[TotalsRow]:
    return query.fetch(days)


def load_totals(
    rows: ExecutionQuerySet, query: UsageRollupQuery, span: DaySpan, *, every: bool
) -> list[TotalsRow]:
    """`rows` are the executions that the query covers; `every` says that the reader may read the
    executions of every caller."""

    def read_live(condition: Q) -> list[TotalsRow]:
        return _read_executions(rows.filter(condition), query.columns, span.zone)

    read_rollups = partial(query.read, span.organization_id)
    found = combine_rollups(span, read_rollups, read_live) if every else read_live(span.created)
    return merge_totals(found, len(query.columns))


def load_daily_and_ranked(
    rows: ExecutionQuerySet, query: UsageRollupQuery, span: DaySpan, *, every: bool
) -> tuple[list[TotalsRow], list[TotalsRow]]:
    """The totals of each day, and those by the one requested column. A day without a rollup is read
    once for both."""
    (column,) = query.columns
    by_day = UsageRollupQuery(("day",), query.agent, query.tool, query.tools)

    def read_rollups(days: tuple[int, ...]) -> Iterable[TotalsBatch]:
        organization = span.organization_id
        return [("day", by_day.read(organization, days)), (column, query.read(organization, days))]

    def read_live(condition: Q) -> Iterable[TotalsBatch]:
        found = rows.filter(condition)
        return [(name, _read_executions(found, (name,), span.zone)) for name in ("day", column)]

    def read_live_day(day: date, condition: Q) -> Iterable[TotalsBatch]:
        found = _read_executions(rows.filter(condition), query.columns, span.zone)
        return [("day", [(day, *sum_totals(found))] if found else []), (column, found)]

    if every:
        batches = combine_rollups(span, read_rollups, read_live, read_live_day)
    else:
        batches = [*read_live(span.created)]
    return _totals_of("day", batches), _totals_of(column, batches)


def _totals_of(column: str, batches: Iterable[TotalsBatch]) -> list[TotalsRow]:
    return merge_totals((row for name, rows in batches if name == column for row in rows), 1)


def merge_totals(rows: Iterable[TotalsRow], columns: int) -> list[TotalsRow]:
    """Rows with the same values become one."""
    found: dict[Any, TotalsRow] = {}
    for row in rows:
        key = row[0] if columns == 1 else row[:columns]
        known = found.get(key)
        found[key] = row if known is None else (*known[:-5], *add_totals(known[-5:], row[-5:]))
    return list(found.values())


def add_totals(one: TotalsRow, other: TotalsRow) -> TotalsRow:
    calls, failures, denials, cached, cost = one
    return (
        calls + other[0],
        failures + other[1],
        denials + other[2],
        cached + other[3],
        cost + other[4],
    )


def sum_totals(rows: Iterable[TotalsRow]) -> TotalsRow:
    """Of one row or more."""
    return tuple(map(sum, zip(*(row[-5:] for row in rows), strict=True)))


def _read_executions(
    rows: ExecutionQuerySet, columns: Sequence[str], zone: ZoneInfo
) -> list[TotalsRow]:
    parts = {
        "agent": F("agent__slug"),
        "tool": F("tool_name"),
        "day": TruncDate("created_at", tzinfo=zone),
    }
    return _fetch_totals(rows.order_by(), {f"by_{name}": parts[name] for name in columns}, COUNTS)


def _fetch_totals(
    rows: QuerySet[Any], named: dict[str, Any], counted: dict[str, Any]
) -> list[TotalsRow]:
    """One statement. Raises `Malformed` for too many rows."""
    counts = rows.values(**named).annotate(**counted).values_list(*named, *counted)
    try:
        statement, values = counts[: MOST_READ + 1].query.sql_with_params()
    except EmptyResultSet:  # no tool matches
        return []
    with connection.cursor() as cursor:  # tuples of the driver, without conversion
        cursor.execute(statement, values)
        found = cursor.fetchall()
    if len(found) > MOST_READ:
        raise Malformed("That are too many figures: ask for fewer days, or for one agent or tool.")
    return found


DIMENSIONS = ("day", "agent", "tool", "group")
USUAL_DAYS = 30
MOST_ROWS = 5_000


@dataclass(frozen=True)
class UsageQuery:
    """A usage query; both days are included, and None means the last thirty."""

    by: Sequence[str] = ("day",)
    since: date | None = None
    until: date | None = None
    agent: str | None = None
    tool: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """`calls` counts every request, also a refused one; `denials` those that a gate refused."""

    calls: int = 0
    failures: int = 0
    denials: int = 0
    cached: int = 0
    cost: Decimal = Decimal(0)

    def __add__(self, other: "UsageTotals") -> "UsageTotals":
        return UsageTotals(
            self.calls + other.calls,
            self.failures + other.failures,
            self.denials + other.denials,
            self.cached + other.cached,
            self.cost + other.cost,
        )


ReportRow = tuple[dict[str, Any], UsageTotals]  # a value per requested dimension, and the metrics


@dataclass(frozen=True)
class UsageReport:
    since: date
    until: date
    rows: list[ReportRow]
    truncated: bool


class RankedRows(Sequence[ReportRow]):
    """Rows, the most calls first. Only rows that are read are sorted and created."""

    def __init__(self, rows: list[TotalsRow], by: str) -> None:
        self._rows, self._by = rows, by

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, part: int) -> ReportRow: ...
    @overload
    def __getitem__(self, part: slice) -> list[ReportRow]: ...
    def __getitem__(self, part: int | slice) -> ReportRow | list[ReportRow]:
        if isinstance(part, int):
            return _report_row(self._first(len(self))[part], [self._by])
        first, end, step = part.indices(len(self))
        return [_report_row(row, [self._by]) for row in self._first(end)[first:end:step]]

    def _first(self, most: int) -> list[TotalsRow]:
        """The first rows, sorted."""
        if most < 1:
            return []
        least = sorted((row[1] for row in self._rows), reverse=True)[most - 1]
        top = [row for row in self._rows if row[1] >= least]
        return sorted(top, key=lambda row: (-row[1], _sort_key(row[0])))


@dataclass(frozen=True)
class UsageRanking:
    days: UsageReport
    rows: RankedRows


@contextmanager
def _fresh_query_plans() -> Iterator[None]:
    """Statements are planned for their own values. The generic plan that PostgreSQL makes of a
    prepared statement is the wrong one for a tool that has half of the calls."""
    connection.ensure_connection()
    driver = connection.connection
    usual, driver.prepare_threshold = driver.prepare_threshold, None
    try:
        yield
    finally:
        driver.prepare_threshold = usual


@_fresh_query_plans()
def usage_report(caller: Caller, snapshot: Snapshot, wanted: UsageQuery) -> UsageReport:
    """Of the executions that the caller may read. Raises `Malformed` for an invalid range.

    Groups are those the tools are in now: a call counts in each of its tool's.
    """
    span, groups = _parse_span(wanted, snapshot), _CountedGroups(caller, snapshot, wanted.group)
    by = [name for name in DIMENSIONS if name in wanted.by]
    columns = sorted({"tool" if name == "group" else name for name in by})
    executions = _filter_executions(caller, wanted, groups)
    query = _rollup_query(wanted, columns, groups)
    rows = load_totals(executions, query, span, every=reads_all_executions(caller))
    if "group" in by:
        rows, columns = _by_group(rows, columns, by, groups), by
    places = [columns.index(name) for name in by]
    rows.sort(key=lambda row: [_sort_key(row[at]) for at in places])
    found = [_report_row(row, columns) for row in rows[:MOST_ROWS]]
    return UsageReport(span.since, span.until, found, truncated=len(rows) > MOST_ROWS)


@_fresh_query_plans()
def usage_ranking(caller: Caller, snapshot: Snapshot, wanted: UsageQuery) -> UsageRanking:
    """The same by day, and by the one other requested dimension: calls are read once."""
    span, groups = _parse_span(wanted, snapshot), _CountedGroups(caller, snapshot, wanted.group)
    (by,) = wanted.by
    columns = ["tool" if by == "group" else by]
    executions = _filter_executions(caller, wanted, groups)
    query = _rollup_query(wanted, columns, groups)
    days, rows = load_daily_and_ranked(executions, query, span, every=reads_all_executions(caller))
    if by == "group":
        rows = _by_group(rows, columns, [by], groups)
    of_days = [_report_row(row, ["day"]) for row in sorted(days)]
    return UsageRanking(
        UsageReport(span.since, span.until, of_days, truncated=False), RankedRows(rows, by)
    )


@_fresh_query_plans()
def duration_percentiles(
    caller: Caller, snapshot: Snapshot, wanted: UsageQuery, calls: int
) -> PercentilesByDay:
    """The 95th percentile in ms by day, and of all days under None, of executions that the caller
    may read; `calls` is their number in the report."""
    span, groups = _parse_span(wanted, snapshot), _CountedGroups(caller, snapshot, wanted.group)
    unfiltered = (wanted.agent, wanted.group) == (None, None) and reads_all_executions(caller)
    if wanted.tool is not None and unfiltered and calls <= latency_percentiles.MOST_RUNS:
        return latency_percentiles.tool_percentiles(wanted.tool, span)
    return latency_percentiles.execution_percentiles(
        _filter_executions(caller, wanted, groups), span
    )


@dataclass(frozen=True)
class _CountedGroups:
    """The counted groups of a tool: those that the caller may know, or the requested one."""

    caller: Caller
    snapshot: Snapshot
    only: str | None

    @cached_property
    def _may_know_all(self) -> bool:
        return WILDCARD in self.caller.granted_groups or may(self.caller, "view_toolgroup")

    @cached_property
    def _of_tools(self) -> dict[str, frozenset[str]]:
        tools = self.snapshot.tools
        return self.snapshot.settle(
            "groups of tools",
            lambda: {name: self.snapshot.groups_of(tool) for name, tool in tools.items()},
        )

    @cached_property
    def _counted(self) -> dict[frozenset[str], frozenset[str]]:
        """The counted groups for each set of groups of a tool."""
        return {
            held: self._known_groups(held) for held in {*self._of_tools.values(), frozenset[str]()}
        }

    def _known_groups(self, held: frozenset[str]) -> frozenset[str]:
        known = held if self._may_know_all else held & self.caller.granted_groups
        return known if self.only is None else known & {self.only}

    def groups_of(self, tool_name: str) -> frozenset[str]:
        return self._counted[self._of_tools.get(tool_name, frozenset())]

    @cached_property
    def tools(self) -> tuple[str, ...]:
        return tuple(name for name, held in self._of_tools.items() if self._counted[held])


def _parse_span(wanted: UsageQuery, snapshot: Snapshot) -> DaySpan:
    until = wanted.until or timezone.now().astimezone(snapshot.time_zone).date()
    if not date(2000, 1, 1) <= until <= date(2999, 12, 31):
        raise Malformed("until is no day of this millennium.")
    since = wanted.since or until - timedelta(days=USUAL_DAYS - 1)
    if not since <= until < since + timedelta(days=MOST_DAYS):
        raise Malformed(f"since must be at most {MOST_DAYS - 1} days before until, and not after.")
    return DaySpan(snapshot.organization_id, snapshot.time_zone, since, until)


def _filter_executions(
    caller: Caller, wanted: UsageQuery, groups: _CountedGroups
) -> ExecutionQuerySet:
    rows = readable_executions(caller)
    if wanted.agent is not None:
        rows = rows.filter(agent__slug=wanted.agent)
    if wanted.tool is not None:
        rows = rows.filter(tool_name=wanted.tool)
    if wanted.group is not None:
        rows = rows.filter(tool_name__in=groups.tools)
    return rows


def _rollup_query(
    wanted: UsageQuery, columns: Sequence[str], groups: _CountedGroups
) -> UsageRollupQuery:
    tools = None if wanted.group is None else groups.tools
    return UsageRollupQuery(tuple(columns), wanted.agent, wanted.tool, tools)


def _by_group(
    rows: Iterable[TotalsRow], columns: Sequence[str], by: Sequence[str], groups: _CountedGroups
) -> list[TotalsRow]:
    """A deleted tool, or one in no group, is counted under None."""
    at, group = columns.index("tool"), by.index("group")
    places = [columns.index("tool" if name == "group" else name) for name in by]
    found: dict[tuple[Any, ...], TotalsRow] = {}
    for row in rows:
        values, totals = [row[place] for place in places], row[-5:]
        for values[group] in groups.groups_of(row[at]) or (None,):
            key = tuple(values)
            known = found.get(key)
            found[key] = totals if known is None else add_totals(known, totals)
    return [(*key, *totals) for key, totals in found.items()]


def _report_row(row: TotalsRow, names: Sequence[str]) -> ReportRow:
    return dict(zip(names, row, strict=False)), UsageTotals(*row[-5:])


def _sort_key(value: Any) -> tuple[bool, Any]:
    """None is last."""
    return (value is None, "" if value is None else str(value))
