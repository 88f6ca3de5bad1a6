"""Impact preview of an alert rule: count what it would have found in the records of one
organization."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import DatabaseError, connection, transaction

from audit.alerts.rule_kinds import KINDS, AlertKind

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
    asked = known.values(values) | {
        "organization": organization,
        "window_s": window_s,
        "least": least,
        "days": PREVIEW_DAYS,
        "limit": MOST_PREVIEWED + 1,
    }
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = '{_PREVIEW_TIMEOUT}'")
            cursor.execute(_preview_sql(known), asked)
            found = [PreviewFinding(*row) for row in cursor.fetchall()]
    except DatabaseError:
        return RulePreview(0, problem="There are too many records to count it quickly.")
    return RulePreview(
        len(found), tuple(found[:_MOST_PREVIEW_FINDINGS]), PREVIEW_DAYS if known.counted else 0
    )


def _preview_sql(kind: AlertKind) -> str:
    if not kind.counted:
        return _PRESENT_SQL.format(query=kind.query)
    return _PAST_SQL.format(what=kind.counted, subject="subject" if kind.by_subject else "''")
