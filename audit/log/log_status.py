"""The status of a log, checked before anything is executed for its organization, and the
watchdog of the sealer: another process detects that records are not sealed."""

import time
from dataclasses import dataclass
from datetime import datetime

from django.db import connection, transaction

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import AuditLog, Checkpoint

CACHE_S = 1.0
_HALTED_SQL = """
SELECT name, halted_reason FROM audit_auditlog
WHERE halted_at IS NOT NULL
    AND (cardinality(%(names)s::text[]) = 0 OR name = ANY(%(names)s::text[]))
"""
# The reason why a log is halted, or NULL, within a statement that knows its name.
HALTED_REASON_SQL = """
(SELECT g.halted_reason FROM audit_auditlog g
    WHERE g.name = {name} AND g.halted_at IS NOT NULL)
"""
_SILENCE_SQL = """
SELECT extract(epoch FROM clock_timestamp() - max(sealed_at))::float8,
    EXISTS (SELECT FROM audit_auditrecord)
FROM audit_auditlog
"""
MOST_UNSEALED = 1_000
# Records are sealed nearly in the order of their time: what has no place yet is among the newest.
_UNSEALED_SQL = """
SELECT count(*) FROM (SELECT id FROM audit_auditrecord WHERE organization = %s
    ORDER BY occurred_at DESC, id DESC LIMIT %s) r
WHERE NOT EXISTS (SELECT FROM audit_auditleaf l WHERE l.record_id = r.id)
"""
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


@dataclass(frozen=True, slots=True)
class LogStatus:
    """Of one log: when it was last signed, how many of its newest records are not sealed yet,
    and why it was halted, where it was."""

    signed_at: datetime | None
    unsealed: int
    halted: str


class LogHalted(Exception):
    """The organization's log is behind its published checkpoints; nothing may be executed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _HaltedLogs:
    """A cache of halted logs. Two threads that ask at once both read; it is short."""

    def __init__(self) -> None:
        self.until = 0.0
        self._halted: dict[str, str] = {}

    def halted(self) -> dict[str, str]:
        now = time.monotonic()
        if now >= self.until:
            self._halted, self.until = _read_halted(), now + CACHE_S
        return self._halted


def check_halted(organization: str) -> None:
    """As it is now, in the transaction that is open. Raises `LogHalted`."""
    _raise_for(_read_halted(organization).get(organization))


def check_halted_cached(organization: str) -> None:
    """As it was within the last second, without a query each time. Raises `LogHalted`."""
    _raise_for(_cache.halted().get(organization))


def clear_cache() -> None:
    """The cache of this process."""
    _cache.until = 0.0


def sealer_silent_s() -> float | None:
    """Seconds since the last heartbeat of a sealer; None where there is nothing to seal yet.

    Infinity where records wait and no heartbeat exists.
    """
    with connection.cursor() as cursor:
        cursor.execute(_SILENCE_SQL)
        age_s, anything = cursor.fetchone()
    if age_s is None:
        return float("inf") if anything else None
    return max(0.0, float(age_s))


def log_status(organization: str) -> LogStatus:
    """More than `MOST_UNSEALED` records are not looked at."""
    log = AuditLog.objects.filter(name=organization).only("halted_reason").first()
    signed = Checkpoint.objects.filter(log__name=organization).order_by("-size", "-id")
    with connection.cursor() as cursor:
        cursor.execute(_UNSEALED_SQL, [organization, MOST_UNSEALED])
        unsealed: int = cursor.fetchone()[0]
    signed_at = signed.values_list("created_at", flat=True).first()
    return LogStatus(signed_at, unsealed, log.halted_reason if log else "")


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


def _read_halted(*organizations: str) -> dict[str, str]:
    """Asked by each call, so it is not compiled each time. Of these, or of all."""
    with connection.cursor() as cursor:
        cursor.execute(_HALTED_SQL, {"names": list(organizations)})
        return dict(cursor.fetchall())


def _raise_for(reason: str | None) -> None:
    if reason is not None:
        raise LogHalted(reason)


_cache = _HaltedLogs()
