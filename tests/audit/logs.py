"""Records and what is sealed of them, for tests of the log."""

from uuid import UUID

from django.db import connection

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.log import leaves
from tests.conditions import until

_LINES = f"""
SELECT {leaves.body_sql("r")}, r.mac, {leaves.moment_sql("r")}
FROM audit_auditrecord r JOIN audit_auditleaf l ON l.record_id = r.id
JOIN audit_auditlog g ON g.id = l.log_id
WHERE g.name = %s ORDER BY l.index
"""


_SETTLED = """
SELECT coalesce(max(transaction::text::bigint), 0)
    < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
FROM audit_auditrecord WHERE transaction < pg_snapshot_xmax(pg_current_snapshot())
"""


def write(organization: str, count: int = 1) -> list[UUID]:
    """Records that can be sealed: no transaction of anybody else is older."""
    made = scribble(organization, count)
    if not connection.in_atomic_block:
        until(settled)
    return made


def scribble(organization: str, count: int = 1) -> list[UUID]:
    """Records that may have to wait for another transaction."""
    by = Actor("person", "p", organization)
    return [
        record(Event.LOGIN, by=by, outcome=Outcome.SUCCESS, details={"number": number})
        for number in range(count)
    ]


def settled() -> bool:
    """Whether all that was written so far is before the horizon. The running product has short
    transactions of its own at any time, and the sealer waits for those that are older."""
    with connection.cursor() as cursor:
        cursor.execute(_SETTLED)
        return bool(cursor.fetchone()[0])


def lines_of(organization: str) -> list[bytes]:
    """What is sealed of each record, in the order of their places."""
    with connection.cursor() as cursor:
        cursor.execute(_LINES, [organization])
        return [
            leaves.leaf_line(body.encode(), bytes(mac), moment)
            for body, mac, moment in cursor.fetchall()
        ]
