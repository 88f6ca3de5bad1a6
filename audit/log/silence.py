"""Watchdog of the sealer: another process detects that records are not sealed."""

from django.db import connection, transaction

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.log.log_status import sealer_silent_s

SILENT_S = 10.0
_UNSEALED_LOGS_SQL = """
SELECT DISTINCT r.organization FROM audit_auditrecord r
LEFT JOIN audit_auditlog g ON g.name = r.organization
WHERE r.transaction < pg_snapshot_xmin(pg_current_snapshot())
    AND r.transaction >= coalesce(g.horizon, '0')
    AND g.halted_at IS NULL
    AND r.occurred_at < clock_timestamp() - interval '5 seconds'
    AND r.code <> %(told)s
    AND NOT EXISTS (SELECT FROM audit_auditleaf l WHERE l.record_id = r.id)
    AND NOT EXISTS (
        SELECT FROM audit_auditrecord t
        WHERE t.organization = r.organization AND t.code = %(told)s
            AND t.occurred_at > coalesce((SELECT max(sealed_at) FROM audit_auditlog), '-infinity')
    )
"""


def record_sealer_silence() -> list[str]:
    """Record, once for each silence of the sealer, whose records wait though their transactions
    are over; the organizations."""
    silent_s = sealer_silent_s()
    if silent_s is None or silent_s < SILENT_S:
        return []
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_UNSEALED_LOGS_SQL, {"told": Event.AUDIT_UNSEALED.value})
        names = [name for (name,) in cursor.fetchall()]
        for name in names:
            record(
                Event.AUDIT_UNSEALED,
                by=Actor("system", "beat", name),
                outcome=Outcome.FAILURE,
                subject=name,
                reason="sealer_silent",
            )
    return names
