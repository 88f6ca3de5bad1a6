"""The opening windows of a group as a drawing of a week, with a row for each day."""

from dataclasses import dataclass
from datetime import datetime

from tools.definitions.values.schedules import DAYS, Schedule, ScheduleWindow

_HOUR, _ROW, _LEFT, _TOP = 28.0, 22.0, 44.0, 20.0
_DAY_MINUTES = 24 * 60
WIDTH = _LEFT + 24 * _HOUR + 12
HEIGHT = _TOP + len(DAYS) * _ROW + 6


@dataclass(frozen=True)
class ScheduleBar:
    x: float
    y: float
    width: float
    words: str
    height: float = _ROW - 6


@dataclass(frozen=True)
class Week:
    bars: list[ScheduleBar]
    days: list[tuple[float, str]]
    hours: list[tuple[float, str]]
    now: tuple[float, float, float]  # x, from y, to y
    width: float = WIDTH
    height: float = HEIGHT


def week_of(schedule: Schedule, shown: datetime) -> Week:
    """`shown` is the current time in the schedule's time zone."""
    minute = shown.hour * 60 + shown.minute
    top = _row(shown.weekday())
    return Week(
        bars=[_bar(day, *part) for day in range(len(DAYS)) for part in _open_on(day, schedule)],
        days=[(_row(at) + _ROW - 9, day.capitalize()) for at, day in enumerate(DAYS)],
        hours=[(_across(hour * 60), f"{hour:02d}") for hour in range(0, 25, 3)],
        now=(_across(minute), top, top + _ROW - 6),
    )


def _open_on(day: int, schedule: Schedule) -> list[tuple[int, int]]:
    """The opening times of a day, from and to, in minutes; the whole day without windows."""
    if not schedule:
        return [(0, _DAY_MINUTES)]
    parts = sorted(part for window in schedule for part in _parts(window, day))
    joined: list[tuple[int, int]] = []
    for begin, end in parts:
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _parts(window: ScheduleWindow, day: int) -> list[tuple[int, int]]:
    """A window that passes midnight has a part on each of two days."""
    over = window.end <= window.begin
    parts = []
    if day in window.days:
        parts.append((window.begin, _DAY_MINUTES if over else window.end))
    if over and window.end and (day - 1) % len(DAYS) in window.days:
        parts.append((0, window.end))
    return parts


def _bar(day: int, begin: int, end: int) -> ScheduleBar:
    words = f"{DAYS[day].capitalize()} {_clock(begin)} to {_clock(end)}"
    return ScheduleBar(_across(begin), _row(day), _across(end) - _across(begin), words)


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


def _across(minute: int) -> float:
    return _LEFT + minute / 60 * _HOUR


def _row(day: int) -> float:
    return _TOP + day * _ROW + 3
