"""Usage reports: calls and costs by agent, tool, group and day of the organization."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, overload

from django.db import connection
from django.utils import timezone

from tools.accounts.user_permissions import may
from tools.catalog.registry import Snapshot
from tools.definitions.callers import Caller
from tools.definitions.texts.names import WILDCARD
from tools.errors import Malformed
from tools.execution.reading import readable, reads_all
from tools.models.execution_queryset import ExecutionQuerySet
from tools.usage import latency_percentiles, usage_totals
from tools.usage.latency_percentiles import Durations
from tools.usage.usage_rollups import MOST_DAYS, DaySpan
from tools.usage.usage_totals import Line, UsageRollupQuery

DIMENSIONS = ("day", "agent", "tool", "group")
USUAL_DAYS = 30
MOST_ROWS = 5_000


@dataclass(frozen=True)
class UsageQuery:
    """What is asked for; both days are included, and none means the last thirty."""

    by: Sequence[str] = ("day",)
    since: date | None = None
    until: date | None = None
    agent: str | None = None
    tool: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """`calls` are all that were asked for; `denials` those of them that a gate refused."""

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


Row = tuple[dict[str, Any], UsageTotals]  # a value per requested dimension, and the metrics


@dataclass(frozen=True)
class Usage:
    since: date
    until: date
    rows: list[Row]
    truncated: bool


class Ranked(Sequence[Row]):
    """Lines with what was called most first. Only what is looked at is put in order, and made."""

    def __init__(self, lines: list[Line], by: str) -> None:
        self._lines, self._by = lines, by

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, part: int) -> Row: ...
    @overload
    def __getitem__(self, part: slice) -> list[Row]: ...
    def __getitem__(self, part: int | slice) -> Row | list[Row]:
        if isinstance(part, int):
            return _row(self._first(len(self))[part], [self._by])
        first, end, step = part.indices(len(self))
        return [_row(line, [self._by]) for line in self._first(end)[first:end:step]]

    def _first(self, most: int) -> list[Line]:
        """In their order."""
        if most < 1:
            return []
        least = sorted((line[1] for line in self._lines), reverse=True)[most - 1]
        top = [line for line in self._lines if line[1] >= least]
        return sorted(top, key=lambda line: (-line[1], _order(line[0])))


@dataclass(frozen=True)
class Ranking:
    days: Usage
    lines: Ranked


@contextmanager
def _plans_of_its_own() -> Iterator[None]:
    """Statements are planned for what they ask. One plan for every tool, which PostgreSQL makes of
    a statement that is prepared, is the wrong one for a tool that has half of the calls."""
    connection.ensure_connection()
    driver = connection.connection
    usual, driver.prepare_threshold = driver.prepare_threshold, None
    try:
        yield
    finally:
        driver.prepare_threshold = usual


@_plans_of_its_own()
def usage(caller: Caller, snapshot: Snapshot, wanted: UsageQuery) -> Usage:
    """Of the executions the caller may read. Raises `Malformed` for a range that is none.

    Groups are those the tools are in now: a call counts in each of its tool's.
    """
    span, groups = _span(wanted, snapshot), _Groups(caller, snapshot, wanted.group)
    by = [name for name in DIMENSIONS if name in wanted.by]
    columns = sorted({"tool" if name == "group" else name for name in by})
    rows, asked = _within(caller, wanted, groups), _asked(wanted, columns, groups)
    lines = usage_totals.sums(rows, asked, span, every=reads_all(caller))
    if "group" in by:
        lines, columns = _by_group(lines, columns, by, groups), by
    places = [columns.index(name) for name in by]
    lines.sort(key=lambda line: [_order(line[at]) for at in places])
    found = [_row(line, columns) for line in lines[:MOST_ROWS]]
    return Usage(span.since, span.until, found, truncated=len(lines) > MOST_ROWS)


@_plans_of_its_own()
def ranking(caller: Caller, snapshot: Snapshot, wanted: UsageQuery) -> Ranking:
    """The same by day, and by the one other dimension that is asked for: calls are read once."""
    span, groups = _span(wanted, snapshot), _Groups(caller, snapshot, wanted.group)
    (by,) = wanted.by
    columns = ["tool" if by == "group" else by]
    rows, asked = _within(caller, wanted, groups), _asked(wanted, columns, groups)
    days, lines = usage_totals.days_and(rows, asked, span, every=reads_all(caller))
    if by == "group":
        lines = _by_group(lines, columns, [by], groups)
    of_days = [_row(line, ["day"]) for line in sorted(days)]
    return Ranking(Usage(span.since, span.until, of_days, truncated=False), Ranked(lines, by))


@_plans_of_its_own()
def durations(caller: Caller, snapshot: Snapshot, wanted: UsageQuery, calls: int) -> Durations:
    """How long the runs took, in ms, that were longer than 95 of 100: by day, and of all days
    under None. Of the executions the caller may read, of which `usage` says that many `calls`."""
    span, groups = _span(wanted, snapshot), _Groups(caller, snapshot, wanted.group)
    alone = (wanted.agent, wanted.group) == (None, None) and reads_all(caller)
    if wanted.tool is not None and alone and calls <= latency_percentiles.MOST_KEPT:
        return latency_percentiles.of_tool(wanted.tool, span)
    return latency_percentiles.of_rows(_within(caller, wanted, groups), span)


@dataclass(frozen=True)
class _Groups:
    """The groups of a tool that are counted: those the caller may know, or the one asked for."""

    caller: Caller
    snapshot: Snapshot
    only: str | None

    @cached_property
    def _all(self) -> bool:
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
        """Of the groups that tools are in together."""
        return {held: self._known(held) for held in {*self._of_tools.values(), frozenset[str]()}}

    def _known(self, held: frozenset[str]) -> frozenset[str]:
        known = held if self._all else held & self.caller.granted_groups
        return known if self.only is None else known & {self.only}

    def of(self, tool_name: str) -> frozenset[str]:
        return self._counted[self._of_tools.get(tool_name, frozenset())]

    @cached_property
    def tools(self) -> tuple[str, ...]:
        return tuple(name for name, held in self._of_tools.items() if self._counted[held])


def _span(wanted: UsageQuery, snapshot: Snapshot) -> DaySpan:
    until = wanted.until or timezone.now().astimezone(snapshot.time_zone).date()
    if not date(2000, 1, 1) <= until <= date(2999, 12, 31):
        raise Malformed("until is no day of this millennium.")
    since = wanted.since or until - timedelta(days=USUAL_DAYS - 1)
    if not since <= until < since + timedelta(days=MOST_DAYS):
        raise Malformed(f"since must be at most {MOST_DAYS - 1} days before until, and not after.")
    return DaySpan(snapshot.organization_id, snapshot.time_zone, since, until)


def _within(caller: Caller, wanted: UsageQuery, groups: _Groups) -> ExecutionQuerySet:
    rows = readable(caller)
    if wanted.agent is not None:
        rows = rows.filter(agent__slug=wanted.agent)
    if wanted.tool is not None:
        rows = rows.filter(tool_name=wanted.tool)
    if wanted.group is not None:
        rows = rows.filter(tool_name__in=groups.tools)
    return rows


def _asked(wanted: UsageQuery, columns: Sequence[str], groups: _Groups) -> UsageRollupQuery:
    tools = None if wanted.group is None else groups.tools
    return UsageRollupQuery(tuple(columns), wanted.agent, wanted.tool, tools)


def _by_group(
    lines: Iterable[Line], columns: Sequence[str], by: Sequence[str], groups: _Groups
) -> list[Line]:
    """A tool that is gone, or in no group, is counted under None."""
    at, group = columns.index("tool"), by.index("group")
    places = [columns.index("tool" if name == "group" else name) for name in by]
    found: dict[tuple[Any, ...], Line] = {}
    for line in lines:
        values, figures = [line[place] for place in places], line[-5:]
        for values[group] in groups.of(line[at]) or (None,):
            key = tuple(values)
            known = found.get(key)
            found[key] = figures if known is None else usage_totals.plus(known, figures)
    return [(*key, *figures) for key, figures in found.items()]


def _row(line: Line, names: Sequence[str]) -> Row:
    return dict(zip(names, line, strict=False)), UsageTotals(*line[-5:])


def _order(value: Any) -> tuple[bool, Any]:
    """Where there is none, last."""
    return (value is None, "" if value is None else str(value))
