"""Alerts are raised once, counted on, and closed once they are acknowledged."""

from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from audit.actions import Actor, record
from audit.alerts import alert_rules, alerts
from audit.events import Event, Outcome
from audit.models import Alert, AlertRule, AuditLog, AuditRecord

pytestmark = pytest.mark.django_db


def happened(place, event, *, times=1, actor="ada", reason="", ago=None, **fields):
    """Records of an actor, dated `ago` before now: evidence is dated when it is written."""
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
    """Also by rules that were asked a moment ago."""
    AlertRule.objects.update(looked_at=None)
    alerts.raise_all_alerts()
    return list(Alert.objects.filter(organization=place).order_by("rule"))


def refused(place, **fields):
    happened(place, Event.TOOL_DENY, reason="group_not_granted", **fields)


def test_three_refused_groups_in_five_minutes_raise_one_alert(place):
    refused(place, times=3)
    (alert,) = raised(place)
    assert (alert.rule, alert.actor, alert.count) == ("refused_groups", "ada", 3)


@pytest.mark.parametrize("others", [None, ("", "bob"), ("-b", "ada")])
def test_two_do_not_nor_those_of_two_agents_or_organizations_together(place, others):
    refused(place, times=2)
    if others:
        refused(place + others[0], times=2, actor=others[1])
    assert raised(place) == []


def test_nor_old_ones(place):
    refused(place, times=5, ago=timedelta(minutes=6))
    assert raised(place) == []


def test_asking_for_every_group_is_critical_at_once(place):
    refused(place, details={"requested_groups": ["*"]})
    (alert,) = raised(place)
    assert (alert.rule, alert.severity) == ("escalation", "critical")


@pytest.mark.parametrize(
    ("event", "fields", "rules"),
    [
        (Event.TOOL_DENY, {"reason": "tool_not_in_state", "times": 5}, ["invalid_transitions"]),
        (Event.CONFIRM_APPROVE, {"details": {"displayed_s": 1.2}}, ["hasty_approval"]),
        (Event.CONFIRM_APPROVE, {"details": {"displayed_s": 30}}, []),
        (Event.CONFIRM_APPROVE, {"details": {"displayed_s": None}}, []),
        (Event.CONFIRM_APPROVE, {"details": {"displayed_s": 30}, "times": 20}, ["busy_approver"]),
    ],
)
def test_an_event_that_is_too_frequent_raises_an_alert(place, event, fields, rules):
    happened(place, event, **fields)
    assert [alert.rule for alert in raised(place)] == rules


def test_an_unknown_outcome_raises_an_alert_for_each_tool(place):
    for tool in ("pay", "mail"):
        happened(place, Event.TOOL_LOST, reason="OUTCOME_UNKNOWN", subject=tool)
    assert {alert.subject for alert in raised(place)} == {"pay", "mail"}


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    ("event", "outcome", "rule"),
    [
        ("AUDIT.UNSEALED", Outcome.FAILURE, "unsealed"),
        ("AUDIT.VERIFY", Outcome.FAILURE, "verification_failed"),
        ("AUDIT.VERIFY", Outcome.SUCCESS, None),
        ("AUDIT.FORGED", Outcome.FAILURE, "forged"),
        ("AUDIT.HALTED", Outcome.FAILURE, "halted"),
        (Event.TOKEN_REFUSED, Outcome.DENIED, "dead_token"),
    ],
)
def test_damaged_evidence_or_a_bad_token_raises_an_alert_at_once(place, event, outcome, rule):
    record(event, by=Actor("system", "sealer", place), outcome=outcome)
    assert [alert.rule for alert in raised(place)] == ([rule] if rule else [])


def test_an_unsigned_definition_raises_an_alert(place):
    happened(place, Event.TOOL_END, reason="signature_invalid", subject="pay")
    (alert,) = raised(place)
    assert (alert.rule, alert.severity) == ("altered_definition", "critical")
    assert alert.message == "pay has a definition that is not the one that was signed."


def test_the_first_use_of_a_tool_by_an_established_agent_raises_an_alert(place):
    happened(place, Event.TOOL_START, times=20, subject="read", ago=timedelta(hours=2))
    happened(place, Event.TOOL_START, subject="read")
    happened(place, Event.TOOL_START, subject="write")
    (alert,) = raised(place)
    assert (alert.rule, alert.subject) == ("first_use", "write")


def test_the_first_tools_of_a_new_agent_raise_no_alert(place):
    happened(place, Event.TOOL_START, times=3, subject="read")
    assert raised(place) == []


def test_more_of_the_same_counts_on_in_the_open_alert(place):
    refused(place, times=3)
    raised(place)
    refused(place, times=2)
    (alert,) = raised(place)
    assert alert.count == 5


def test_it_counts_on_past_its_window_each_record_once(place):
    refused(place, times=3, ago=timedelta(minutes=4))
    raised(place)
    backdate(place, "ada", timedelta(minutes=8))
    Alert.objects.filter(organization=place).update(
        first_at=timezone.now() - timedelta(minutes=8),
        last_at=timezone.now() - timedelta(minutes=8),
    )
    refused(place, times=3)
    raised(place)
    refused(place, times=2)
    (alert,) = raised(place)
    assert alert.count == 8


def test_a_flood_in_one_organization_hides_no_alert_of_another(place, caplog, monkeypatch):
    monkeypatch.setattr(alerts, "_MOST_FINDINGS", 20)
    for number in range(alerts._MOST_FINDINGS + 5):
        happened(f"{place}-flood", Event.TOKEN_REFUSED, actor=f"agent-{number}")
    happened(place, Event.TOKEN_REFUSED, ago=timedelta(minutes=1))
    assert [alert.rule for alert in raised(place)] == ["dead_token"]
    flood = Alert.objects.filter(organization=f"{place}-flood", rule="dead_token")
    assert flood.count() == alerts._MOST_FINDINGS
    assert f"25 findings in {place}-flood" in caplog.text


def test_a_possible_effect_of_a_failed_call_raises_an_alert(place):
    happened(place, Event.TOOL_END, reason="TIMEOUT", details={"effect_possible": True})
    happened(place, Event.TOOL_END, reason="TIMEOUT", actor="bob")
    (alert,) = raised(place)
    assert (alert.rule, alert.severity, alert.actor) == ("possible_effect", "warning", "ada")


def test_a_clock_that_is_a_day_off_changes_nothing(place, monkeypatch):
    yesterday = timezone.now() - timedelta(days=1)
    monkeypatch.setattr(timezone, "now", lambda: yesterday)
    happened(place, Event.TOOL_LOST, reason="OUTCOME_UNKNOWN")
    AlertRule.objects.update(looked_at=Now() - timedelta(seconds=30))
    alerts.raise_all_alerts()
    assert Alert.objects.get(organization=place).rule == "outcome_unknown"


def checked(place, ago):
    record("AUDIT.VERIFY", by=Actor("system", "selfcheck", place), outcome=Outcome.SUCCESS)
    backdate(place, "selfcheck", ago)


def test_a_log_unverified_for_26_hours_raises_one_alert(place):
    AuditLog.objects.create(name=place)
    checked(place, timedelta(hours=27))
    (alert,) = raised(place)
    assert alert.rule == "unchecked" and "nobody has verified" in alert.message
    alerts.acknowledge(alert=alert, by=Actor("person", "eve", place))
    assert len(raised(place)) == 1


def test_a_log_that_was_never_verified_raises_an_alert(place):
    AuditLog.objects.create(name=place)
    happened(place, Event.TOOL_START, ago=timedelta(hours=27))
    assert [alert.rule for alert in raised(place)] == ["unchecked"]


def test_a_recently_verified_log_raises_no_alert(place):
    AuditLog.objects.create(name=place)
    happened(place, Event.TOOL_START, ago=timedelta(days=3))
    checked(place, timedelta(hours=25))
    assert raised(place) == []


def test_what_is_always_watched_for_can_be_said(place):
    for rule in alert_rules.FIXED_RULES:
        rule.full_clean()


def test_looking_twice_raises_nothing_twice(place):
    refused(place, times=3)
    raised(place)
    assert len(raised(place)) == 1


def test_what_was_found_before_costs_no_statement_of_its_own(place):
    def looks(*subjects):
        for subject in subjects:
            happened(place, Event.TOOL_LOST, reason="OUTCOME_UNKNOWN", subject=subject)
        raised(place)
        rule = AlertRule.objects.get(name="outcome_unknown")
        AlertRule.objects.update(looked_at=None)
        with CaptureQueriesContext(connection) as queries:
            assert alerts.raise_rule_alerts(rule) == []
        return len(queries)

    few = looks("t0", "t1", "t2")
    assert looks(*(f"t{number}" for number in range(3, 30))) == few


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


@pytest.mark.parametrize(
    ("usual", "now", "rules"), [(2, 120, ["unusual_usage"]), (40, 110, [])], ids=["more", "as busy"]
)
def test_four_times_the_usual_calls_in_an_hour_are_unusual(place, usual, now, rules):
    for hour in range(14, 1, -1):
        happened(place, Event.TOOL_START, times=usual, ago=timedelta(hours=hour))
    happened(place, Event.TOOL_START, times=now)
    assert [alert.rule for alert in raised(place)] == rules


def test_a_new_group_of_an_established_agent_raises_an_alert(place):
    earlier = {"ago": timedelta(hours=2), "times": 100}
    happened(place, Event.TOOL_START, details={"requested_groups": ["read"]}, **earlier)
    happened(place, Event.TOOL_START, details={"requested_groups": ["write"]})
    happened(place, Event.TOOL_START, details={"requested_groups": ["read"]})
    (alert,) = raised(place)
    assert (alert.rule, alert.subject) == ("unusual_group", "write")


def test_a_new_workflow_transition_raises_an_alert(place):
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


def test_the_page_shows_them_and_takes_the_acknowledgement(organization, admin_client):
    refused(organization.slug, times=3)
    (alert,) = raised(organization.slug)
    page = admin_client.get("/audit/alerts/")
    assert alert.message in page.content.decode()
    assert admin_client.post(f"/audit/alerts/{alert.pk}/acknowledge/").status_code == 302
    alert.refresh_from_db()
    assert alert.acknowledged_at is not None


def test_events_since_the_last_evaluation_are_not_missed(place):
    AlertRule.objects.update(looked_at=timezone.now() - timedelta(hours=1))
    happened(place, Event.TOOL_LOST, reason="OUTCOME_UNKNOWN", ago=timedelta(minutes=50))
    alerts.raise_all_alerts()
    assert Alert.objects.get(organization=place).rule == "outcome_unknown"


def test_a_rule_over_an_hour_is_not_asked_every_few_seconds(place):
    rule = AlertRule.objects.get(name="unusual_usage")
    alerts.raise_rule_alerts(rule)
    rule.refresh_from_db()
    looked_at = rule.looked_at
    alerts.raise_rule_alerts(rule)
    rule.refresh_from_db()
    assert rule.looked_at == looked_at


def test_a_rule_that_is_off_finds_nothing(place):
    AlertRule.objects.filter(name="outcome_unknown").update(enabled=False)
    happened(place, Event.TOOL_LOST, reason="OUTCOME_UNKNOWN")
    assert raised(place) == []


def test_a_rule_that_cannot_be_asked_keeps_no_other_from_being_asked(place):
    AlertRule.objects.filter(name="refused_groups").update(kind="nonsense")
    AlertRule.objects.filter(name="hasty_approval").update(values={"seconds": "many"})
    happened(place, Event.TOOL_LOST, reason="OUTCOME_UNKNOWN")
    assert [alert.rule for alert in raised(place)] == ["outcome_unknown"]
