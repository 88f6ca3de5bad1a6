"""Opening hours and load limits of groups: which groups are closed, why, and how calls are
refused."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db.models.functions import Now

from tests import factories
from tests.conditions import until
from tests.tools.shapes import check_error
from tests.tools.snapshots import closed_now, group, snapshot, tool
from tools.catalog.group_openings import (
    ALL_OPEN,
    Cause,
    Figure,
    Load,
    OpeningsWatch,
    Processors,
    good_until,
    oldest_wait_s,
    openings_of,
)
from tools.catalog.groups import save_group
from tools.execution.perform import perform
from tools.models import Execution, ToolGroup

OFFICE = [{"days": ["mon", "tue", "wed", "thu", "fri"], "from": "09:00", "to": "17:00"}]
SUNDAY = datetime(2026, 11, 22, 12, tzinfo=UTC)


def loaded(queue_age_s=0.0, cpu_percent=0.0):
    return Load(Figure(lambda: queue_age_s), Figure(lambda: cpu_percent))


def test_a_group_is_closed_outside_its_windows_and_says_when_it_opens():
    place = snapshot(group("office", schedule=OFFICE), zone="Europe/Berlin")
    found = OpeningsWatch(place).openings_at(SUNDAY)
    assert found.closings["office"].cause == Cause.HOURS
    assert found.reasons(["office", "other"]) == [
        "The group office is closed at this hour and opens on Monday, 2026-11-23 09:00 "
        "Europe/Berlin."
    ]


@pytest.mark.parametrize(
    ("zone", "there"), [("Europe/Berlin", True), ("UTC", False), ("Asia/Tokyo", True)]
)
def test_windows_are_meant_in_the_organizations_zone(zone, there):
    place = snapshot(group("office", schedule=OFFICE), zone=zone)
    at = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)  # 09:00 in Berlin; in Tokyo it closes
    if zone == "Asia/Tokyo":
        at -= timedelta(minutes=1)
    assert ("office" not in OpeningsWatch(place).openings_at(at).closed) is there


@pytest.mark.parametrize(
    ("bounds", "load", "cause"),
    [
        ({"max_queue_age_s": 30}, loaded(queue_age_s=30.0), None),
        ({"max_queue_age_s": 30}, loaded(queue_age_s=30.1), Cause.QUEUE),
        ({"max_cpu_percent": 80}, loaded(cpu_percent=80.0), None),
        ({"max_cpu_percent": 80}, loaded(cpu_percent=80.1), Cause.PROCESSORS),
        ({"max_cpu_percent": 80}, loaded(queue_age_s=1e6), None),
        ({"max_cpu_percent": 80, "max_queue_age_s": 1}, loaded(2.0, 90.0), Cause.QUEUE),
        ({"max_cpu_percent": 80, "schedule": OFFICE}, loaded(2.0, 90.0), Cause.HOURS),
    ],
)
def test_a_group_is_closed_above_its_bounds(bounds, load, cause):
    found = (
        OpeningsWatch(snapshot(group("costly", **bounds)), load)
        .openings_at(SUNDAY)
        .closings.get("costly")
    )
    assert (found and found.cause) == cause


def test_the_reason_of_a_closed_group_states_its_limit():
    groups = [group("a", max_queue_age_s=30.0), group("b", max_cpu_percent=62.5)]
    found = OpeningsWatch(snapshot(*groups), loaded(100.0, 100.0)).openings_at(SUNDAY)
    assert found.reasons("ab") == [
        "The group a is closed while a call has waited longer than 30 seconds; try again later.",
        "The group b is closed while the processors are busier than 62.5 %; try again later.",
    ]


def test_nothing_is_asked_where_no_group_can_close():
    """The test has no access to the database."""
    assert openings_of(snapshot(group("a"), group("b", parent="a"), tool("echo"))) is ALL_OPEN


def test_the_load_is_not_asked_for_windows():
    found = openings_of(snapshot(group("a", schedule=closed_now()), group("b", schedule=[])))
    assert found.closed == {"a"}


@pytest.mark.parametrize(("now", "until"), [(120.0, 121.0), (179.5, 180.0), (179.0, 180.0)])
def test_an_answer_holds_for_a_second_within_its_minute(now, until):
    assert good_until(now) == until


def test_a_figure_is_found_once_a_second():
    found = []
    figure = Figure(lambda: found.append(1) or 7.0)
    assert {figure.current_value() for _ in range(1_000)} == {7.0}
    assert len(found) < 1_000


def test_the_processors_are_read_as_the_kernel_counts(tmp_path):
    counts = tmp_path / "stat"
    counts.write_text("cpu  100 0 0 100 0 0 0 0 0 0\ncpu0 1\n")
    processors = Processors(counts)
    assert processors.busy_percent() == 0.0
    counts.write_text("cpu  110 5 10 115 10 0 5 0 99 99\n")  # 30 of 55 busy; user includes guest
    assert processors.busy_percent() == pytest.approx(100 * 30 / 55)
    assert 0 <= Processors().busy_percent() <= 100


def test_the_oldest_call_that_waits_is_the_age_of_the_queue(agent, organization):
    factories.tool(organization)
    execution = factories.execution(agent)
    ages = Execution.objects.filter(pk=execution.pk)
    ages.update(queued_at=Now() - timedelta(days=400))
    assert oldest_wait_s() > 399 * 86_400
    ages.update(status="Cancelled", completed_at=Now())
    assert oldest_wait_s() < 399 * 86_400


def test_a_group_closes_by_the_real_queue(agent, organization):
    factories.tool(organization, group=["default"])
    execution = factories.execution(agent)
    Execution.objects.filter(pk=execution.pk).update(queued_at=Now() - timedelta(days=400))
    place = snapshot(group("costly", max_queue_age_s=86_400.0))
    watch = OpeningsWatch(place, Load(Figure(oldest_wait_s), Figure(lambda: 0.0)))
    assert watch.current_openings().closed == {"costly"}


def test_the_execution_pipeline_measures_the_real_load(api, agent, organization):
    factories.tool(organization)
    execution = factories.execution(agent)
    Execution.objects.filter(pk=execution.pk).update(queued_at=Now() - timedelta(days=400))
    save_group(
        organization=organization, name="default", by=factories.actor(organization),
        max_queue_age_s=86_400, max_cpu_percent=100,
    )  # fmt: skip
    refusal = until(lambda: refused(api.execute("echo", {"text": "x"}, options={"wait_s": 0})))
    assert refusal["code"] == "group_closed"
    assert "while a call has waited longer than 86400 seconds" in refusal["message"]


def refused(answer):
    """The refusal; none while the cached load is a second old."""
    return answer.json() if answer.status_code == 403 else None


@pytest.fixture
def close(organization):
    def act(name="default", **opening):
        opening = opening or {"schedule": closed_now()}
        save_group(
            organization=organization, name=name, by=factories.actor(organization), **opening
        )

    return act


def test_a_call_through_a_closed_group_is_refused_and_recorded(api, organization, close):
    factories.tool(organization)
    close()
    body = check_error(api.execute("echo", {"text": "x"}), 403, "group_closed")
    assert "The group default is closed at this hour and opens on " in body["message"]
    assert body["details"]["gate"] == "group_open"
    assert Execution.objects.get(organization=organization).status == "PermissionDenied"


def test_it_is_hidden_explained_and_there_again(api, organization, close):
    factories.tool(organization)
    assert [one["name"] for one in api.get("/tools").json()["results"]] == ["echo"]
    close()
    assert api.get("/tools").json()["results"] == []
    gates = {
        gate["gate"]: gate
        for one in api.get("/tools/explain").json()["results"]
        for gate in one["gates"]
        if one["tool"] == "echo"
    }
    assert gates["group"]["passed"]
    assert gates["group_open"]["code"] == "group_closed"
    close(schedule=[])
    assert [one["name"] for one in api.get("/tools").json()["results"]] == ["echo"]


def test_what_waits_does_not_run_once_its_group_has_closed(agent, organization, close):
    factories.tool(organization)
    execution = factories.execution(agent)
    close()
    perform(execution.pk)
    execution.refresh_from_db()
    assert (execution.status, execution.error_code) == ("PermissionDenied", "group_closed")


def test_another_organizations_hours_are_its_own(api, organization):
    other = factories.organization("closed-elsewhere")
    save_group(organization=other, name="default", by=factories.actor(other), schedule=closed_now())
    factories.tool(organization)
    both = ToolGroup.objects.filter(organization__in=[organization, other], name="default")
    assert both.count() == 2
    assert [one["name"] for one in api.get("/tools").json()["results"]] == ["echo"]
