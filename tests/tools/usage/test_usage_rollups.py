"""Usage rollups: completed days are aggregated once, and queries agree with the executions."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests import factories
from tools.accounts.callers import caller_of_user
from tools.catalog.registry import registry
from tools.definitions.callers import Caller
from tools.models import Agent, DayFigures, DayOfCalls, Execution, Organization
from tools.usage import latency_percentiles, recent_activity, usage_rollups
from tools.usage.usage_reports import Row, UsageQuery, durations, ranking, usage

pytestmark = pytest.mark.django_db
BERLIN = ZoneInfo("Europe/Berlin")
ASKED = [
    UsageQuery(),
    UsageQuery(by=("agent",)),
    UsageQuery(by=("tool",)),
    UsageQuery(by=("day", "tool")),
    UsageQuery(by=("day", "agent", "tool")),
    UsageQuery(by=("group",)),
    UsageQuery(by=("day", "group"), group="desk"),
    UsageQuery(by=("agent",), tool="echo"),
    UsageQuery(tool="echo"),
    UsageQuery(group="desk"),
    UsageQuery(by=("day", "agent"), agent="busy"),
]
Call = Callable[..., Execution]


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Yesterday can be aggregated, also in the first hour of today."""
    monkeypatch.setattr(usage_rollups, "SETTLED", timedelta(0))


@pytest.fixture
def reader(organization: Organization) -> Caller:
    Organization.objects.filter(pk=organization.pk).update(time_zone=BERLIN.key)
    factories.tool(organization)
    factories.tool(organization, "other", group=["desk"])
    user = factories.superuser(organization)
    user.organization.refresh_from_db()
    return caller_of_user(user)


@pytest.fixture
def call(organization: Organization, reader: Caller) -> Call:
    """A call so many days ago; open if no status is given."""
    agents = {name: factories.agent(organization, name, groups=["*"]) for name in ("busy", "idle")}

    def called(ago: int, status: str = "", agent: str = "busy", **fields: Any) -> Execution:
        name = fields.pop("tool", "echo")
        made = factories.execution(agents[agent], name, group=["*"])
        Execution.objects.filter(pk=made.pk).update(created_at=noon(ago))
        if status:
            end(made, status, **fields)
        return made

    return called


def noon(ago: int) -> datetime:
    day = timezone.now().astimezone(BERLIN).date() - timedelta(days=ago)
    return datetime.combine(day, time(12), BERLIN)


def end(execution: Execution, status: str, took_ms: float = 10.0, cost: str = "0.25") -> None:
    over = {"status": status, "completed_at": timezone.now(), "duration_ms": took_ms}
    factories.end_execution(execution, **over, cost=Decimal(cost))


@pytest.fixture
def busy(call: Call) -> None:
    """Three days of calls of both agents and tools, with every status."""
    for ago in (1, 2, 5):
        call(ago, "Success"), call(ago, "Success", tool="other", took_ms=90.0)
        call(ago, "Failed", agent="idle"), call(ago, "Timeout", took_ms=500.0)
        call(ago, "PermissionDenied", took_ms=9_000.0), call(ago, "Cancelled")
    call(0, "Success"), call(2)


def told(reader: Caller) -> list[list[Row]]:
    snapshot = registry.snapshot(reader.organization_id, reader.revision)
    return [sorted(usage(reader, snapshot, wanted).rows, key=str) for wanted in ASKED]


def charted(reader: Caller) -> recent_activity.Series:
    recent_activity._over.cache_clear()
    return recent_activity.by_day(reader, BERLIN)


def rows(reader: Caller) -> QuerySet[DayOfCalls]:
    return DayOfCalls.objects.filter(organization=reader.organization_id)


@pytest.mark.usefixtures("busy")
def test_days_that_were_added_up_tell_what_their_calls_tell(
    reader: Caller,
) -> None:
    before = told(reader), charted(reader)
    usage_rollups.add_up()
    assert rows(reader).count() == 5
    assert (told(reader), charted(reader)) == before


@pytest.mark.part("calls")
@pytest.mark.usefixtures("busy")
def test_a_day_is_added_up_once(reader: Caller) -> None:
    assert usage_rollups.add_up() >= 5
    once = {*rows(reader).values_list("pk", flat=True)}
    usage_rollups.add_up()
    assert {*rows(reader).values_list("pk", flat=True)} == once


def test_what_was_not_over_is_told_as_it_is_now(reader: Caller, call: Call) -> None:
    waits = call(3)
    call(3, "Success")
    usage_rollups.add_up()
    assert rows(reader).get(day=noon(3).date()).unfinished == [waits.pk]
    end(waits, "Failed", took_ms=50.0, cost="2")
    (row,) = told(reader)[0]
    assert (row[1].calls, row[1].failures, row[1].cost) == (2, 1, Decimal("2.25"))
    usage_rollups.add_up()
    (figures,) = [one for _, one in charted(reader) if one.calls]
    assert (figures.calls, figures.median_ms) == (2, 30.0)


@pytest.mark.part("calls")
def test_a_call_that_comes_late_makes_its_day_be_read_again(reader: Caller, call: Call) -> None:
    call(2, "Success")
    usage_rollups.add_up()
    late = call(2, "Failed")  # created today, and moved back by two days
    assert not rows(reader).filter(day=noon(2).date())
    assert told(reader)[0][0][1].calls == 2
    usage_rollups.add_up()
    Execution.objects.filter(pk=late.pk).delete()
    assert told(reader)[0][0][1].calls == 1


def by_tool(reader: Caller) -> tuple[list[int], int]:
    """The calls of each tool, and how many statements read the rollups."""
    snapshot = registry.snapshot(reader.organization_id, reader.revision)
    with CaptureQueriesContext(connection) as caught:
        rows = usage(reader, snapshot, UsageQuery(by=("tool",))).rows
    asked = sum("tools_dayfigures" in query["sql"] for query in caught.captured_queries)
    return [figures.calls for _, figures in rows], asked


def test_sums_of_days_are_remembered_until_one_of_them_changes(reader: Caller, call: Call) -> None:
    call(3, "Success"), call(2, "Success", tool="other")
    usage_rollups.add_up()
    assert by_tool(reader) == ([1, 1], 1)
    assert by_tool(reader) == ([1, 1], 0)
    call(3, "Success")
    assert by_tool(reader) == ([2, 1], 1)


def ranked(reader: Caller, wanted: UsageQuery) -> tuple[list[Row], list[Row]]:
    """The rows by day, and those of the ranking."""
    found = ranking(reader, registry.snapshot(reader.organization_id, reader.revision), wanted)
    return found.days.rows, found.lines[:100]


@pytest.mark.part("calls")
@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("added_up", [False, True])
@pytest.mark.parametrize(
    "wanted",
    [
        UsageQuery(by=("agent",)), UsageQuery(by=("tool",)), UsageQuery(by=("group",)),
        UsageQuery(by=("tool",), agent="busy"), UsageQuery(by=("group",), group="desk"),
        UsageQuery(by=("agent",), tool="echo"), UsageQuery(by=("tool",), group="nowhere"),
    ],
)  # fmt: skip
def test_a_ranking_has_the_days_and_the_lines_that_usage_tells(
    reader: Caller, wanted: UsageQuery, added_up: bool
) -> None:
    if added_up:
        usage_rollups.add_up()
    snapshot = registry.snapshot(reader.organization_id, reader.revision)
    lines = usage(reader, snapshot, wanted).rows
    of_days = usage(reader, snapshot, replace(wanted, by=("day",))).rows
    assert ranked(reader, wanted) == (of_days, sorted(lines, key=lambda row: -row[1].calls))


@pytest.mark.part("calls")
@pytest.mark.usefixtures("busy")
def test_a_part_of_a_ranking_is_that_part_of_all_of_it(reader: Caller) -> None:
    snapshot = registry.snapshot(reader.organization_id, reader.revision)
    lines = ranking(reader, snapshot, UsageQuery(by=("group",))).lines
    assert len(lines) == 2 and lines[0:1] + lines[1:2] == lines[:9]
    assert lines[2:5] == [] and lines[:1][0][1].calls > lines[1:][0][1].calls


@pytest.mark.usefixtures("busy")
def test_calls_of_today_are_read_once_for_its_day_and_the_lines(reader: Caller) -> None:
    usage_rollups.add_up()
    wanted = UsageQuery(by=("tool",), since=noon(5).date())
    ranked(reader, wanted)
    with CaptureQueriesContext(connection) as caught:
        ranked(reader, wanted)
    asked = [query["sql"] for query in caught if "GROUP BY" in query["sql"]]
    assert sum('"created_at" >=' in sql for sql in asked) == 1
    assert len(caught) <= 6  # rollup days, rollups, today, open calls twice, and rollup days again


def lasted(reader: Caller, tool: str) -> tuple[dict[date | None, float], ...]:
    """The percentiles from cached histograms, and those from PostgreSQL."""
    snapshot = registry.snapshot(reader.organization_id, reader.revision)
    wanted = UsageQuery(tool=tool)
    return tuple(
        durations(reader, snapshot, wanted, calls)
        for calls in (1, latency_percentiles.MOST_KEPT + 1)
    )


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("added_up", [False, True])
def test_how_long_runs_took_is_what_postgresql_says(
    reader: Caller, call: Call, added_up: bool
) -> None:
    for at in range(7):
        call(2, "Success", took_ms=3.7 * at), call(0, "Failed", took_ms=at / 3)
    late = call(2)
    if added_up:
        usage_rollups.add_up()
    end(late, "Success", took_ms=77.0)
    kept, said = lasted(reader, "echo")
    assert kept == pytest.approx(said) and len(kept) == 5
    assert lasted(reader, "nothing") == ({}, {})


@pytest.mark.usefixtures("busy")
def test_lengths_of_days_are_read_once(reader: Caller, call: Call) -> None:
    usage_rollups.add_up()
    lasted(reader, "echo")
    latency_percentiles._kept.cache_clear()
    with CaptureQueriesContext(connection) as first:
        lasted(reader, "echo")
    with CaptureQueriesContext(connection) as again:
        kept, said = lasted(reader, "echo")
    assert kept == pytest.approx(said) and len(again) == len(first) - 2
    call(2, "Success", took_ms=9_000.0)
    kept, said = lasted(reader, "echo")
    assert kept == pytest.approx(said)


def test_what_another_organization_asks_for_pushes_nothing_out(reader: Caller, call: Call) -> None:
    """Every query has another range of days."""
    call(2, "Success", took_ms=20.0)
    usage_rollups.add_up()
    by_tool(reader), lasted(reader, "echo")
    (_, sums_cost), lengths_cost = by_tool(reader), cost_of_lengths(reader, "echo")
    home = factories.organization("inquisitive")
    factories.tool(home)
    agent = factories.agent(home)
    for ago in range(1, 22):
        made = factories.execution(agent, "echo")
        Execution.objects.filter(pk=made.pk).update(created_at=noon(ago))
        end(made, "Success")
    home.refresh_from_db()
    stranger = caller_of_user(factories.superuser(home))
    usage_rollups.add_up()
    snapshot = registry.snapshot(home.pk, home.revision)
    for ago in range(1, 22):
        wanted = UsageQuery(by=("tool",), since=noon(ago).date(), tool="echo")
        usage(stranger, snapshot, wanted)
        durations(stranger, snapshot, wanted, 1)
    assert by_tool(reader)[1] == sums_cost
    assert cost_of_lengths(reader, "echo") == lengths_cost


def cost_of_lengths(reader: Caller, tool: str) -> int:
    with CaptureQueriesContext(connection) as asked:
        lasted(reader, tool)
    return len(asked)


def test_the_days_are_those_of_the_time_zone_that_is_told_in(
    reader: Caller, call: Call, organization: Organization
) -> None:
    call(2, "Success")
    usage_rollups.add_up()
    Organization.objects.filter(pk=organization.pk).update(time_zone="Asia/Kolkata")
    usage_rollups.add_up()
    assert {*rows(reader).values_list("zone", flat=True)} == {"Asia/Kolkata"}
    assert not DayFigures.objects.filter(day__zone=BERLIN.key, day__organization=organization)


def test_a_day_of_which_much_is_open_is_read_as_it_is(
    reader: Caller, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_rollups, "MOST_UNFINISHED", 1)
    call(2), call(2)
    usage_rollups.add_up()
    assert not rows(reader).filter(day=noon(2).date())
    assert told(reader)[0][0][1].calls == 2


def test_who_reads_their_own_calls_alone_is_told_of_no_others(call: Call, agent: Agent) -> None:
    call(2, "Success")
    usage_rollups.add_up()
    own = factories.caller(agent)
    snapshot = registry.snapshot(own.organization_id, own.revision)
    assert usage(own, snapshot, UsageQuery()).rows == []
    assert all(figures.calls == 0 for _, figures in charted(own))


@pytest.mark.part("calls")
@pytest.mark.usefixtures("busy")
def test_days_are_read_in_as_many_statements_as_there_are_kinds_of_them(
    reader: Caller, django_assert_max_num_queries
) -> None:
    usage_rollups.add_up()
    snapshot = registry.snapshot(reader.organization_id, reader.revision)
    with django_assert_max_num_queries(5):
        usage(reader, snapshot, UsageQuery())
