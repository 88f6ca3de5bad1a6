"""The opening windows of a group as a drawing of a week, with a row for each day."""

from dataclasses import dataclass
from datetime import datetime

from tools.definitions.values.schedules import DAYS, Schedule, ScheduleWindow

_HOUR_WIDTH, _ROW_HEIGHT, _LEFT, _TOP = 28.0, 22.0, 44.0, 20.0
_DAY_MINUTES = 24 * 60
WIDTH = _LEFT + 24 * _HOUR_WIDTH + 12
HEIGHT = _TOP + len(DAYS) * _ROW_HEIGHT + 6


@dataclass(frozen=True)
class ScheduleBar:
    x: float
    y: float
    width: float
    words: str
    height: float = _ROW_HEIGHT - 6


@dataclass(frozen=True)
class WeekChart:
    bars: list[ScheduleBar]
    days: list[tuple[float, str]]
    hours: list[tuple[float, str]]
    now: tuple[float, float, float]  # x, from y, to y
    width: float = WIDTH
    height: float = HEIGHT


def week_chart(schedule: Schedule, shown: datetime) -> WeekChart:
    """`shown` is the current time in the schedule's time zone."""
    minute = shown.hour * 60 + shown.minute
    top = _day_y(shown.weekday())
    return WeekChart(
        bars=[
            _schedule_bar(day, *part)
            for day in range(len(DAYS))
            for part in _open_intervals(day, schedule)
        ],
        days=[(_day_y(at) + _ROW_HEIGHT - 9, day.capitalize()) for at, day in enumerate(DAYS)],
        hours=[(_minute_x(hour * 60), f"{hour:02d}") for hour in range(0, 25, 3)],
        now=(_minute_x(minute), top, top + _ROW_HEIGHT - 6),
    )


def _open_intervals(day: int, schedule: Schedule) -> list[tuple[int, int]]:
    """The opening times of a day, from and to, in minutes; the whole day without windows."""
    if not schedule:
        return [(0, _DAY_MINUTES)]
    parts = sorted(part for window in schedule for part in _window_intervals(window, day))
    joined: list[tuple[int, int]] = []
    for begin, end in parts:
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _window_intervals(window: ScheduleWindow, day: int) -> list[tuple[int, int]]:
    """A window that passes midnight has a part on each of two days."""
    over = window.end <= window.begin
    parts = []
    if day in window.days:
        parts.append((window.begin, _DAY_MINUTES if over else window.end))
    if over and window.end and (day - 1) % len(DAYS) in window.days:
        parts.append((0, window.end))
    return parts


def _schedule_bar(day: int, begin: int, end: int) -> ScheduleBar:
    words = f"{DAYS[day].capitalize()} {_clock_text(begin)} to {_clock_text(end)}"
    return ScheduleBar(_minute_x(begin), _day_y(day), _minute_x(end) - _minute_x(begin), words)


def _clock_text(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


def _minute_x(minute: int) -> float:
    return _LEFT + minute / 60 * _HOUR_WIDTH


def _day_y(day: int) -> float:
    return _TOP + day * _ROW_HEIGHT + 3
