"""Evaluate alert rules over the records and raise alerts.

A rule is a row that says what to look for over which time. It finds who, what, how often and when
last; the same finding makes one open alert, which counts on until a user acknowledges it, and is
sent again when it recurs after a day. Records that an acknowledged alert was raised for raise no
other. All times are the database's: the clock of a worker may differ.
"""

import logging
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import DatabaseError, connection, transaction
from django.db.models import Count, F
from django.db.models.functions import Now

from audit import metrics
from audit.actions import Actor, record
from audit.alerts import alert_rules, deliveries
from audit.alerts.rule_kinds import KINDS, AlertFinding
from audit.events import Event, Outcome, Severity
from audit.models import Alert, AlertRule

log = logging.getLogger(__name__)
_QUERY_TIMEOUT = "10s"
_MOST_FINDINGS = 200  # of one organization, so that its flood does not hide those of others
_LONGEST_WINDOW_S = 86_400
_EVALUATIONS_PER_WINDOW = 60  # a rule over an hour is not evaluated every few seconds
_REPEAT_AFTER = timedelta(days=1)
_NEVER = datetime.min.replace(tzinfo=UTC)
LONGEST_NOTE = 500


def raise_all_alerts() -> list[Alert]:
    """Return the new alerts. Safe to run twice, and concurrently."""
    found = [
        alert
        for rule in AlertRule.objects.filter(enabled=True)
        for alert in raise_rule_alerts(rule)
    ]
    found += _raise_findings(alert_rules.UNVERIFIED_LOG, alert_rules.find_unverified())
    return found + _raise_findings(alert_rules.SERVER_FAULTS, alert_rules.find_server_faults())


def raise_rule_alerts(rule: AlertRule) -> list[Alert]:
    """A rule that cannot be evaluated is logged and does not prevent the others from being
    evaluated."""
    unseen_s = _since_evaluation_s(rule)
    if not _is_due(rule, unseen_s):
        return []
    try:
        with transaction.atomic():
            found = _find(rule, _window_s(rule, unseen_s))
    except DatabaseError as problem:
        log.error("the alert rule %s could not be asked: %s", rule.name, problem)
        return []
    return _raise_findings(rule, found)


@transaction.atomic
def acknowledge(*, alert: Alert, by: Actor, note: str = "") -> bool:
    """Acknowledge the alert, with an optional comment. False where it was acknowledged already."""
    row = Alert.objects.open().filter(pk=alert.pk)
    note = note.replace("\x00", "").strip()[:LONGEST_NOTE]
    if not row.update(acknowledged_at=Now(), acknowledged_by=by.name, note=note):
        return False
    record(
        Event.ALERT_ACKNOWLEDGE,
        by=by,
        outcome=Outcome.CHANGED,
        subject=alert.rule,
        details={
            "alert": str(alert.pk),
            "actor": alert.actor,
            "about": alert.subject,
            **({"note": note} if note else {}),
        },
    )
    return True


def alerts_of(organization: str) -> Any:
    return Alert.objects.filter(organization=organization)


def open_by_rule(organization: str, rules: Collection[str]) -> dict[str, int]:
    """Of these rules."""
    rows = alerts_of(organization).open().filter(rule__in=rules).order_by()
    return dict(rows.values_list("rule").annotate(Count("pk")))


def _since_evaluation_s(rule: AlertRule) -> float | None:
    """The time since the rule was last evaluated; None if it never was."""
    row = AlertRule.objects.filter(pk=rule.pk, looked_at__isnull=False)
    unseen = row.values_list(Now() - F("looked_at"), flat=True).first()
    return None if unseen is None else unseen.total_seconds()


def _is_due(rule: AlertRule, unseen_s: float | None) -> bool:
    if rule.kind not in KINDS:
        log.error("the alert rule %s is of the unknown kind %s", rule.name, rule.kind)
        return False
    return unseen_s is None or unseen_s >= rule.window_s / _EVALUATIONS_PER_WINDOW


def _window_s(rule: AlertRule, unseen_s: float | None) -> int:
    """Where one record is enough, none is missed after a pause in evaluation."""
    if rule.least > 1 or unseen_s is None:
        return rule.window_s
    return max(rule.window_s, min(int(unseen_s) + rule.window_s, _LONGEST_WINDOW_S))


def _find(rule: AlertRule, window_s: int) -> list[AlertFinding]:
    kind = KINDS[rule.kind]
    parameters = {"window_s": window_s, "least": rule.least, "most": _MOST_FINDINGS}
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL statement_timeout = '{_QUERY_TIMEOUT}'")
        cursor.execute(kind.newest, parameters | kind.values(rule.values))
        rows = cursor.fetchall()
    AlertRule.objects.filter(pk=rule.pk).update(looked_at=Now())
    for place, total in {(place, total) for place, *_, total in rows if total > _MOST_FINDINGS}:
        log.warning("%s: %d findings in %s, the newest are taken", rule.name, total, place)
    return [AlertFinding(*row) for *row, _ in rows]


def _raise_findings(rule: AlertRule, findings: list[AlertFinding]) -> list[Alert]:
    return [
        alert
        for found in _uncounted_findings(rule, findings)
        if (alert := _raise_finding(rule, found))
    ]


def _uncounted_findings(rule: AlertRule, findings: list[AlertFinding]) -> list[AlertFinding]:
    """Those that no alert has counted yet: an evaluation finds most of what the one before it
    found."""
    rows = Alert.objects.filter(
        rule=rule.name,
        organization__in={found.organization for found in findings},
        last_at__gte=min((found.last_at for found in findings), default=_NEVER),
    ).order_by("last_at")
    counted_rows = rows.values_list("organization", "actor", "subject", "last_at")
    counted = {row[:3]: row[3] for row in counted_rows}
    return [
        found
        for found in findings
        if counted.get((found.organization, found.actor, found.subject), _NEVER) < found.last_at
    ]


@transaction.atomic
def _raise_finding(rule: AlertRule, found: AlertFinding) -> Alert | None:
    """The alert where it is new."""
    same = alerts_of(found.organization).filter(
        rule=rule.name, actor=found.actor, subject=found.subject
    )
    latest = same.select_for_update().order_by("-last_at").first()
    if latest is not None and latest.last_at >= found.last_at:
        return None
    if latest is not None and latest.acknowledged_at is None:
        _update_alert(latest, rule, found)
        return None
    return _create_alert(rule, found)


def _update_alert(alert: Alert, rule: AlertRule, found: AlertFinding) -> None:
    """It is sent again if it had ended long ago, or is more severe than it was."""
    worse = Severity(rule.severity).rank > Severity(alert.severity).rank
    back = found.last_at - alert.last_at >= _REPEAT_AFTER
    alert.count += _count_unseen(rule, found, alert.last_at)
    alert.last_at, alert.message = found.last_at, _alert_message(rule, found)
    alert.severity = rule.severity if worse else alert.severity
    alert.save(update_fields=["count", "last_at", "message", "severity"])
    if worse or back:
        deliveries.delete_deliveries(alert)
        _plan_deliveries(alert)


def _count_unseen(rule: AlertRule, found: AlertFinding, seen_at: datetime) -> int:
    """How many of its records an alert that counted until `seen_at` has not counted: evaluations
    follow each other more closely than windows do, so most were found before."""
    if found.first_at > seen_at:
        return found.count
    kind = KINDS[rule.kind]
    with connection.cursor() as cursor:
        cursor.execute(kind.unseen, {**vars(found), "seen_at": seen_at, **kind.values(rule.values)})
        (count,) = cursor.fetchone()
    return int(count)


def _create_alert(rule: AlertRule, found: AlertFinding) -> Alert | None:
    """Write the alert with its deliveries: both or neither."""
    alert = Alert(
        organization=found.organization,
        rule=rule.name,
        severity=rule.severity,
        actor=found.actor,
        subject=found.subject,
        message=_alert_message(rule, found),
        count=found.count,
        first_at=found.first_at,
        last_at=found.last_at,
    )
    Alert.objects.bulk_create([alert], ignore_conflicts=True)
    if not Alert.objects.filter(pk=alert.pk).exists():  # another process was faster
        return None
    metrics.alerts.labels(rule.name).inc()
    _plan_deliveries(alert)
    return alert


def _plan_deliveries(alert: Alert) -> None:
    """One alert, which is sent regardless of the hourly limit, reports what is not sent."""
    log.warning("alert %s: %s", alert.rule, alert.message)
    summary = alert.rule == alert_rules.UNDELIVERED
    if deliveries.plan_deliveries(alert, capped=not summary):
        rule = alert_rules.undelivered_rule(alert.severity)
        _raise_finding(rule, alert_rules.undelivered_finding(alert.organization))


def _alert_message(rule: AlertRule, found: AlertFinding) -> str:
    return KINDS[rule.kind].says(found, rule.description or f"({rule.name})")[:500]
