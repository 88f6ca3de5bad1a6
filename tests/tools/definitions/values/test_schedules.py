"""Weekly opening hours, compared with a clock that advances minute by minute."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.definitions.fields import DefinitionFields
from tools.definitions.values.schedules import (
    DAYS,
    MOST_WINDOWS,
    build_schedule,
    is_open,
    next_opening,
    read_schedule,
)

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
LORD_HOWE, APIA = ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Pacific/Apia")
ST_JOHNS, KATHMANDU = ZoneInfo("America/St_Johns"), ZoneInfo("Asia/Kathmandu")
ZONES = [BERLIN, NEW_YORK, LORD_HOWE, APIA, ST_JOHNS, KATHMANDU, ZoneInfo("UTC")]
# Nights in which clocks of these zones change, and one day that was skipped.
TURNING = [
    datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC),
    datetime(2026, 3, 8, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC),
    datetime(2026, 4, 4, tzinfo=UTC), datetime(2026, 10, 3, tzinfo=UTC),
    datetime(2011, 12, 30, tzinfo=UTC), datetime(2010, 11, 7, tzinfo=UTC),
]  # fmt: skip
OFFICE = {"days": ["mon", "tue", "wed", "thu", "fri"], "from": "09:00", "to": "17:00"}
NIGHT = {"from": "01:00", "to": "03:00"}


def read(*windows):
    fields = DefinitionFields({"schedule": [*windows]}, [])
    return read_schedule(fields, "schedule"), fields.flaws


def test_what_is_right_is_returned_in_the_order_of_the_week():
    assert read({"days": ["sun", "mon"], "from": "22:00", "to": "06:00"}, NIGHT) == (
        [{"days": ["mon", "sun"], "from": "22:00", "to": "06:00"}, NIGHT],
        [],
    )


def test_days_that_are_null_are_every_day():
    assert read({**NIGHT, "days": None}) == ([NIGHT], [])


WRONG = [
    ("mon", "schedule[1]"), (None, "schedule[1]"), ([], "schedule[1]"),
    ({"to": "17:00"}, "schedule[1].from"), ({"from": "09:00"}, "schedule[1].to"),
    ({"from": "9:00", "to": "17:00"}, "schedule[1].from"),
    ({"from": "24:00", "to": "17:00"}, "schedule[1].from"),
    ({"from": "09:00", "to": "24:01"}, "schedule[1].to"),
    ({"from": "09:60", "to": "17:00"}, "schedule[1].from"),
    ({"from": "٠٩:٠٠", "to": "17:00"}, "schedule[1].from"),
    ({"from": "09:00\n", "to": "17:00"}, "schedule[1].from"),
    ({"from": 900, "to": "17:00"}, "schedule[1].from"),
    ({"from": "09:00", "to": "17:00", "days": []}, "schedule[1].days"),
    ({"from": "09:00", "to": "17:00", "days": "mon"}, "schedule[1].days"),
    ({"from": "09:00", "to": "17:00", "days": ["Mon"]}, "schedule[1].days"),
    ({"from": "09:00", "to": "17:00", "days": [["mon"]]}, "schedule[1].days"),
    ({"from": "09:00", "to": "17:00", "days": ["mon", "mon"]}, "schedule[1].days"),
    ({"from": "09:00", "to": "17:00", "until": "x"}, "schedule[1].until"),
]  # fmt: skip


@pytest.mark.parametrize(("window", "field"), WRONG, ids=str)
def test_each_wrong_field_is_named_once(window, field):
    _, flaws = read(OFFICE, window)
    assert [flaw["field"] for flaw in flaws] == [field]


def test_every_wrong_field_is_named():
    _, flaws = read({"days": ["x"], "from": "x", "to": "x"})
    assert [flaw["field"] for flaw in flaws] == [
        "schedule[0].days", "schedule[0].from", "schedule[0].to",
    ]  # fmt: skip


@pytest.mark.parametrize("given", [{}, "09:00-17:00", [NIGHT] * (MOST_WINDOWS + 1), True, 0])
def test_an_invalid_list_of_windows_is_reported(given):
    fields = DefinitionFields({"schedule": given}, [])
    assert read_schedule(fields, "schedule") == []
    assert [flaw["field"] for flaw in fields.flaws] == ["schedule"]


def test_without_windows_it_is_always_open():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert is_open((), now, BERLIN)
    assert next_opening((), now, BERLIN) == now


@pytest.mark.parametrize(
    ("window", "at", "there"),
    [
        (OFFICE, datetime(2026, 11, 23, 8, 59, 59, 999_999), False),
        (OFFICE, datetime(2026, 11, 23, 9, 0), True),
        (OFFICE, datetime(2026, 11, 23, 16, 59, 59), True),
        (OFFICE, datetime(2026, 11, 23, 17, 0), False),
        (OFFICE, datetime(2026, 11, 22, 12, 0), False),
        ({"from": "00:00", "to": "24:00"}, datetime(2026, 11, 22, 23, 59), True),
        ({"from": "00:00", "to": "00:00"}, datetime(2026, 11, 22, 23, 59), True),
        ({"from": "09:00", "to": "09:00"}, datetime(2026, 11, 22, 8, 59), True),
        ({"days": ["mon"], "from": "09:00", "to": "09:00"}, datetime(2026, 11, 23, 8, 0), False),
        ({"days": ["mon"], "from": "09:00", "to": "09:00"}, datetime(2026, 11, 24, 8, 0), True),
        ({"days": ["sun"], "from": "22:00", "to": "06:00"}, datetime(2026, 11, 22, 5, 0), False),
        ({"days": ["sun"], "from": "22:00", "to": "06:00"}, datetime(2026, 11, 22, 22, 0), True),
        ({"days": ["sun"], "from": "22:00", "to": "06:00"}, datetime(2026, 11, 23, 5, 59), True),
        ({"days": ["sun"], "from": "22:00", "to": "06:00"}, datetime(2026, 11, 23, 6, 0), False),
    ],
)
def test_it_is_open_within_its_windows(window, at, there):
    assert is_open(build_schedule([window]), at.replace(tzinfo=BERLIN), BERLIN) is there


def test_hours_that_are_left_out_do_not_open():
    """Berlin, 29 March 2026: 01:59 is followed by 03:00."""
    lost = build_schedule([{"days": ["sun"], "from": "02:00", "to": "03:00"}])
    before = datetime(2026, 3, 29, 0, 0, tzinfo=BERLIN)
    assert next_opening(lost, before, BERLIN) == datetime(2026, 4, 5, 2, 0, tzinfo=BERLIN)
    late = build_schedule([{"from": "02:30", "to": "04:00"}])
    assert next_opening(late, before, BERLIN) == datetime(2026, 3, 29, 3, 0, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("night", "hours"),
    [(datetime(2026, 3, 29), 1), (datetime(2026, 10, 25), 3), (datetime(2026, 6, 1), 2)],
)
def test_a_window_is_as_long_as_its_hours_are_that_night(night, hours):
    begun = night.replace(tzinfo=BERLIN).astimezone(UTC)
    minutes = (begun + timedelta(minutes=step) for step in range(6 * 60))
    held = sum(is_open(build_schedule([NIGHT]), at, BERLIN) for at in minutes)
    assert held == hours * 60


def test_hours_that_come_twice_open_twice():
    """Lord Howe, 5 April 2026: 02:00 is followed by 01:30."""
    half = build_schedule([{"from": "01:30", "to": "02:00"}])
    first = datetime(2026, 4, 5, 1, 30, tzinfo=LORD_HOWE).astimezone(UTC)
    assert is_open(half, first + timedelta(minutes=59), LORD_HOWE)
    assert not is_open(half, first + timedelta(minutes=60), LORD_HOWE)


def test_a_day_that_was_left_out_has_no_windows():
    """Apia skipped Friday, 30 December 2011."""
    friday = build_schedule([{"days": ["fri"], "from": "09:00", "to": "17:00"}])
    thursday = datetime(2011, 12, 29, 20, 0, tzinfo=APIA)
    assert next_opening(friday, thursday, APIA) == datetime(2012, 1, 6, 9, 0, tzinfo=APIA)


CLOCK = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.sampled_from([0, 1, 30, 59]))
WINDOW = st.fixed_dictionaries(
    {"from": CLOCK, "to": CLOCK | st.just("24:00")},
    optional={"days": st.lists(st.sampled_from(DAYS), min_size=1, unique=True)},
)
SCHEDULE = st.lists(WINDOW, min_size=1, max_size=3)
MOMENT = st.builds(
    lambda night, minutes: night + timedelta(minutes=minutes),
    st.sampled_from(TURNING),
    st.integers(-36 * 60, 36 * 60),
)


def is_open_by_minutes(windows, moment, zone):
    """The oracle: every minute of a window is a pair of day and clock."""
    clock = moment.astimezone(zone)
    here = (DAYS[clock.weekday()], f"{clock:%H:%M}")
    return any(here in pairs(window) for window in windows)


def pairs(window):
    every = [f"{hour:02}:{minute:02}" for hour in range(24) for minute in range(60)]
    over = window["to"] <= window["from"]
    for day in window.get("days", DAYS):
        after = DAYS[(DAYS.index(day) + 1) % 7]
        for clock in every:
            if clock >= window["from"] and (over or clock < window["to"]):
                yield day, clock
            elif over and clock < window["to"]:
                yield after, clock


@given(SCHEDULE, MOMENT, st.sampled_from(ZONES))
@settings(max_examples=150, deadline=None)
def test_it_is_open_when_the_clock_shows_a_minute_of_a_window(windows, moment, zone):
    assert is_open(build_schedule(windows), moment, zone) is is_open_by_minutes(
        windows, moment, zone
    )


@given(SCHEDULE, MOMENT, st.sampled_from(ZONES), st.integers(0, 59))
@settings(max_examples=120, deadline=None)
def test_it_opens_at_the_first_open_minute(windows, moment, zone, seconds):
    schedule, asked = build_schedule(windows), moment + timedelta(seconds=seconds)
    wanted, minute = asked, moment
    while not is_open(schedule, wanted, zone):
        wanted = minute = minute + timedelta(minutes=1)
    found = next_opening(schedule, asked, zone)
    assert (found.astimezone(UTC), found.tzinfo) == (wanted, zone)
