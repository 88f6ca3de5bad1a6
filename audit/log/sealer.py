"""The sealer: the process that assigns log positions to records, signs checkpoints and publishes
them.

It may be killed at any moment: a batch is one transaction, and a checkpoint is in the database
before it is anywhere else. Two of them share the work; a log's row is locked by one at a time.
"""

import logging
import threading
import time

from django.conf import settings
from django.db import DataError, IntegrityError, connections
from django.db.backends.postgresql.base import DatabaseWrapper

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.log import anchors, checkpoint_publication, key_files, seal_batches
from audit.log.anchors import BadAnchor
from audit.log.remote_anchors import AnchorPublisher
from audit.metrics import unsealed_age

log = logging.getLogger(__name__)
TICK_S = 0.5
ACTIVE_S = 0.9  # between checkpoints of a log that grows: one a second, with room for a late tick
HEARTBEAT_S = 2.0
OVERDUE_S = 5.0
THIN_S = 3600.0
_MOST_WAIT_S = 2.0
_LOG_ERRORS = (ValueError, LookupError, IntegrityError, DataError, OSError)

_HEARTBEAT_SQL = """
UPDATE audit_auditlog SET sealed_at = clock_timestamp()
WHERE id = (SELECT id FROM audit_auditlog ORDER BY halted_at NULLS FIRST, id LIMIT 1)
"""
# Committed, and still above the oldest open transaction: they must not be sealed before it is over.
# Each is here once it is overdue, for a while; older ones were reported.
_HELD_UP_SQL = """
SELECT DISTINCT r.organization, pg_snapshot_xmin(pg_current_snapshot())
FROM audit_auditrecord r LEFT JOIN audit_auditlog l ON l.name = r.organization
WHERE r.transaction >= pg_snapshot_xmin(pg_current_snapshot())
    AND r.transaction < pg_snapshot_xmax(pg_current_snapshot())
    AND r.occurred_at < statement_timestamp() - make_interval(secs => %s)
    AND r.occurred_at > statement_timestamp() - interval '60 seconds'
    AND r.code <> %s AND l.halted_at IS NULL
"""
_HOLDER_SQL = """
SELECT pid, application_name, extract(epoch FROM clock_timestamp() - xact_start)::float8
FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
ORDER BY age(backend_xid) DESC LIMIT 1
"""
_OLDEST_SQL = """
SELECT extract(epoch FROM clock_timestamp() - occurred_at)::float8 FROM audit_auditrecord
WHERE transaction >= %s::xid8 ORDER BY transaction LIMIT 1
"""


def seal_logs(name: str | None = None) -> int:
    """Seal what can be sealed now, in one log or in all, and sign what has grown; how many."""
    names = [name] if name is not None else seal_batches.active_logs(None)[0]
    done = 0
    for one in names:
        more = True
        while more:
            count, more = seal_batches.seal_log(one)
            done += count
    for one in checkpoint_publication.due_logs(0):
        if one in names:
            checkpoint_publication.publish_checkpoint(one)
    return done


def _holder_details(holder: tuple[int, str, float] | None) -> dict[str, object]:
    """Of the server process with the oldest transaction. PostgreSQL shows those of other users only
    to some roles, and none of a prepared one."""
    if holder is None:
        return {}
    pid, application, open_s = holder
    return {"pid": pid, "application": application, "open_s": round(open_s, 1)}


class Sealer:
    """Works until `stop` is set, and goes on after any failure of the database."""

    def __init__(
        self, stop: threading.Event, publishers: list[AnchorPublisher] | None = None
    ) -> None:
        self._stop = stop
        self._publishers = publishers or []
        self._begin()

    def run(self) -> None:
        wait_s = TICK_S
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._run_pass()
                wait_s = max(0.0, TICK_S - (time.monotonic() - began))
            except Exception:  # the edge of the process: it has to go on
                log.exception("sealing was interrupted and starts again")
                wait_s = min(max(wait_s, TICK_S / 4) * 2, _MOST_WAIT_S)
                self._begin()
            self._stop.wait(wait_s)

    def _begin(self) -> None:
        """Nothing is known of what the database holds; it may be another one."""
        database = connections["default"]
        if isinstance(database, DatabaseWrapper):
            database.close()
            database.close_pool()  # its threads would wait ever longer to connect again
        self._since: str | None = None
        self._owed: dict[str, float] = {}
        self._reported_overdue: set[str] = set()
        self._held_up: set[tuple[str, str]] = set()  # by which transaction
        self._signed: dict[str, float] = {}  # when, by log; each was compared before
        self._watched = self._beaten = self._thinned = float("-inf")

    def _run_pass(self) -> None:
        now = time.monotonic()
        quiet_s = settings.AUDIT_QUIET_SECONDS
        if now - self._watched >= quiet_s:
            self._signed = {name: at for name, at in self._signed.items() if now - at < quiet_s}
            checkpoint_publication.compare_logs(recently_compared=self._signed)
            self._watched = now
        foreign = self._since is None
        names, until = seal_batches.active_logs(self._since)
        for name in names:
            self._owed.setdefault(name, now)
        self._since = until
        self._seal_owed(foreign)
        self._publish()
        self._beat(now)
        self._thin(now)

    def _thin(self, now: float) -> None:
        """Anchors alone: their files are the sealer's. Checkpoints are thinned by a task."""
        if now - self._thinned < THIN_S:
            return
        self._thinned = now
        for name in anchors.anchored_logs():
            try:
                anchors.thin_anchors(name)
            except (OSError, BadAnchor):
                log.exception("the anchors of %s could not be thinned", name)

    def _seal_owed(self, foreign: bool) -> None:
        """The logs in rotation, so that a long one does not keep the others waiting."""
        failed: set[str] = set()
        while (
            left := [name for name in self._owed if name not in failed]
        ) and not self._is_stopping():
            for name in left:
                if self._is_stopping():
                    return
                if not self._seal_one(name, foreign):
                    failed.add(name)
            self._publish()
            self._report_overdue()

    def _seal_one(self, name: str, foreign: bool) -> bool:
        try:
            _, more = seal_batches.seal_log(name, foreign=foreign)
        except _LOG_ERRORS:
            log.exception("the log %s could not be sealed", name)
            return False
        if not more:
            del self._owed[name]
            self._reported_overdue.discard(name)
        return True

    def _publish(self) -> None:
        for name in checkpoint_publication.due_logs(ACTIVE_S):
            if self._is_stopping():
                return
            try:
                note = checkpoint_publication.publish_checkpoint(name)
            except _LOG_ERRORS:
                log.exception("the log %s could not be signed", name)
                continue
            self._signed[name] = time.monotonic()
            for publisher in self._publishers if note else ():
                publisher.enqueue(name, note or "")
        if key_files.is_rotating():
            checkpoint_publication.finish_rotation()

    def _beat(self, now: float) -> None:
        if now - self._beaten < HEARTBEAT_S:
            return
        self._beaten = now
        with connections["default"].cursor() as cursor:
            cursor.execute(_HEARTBEAT_SQL)
            cursor.execute(_OLDEST_SQL, [self._since])
            found = cursor.fetchone()
        unsealed_age.set(found[0] if found else 0)
        self._report_held_up()

    def _report_overdue(self) -> None:
        """Unsealed records whose transactions are over."""
        now = time.monotonic()
        for name, owed_since in self._owed.items():
            if now - owed_since > OVERDUE_S and name not in self._reported_overdue:
                self._reported_overdue.add(name)
                log.error("records of the log %s have waited too long to be sealed", name)
                record(
                    Event.AUDIT_UNSEALED,
                    by=Actor("system", seal_batches.SEALER, name),
                    outcome=Outcome.FAILURE,
                    subject=name,
                    reason="overdue",
                    details={"waited_s": round(now - owed_since, 1)},
                )

    def _report_held_up(self) -> None:
        """Report records that cannot be sealed because of an open transaction, once for each."""
        with connections["default"].cursor() as cursor:
            cursor.execute(_HELD_UP_SQL, [OVERDUE_S, Event.AUDIT_UNSEALED.value])
            found = {(name, str(open_since)) for name, open_since in cursor.fetchall()}
            cursor.execute(_HOLDER_SQL)
            holder = cursor.fetchone()
        for name, _ in sorted(found - self._held_up):
            log.error("an open transaction keeps the log %s from being sealed: %s", name, holder)
            record(
                Event.AUDIT_UNSEALED,
                by=Actor("system", seal_batches.SEALER, name),
                outcome=Outcome.FAILURE,
                subject=name,
                reason="transaction_open",
                details=_holder_details(holder),
            )
        self._held_up |= found

    def _is_stopping(self) -> bool:
        return self._stop.is_set()
