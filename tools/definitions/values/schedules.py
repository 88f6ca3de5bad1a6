"""Schedules of groups: weekly windows in the local time of a time zone.

Windows follow local time, also at changes of daylight saving time: a window whose hours are skipped
that night does not open, and one whose hours occur twice is open in both.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from tools.definitions.fields import DefinitionFields

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MOST_WINDOWS = 50
MIDNIGHT = "24:00"  # may end a window
_PARTS = ("days", "from", "to")
_TIME = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]")
_EVERY_DAY = frozenset(range(len(DAYS)))
_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ScheduleWindow:
    """Minutes of the day; one that ends no later than it begins crosses midnight."""

    days: frozenset[int]
    begin: int
    end: int

    def holds(self, weekday: int, minute: int) -> bool:
        if self.begin < self.end:
            return self.begin <= minute < self.end and weekday in self.days
        yesterday = (weekday - 1) % len(DAYS)
        return (minute >= self.begin and weekday in self.days) or (
            minute < self.end and yesterday in self.days
        )


Schedule = tuple[ScheduleWindow, ...]


def read_schedule(parent: DefinitionFields, name: str) -> list[dict[str, Any]]:
    """The list of windows in canonical form. Errors name a field such as `name[2].from`."""
    given = parent.raw.get(name)
    if given is None:
        return []
    if not isinstance(given, list) or len(given) > MOST_WINDOWS:
        parent.wrong(name, f"must be a list of at most {MOST_WINDOWS} windows")
        return []
    return [_read_window(parent, f"{name}[{at}]", one) for at, one in enumerate(given)]


def build_schedule(written: Iterable[Any]) -> Schedule:
    """What `read_schedule` returned, as `is_open` and `next_opening` take it."""
    return tuple(
        ScheduleWindow(
            frozenset(map(DAYS.index, one["days"])) if "days" in one else _EVERY_DAY,
            _minute_of_day(one["from"]),
            _minute_of_day(one["to"]),
        )
        for one in written
    )


def is_open(schedule: Schedule, moment: datetime, zone: ZoneInfo) -> bool:
    """Without any window it always is. `moment` is aware."""
    if not schedule:
        return True
    shown = moment.astimezone(zone)
    weekday, minute = shown.weekday(), shown.hour * 60 + shown.minute
    return any(window.holds(weekday, minute) for window in schedule)


def next_opening(schedule: Schedule, moment: datetime, zone: ZoneInfo) -> datetime:
    """The first moment from `moment` on at which it is open, in the zone's own time."""
    if is_open(schedule, moment, zone):
        return moment.astimezone(zone)
    begin = moment.astimezone(UTC).replace(second=0, microsecond=0)
    while True:  # windows repeat every week
        end = begin + _DAY
        around = (*_window_starts(schedule, begin, end, zone), *_offset_changes(begin, zone))
        opening = [at for at in around if moment < at <= end and is_open(schedule, at, zone)]
        if opening:
            return min(opening).astimezone(zone)
        begin = end


def _read_window(parent: DefinitionFields, place: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        parent.wrong(place, "must be an object with from, to and, where not every day, days")
        return {}
    fields = DefinitionFields(given, parent.flaws, f"{parent.prefix}{place}.")
    for key in sorted(set(map(str, given)).difference(_PARTS)):
        fields.wrong(key[:60], "is not known here")
    window: dict[str, Any] = {}
    if fields.has_value("days"):
        window["days"] = _read_days(fields)
    window["from"] = _read_time(fields, "from", "a time such as 09:00")
    window["to"] = _read_time(fields, "to", "a time such as 17:00, or 24:00", MIDNIGHT)
    return window


def _read_days(fields: DefinitionFields) -> list[str]:
    """In the order of the week."""
    given = fields.raw["days"]
    known = isinstance(given, list) and all(isinstance(day, str) and day in DAYS for day in given)
    if not known or not given or len(set(given)) != len(given):
        wanted = ", ".join(DAYS)
        fields.wrong("days", f"must be a list of different days ({wanted}); every day without it")
        return []
    return sorted(given, key=DAYS.index)


def _read_time(fields: DefinitionFields, name: str, wanted: str, *beside: str) -> str:
    given = fields.raw.get(name)
    if isinstance(given, str) and (_TIME.fullmatch(given) or given in beside):
        return given
    fields.wrong(name, f"must be {wanted}")
    return ""


def _minute_of_day(text: str) -> int:
    return int(text[:2]) * 60 + int(text[3:])


def _window_starts(
    schedule: Sequence[ScheduleWindow], begin: datetime, end: datetime, zone: ZoneInfo
) -> Iterator[datetime]:
    """When the clock shows a window's beginning; where it does so twice, both times."""
    day, last = begin.astimezone(zone).date(), end.astimezone(zone).date()
    while day <= last:
        for window in schedule:
            if day.weekday() in window.days:
                yield from _local_moments(day, window.begin, zone)
        day += _DAY


def _local_moments(day: date, minute: int, zone: ZoneInfo) -> Iterator[datetime]:
    clock = time(*divmod(minute, 60))
    for fold in (0, 1):
        yield datetime.combine(day, clock.replace(fold=fold), zone).astimezone(UTC)


def _offset_changes(begin: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """When the UTC offset changes in the day from `begin` on, to the minute."""
    for hour in range(24):
        before = begin + hour * _HOUR
        if _utc_offset(before, zone) != _utc_offset(before + _HOUR, zone):
            minutes = (before + step * _MINUTE for step in range(1, 61))
            yield next(at for at in minutes if _utc_offset(at, zone) != _utc_offset(before, zone))


def _utc_offset(moment: datetime, zone: ZoneInfo) -> timedelta | None:
    return moment.astimezone(zone).utcoffset()
