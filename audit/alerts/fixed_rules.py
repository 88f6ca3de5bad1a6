"""Alert rules without a row, which cannot be switched off.

Two are about alerting itself, and neither can be found among the records of a few minutes; one is
about the product.
"""

from django.db import connection

from audit.alerts.rule_kinds import AlertFinding
from audit.events import Event, Severity
from audit.models import AlertRule

_HOUR_S = 3600
UNDELIVERED = "untold"


def undelivered_rule(severity: str = Severity.WARNING) -> AlertRule:
    """As severe as what it reports."""
    return AlertRule(
        name=UNDELIVERED,
        kind="by_subject",
        severity=severity,
        window_s=_HOUR_S,
        description="has more alerts within an hour than are told one by one: the rest stand on"
        " the page alone",
    )


UNVERIFIED_LOG = AlertRule(
    name="unchecked",
    kind="by_subject",
    severity="warning",
    window_s=26 * _HOUR_S,
    description="has evidence that nobody has verified for more than a day",
)
SERVER_FAULTS = AlertRule(
    name="faults",
    kind="by_subject",
    severity="critical",
    window_s=_HOUR_S,
    description="was answered 500, which is a fault of the product: the log has it by the request",
)
FIXED_RULES = (UNVERIFIED_LOG, undelivered_rule(), SERVER_FAULTS)
_SERVER_FAULTS_SQL = """
    SELECT organization, actor, subject, count(*), min(occurred_at), max(occurred_at)
    FROM audit_auditrecord
    WHERE code = %(code)s AND occurred_at > now() - make_interval(secs => %(window_s)s)
    GROUP BY organization, actor, subject
"""
_UNVERIFIED_SQL = """
    SELECT log.name, 'selfcheck', log.name, 1, overdue.since, overdue.since
    FROM audit_auditlog log CROSS JOIN LATERAL (
        SELECT make_interval(secs => %(window_s)s) + coalesce(
            (
                SELECT max(occurred_at) FROM audit_auditrecord
                WHERE organization = log.name AND actor = 'selfcheck' AND code = 'AUDIT.VERIFY'
            ),
            (SELECT min(occurred_at) FROM audit_auditrecord WHERE organization = log.name)
        ) AS since
    ) AS overdue
    WHERE overdue.since < now()
"""


def find_unverified() -> list[AlertFinding]:
    """Logs whose daily verification is overdue, and since when."""
    with connection.cursor() as cursor:
        cursor.execute(_UNVERIFIED_SQL, {"window_s": UNVERIFIED_LOG.window_s})
        return [AlertFinding(*row) for row in cursor.fetchall()]


def find_server_faults() -> list[AlertFinding]:
    """By organization, caller and address."""
    with connection.cursor() as cursor:
        cursor.execute(
            _SERVER_FAULTS_SQL, {"code": Event.SERVER_FAULT, "window_s": SERVER_FAULTS.window_s}
        )
        return [AlertFinding(*row) for row in cursor.fetchall()]


def undelivered_finding(organization: str) -> AlertFinding:
    """An alert that was not delivered, now."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    return AlertFinding(organization, "alerts", "", 1, now, now)
