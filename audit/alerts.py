"""What in the records a person should look at.

A rule is a query over what was recorded lately. It finds who, what, how often and when last; the
same finding makes one open alert, which counts on until somebody has acknowledged it. Records that
an acknowledged alert was raised for raise no other.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from audit import metrics
from audit.actions import Actor, record
from audit.events import Event, Outcome, Severity
from audit.models import Alert

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rule:
    """`query` gives organization, actor, subject, count, first and last time."""

    name: str
    severity: Severity
    query: str
    says: Callable[["Finding"], str]


@dataclass(frozen=True)
class Finding:
    organization: str
    actor: str
    subject: str
    count: int
    first_at: datetime
    last_at: datetime


_RECENT = "occurred_at > now() - interval '5 minutes'"
_BY_ACTOR = """
    SELECT organization, actor, '', count(*), min(occurred_at), max(occurred_at)
    FROM audit_auditrecord WHERE {recent} AND {what}
    GROUP BY organization, actor HAVING count(*) >= {least}
"""
_BY_SUBJECT = """
    SELECT organization, actor, subject, count(*), min(occurred_at), max(occurred_at)
    FROM audit_auditrecord WHERE {recent} AND {what}
    GROUP BY organization, actor, subject
"""
# Against the median of the hours of the last seven days in which there was a call at all.
_UNUSUAL_USAGE = """
    WITH hours AS (
        SELECT organization, actor, date_trunc('hour', occurred_at) AS hour, count(*) AS calls
        FROM audit_auditrecord
        WHERE code = 'TOOL.START' AND occurred_at BETWEEN now() - interval '7 days'
            AND now() - interval '1 hour'
        GROUP BY 1, 2, 3
    ), usual AS (
        SELECT organization, actor, percentile_cont(0.5) WITHIN GROUP (ORDER BY calls) AS median
        FROM hours GROUP BY 1, 2 HAVING count(*) >= 12
    )
    SELECT present.organization, present.actor, '', count(*), min(occurred_at), max(occurred_at)
    FROM audit_auditrecord present JOIN usual USING (organization, actor)
    WHERE code = 'TOOL.START' AND occurred_at > now() - interval '1 hour'
    GROUP BY present.organization, present.actor, median
    HAVING count(*) >= 100 AND count(*) > 4 * median
"""
# A group that an agent with a history asks for, and has not asked for in thirty days.
_UNUSUAL_GROUP = """
    WITH lately AS (
        SELECT organization, actor, name, count(*) AS calls, min(occurred_at) AS first,
            max(occurred_at) AS last
        FROM audit_auditrecord, json_array_elements_text(details -> 'requested_groups') AS name
        WHERE code = 'TOOL.START' AND {recent}
            AND json_typeof(details -> 'requested_groups') = 'array'
        GROUP BY 1, 2, 3
    )
    SELECT organization, actor, name, calls, first, last FROM lately
    WHERE (
        SELECT count(*) FROM (
            SELECT FROM audit_auditrecord earlier
            WHERE earlier.organization = lately.organization AND earlier.actor = lately.actor
                AND code = 'TOOL.START' AND occurred_at <= now() - interval '5 minutes'
            LIMIT 100
        ) AS history
    ) = 100 AND NOT EXISTS (
        SELECT FROM audit_auditrecord earlier
        WHERE earlier.organization = lately.organization AND earlier.actor = lately.actor
            AND code = 'TOOL.START' AND (details -> 'requested_groups')::jsonb ? lately.name
            AND occurred_at BETWEEN now() - interval '30 days' AND now() - interval '5 minutes'
    )
"""
# A step between states that nobody of the organization has taken before.
_UNUSUAL_STEP = """
    WITH lately AS (
        SELECT organization, min(actor) AS actor, details ->> 'from' AS source,
            details ->> 'to' AS target, count(*) AS steps, min(occurred_at) AS first,
            max(occurred_at) AS last
        FROM audit_auditrecord WHERE code = 'STATE.TRANSITION' AND {recent}
        GROUP BY organization, source, target
    )
    SELECT organization, actor, left(source || ' → ' || target, 200), steps, first, last
    FROM lately
    WHERE (
        SELECT count(*) FROM (
            SELECT FROM audit_auditrecord earlier
            WHERE earlier.organization = lately.organization AND code = 'STATE.TRANSITION'
                AND occurred_at <= now() - interval '5 minutes'
            LIMIT 100
        ) AS history
    ) = 100 AND NOT EXISTS (
        SELECT FROM audit_auditrecord earlier
        WHERE earlier.organization = lately.organization AND code = 'STATE.TRANSITION'
            AND details ->> 'from' = source AND details ->> 'to' = target
            AND occurred_at <= now() - interval '5 minutes'
    )
"""


def _actor_rule(
    name: str, severity: Severity, what: str, least: int, says: Callable[[Finding], str]
) -> Rule:
    query = _BY_ACTOR.format(recent=_RECENT, what=what, least=least)
    return Rule(name, severity, query, says)


RULES = (
    _actor_rule(
        "refused_groups",
        Severity.WARNING,
        "reason = 'group_not_granted'",
        3,
        lambda found: f"{found.actor} asked {found.count} times for groups it was not granted.",
    ),
    _actor_rule(
        "escalation",
        Severity.CRITICAL,
        "reason = 'group_not_granted' AND (details -> 'requested_groups')::jsonb ? '*'",
        1,
        lambda found: f"{found.actor} asked for every group without being granted them.",
    ),
    _actor_rule(
        "invalid_transitions",
        Severity.WARNING,
        "reason IN ('tool_not_in_state', 'session_mismatch', 'session_changed')",
        5,
        lambda found: (
            f"{found.actor} tried {found.count} times what its workflow's state does not allow."
        ),
    ),
    _actor_rule(
        "password_guessing",
        Severity.WARNING,
        "code = 'AUTH.LOGIN_FAILED' AND reason = 'too_many_attempts'",
        1,
        lambda found: f"Somebody tries passwords for {found.actor}.",
    ),
    Rule(
        "unusual_usage",
        Severity.WARNING,
        _UNUSUAL_USAGE,
        lambda found: (
            f"{found.actor} made {found.count} calls in an hour: more than four times its usual."
        ),
    ),
    Rule(
        "unusual_group",
        Severity.INFO,
        _UNUSUAL_GROUP.format(recent=_RECENT),
        lambda found: (
            f"{found.actor} uses the group {found.subject}, which it has not used for 30 days."
        ),
    ),
    Rule(
        "unusual_step",
        Severity.INFO,
        _UNUSUAL_STEP.format(recent=_RECENT),
        lambda found: f"A workflow took a step it never took before: {found.subject}.",
    ),
    Rule(
        "allowance",
        Severity.WARNING,
        _BY_SUBJECT.format(recent=_RECENT, what="code = 'BUDGET.ALERT'"),
        lambda found: f"{found.subject} has used most of a budget or quota.",
    ),
    _actor_rule(
        "hasty_approval",
        Severity.WARNING,
        "code = 'CONFIRM.APPROVE' AND (details ->> 'displayed_s')::float < 2",
        1,
        lambda found: f"{found.actor} agreed to a call within two seconds of seeing it.",
    ),
    Rule(
        "outcome_unknown",
        Severity.CRITICAL,
        _BY_SUBJECT.format(recent=_RECENT, what="reason = 'OUTCOME_UNKNOWN'"),
        lambda found: f"Nobody knows whether a call of {found.subject} had its effect.",
    ),
)


def raise_all() -> list[Alert]:
    """The alerts that are new. Safe to run twice, and beside itself."""
    return [alert for rule in RULES for found in _findings(rule) if (alert := _raised(rule, found))]


@transaction.atomic
def acknowledge(*, alert: Alert, by: Actor) -> None:
    """Somebody has looked at it. Safe to repeat."""
    row = Alert.objects.open().filter(pk=alert.pk)
    if row.update(acknowledged_at=timezone.now(), acknowledged_by=by.name):
        record(
            Event.ALERT_ACKNOWLEDGE,
            by=by,
            outcome=Outcome.CHANGED,
            subject=alert.rule,
            details={"alert": str(alert.pk), "actor": alert.actor, "about": alert.subject},
        )


def alerts_of(organization: str) -> Any:
    return Alert.objects.filter(organization=organization)


def _findings(rule: Rule) -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute(rule.query)
        rows = cursor.fetchall()
    return (Finding(*row) for row in rows)


@transaction.atomic
def _raised(rule: Rule, found: Finding) -> Alert | None:
    same = alerts_of(found.organization).filter(
        rule=rule.name, actor=found.actor, subject=found.subject
    )
    latest = same.select_for_update().order_by("-last_at").first()
    if latest is not None and latest.last_at >= found.last_at:
        return None
    if latest is not None and latest.acknowledged_at is None:
        same.open().update(
            count=max(latest.count, found.count), last_at=found.last_at, message=_text(rule, found)
        )
        return None
    return _new(rule, found)


def _new(rule: Rule, found: Finding) -> Alert | None:
    alert = Alert(
        organization=found.organization,
        rule=rule.name,
        severity=rule.severity,
        actor=found.actor,
        subject=found.subject,
        message=_text(rule, found),
        count=found.count,
        first_at=found.first_at,
        last_at=found.last_at,
    )
    Alert.objects.bulk_create([alert], ignore_conflicts=True)
    if not Alert.objects.filter(pk=alert.pk).exists():  # another process was faster
        return None
    metrics.alerts.labels(rule.name).inc()
    log.warning("alert %s: %s", rule.name, alert.message)
    return alert


def _text(rule: Rule, found: Finding) -> str:
    return rule.says(found)[:500]
