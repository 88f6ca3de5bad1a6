"""Read a log from the database for verification.

A missing payload is one that a record commits to and of which no erasure is on record: a row proves
nothing, since an attacker who has only the database can empty it.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import psycopg
from django.db import connection, transaction
from django.db.models import Max
from psycopg.rows import tuple_row

from audit import shared_files
from audit.events import Event
from audit.log import key_files, leaves
from audit.log.checkpoints import BadNote, signed_by
from audit.log.leaves import body_sql
from audit.models import AuditLog, AuditNode, AuditRecord, AuditSegment, Checkpoint
from audit.records import payloads, retention
from audit.records.payloads import PayloadErased
from audit.records.retention import LogRange, RetentionFailed
from audit.verification.chunks import MacFunction, mac_function
from audit.verification.log_source import (
    HEAD,
    TAIL,
    CheckpointRow,
    ExportedRanges,
    LogRow,
    RawRow,
    UnsealedRecord,
)
from audit.verification.verification_report import FindingKind, VerificationFinding

RunQuery = Callable[..., list[Any]]
MissingPayload = tuple[int | None, str]
ERASED_WITHIN = timedelta(hours=1)  # what came in while an erasure was at work
_MOST_PAYLOADS = 1000
_NEVER = datetime(1, 1, 2, tzinfo=UTC)
_COMMITTED = """r.organization = %s AND strpos(r.details::text, '_commitment":"sha256:') > 0"""
_MISSING_SQL = f"""
SELECT l.index, r.id FROM audit_auditrecord r LEFT JOIN audit_auditleaf l ON l.record_id = r.id
WHERE {_COMMITTED} AND NOT EXISTS (SELECT FROM audit_auditpayload p WHERE p.record_id = r.id)
ORDER BY r.id LIMIT {_MOST_PAYLOADS}
"""  # noqa: S608
_ERASURES_SQL = f"""
SELECT convert_to({body_sql("r")}, 'UTF8'), r.mac, r.occurred_at FROM audit_auditrecord r
WHERE r.organization = %s AND r.code IN ('{Event.AUDIT_ERASE}', '{Event.AUDIT_RETENTION}')
    AND r.subject = 'payloads'
"""  # noqa: S608
# As `audit.records.erasure` finds what is an agent's.
_EMPTIED_SQL = f"""
SELECT l.index, r.id FROM audit_auditrecord r JOIN audit_auditpayload p ON p.record_id = r.id
LEFT JOIN audit_auditleaf l ON l.record_id = r.id
WHERE r.organization = %s AND p.sealed IS NULL AND r.occurred_at >= %s
    AND (r.execution_id IS NULL OR r.execution_id <> ALL(%s::uuid[]))
    AND NOT EXISTS (
        SELECT FROM unnest(%s::text[], %s::timestamptz[]) AS erasures(agent, until)
        WHERE r.occurred_at < erasures.until AND (
            (r.actor_kind = 'agent' AND r.actor = erasures.agent) OR EXISTS (
                SELECT FROM audit_auditrecord a
                WHERE a.execution_id = r.execution_id AND a.organization = r.organization
                    AND a.actor_kind = 'agent' AND a.actor = erasures.agent
            )
        )
    )
ORDER BY r.id LIMIT {_MOST_PAYLOADS}
"""  # noqa: S608
_OLDEST_SQL = """
SELECT l.index, r.id FROM audit_auditrecord r JOIN audit_auditpayload p ON p.record_id = r.id
LEFT JOIN audit_auditleaf l ON l.record_id = r.id
WHERE r.organization = %s AND p.sealed IS NOT NULL AND r.occurred_at >= %s
ORDER BY r.occurred_at, r.id LIMIT 1
"""
UNSEALED_AT_MOST_S = 60
ENDED_WITHIN_S = 2 * 3600  # twice what a call may take at most
_MOST_ROWS = 1000
_NOTES = 5000
_LEAST_SIZE = -(1 << 63)
_ENDS = (Event.TOOL_END, Event.TOOL_LOST, Event.TOOL_DENY)
_EXECUTION = "coalesce('\"' || r.execution_id || '\"', 'null')"
# Of all records, also where the rest goes on from a checkpoint: an inserted one says any time and
# id of itself, so that no range of them is safe to leave out. A record that is seen is committed.
# It is due when no transaction is left that began before its own, or when its number is from
# another server.
_STRAYS = f"""
SELECT uuid_send(r.id), timestamptz_send(r.occurred_at), r.mac,
    now() - r.occurred_at > make_interval(secs => {UNSEALED_AT_MOST_S})
        AND (r.transaction < pg_snapshot_xmin(pg_current_snapshot())
            OR r.transaction >= pg_snapshot_xmax(pg_current_snapshot()))
FROM audit_auditrecord r
WHERE r.organization = %s
    AND NOT EXISTS (SELECT FROM audit_auditleaf l WHERE l.record_id = r.id)
ORDER BY r.occurred_at, r.id LIMIT {_MOST_ROWS}
"""  # noqa: S608
# Of one attempt: each has a fence of its own. Clocks are not asked, for they are set back.
_UNFINISHED = f"""
SELECT s.id, l.index
FROM audit_auditrecord s LEFT JOIN audit_auditleaf l ON l.record_id = s.id
WHERE s.organization = %s AND s.code = '{Event.TOOL_START}' AND s.execution_id IS NOT NULL
    AND s.occurred_at < now() - make_interval(secs => {ENDED_WITHIN_S})
    AND NOT EXISTS (
        SELECT FROM audit_auditrecord e
        WHERE e.execution_id = s.execution_id AND e.code = ANY(%s)
            AND e.details ->> 'fence' IS NOT DISTINCT FROM s.details ->> 'fence'
    )
ORDER BY s.occurred_at LIMIT {_MOST_ROWS}
"""  # noqa: S608
_BODY = f"SELECT {leaves.body_sql('r')} FROM audit_auditrecord r WHERE r.id = %s"  # noqa: S608
# By size, as the index has them. Each batch is a statement, and a transaction, of its own.
_NOTED = f"""
SELECT size, root, note, id FROM audit_checkpoint
WHERE log_id = %s AND (size, id) > (%s, %s) AND id <= %s ORDER BY size, id LIMIT {_NOTES}
"""  # noqa: S608
_EXPORTED = f"""
SELECT convert_to({leaves.body_sql("r")}, 'UTF8'), r.mac FROM audit_auditrecord r
WHERE r.organization = %s AND r.code = '{Event.AUDIT_RETENTION}' AND r.subject = 'records'
"""  # noqa: S608


@dataclass(slots=True)
class _ErasedPayloads:
    """What was erased, as genuine records say: everything before a time, calls, and agents'."""

    before: datetime = _NEVER
    executions: list[UUID] = field(default_factory=list)
    agents: dict[str, datetime] = field(default_factory=dict)

    def add(self, body: dict[str, Any], at: datetime) -> None:
        details = body["details"]
        scope = details.get("of", details)
        until = _parse_time(scope.get("before")) or at + ERASED_WITHIN
        if "execution" in scope:
            self.executions.append(UUID(body["execution_id"]))
        elif "agent" in scope:
            name = scope["agent"]
            self.agents[name] = max(until, self.agents.get(name, _NEVER))
        else:
            self.before = max(until, self.before)


def missing_payloads(ask: RunQuery, name: str, mac: MacFunction | None) -> Iterator[MissingPayload]:
    """Without the key of macs erasures cannot be checked, and only missing rows are reported."""
    for index, record_id in ask(_MISSING_SQL, name):
        yield index, f"the payload of the record {record_id} is gone"
    if mac is None:
        return
    erasures = _read_erasures(ask(_ERASURES_SQL, name), mac)
    agents, until = [*erasures.agents], [*erasures.agents.values()]
    emptied = ask(_EMPTIED_SQL, name, erasures.before, erasures.executions, agents, until)
    for index, record_id in emptied:
        yield index, f"the payload of the record {record_id} was erased, and nobody said so"
    for index, record_id in ask(_OLDEST_SQL, name, erasures.before):
        yield from _report_unreadable(index, record_id)


class DatabaseSource:
    """As it is while it grows, but for what is asked within a `moment`. `elsewhere`: files of
    records that left are kept in another place, and not missed here."""

    def __init__(self, name: str, record_key: bytes | None, *, elsewhere: bool = False) -> None:
        self.name = name
        self._record_key = record_key
        self._elsewhere = elsewhere

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield

    def log(self) -> LogRow | None:
        row = AuditLog.objects.filter(name=self.name).first()
        return LogRow(row.size, bytes(row.frontier)) if row is not None else None

    def count(self) -> int:
        found: int = self._query(
            "SELECT count(*) FROM audit_auditleaf WHERE log_id = %s", self._log_id
        )[0][0]
        return found

    def rows(self, first: int, end: int) -> list[RawRow]:
        return self._query(_ROWS, self._log_id, first, end - 1, end - first)

    def surplus_rows(self, end: int) -> list[RawRow]:
        return self._query(_ROWS, self._log_id, end, (1 << 63) - 1, _MOST_ROWS)

    def exact_body(self, record_id: bytes) -> bytes:
        found: str = self._query(_BODY, UUID(bytes=record_id))[0][0]
        return found.encode()

    def nodes(self) -> dict[tuple[int, int], bytes]:
        rows = AuditNode.objects.filter(log=self._log_id).values_list("level", "index", "hash")
        return {(level, index): bytes(made) for level, index, made in rows.iterator()}

    def checkpoints(self, since: int = 0) -> Iterator[CheckpointRow]:
        last = Checkpoint.objects.filter(log=self._log_id).aggregate(last=Max("id"))["last"]
        size, number = since or _LEAST_SIZE, -1
        while rows := self._query(_NOTED, self._log_id, size, number, last or 0):
            for size, root, note, number in rows:  # noqa: B007
                yield CheckpointRow(size, root, note)

    def file_count(self) -> int:
        return AuditSegment.objects.filter(log=self._log_id).count()

    def exported_ranges(self) -> ExportedRanges:
        """Only ranges that a genuine record, or the lines in the file, confirm: a row alone proves
        nothing. The record may have been exported itself."""
        recorded = self._recorded_exports()
        rows = AuditSegment.objects.filter(log=self._log_id).select_related("log").order_by("first")
        left = [row for row in rows if _segment_key(row) in recorded or _is_archived(row)]
        return ExportedRanges(
            [(row.first, row.end) for row in left],
            [found for row in left if (found := self._file_finding(row)) is not None],
        )

    def _recorded_exports(self) -> set[tuple[Any, Any, str]]:
        """By records that this installation wrote; none where that cannot be checked."""
        if self._record_key is None:
            return set()
        mac = mac_function(self._record_key)
        erasures = [
            orjson.loads(b) for b, made in self._query(_EXPORTED, self.name) if mac(b) == made
        ]
        places = [(one["details"], one["subject_digest"]) for one in erasures]
        return {(place.get("first"), place.get("end"), digest) for place, digest in places}

    def _file_finding(self, row: AuditSegment) -> VerificationFinding | None:
        file = LogRange(row.log, row.first, row.end)
        try:
            same = shared_files.file_sha256(file.path) == row.sha256
        except OSError as error:
            if self._elsewhere and isinstance(error, FileNotFoundError):
                return None
            says = f"the file {file.file} cannot be read: {error.strerror}"
            return VerificationFinding(FindingKind.MISSING, row.first, says)
        if not same:
            says = f"the file {file.file} is not the one that was written"
            return VerificationFinding(FindingKind.MUTATED, row.first, says)
        return self._manifest_finding(row, file.path)

    def _manifest_finding(self, row: AuditSegment, path: Path) -> VerificationFinding | None:
        """The manifest beside the file, by which others can check it."""
        for suffix, content in (
            (".checkpoint", row.note),
            (".manifest", f"\nsha256 {row.sha256}\n"),
        ):
            beside = path.with_suffix(suffix)
            try:
                text = beside.read_text("utf-8")
                right = content in text and (suffix == ".checkpoint" or self._is_ours(text))
            except (OSError, UnicodeDecodeError, BadNote):
                right = False
            if not right:
                says = f"{beside.name} is gone, or not what was written beside its file"
                return VerificationFinding(FindingKind.MISSING, row.first, says)
        return None

    def _is_ours(self, manifest: str) -> bool:
        keys = key_files.manifest_keys(self.name) | key_files.trusted_keys(self.name)
        return bool(signed_by(manifest, keys))

    def unsealed_records(self) -> list[UnsealedRecord]:
        return [UnsealedRecord(*row) for row in self._query(_STRAYS, self.name)]

    def missing_payloads(self) -> list[tuple[int | None, str]]:
        mac = mac_function(self._record_key) if self._record_key is not None else None
        return [*missing_payloads(self._query, self.name, mac)]

    def unfinished_calls(self) -> list[tuple[UUID, int | None]]:
        return self._query(_UNFINISHED, self.name, list(_ENDS))

    @cached_property
    def _log_id(self) -> int:
        return AuditLog.objects.filter(name=self.name).values_list("pk", flat=True).first() or 0

    def _query(self, statement: str, *values: Any) -> list[Any]:
        """In binary, which spares both sides the writing and reading of text."""
        connection.ensure_connection()
        raw = connection.connection
        with connection.wrap_database_errors, psycopg.Cursor(raw, row_factory=tuple_row) as cursor:
            cursor.execute(statement.encode(), values, binary=True)
            return cursor.fetchall()


def log_names() -> list[str]:
    """Every log there is, and every organization that has records and should have one."""
    written = AuditRecord.objects.order_by("organization").values_list("organization", flat=True)
    return sorted({*AuditLog.objects.values_list("name", flat=True), *written.distinct()})


def _report_unreadable(index: int | None, record_id: UUID) -> Iterator[MissingPayload]:
    try:
        payloads.open_payload(record_id)
    except PayloadErased as error:
        yield index, f"payloads from that of the record {record_id} on do not open: {error}"


def _read_erasures(
    rows: Iterable[tuple[bytes, bytes, datetime]], mac: MacFunction
) -> _ErasedPayloads:
    erasures = _ErasedPayloads()
    for body, made, at in rows:
        if mac(body) == made:
            erasures.add(orjson.loads(body), at)
    return erasures


def _parse_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _fields_sql(names: tuple[str, ...], before: str, after: str) -> str:
    """An SQL expression of fields as a body says them when none needs escaping."""
    members = (f'\'"{name}":"\', r.{name}' for name in names)
    return f"concat('{before}', {", '\",', ".join(members)}, '\"{after}')"


def _segment_key(row: AuditSegment) -> tuple[int, int, str]:
    return row.first, row.end, f"sha256:{row.sha256}"


def _is_archived(row: AuditSegment) -> bool:
    """Whether the file of that very range holds, line by line, what its leaves were made of."""
    try:
        retention.check_file(LogRange(row.log, row.first, row.end))
    except (OSError, EOFError, zlib.error, RetentionFailed):
        return False
    return True


_HEAD = _fields_sql(HEAD, "{", ',"details":')


_TAIL = f"""concat(',"execution_id":', {_EXECUTION}, {_fields_sql(TAIL[1:], ",", "}")})"""


_RECORD = f"""
timestamptz_send(r.occurred_at), r.mac, CASE WHEN r.id IS NOT NULL THEN {_HEAD} END,
r.details::text, CASE WHEN r.id IS NOT NULL THEN {_TAIL} END
"""


_ROWS = f"""
SELECT l.index, uuid_send(l.record_id), l.hash, l.mac, {_RECORD}
FROM audit_auditleaf l LEFT JOIN audit_auditrecord r ON r.id = l.record_id
WHERE l.log_id = %s AND l.index >= %s AND l.index <= %s ORDER BY l.index LIMIT %s
"""  # noqa: S608
