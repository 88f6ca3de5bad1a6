"""Calls and what they cost, by agent, tool, group and day of the organization."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection
from django.db.models import F, Q, QuerySet
from django.db.models.functions import TruncDate
from django.utils import timezone

from tools.catalog.registry import Snapshot
from tools.definitions.callers import Caller
from tools.definitions.names import WILDCARD
from tools.errors import Malformed
from tools.execution.days import MOST_DAYS, Span, told
from tools.execution.figures import COUNTS, SUMS
from tools.execution.reading import readable, reads_all
from tools.models import DayFigures, Part
from tools.models.execution import ExecutionQuerySet
from tools.policy.people import may

DIMENSIONS = ("day", "agent", "tool", "group")
USUAL_DAYS = 30
MOST_ROWS = 5_000
MOST_READ = 100_000


@dataclass(frozen=True)
class Wanted:
    """What is asked for; both days are included, and none means the last thirty."""

    by: Sequence[str] = ("day",)
    since: date | None = None
    until: date | None = None
    agent: str | None = None
    tool: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """`calls` are all that were asked for; `denials` those of them that a gate refused."""

    calls: int = 0
    failures: int = 0
    denials: int = 0
    cached: int = 0
    cost: Decimal = Decimal(0)

    def __add__(self, other: "Figures") -> "Figures":
        return Figures(
            self.calls + other.calls,
            self.failures + other.failures,
            self.denials + other.denials,
            self.cached + other.cached,
            self.cost + other.cost,
        )


Row = tuple[dict[str, Any], Figures]  # a value per dimension asked for, and the figures


@dataclass(frozen=True)
class Usage:
    since: date
    until: date
    rows: list[Row]
    truncated: bool


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
def usage(caller: Caller, snapshot: Snapshot, wanted: Wanted) -> Usage:
    """Of the executions the caller may read. Raises `Malformed` for a range that is none.

    Groups are those the tools are in now: a call counts in each of its tool's.
    """
    since, until = _range(wanted, snapshot)
    groups = _Groups(caller, snapshot, wanted.group)
    by = [name for name in DIMENSIONS if name in wanted.by]
    columns = sorted({"tool" if name == "group" else name for name in by})
    span = Span(snapshot.organization_id, snapshot.time_zone, since, until)
    rows = _counted(caller, wanted, span, columns, groups)
    if "group" in by:
        rows = _by_group(rows, by, groups)
    rows.sort(key=lambda row: [_order(row[0][name]) for name in by])
    return Usage(since, until, rows[:MOST_ROWS], truncated=len(rows) > MOST_ROWS)


@_plans_of_its_own()
def durations(caller: Caller, snapshot: Snapshot, wanted: Wanted) -> dict[date | None, float]:
    """How long the runs took, in ms, that were longer than 95 of 100: by day, and of all days
    under None. Of the executions the caller may read; one statement."""
    since, until = _range(wanted, snapshot)
    groups = _Groups(caller, snapshot, wanted.group)
    span = Span(snapshot.organization_id, snapshot.time_zone, since, until)
    rows = _within(caller, wanted, groups).filter(span.moments).order_by()
    ran = rows.filter(started_at__isnull=False, completed_at__isnull=False, cached=False)
    days = ran.annotate(day=TruncDate("created_at", tzinfo=snapshot.time_zone))
    read, values = days.values("day", "duration_ms").query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT r.day, percentile_cont(0.95) WITHIN GROUP (ORDER BY r.duration_ms)"  # noqa: S608
            f" FROM ({read}) r GROUP BY GROUPING SETS ((r.day), ())",
            values,
        )
        return {day: p95 for day, p95 in cursor.fetchall() if p95 is not None}


@dataclass(frozen=True)
class _Groups:
    """The groups of a tool that are counted: those the caller may know, or the one asked for."""

    caller: Caller
    snapshot: Snapshot
    only: str | None

    @cached_property
    def _all(self) -> bool:
        return WILDCARD in self.caller.granted_groups or may(self.caller, "view_toolgroup")

    def of(self, tool_name: str) -> frozenset[str]:
        tool = self.snapshot.tool(tool_name)
        held = self.snapshot.groups_of(tool) if tool else frozenset()
        known = held if self._all else held & self.caller.granted_groups
        return known if self.only is None else known & {self.only}

    @property
    def tools(self) -> list[str]:
        return [name for name in self.snapshot.tools if self.of(name)]


def _range(wanted: Wanted, snapshot: Snapshot) -> tuple[date, date]:
    until = wanted.until or timezone.now().astimezone(snapshot.time_zone).date()
    if not date(2000, 1, 1) <= until <= date(2999, 12, 31):
        raise Malformed("until is no day of this millennium.")
    since = wanted.since or until - timedelta(days=USUAL_DAYS - 1)
    if not since <= until < since + timedelta(days=MOST_DAYS):
        raise Malformed(f"since must be at most {MOST_DAYS - 1} days before until, and not after.")
    return since, until


def _within(caller: Caller, wanted: Wanted, groups: _Groups) -> ExecutionQuerySet:
    rows = readable(caller)
    if wanted.agent is not None:
        rows = rows.filter(agent__slug=wanted.agent)
    if wanted.tool is not None:
        rows = rows.filter(tool_name=wanted.tool)
    if wanted.group is not None:
        rows = rows.filter(tool_name__in=groups.tools)
    return rows


def _counted(
    caller: Caller, wanted: Wanted, span: Span, columns: Sequence[str], groups: _Groups
) -> list[Row]:
    """From days that were added up where they tell what is asked, else from executions alone."""
    rows = _within(caller, wanted, groups)

    def live(moments: Q) -> list[Row]:
        return _read(rows.filter(moments), columns, span.zone)

    if not reads_all(caller):
        return live(span.moments)

    asked = _Summed.of(wanted, columns, groups)
    return _together(told(span, asked.read, live))


@dataclass(frozen=True)
class _Summed:
    """What is asked of days that were added up; `tools` are those of the group that is wanted."""

    columns: tuple[str, ...]
    agent: str | None
    tool: str | None
    tools: tuple[str, ...] | None

    @classmethod
    def of(cls, wanted: Wanted, columns: Sequence[str], groups: _Groups) -> "_Summed":
        tools = None if wanted.group is None else tuple(groups.tools)
        return cls(tuple(columns), wanted.agent, wanted.tool, tools)

    @property
    def part(self) -> Part:
        """That of a day's figures which tells the least of what still tells what is asked."""
        by_tool = "tool" in self.columns or (self.tool, self.tools) != (None, None)
        if "agent" in self.columns or self.agent is not None:
            return Part.PAIR if by_tool else Part.AGENT
        return Part.TOOL if by_tool else Part.ALL

    def read(self, days: tuple[int, ...]) -> Iterable[Row]:
        """One statement, as `_read`; none where it was asked lately and has few rows."""
        one = self.part != Part.PAIR or (self.agent, self.tool) != (None, None)
        few = one and "day" not in self.columns
        return _remembered(self, days) if few else self.added(days)

    def added(self, days: tuple[int, ...]) -> list[Row]:
        rows = DayFigures.objects.filter(day__in=days, part=self.part).order_by()
        if self.part == Part.TOOL:
            rows = rows.filter(agent=None)  # as all of that part: the index has it before the tool
        if self.agent is not None:
            rows = rows.filter(agent__slug=self.agent)
        if self.tool is not None:
            rows = rows.filter(tool_name=self.tool)
        if self.tools is not None:
            rows = rows.filter(tool_name__in=self.tools)
        parts = {"agent": F("agent__slug"), "tool": F("tool_name"), "day": F("day__day")}
        return _rows(rows, {f"by_{name}": parts[name] for name in self.columns}, SUMS)


@lru_cache(maxsize=16)  # of as many rows as there are agents, or tools
def _remembered(asked: _Summed, days: tuple[int, ...]) -> list[Row]:
    return asked.added(days)


def _read(rows: ExecutionQuerySet, columns: Sequence[str], zone: ZoneInfo) -> list[Row]:
    parts = {
        "agent": F("agent__slug"),
        "tool": F("tool_name"),
        "day": TruncDate("created_at", tzinfo=zone),
    }
    return _rows(rows.order_by(), {f"by_{name}": parts[name] for name in columns}, COUNTS)


def _rows(rows: QuerySet[Any], named: dict[str, Any], counted: dict[str, Any]) -> list[Row]:
    """One statement. Raises `Malformed` for more rows than anybody should add up."""
    counts = rows.values(**named).annotate(**counted).values_list(*named, *counted)
    found: list[Any] = list(counts[: MOST_READ + 1])
    if len(found) > MOST_READ:
        raise Malformed("That are too many figures: ask for fewer days, or for one agent or tool.")
    names = [name.removeprefix("by_") for name in named]
    return [(dict(zip(names, row, strict=False)), Figures(*row[len(names) :])) for row in found]


def _together(rows: Iterable[Row]) -> list[Row]:
    """Those of the same day, agent and tool as one."""
    found: dict[tuple[Any, ...], Row] = {}
    for values, figures in rows:
        key = tuple(values.values())
        known = found.get(key)
        found[key] = (dict(values), known[1] + figures if known else figures)
    return list(found.values())


def _by_group(rows: Iterable[Row], by: Sequence[str], groups: _Groups) -> list[Row]:
    """A tool that is gone, or in no group, is counted under None."""
    sums: dict[tuple[Any, ...], Figures] = {}
    for values, figures in rows:
        for group in groups.of(values["tool"]) or (None,):
            key = tuple((values | {"group": group})[name] for name in by)
            sums[key] = sums.get(key, Figures()) + figures
    return [(dict(zip(by, key, strict=True)), figures) for key, figures in sums.items()]


def _order(value: Any) -> tuple[bool, Any]:
    """Where there is none, last."""
    return (value is None, "" if value is None else str(value))
