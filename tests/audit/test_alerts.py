"""What somebody should look at: raised once, counted on, and left alone once it was looked at."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from audit import alerts
from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import Alert, AuditRecord

pytestmark = pytest.mark.django_db


@pytest.fixture
def place():
    return f"org-{uuid4().hex[:12]}"


def happened(place, event, *, times=1, actor="ada", reason="", ago=None, **fields):
    """Records of somebody, as long ago as is said: evidence is dated when it is written."""
    for _ in range(times):
        record(
            event,
            by=Actor("agent", actor, place),
            outcome=Outcome.DENIED,
            reason=reason,
            subject=fields.get("subject", ""),
            details=fields.get("details"),
        )
    if ago is not None:
        backdate(place, actor, ago)


def backdate(place, actor, ago):
    """What is newer. Only a test may: the trigger that refuses changes is off meanwhile."""
    with connection.cursor() as cursor:
        cursor.execute("GRANT UPDATE ON audit_auditrecord TO CURRENT_USER")
        cursor.execute("ALTER TABLE audit_auditrecord DISABLE TRIGGER audit_rows_never_change")
        AuditRecord.objects.filter(
            organization=place, actor=actor, occurred_at__gt=timezone.now() - ago
        ).update(occurred_at=timezone.now() - ago)
        cursor.execute("ALTER TABLE audit_auditrecord ENABLE TRIGGER audit_rows_never_change")


def raised(place):
    alerts.raise_all()
    return list(Alert.objects.filter(organization=place).order_by("rule"))


def refused(place, **fields):
    happened(place, Event.TOOL_DENY, reason="group_not_granted", **fields)


def test_three_refused_groups_in_five_minutes_raise_one_alert(place):
    refused(place, times=3)
    (alert,) = raised(place)
    assert (alert.rule, alert.actor, alert.count) == ("refused_groups", "ada", 3)


def test_two_do_not(place):
    refused(place, times=2)
    assert raised(place) == []


def test_nor_do_those_of_two_agents_together(place):
    refused(place, times=2)
    refused(place, times=2, actor="bob")
    assert raised(place) == []


def test_nor_those_of_two_organizations(place):
    refused(place, times=2)
    refused(f"{place}-b", times=2)
    assert raised(place) == []


def test_nor_old_ones(place):
    refused(place, times=5, ago=timedelta(minutes=6))
    assert raised(place) == []


def test_asking_for_every_group_is_critical_at_once(place):
    refused(place, details={"requested_groups": ["*"]})
    (alert,) = raised(place)
    assert (alert.rule, alert.severity) == ("escalation", "critical")


def test_a_workflow_that_is_pushed_against_its_states_is_told(place):
    happened(place, Event.TOOL_DENY, reason="tool_not_in_state", times=5)
    assert [alert.rule for alert in raised(place)] == ["invalid_transitions"]


def test_an_outcome_nobody_knows_is_told_of_each_tool(place):
    for tool in ("pay", "mail"):
        happened(place, Event.TOOL_LOST, reason="OUTCOME_UNKNOWN", subject=tool)
    assert {alert.subject for alert in raised(place)} == {"pay", "mail"}


@pytest.mark.parametrize(("displayed_s", "told"), [(1.2, True), (30, False), (None, False)])
def test_a_yes_without_reading_is_told(place, displayed_s, told):
    happened(place, Event.CONFIRM_APPROVE, details={"displayed_s": displayed_s})
    assert [alert.rule for alert in raised(place)] == (["hasty_approval"] if told else [])


def test_more_of_the_same_counts_on_in_the_open_alert(place):
    refused(place, times=3)
    raised(place)
    refused(place, times=2)
    (alert,) = raised(place)
    assert alert.count == 5


def test_looking_twice_raises_nothing_twice(place):
    refused(place, times=3)
    raised(place)
    assert len(raised(place)) == 1


def test_what_was_acknowledged_is_not_raised_again_for_the_same_records(place):
    refused(place, times=3)
    (alert,) = raised(place)
    alerts.acknowledge(alert=alert, by=Actor("person", "eve", place))
    (alert,) = raised(place)
    assert alert.acknowledged_by == "eve"


def test_but_for_new_ones(place):
    refused(place, times=3)
    (alert,) = raised(place)
    alerts.acknowledge(alert=alert, by=Actor("person", "eve", place))
    refused(place)
    assert [one.acknowledged_by for one in raised(place)].count("") == 1


def test_acknowledging_is_on_record_once(place):
    refused(place, times=3)
    (alert,) = raised(place)
    for _ in range(2):
        alerts.acknowledge(alert=alert, by=Actor("person", "eve", place))
    assert AuditRecord.objects.filter(organization=place, code="ALERT.ACKNOWLEDGE").count() == 1


def test_four_times_the_usual_calls_in_an_hour_are_unusual(place):
    for hour in range(14, 1, -1):
        happened(place, Event.TOOL_START, times=2, ago=timedelta(hours=hour))
    happened(place, Event.TOOL_START, times=120)
    assert [alert.rule for alert in raised(place)] == ["unusual_usage"]


def test_a_busy_agent_that_stays_as_busy_is_not_unusual(place):
    for hour in range(14, 1, -1):
        happened(place, Event.TOOL_START, times=40, ago=timedelta(hours=hour))
    happened(place, Event.TOOL_START, times=110)
    assert raised(place) == []


def test_a_group_an_agent_with_a_history_never_used_is_told(place):
    earlier = {"ago": timedelta(hours=2), "times": 100}
    happened(place, Event.TOOL_START, details={"requested_groups": ["read"]}, **earlier)
    happened(place, Event.TOOL_START, details={"requested_groups": ["write"]})
    happened(place, Event.TOOL_START, details={"requested_groups": ["read"]})
    (alert,) = raised(place)
    assert (alert.rule, alert.subject) == ("unusual_group", "write")


def test_a_step_no_workflow_took_before_is_told(place):
    usual, strange = {"from": "a", "to": "b"}, {"from": "b", "to": "z"}
    happened(place, "STATE.TRANSITION", times=100, details=usual, ago=timedelta(hours=2))
    happened(place, "STATE.TRANSITION", details=usual)
    happened(place, "STATE.TRANSITION", details=strange)
    (alert,) = raised(place)
    assert (alert.rule, alert.subject) == ("unusual_step", "b → z")


def test_alerts_are_read_and_acknowledged_over_rest(organization, admin_api, api):
    refused(organization.slug, times=3)
    raised(organization.slug)
    (alert,) = admin_api.get("/audit/alerts?open=true").json()["results"]
    assert api.get("/audit/alerts").status_code == 403
    done = admin_api.post(f"/audit/alerts/{alert['id']}/acknowledge")
    assert done.status_code == 200 and done.json()["acknowledged_by"]
    assert admin_api.get("/audit/alerts?open=true").json()["results"] == []


def test_another_organizations_alert_is_not_there(place, admin_api):
    refused(place, times=3)
    (alert,) = raised(place)
    assert admin_api.post(f"/audit/alerts/{alert.pk}/acknowledge").status_code == 404


def test_the_page_shows_them_and_takes_the_acknowledgement(organization, admin_client):
    refused(organization.slug, times=3)
    (alert,) = raised(organization.slug)
    page = admin_client.get("/audit/alerts/")
    assert alert.message in page.content.decode()
    assert admin_client.post(f"/audit/alerts/{alert.pk}/acknowledge/").status_code == 302
    alert.refresh_from_db()
    assert alert.acknowledged_at is not None
