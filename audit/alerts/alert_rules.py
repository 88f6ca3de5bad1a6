"""Alert rules, which apply to every organization: rules with a row, which are created and changed
here, fixed rules without a row, which cannot be switched off, and a preview of what a rule finds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import DatabaseError, connection, transaction

from audit.actions import Actor, difference, record
from audit.alerts.rule_kinds import (
    CUSTOM_KINDS,
    KINDS,
    LONGEST_CODE,
    MOST_CODES,
    AlertFinding,
    AlertKind,
    NumberRange,
)
from audit.errors import AuditFlaw
from audit.events import Event, Outcome, Severity
from audit.models import AlertRule

_HOUR_S = 3600
UNDELIVERED = "untold"
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
CHANGEABLE_FIELDS = ("severity", "window_s", "least", "values", "enabled")
LONGEST_WINDOW_S = 7 * 86_400
MOST_RECORDS = 1_000_000
PREVIEW_DAYS = 7
MOST_PREVIEWED = 1_000
_MOST_PREVIEW_FINDINGS = 5
_PREVIEW_TIMEOUT = "3s"
# Adjacent windows: an alert for each in which there was enough.
_PAST_SQL = """
    SELECT actor, {subject} AS subject, count(*) AS records, max(occurred_at) AS last
    FROM audit_auditrecord
    WHERE organization = %(organization)s
        AND occurred_at > now() - make_interval(days => %(days)s) AND {what}
    GROUP BY 1, 2, floor(extract(epoch FROM occurred_at) / %(window_s)s)
    HAVING count(*) >= %(least)s
    ORDER BY last DESC LIMIT %(limit)s
"""
_PRESENT_SQL = """
    SELECT actor, subject, records, last
    FROM ({query}) AS finding (organization, actor, subject, records, first, last)
    WHERE organization = %(organization)s ORDER BY last DESC LIMIT %(limit)s
"""


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


@transaction.atomic
def change_rule(*, rule: AlertRule, by: Actor, **changes: Any) -> AlertRule:
    """Set some of `CHANGEABLE_FIELDS`; `values` replaces all of them. Raises `AuditFlaw`."""
    row = AlertRule.objects.select_for_update().get(pk=rule.pk)
    before = _rule_values(row)
    for name in CHANGEABLE_FIELDS:
        setattr(row, name, changes.get(name, getattr(row, name)))
    _save(row)
    _record(row, by, before)
    return row


@transaction.atomic
def create_rule(*, name: str, kind: str, by: Actor, description: str, **fields: Any) -> AlertRule:
    """Create a custom rule over codes, reasons and outcomes. Raises `AuditFlaw`."""
    if kind not in CUSTOM_KINDS:
        raise AuditFlaw(f"A rule of your own is one of {', '.join(CUSTOM_KINDS)}.", "kind")
    row = AlertRule(name=name, kind=kind, description=description)
    for field in CHANGEABLE_FIELDS:
        setattr(row, field, fields.get(field, getattr(row, field)))
    taken = name in {rule.name for rule in FIXED_RULES}
    if taken or AlertRule.objects.filter(name=name).exists():
        raise AuditFlaw(f"There is a rule {name} already.", "name")
    _save(row)
    _record(row, by, None)
    return row


def read_values(kind: str, values: Any) -> dict[str, Any]:
    """Validate the values of a rule of this kind. Raises `AuditFlaw`."""
    if not isinstance(values, Mapping):
        raise AuditFlaw("The values of a rule are a JSON object.", "values")
    known = KINDS[kind]
    if unknown := sorted(set(values) - {*known.numbers, *known.lists}):
        raise AuditFlaw(f"A rule of kind {kind} has no {', '.join(unknown)[:200]}.", "values")
    numbers = {
        name: _read_number(name, values[name], bounds)
        for name, bounds in known.numbers.items()
        if name in values
    }
    lists = {name: _read_codes(name, values[name]) for name in known.lists if values.get(name)}
    if known.lists and not lists.get("codes") and not lists.get("reasons"):
        raise AuditFlaw("Name at least one code or reason: every record would be found.", "values")
    return numbers | lists


@dataclass(frozen=True, slots=True)
class PreviewFinding:
    actor: str
    subject: str
    records: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class RulePreview:
    """`days` is 0 for kinds that are evaluated at present only, since they compare with the
    usual."""

    count: int
    newest: tuple[PreviewFinding, ...] = ()
    days: int = 0
    problem: str = ""

    @property
    def cut(self) -> bool:
        return self.count > MOST_PREVIEWED


def preview_rule(
    *, organization: str, kind: str, window_s: int, least: int, values: Mapping[str, Any]
) -> RulePreview:
    """Reads only. One that takes too long says so."""
    known = KINDS[kind]
    parameters = known.values(values) | {
        "organization": organization,
        "window_s": window_s,
        "least": least,
        "days": PREVIEW_DAYS,
        "limit": MOST_PREVIEWED + 1,
    }
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = '{_PREVIEW_TIMEOUT}'")
            cursor.execute(_preview_sql(known), parameters)
            found = [PreviewFinding(*row) for row in cursor.fetchall()]
    except DatabaseError:
        return RulePreview(0, problem="There are too many records to count it quickly.")
    return RulePreview(
        len(found), tuple(found[:_MOST_PREVIEW_FINDINGS]), PREVIEW_DAYS if known.counted else 0
    )


def _save(row: AlertRule) -> None:
    row.values = read_values(row.kind, row.values)
    if not 1 <= row.window_s <= LONGEST_WINDOW_S:
        raise AuditFlaw(f"A rule looks back 1 to {LONGEST_WINDOW_S} seconds.", "window_s")
    if not 1 <= row.least <= MOST_RECORDS:
        raise AuditFlaw(f"It takes 1 to {MOST_RECORDS} records to be an alert.", "least")
    try:
        row.full_clean()
    except ValidationError as error:
        field = next(iter(error.message_dict), "")
        raise AuditFlaw(" ".join(error.messages), field if hasattr(row, field) else "") from None
    row.save()


def _read_number(name: str, value: Any, bounds: NumberRange) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not bounds.least <= value <= bounds.most:
        raise AuditFlaw(f"{name} is a number from {bounds.least} to {bounds.most}.", "values")
    if isinstance(bounds.usual, int) and not isinstance(value, int):
        raise AuditFlaw(f"{name} is a whole number.", "values")
    found: float = value
    return found


def _read_codes(name: str, value: Any) -> list[str]:
    fits = isinstance(value, list) and len(value) <= MOST_CODES
    if not fits or not all(isinstance(item, str) and _is_code(item) for item in value):
        raise AuditFlaw(
            f"{name} is a list of at most {MOST_CODES} texts of 1 to {LONGEST_CODE} letters.",
            "values",
        )
    return list(dict.fromkeys(value))


def _is_code(text: str) -> bool:
    return 0 < len(text) <= LONGEST_CODE and text.isascii() and text.isprintable()


def _rule_values(row: AlertRule) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("kind", "description", *CHANGEABLE_FIELDS)}


def _record(row: AlertRule, by: Actor, before: dict[str, Any] | None) -> None:
    changed = difference(before, _rule_values(row))
    if changed["before"] or changed["after"]:
        record(
            Event.ALERT_RULE_CHANGE,
            by=by,
            outcome=Outcome.CHANGED,
            subject=row.name,
            details=dict(changed),
        )


def _preview_sql(kind: AlertKind) -> str:
    if not kind.counted:
        return _PRESENT_SQL.format(query=kind.query)
    return _PAST_SQL.format(what=kind.counted, subject="subject" if kind.by_subject else "''")


FIXED_RULES = (UNVERIFIED_LOG, undelivered_rule(), SERVER_FAULTS)
