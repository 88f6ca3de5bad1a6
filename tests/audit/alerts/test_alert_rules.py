"""What is watched for are rows; what they ask of the database is not."""

import pytest
from django.db import connection
from django.utils import timezone

from audit.actions import Actor, record
from audit.alerts import alert_rules, alerts
from audit.alerts.rule_kinds import KINDS, AlertFinding
from audit.errors import AuditFlaw
from audit.events import Event, Outcome
from audit.models import Alert, AlertRule, AuditRecord

pytestmark = pytest.mark.django_db


@pytest.fixture
def actor(place):
    return Actor("person", "root", place)


def create_own_rule(by, **fields):
    defaults = {
        "name": "deletions", "kind": "by_actor", "description": "deleted many tools",
        "severity": "warning",
        "least": 2, "values": {"codes": ["REG.TOOL_DELETE"]},
    }  # fmt: skip
    return alert_rules.create_rule(by=by, **defaults | fields)


def test_every_rule_of_a_new_installation_is_one_that_can_be_asked():
    for rule in AlertRule.objects.all():
        assert alert_rules.read_values(rule.kind, rule.values) == rule.values


def test_every_kind_can_be_asked_with_what_is_usual(place):
    for name in KINDS:
        # Asked in full; what other tests have committed makes no alert.
        rule = AlertRule.objects.create(
            name=f"try-{name}", kind=name, severity="info", least=alert_rules.MOST_RECORDS
        )
        alerts.raise_rule_alerts(rule)
        rule.refresh_from_db()
        assert rule.looked_at is not None, name


@pytest.mark.parametrize("name", KINDS)
def test_the_records_of_every_kind_can_be_counted_on(place, name):
    found, kind = AlertFinding(place, "ada", "pay", 1, timezone.now(), timezone.now()), KINDS[name]
    with connection.cursor() as cursor:
        values = {**vars(found), "seen_at": found.first_at, **kind.values({})}
        cursor.execute(kind.unseen, values)
        assert cursor.fetchone() == (0,)


def test_no_rule_takes_the_name_of_one_that_is_fixed(actor):
    with pytest.raises(AuditFlaw, match="already"):
        create_own_rule(actor, name=alert_rules.UNVERIFIED_LOG.name)


def test_a_change_is_on_record_with_before_and_after(place, actor):
    rule = AlertRule.objects.get(name="refused_groups")
    alert_rules.change_rule(rule=rule, by=actor, least=10, severity="critical")
    details = AuditRecord.objects.get(organization=place, code="ADMIN.ALERT_RULE_CHANGE").details
    assert details["before"] == {"least": 3, "severity": "warning"}
    assert details["after"] == {"least": 10, "severity": "critical"}


def test_a_rule_of_ones_own_raises_alerts_in_its_words(place, actor):
    rule = create_own_rule(actor)
    for _ in range(2):
        record(
            Event.TOOL_DELETE,
            by=Actor("person", "bob", place),
            outcome=Outcome.CHANGED,
            subject="x",
        )
    alerts.raise_rule_alerts(rule)
    assert Alert.objects.get(organization=place).message == "bob deleted many tools, 2 times."


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "unusual_usage"}, {"kind": "nonsense"}, {"values": {}}, {"values": []},
        {"values": {"codes": []}}, {"values": {"codes": "REG.TOOL_DELETE"}},
        {"values": {"codes": ["x"] * 21}}, {"values": {"codes": [1]}}, {"values": {"codes": [""]}},
        {"values": {"codes": ["x\x00"]}}, {"values": {"sql": "DROP"}}, {"least": 0},
        {"values": {"outcomes": ["failure"]}}, {"window_s": 0}, {"window_s": 10**9},
        {"least": 10**12}, {"severity": "loud"}, {"name": "no slug!"}, {"name": "refused_groups"},
        {"description": "x" * 301},
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(actor, wrong):
    with pytest.raises(AuditFlaw):
        create_own_rule(actor, **wrong)


@pytest.mark.parametrize("seconds", [0, -1, 10**9, "2", None, True, float("nan")])
def test_a_number_outside_its_bounds_is_refused(actor, seconds):
    rule = AlertRule.objects.get(name="hasty_approval")
    with pytest.raises(AuditFlaw):
        alert_rules.change_rule(rule=rule, by=actor, values={"seconds": seconds})


def test_what_looks_like_a_statement_is_only_a_text(place, actor):
    alerts.raise_rule_alerts(
        create_own_rule(actor, values={"codes": ["x'; DROP TABLE audit_auditrecord; --"]})
    )
    assert AuditRecord.objects.filter(organization=place).exists()
