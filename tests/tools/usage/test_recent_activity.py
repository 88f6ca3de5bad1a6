"""Recent usage by hours and days of a time zone, in statements that use an index."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from tests import factories
from tools.models import Agent, Execution, Organization
from tools.usage import recent_activity
from tools.usage.recent_activity import UsageStatistics

pytestmark = pytest.mark.django_db
BERLIN, KOLKATA = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kolkata")


@pytest.fixture(autouse=True)
def _echo(organization: Organization) -> None:
    factories.tool(organization)


def call(agent: Agent, made: datetime, status: str = "Success", took_ms: float = 10.0) -> None:
    execution = factories.execution(agent)
    Execution.objects.filter(pk=execution.pk).update(created_at=made)
    ended = {"status": status, "completed_at": timezone.now(), "duration_ms": took_ms}
    factories.end_execution(execution, **ended, cost=Decimal("0.25"))


def told(series: recent_activity.Series) -> dict[datetime | date, UsageStatistics]:
    return {begins: figures for begins, figures in series if figures.calls}


@pytest.mark.parametrize("zone", [UTC_ := ZoneInfo("UTC"), BERLIN, KOLKATA])
def test_an_hour_begins_where_the_time_zone_has_it(agent: Agent, zone: ZoneInfo) -> None:
    hour = timezone.now().astimezone(zone).replace(minute=0, second=0, microsecond=0)
    call(agent, hour)
    call(agent, hour - timedelta(microseconds=1))
    call(agent, hour - timedelta(hours=24))
    series = recent_activity.by_hour(factories.caller(agent), zone)
    assert len(series) == 24
    assert set(told(series)) == {hour, hour - timedelta(hours=1)}
    assert {begins.minute for begins, _ in series if isinstance(begins, datetime)} == {0}


def test_days_are_those_of_the_time_zone(agent: Agent) -> None:
    today = timezone.now().astimezone(KOLKATA).date()
    morning = datetime(today.year, today.month, today.day, tzinfo=KOLKATA)
    call(agent, morning - timedelta(seconds=1))
    call(agent, morning - timedelta(days=14))
    series = recent_activity.by_day(factories.caller(agent), KOLKATA)
    assert [len(series), series[-1][0]] == [14, today]
    assert list(told(series)) == [today - timedelta(days=1)]


def test_figures_tell_failures_refusals_latencies_and_cost(agent: Agent) -> None:
    now = timezone.now()
    for status, took_ms in (
        ("Success", 10.0),
        ("Success", 20.0),
        ("Timeout", 30.0),
        ("PermissionDenied", 9_000.0),
    ):
        call(agent, now, status, took_ms)
    (figures,) = told(recent_activity.by_hour(factories.caller(agent), UTC_)).values()
    assert figures == UsageStatistics(4, 1, 1, Decimal("0.75"), 20.0, 29.0)


def test_days_that_are_over_are_read_once_and_today_each_time(
    agent: Agent, django_assert_num_queries
) -> None:
    caller, now = factories.caller(agent), timezone.now()
    call(agent, now - timedelta(days=3))
    call(agent, now)
    before = told(recent_activity.by_day(caller, UTC_))
    call(agent, now)
    with django_assert_num_queries(1) as asked:
        after = told(recent_activity.by_day(caller, UTC_))
    assert f"{now.astimezone(UTC):%Y-%m-%d} 00:00" in asked[0]["sql"]
    assert [one.calls for one in before.values()] == [1, 1]
    assert [one.calls for one in after.values()] == [1, 2]


def test_readers_of_another_organization_push_nothing_out(
    agent: Agent, monkeypatch, django_assert_num_queries
) -> None:
    monkeypatch.setattr(recent_activity, "_MOST_KEPT", 3)
    caller = factories.caller(agent)
    call(agent, timezone.now() - timedelta(days=3))
    before = told(recent_activity.by_day(caller, UTC_))
    stranger = factories.caller(factories.agent(factories.organization("crowded")))
    for zone in ("Europe/Berlin", "Asia/Tokyo", "America/Lima", "Africa/Cairo", "Asia/Dubai"):
        recent_activity.by_day(stranger, ZoneInfo(zone))
    with django_assert_num_queries(1) as asked:
        assert told(recent_activity.by_day(caller, UTC_)) == before
    assert f"{timezone.now().astimezone(UTC):%Y-%m-%d} 00:00" in asked[0]["sql"]  # only today


def test_more_than_the_most_is_not_counted(agent: Agent, monkeypatch) -> None:
    monkeypatch.setattr(recent_activity, "MOST_COUNTED", 2)
    for _ in range(4):
        factories.execution(agent)
    assert recent_activity.now_of(factories.caller(agent)).waiting == 3
