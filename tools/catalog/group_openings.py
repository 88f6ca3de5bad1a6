"""Determines which groups are closed now: outside their schedule, or under load.

Where no group has windows or limits nothing is measured. Otherwise the result is cached for a
second, and never beyond the end of a minute, which is when windows begin and end.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from zoneinfo import ZoneInfo

from django.db.models import F
from django.db.models.functions import Now

from tools.catalog.groups import line_of
from tools.catalog.snapshot import CatalogGroup, CatalogTool, Snapshot
from tools.definitions.results import Status
from tools.definitions.texts.names import WILDCARD
from tools.definitions.values.schedules import Schedule, build_schedule, is_open, next_opening
from tools.models import OpenExecution

FOR_S = 1.0  # how long a measured figure is cached
WATCH = "watch"
_MINUTE_S = 60
_STALE_S = 5.0
_MEASURED_S = 0.1
_COUNTED = 8  # guest time follows, which the first two include
_IDLE = slice(3, 5)  # idle, and waiting for a disk


class Cause(StrEnum):
    HOURS = "hours"
    QUEUE = "queue"
    PROCESSORS = "processors"


@dataclass(frozen=True)
class Closing:
    """One closed group, and why."""

    group: CatalogGroup
    schedule: Schedule
    cause: Cause
    at: datetime
    zone: ZoneInfo

    @cached_property
    def reason(self) -> str:
        """A sentence that says what opens it: a time, or a figure to fall below."""
        closed = f"The group {self.group.name} is closed"
        match self.cause:
            case Cause.HOURS:
                opens = next_opening(self.schedule, self.at, self.zone)
                return f"{closed} at this hour and opens on {opens:%A, %Y-%m-%d %H:%M} {self.zone}."
            case Cause.QUEUE:
                bound = f"{self.group.max_queue_age_s:g} seconds"
                return f"{closed} while a call has waited longer than {bound}; try again later."
            case Cause.PROCESSORS:
                bound = f"{self.group.max_cpu_percent:g} %"
                return f"{closed} while the processors are busier than {bound}; try again later."


@dataclass(frozen=True)
class Openings:
    closings: Mapping[str, Closing]

    @cached_property
    def closed(self) -> frozenset[str]:
        return frozenset(self.closings)

    def reasons(self, names: Iterable[str]) -> list[str]:
        """Of those among `names` that are closed, in the order of their names."""
        return [self.closings[name].reason for name in sorted(self.closed.intersection(names))]

    def reach(self, tool: CatalogTool, requested: frozenset[str], snapshot: Snapshot) -> bool:
        """Whether an open path leads to the tool: see `is_reached`."""
        return not self.closings or is_reached(tool, requested, snapshot, self.closed)

    def on_paths(
        self, tool: CatalogTool, requested: frozenset[str], snapshot: Snapshot
    ) -> frozenset[str]:
        """The closed groups on the paths to the tool."""
        return in_the_way(tool, requested, snapshot) & self.closed


ALL_OPEN = Openings(MappingProxyType({}))


class Figure:
    """A measured number, cached for a second for all callers."""

    def __init__(self, find: Callable[[], float]) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._known, self._until = 0.0, 0.0

    def current_value(self) -> float:
        with self._lock:
            if time.monotonic() >= self._until:
                self._known = self._find()
                self._until = time.monotonic() + FOR_S
            return self._known


class Processors:
    """Percent of all processors' time that was spent, as the kernel counts it."""

    def __init__(self, counts: Path = Path("/proc/stat")) -> None:
        self._counts = counts
        self._earlier = (0.0, 0, 0)

    def busy_percent(self) -> float:
        """Since the last reading or, when that is long ago, within a tenth of a second."""
        if time.monotonic() - self._earlier[0] > _STALE_S:
            self._earlier = self._read()
            time.sleep(_MEASURED_S)
        _, idle, total = self._earlier
        self._earlier = self._read()
        passed = self._earlier[2] - total
        return 100 * (1 - (self._earlier[1] - idle) / passed) if passed > 0 else 0.0

    def _read(self) -> tuple[float, int, int]:
        """The time, and the ticks since boot: idle, and total."""
        with self._counts.open() as lines:
            ticks = [int(text) for text in lines.readline().split()[1 : 1 + _COUNTED]]
        return time.monotonic(), sum(ticks[_IDLE]), sum(ticks)


def oldest_wait_s() -> float:
    """How long the call that has waited longest for a worker has done so, of all organizations."""
    waiting = OpenExecution.objects.filter(status=Status.PENDING, parked_below__isnull=True)
    oldest = waiting.order_by("queued_at").values_list(Now() - F("queued_at"), flat=True).first()
    return oldest.total_seconds() if oldest else 0.0


@dataclass(frozen=True)
class Load:
    """The load of the installation: how long calls have waited, and how busy the processors are."""

    queue_age_s: Figure
    cpu_percent: Figure


HERE = Load(Figure(oldest_wait_s), Figure(Processors().busy_percent))


class OpeningsWatch:
    """The groups of one snapshot that may close."""

    def __init__(self, snapshot: Snapshot, load: Load = HERE) -> None:
        self._zone, self._load = snapshot.time_zone, load
        self._watched = tuple(
            (group, build_schedule(group.schedule))
            for group in snapshot.groups.values()
            if group.schedule or group.max_queue_age_s or group.max_cpu_percent
        )
        self._known = (0.0, 0.0, ALL_OPEN)

    def current_openings(self) -> Openings:
        if not self._watched:
            return ALL_OPEN
        now = time.time()
        since, until, known = self._known
        if not since <= now < until:
            known = self.openings_at(datetime.fromtimestamp(now, UTC))
            self._known = (now, good_until(now), known)
        return known

    def openings_at(self, moment: datetime) -> Openings:
        """By the windows as of `moment`, by the load as it is."""
        closings = {
            group.name: Closing(group, schedule, cause, moment, self._zone)
            for group, schedule in self._watched
            if (cause := self._cause(group, schedule, moment))
        }
        return Openings(MappingProxyType(closings)) if closings else ALL_OPEN

    def _cause(self, group: CatalogGroup, schedule: Schedule, moment: datetime) -> Cause | None:
        if not is_open(schedule, moment, self._zone):
            return Cause.HOURS
        if group.max_queue_age_s and self._load.queue_age_s.current_value() > group.max_queue_age_s:
            return Cause.QUEUE
        if group.max_cpu_percent and self._load.cpu_percent.current_value() > group.max_cpu_percent:
            return Cause.PROCESSORS
        return None


def good_until(now: float) -> float:
    """Until when a result is cached, in seconds since 1970."""
    return min(now + FOR_S, now - now % _MINUTE_S + _MINUTE_S)


def openings_of(snapshot: Snapshot) -> Openings:
    """The closed groups."""
    return snapshot.settle(WATCH, lambda: OpeningsWatch(snapshot)).current_openings()


def is_reached(
    tool: CatalogTool, requested: frozenset[str], snapshot: Snapshot, closed: frozenset[str]
) -> bool:
    """Whether an open path leads to a tool that `requested` would reach if all groups were open.

    A closed group gives access to nothing: not by its own name, and not through its parents, since
    those paths lead through it. Tools of a closed parent are still reached through its children.
    """
    if closed.isdisjoint(snapshot.groups_of(tool)):
        return True
    left = _ways(snapshot.own_groups(tool), snapshot, closed)
    return bool(left) if WILDCARD in requested else not left.isdisjoint(requested)


def in_the_way(tool: CatalogTool, requested: frozenset[str], snapshot: Snapshot) -> frozenset[str]:
    """The groups on every path to the tool, from its own up to a requested one."""
    own = snapshot.own_groups(tool)
    if WILDCARD in requested:
        return own
    return frozenset().union(*(_part(line_of(name, snapshot), requested) for name in own))


def _part(line: list[str], requested: frozenset[str]) -> list[str]:
    """Up to the last requested group; those above it were not requested."""
    last = max((at for at, name in enumerate(line) if name in requested), default=-1)
    return line[: last + 1]


def _ways(own: frozenset[str], snapshot: Snapshot, closed: frozenset[str]) -> frozenset[str]:
    """The groups by which a tool with these of its own is reached."""

    def climbed() -> frozenset[str]:
        lines = (line_of(name, snapshot) for name in own)
        return frozenset().union(*(takewhile(lambda n: n not in closed, line) for line in lines))

    return snapshot.remember(("ways", own, closed), climbed)
