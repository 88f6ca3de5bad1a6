"""Impact preview of an alert rule: count what it would have found in the records of one
organization."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import DatabaseError, connection, transaction

from audit.alerts.rule_kinds import KINDS, AlertKind

DAYS = 7
MOST_CAUGHT = 1_000
_SHOWN = 5
_SLOWEST = "3s"
# Adjacent windows: an alert for each in which there was enough.
_PAST = """
    SELECT actor, {subject} AS subject, count(*) AS records, max(occurred_at) AS last
    FROM audit_auditrecord
    WHERE organization = %(organization)s
        AND occurred_at > now() - make_interval(days => %(days)s) AND {what}
    GROUP BY 1, 2, floor(extract(epoch FROM occurred_at) / %(window_s)s)
    HAVING count(*) >= %(least)s
    ORDER BY last DESC LIMIT %(limit)s
"""
_NOW = """
    SELECT actor, subject, records, last
    FROM ({query}) AS finding (organization, actor, subject, records, first, last)
    WHERE organization = %(organization)s ORDER BY last DESC LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class Caught:
    actor: str
    subject: str
    records: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """`days` is 0 for kinds that are evaluated at present only, since they compare with the
    usual."""

    count: int
    newest: tuple[Caught, ...] = ()
    days: int = 0
    problem: str = ""

    @property
    def cut(self) -> bool:
        return self.count > MOST_CAUGHT


def rehearse(
    *, organization: str, kind: str, window_s: int, least: int, values: Mapping[str, Any]
) -> Rehearsal:
    """Reads only. One that takes too long says so."""
    known = KINDS[kind]
    asked = known.values(values) | {
        "organization": organization,
        "window_s": window_s,
        "least": least,
        "days": DAYS,
        "limit": MOST_CAUGHT + 1,
    }
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = '{_SLOWEST}'")
            cursor.execute(_statement(known), asked)
            found = [Caught(*row) for row in cursor.fetchall()]
    except DatabaseError:
        return Rehearsal(0, problem="There are too many records to count it quickly.")
    return Rehearsal(len(found), tuple(found[:_SHOWN]), DAYS if known.counted else 0)


def _statement(kind: AlertKind) -> str:
    if not kind.counted:
        return _NOW.format(query=kind.query)
    return _PAST.format(what=kind.counted, subject="subject" if kind.by_subject else "''")
