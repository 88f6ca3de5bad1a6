"""Sealing: assign positions in the log to records, without a gap, and none behind a slow
transaction.

A record may be sealed once every transaction that began before its own is over: what has a smaller
number and commits later would otherwise have to be put before what is sealed already.
"""

import hmac
import logging
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from audit import metrics
from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.log import leaves, merkle
from audit.log.merkle import Frontier
from audit.log.proofs import STEP
from audit.models import AuditLog

log = logging.getLogger(__name__)
SEALER = "sealer"
BATCH = 2000  # records in one transaction
PLAN = 20_000  # records that are put in order at a time
_MOST_REPORTED = 20
_HASH_BYTES = 32

_LOG_STATE_SQL = """
SELECT id, size, frontier, halted_at IS NOT NULL FROM audit_auditlog WHERE name = %s FOR UPDATE
"""
# A horizon beyond any number given so far is that of another server, where a backup came from.
_WINDOW = """
SELECT coalesce(CASE WHEN horizon <= pg_snapshot_xmax(pg_current_snapshot()) THEN horizon END, '0'),
    pg_snapshot_xmin(pg_current_snapshot()),
    halted_at IS NOT NULL,
    horizon IS NULL OR horizon > pg_snapshot_xmax(pg_current_snapshot()),
    sealed_at IS NULL OR sealed_at < clock_timestamp() - interval '30 seconds'
FROM audit_auditlog WHERE name = %s
"""
# So is the transaction of a row that is seen here and has a number not assigned yet. Only a
# statement's own snapshot can tell.
_FOREIGN = "r.transaction >= pg_snapshot_xmax(pg_current_snapshot())"
_SEALABLE = """
SELECT r.id FROM audit_auditrecord r
WHERE r.organization = %s
    AND ((r.transaction >= %s::xid8 AND r.transaction < %s::xid8) OR {foreign})
    AND NOT EXISTS (SELECT FROM audit_auditleaf l WHERE l.record_id = r.id)
ORDER BY r.occurred_at, r.id
LIMIT {limit}
"""
_ROWS = """
SELECT r.id, r.mac, {body}, {moment},
    extract(epoch FROM clock_timestamp() - r.occurred_at)::float8
FROM audit_auditrecord r
WHERE r.id = ANY(%s) AND NOT EXISTS (SELECT FROM audit_auditleaf l WHERE l.record_id = r.id)
ORDER BY r.occurred_at, r.id
"""
_LEAVES = """
INSERT INTO audit_auditleaf (log_id, index, record_id, hash, mac)
SELECT %s, * FROM unnest(%s::bigint[], %s::uuid[], %s::bytea[], %s::bytea[])
"""
_NODES = """
INSERT INTO audit_auditnode (log_id, level, index, hash)
SELECT %s, * FROM unnest(%s::smallint[], %s::bigint[], %s::bytea[])
"""
_UPDATE_LOG_SQL = """
UPDATE audit_auditlog
SET size = %s, frontier = %s, horizon = coalesce(%s::xid8, horizon), sealed_at = clock_timestamp()
WHERE id = %s
"""
_ALL_LOGS_SQL = """
WITH RECURSIVE known(name) AS (
    (SELECT organization FROM audit_auditrecord ORDER BY organization LIMIT 1)
    UNION ALL
    SELECT (SELECT organization FROM audit_auditrecord
            WHERE organization > known.name ORDER BY organization LIMIT 1)
    FROM known WHERE known.name IS NOT NULL
)
SELECT name FROM known WHERE name IS NOT NULL
UNION SELECT name FROM audit_auditlog
"""
_ACTIVE = """
SELECT DISTINCT organization FROM audit_auditrecord
WHERE transaction >= %s::xid8 AND transaction < %s::xid8
"""


@dataclass(frozen=True, slots=True)
class SealingPlan:
    """Unsealed records of finished transactions, in their order."""

    ids: list[UUID]
    until: str
    stale: bool

    @property
    def is_complete(self) -> bool:
        """Whether it holds all that there was before `until`."""
        return len(self.ids) < PLAN


@dataclass(frozen=True, slots=True)
class LogState:
    """The state of a log, read under its lock."""

    id: int
    size: int
    frontier: bytes
    halted: bool


@dataclass(frozen=True, slots=True)
class UnsealedRow:
    id: UUID
    mac: bytes
    body: str
    occurred_at: str
    age_s: float

    def line(self) -> bytes:
        return leaves.leaf_line(self.body.encode(), self.mac, self.occurred_at)


def seal_log(name: str, *, foreign: bool = True) -> tuple[int, bool]:
    """Seal up to `PLAN` records of the log; how many, and whether there may be more.

    Another sealer of the log is waited for. `foreign` also looks for records that came with a
    backup of another server, whose transactions have its numbers: for when a sealer begins. So
    does a log whose horizon is not one of this server's.
    """
    plan = _make_plan(name, foreign)
    if plan is None:
        return 0, False
    done = 0
    for first in range(0, len(plan.ids), BATCH):
        last = first + BATCH >= len(plan.ids)
        horizon = plan.until if last and plan.is_complete else None
        done += _seal_batch(name, plan.ids[first : first + BATCH], horizon)
    if not plan.ids and plan.stale:
        _seal_batch(name, [], plan.until)
    return done, not plan.is_complete


def active_logs(since: str | None) -> tuple[list[str], str]:
    """The logs that may have something to seal, and until which transaction was looked.

    Of all organizations, or of those with records of transactions from `since` on.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())")
        until = str(cursor.fetchone()[0])
        if since is None:
            cursor.execute(_ALL_LOGS_SQL)
        else:
            cursor.execute(_ACTIVE, [since, until])
        return [name for (name,) in cursor.fetchall()], until


def split_frontier(stored: bytes, size: int) -> Frontier:
    """Raises ValueError where it is not the frontier of a tree of that size."""
    if len(stored) != size.bit_count() * _HASH_BYTES:
        raise ValueError("the log's row is damaged: its frontier is not that of its size")
    return [stored[at : at + _HASH_BYTES] for at in range(0, len(stored), _HASH_BYTES)]


def _make_plan(name: str, foreign: bool) -> SealingPlan | None:
    """None for a log that is halted."""
    with transaction.atomic(), connection.cursor() as cursor:
        # A plan for any transaction numbers would read all of the table for those of a moment.
        cursor.execute("SET LOCAL plan_cache_mode = force_custom_plan")
        cursor.execute(_WINDOW, [name])
        found = cursor.fetchone()
        if found is None:
            AuditLog.objects.bulk_create([AuditLog(name=name)], ignore_conflicts=True)
            cursor.execute(_WINDOW, [name])
            found = cursor.fetchone()
        horizon, until, halted, unknown, stale = found
        if halted:
            return None
        which = _FOREIGN if foreign or unknown else "false"
        statement = _SEALABLE.format(foreign=which, limit=PLAN)
        cursor.execute(statement, [name, str(horizon), str(until)])
        return SealingPlan([row_id for (row_id,) in cursor.fetchall()], str(until), stale)


@transaction.atomic
def _seal_batch(name: str, ids: list[UUID], horizon: str | None) -> int:
    """`horizon` when with these everything before it has its place."""
    with connection.cursor() as cursor:
        cursor.execute(_LOG_STATE_SQL, [name])
        state = LogState(*cursor.fetchone())
        if state.halted:
            return 0
        cursor.execute(
            _ROWS.format(body=leaves.body_sql("r"), moment=leaves.moment_sql("r")), [ids]
        )
        rows = [UnsealedRow(*found) for found in cursor.fetchall()]
    _append_rows(name, state, rows, horizon)
    transaction.on_commit(lambda: _observe_lag(rows))
    return len(rows)


def _observe_lag(rows: list[UnsealedRow]) -> None:
    for row in rows:
        metrics.seal_lag.observe(max(0.0, row.age_s))


def _append_rows(name: str, state: LogState, rows: list[UnsealedRow], horizon: str | None) -> None:
    frontier = split_frontier(state.frontier, state.size)
    hashes = [merkle.leaf_hash(row.line()) for row in rows]
    nodes: list[tuple[int, int, bytes]] = []

    def completed(level: int, index: int, made: bytes) -> None:
        if level % STEP == 0:
            nodes.append((level, index, made))

    size = merkle.extend(frontier, state.size, hashes, completed)
    _write_leaves(name, state, rows, hashes)
    _write_nodes(state, nodes)
    _execute(_UPDATE_LOG_SQL, size, b"".join(frontier), horizon, state.id)
    _report_forged(name, state.size, rows)


def _write_leaves(name: str, state: LogState, rows: list[UnsealedRow], hashes: list[bytes]) -> None:
    places = range(state.size, state.size + len(rows))
    macs = [leaves.position_mac(name, *place) for place in zip(places, hashes, strict=True)]
    _execute(_LEAVES, state.id, list(places), [row.id for row in rows], hashes, macs)


def _write_nodes(state: LogState, nodes: list[tuple[int, int, bytes]]) -> None:
    if nodes:
        levels, indexes, hashes = zip(*nodes, strict=True)
        _execute(_NODES, state.id, list(levels), list(indexes), list(hashes))


def _execute(statement: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def _report_forged(name: str, first: int, rows: list[UnsealedRow]) -> None:
    """A record that Toolcrib did not write is sealed like any other, being evidence, and
    reported."""
    forged = [
        {"record": str(row.id), "index": first + place}
        for place, row in enumerate(rows)
        if not hmac.compare_digest(row.mac, leaves.record_mac(name, row.body.encode()))
    ]
    if not forged:
        return
    metrics.forged.inc(len(forged))
    log.critical("%d records of the log %s were not written by Toolcrib", len(forged), name)
    record(
        Event.AUDIT_FORGED,
        by=Actor("system", SEALER, name),
        outcome=Outcome.FAILURE,
        subject=name,
        reason="bad_mac",
        details={"count": len(forged), "first": forged[:_MOST_REPORTED]},
    )
