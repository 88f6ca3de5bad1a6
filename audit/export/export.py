"""Export evidence as JSON lines that are the sealed lines byte for byte, as CSV, or as OCSF.

Rows are read in batches with keyset pagination, the oldest first, and no database connection is
held between two of them: a slow client blocks no other. Records written after an export began are
not part of it.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode
from uuid import UUID

import orjson
from django.db import connection
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.export import ocsf
from audit.log import key_files, leaves
from audit.models import Checkpoint
from audit.records import record_search
from audit.records.record_search import RecordSearch
from audit.shared_files import DigestWriter, write_atomically

_FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_STRIPPED_PREFIXES = " \u00a0\"'"
BATCH = 500
MOST_CONCURRENT, ORGANIZATION_CONCURRENT = 4, 2  # in one process; each keeps a thread of the server
_COLUMNS = ("id", "occurred_at", "code", "outcome", "reason", "actor_kind", "actor", "actor_id",
            "token_id", "subject", "subject_digest", "execution_id", "request_id", "source_ip",
            "details", "log_index", "leaf_hash")  # fmt: skip
_ROWS = f"""
WITH next AS MATERIALIZED (/* next */)
SELECT r.occurred_at, r.id, {leaves.body_sql("r")}, {leaves.moment_sql("r")}, r.mac, l.index, l.hash
FROM next JOIN audit_auditrecord r ON r.id = next.id
LEFT JOIN audit_auditleaf l ON l.record_id = r.id
ORDER BY r.occurred_at, r.id
"""  # noqa: S608
ProgressCallback = Callable[[int, int], None]
type RowFormatter = Callable[[ExportRow, SignedSize], bytes]


def csv_row(cells: Iterable[str]) -> bytes:
    return (",".join(_quote_cell(escape_formula(cell)) for cell in cells) + "\r\n").encode()


def escape_formula(cell: str) -> str:
    """With an apostrophe in front where a spreadsheet could compute it, also behind spaces and
    quotes: those some programs strip first."""
    if cell.startswith(_FORMULA_PREFIXES) or cell.lstrip(_STRIPPED_PREFIXES).startswith(
        _FORMULA_PREFIXES
    ):
        return f"'{cell}"
    return cell


class TooManyExports(Exception):
    """The limit of concurrent exports of this process, or of the organization, is reached."""

    def __init__(self) -> None:
        super().__init__("Too many exports are under way. Try again when one of them is over.")


@dataclass(frozen=True, slots=True)
class ExportRow:
    occurred_at: datetime
    id: UUID
    body: bytes
    moment: str
    mac: bytes
    index: int | None
    hash: bytes | None

    @property
    def line(self) -> bytes:
        """The records that were or will be sealed."""
        return leaves.leaf_line(self.body, self.mac, self.moment)


@dataclass(frozen=True, slots=True)
class SignedSize:
    """The signed size of a log when an export began."""

    origin: str
    size: int
    note: str

    def seal_of(self, row: ExportRow) -> ocsf.Seal | None:
        if row.index is None or row.hash is None or row.index >= self.size:
            return None
        return ocsf.Seal(self.origin, row.index, row.hash.hex(), self.note)


@dataclass(frozen=True, slots=True)
class ExportFormat:
    suffix: str
    content_type: str
    format_row: RowFormatter
    head: bytes = b""


class ExportSlots:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()

    def acquire(self, organization: str) -> None:
        """Raises `TooManyExports`."""
        with self._lock:
            if (
                self._running.total() >= MOST_CONCURRENT
                or self._running[organization] >= ORGANIZATION_CONCURRENT
            ):
                raise TooManyExports
            self._running[organization] += 1

    def release(self, organization: str) -> None:
        with self._lock:
            self._running[organization] -= 1
            if not self._running[organization]:
                del self._running[organization]


class ExportStream:
    """The bytes of an export. Releases its slot however it ends, also unread."""

    def __init__(self, wanted: RecordSearch, format_name: str) -> None:
        """Raises `TooManyExports`."""
        self._organization = wanted.organization
        _slots.acquire(self._organization)
        self._parts = export_parts(wanted, format_name)
        self._open = True

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if error is not None:
            self.close()

    def close(self) -> None:
        if self._open:
            self._open = False
            _slots.release(self._organization)


def begin_export(wanted: RecordSearch, format_name: str, by: Actor) -> ExportStream:
    """The export is on record before a byte leaves. Raises `TooManyExports`."""
    with ExportStream(wanted, format_name) as stream:
        record(
            Event.AUDIT_EXPORT,
            by=by,
            outcome=Outcome.STARTED,
            subject=format_name,
            details={"filters": wanted.filters, "opened": wanted.opened},
        )
    return stream


def export_parts(wanted: RecordSearch, format_name: str) -> Iterator[bytes]:
    """The export in pieces of some hundred rows."""
    kind = FORMATS[format_name]
    signed = signed_size(wanted.organization)
    yield kind.head
    for batch in read_batches(wanted):
        yield b"".join(kind.format_row(row, signed) for row in batch)


def read_batches(wanted: RecordSearch) -> Iterator[list[ExportRow]]:
    """All matching rows, the oldest first, up to now."""
    now = timezone.now()
    wanted = record_search.replace_filters(wanted, until=min(wanted.until or now, now))
    after: tuple[datetime, UUID] | None = None
    while found := _read_batch(wanted, after):
        connection.close()  # a slow client holds none
        yield found
        after = (found[-1].occurred_at, found[-1].id)
    connection.close()


def export_file(wanted: RecordSearch, format_name: str, path: Path, *, by: Actor) -> int:
    """Write a file and `<file>.manifest` beside it; how many records it holds."""
    records: int = write_export_file(wanted, format_name, path, by=by)["records"]
    return records


def write_export_file(
    wanted: RecordSearch,
    format_name: str,
    path: Path,
    *,
    by: Actor,
    watch: ProgressCallback | None = None,
) -> dict[str, Any]:
    """The same, with all that the manifest says of it. `watch` is called after each batch with the
    number of records and bytes, and stops the writing by raising.

    The record of it is output before the file gets its name.
    """
    signed, output = signed_size(wanted.organization), _ExportFile(watch)
    kind = FORMATS[format_name]
    lines = output.write_batches(read_batches(wanted), kind, signed)
    fields: dict[str, Any] = {}

    def record_export(digest: DigestWriter) -> None:
        fields.update(output.manifest_fields(path.name, format_name, digest, wanted))
        record(
            Event.AUDIT_EXPORT,
            by=by,
            outcome=Outcome.SUCCESS,
            subject=format_name,
            details=fields | {"filters": wanted.filters, "opened": wanted.opened},
        )
        note = key_files.signed_manifest(wanted.organization, fields)
        write_atomically(path.with_name(f"{path.name}.manifest"), [note.encode()])

    write_atomically(path, lines, record_export)
    return fields


class _ExportFile:
    """What a manifest says of a file."""

    def __init__(self, watch: ProgressCallback | None = None) -> None:
        self.records, self._size = 0, 0
        self._indexes: list[int] = []
        self._watch = watch

    def write_batches(
        self, batches: Iterator[list[ExportRow]], kind: ExportFormat, signed: SignedSize
    ) -> Iterator[bytes]:
        yield kind.head
        for batch in batches:
            self.records += len(batch)
            known = [row.index for row in batch if row.index is not None]
            if known:
                ends = [*self._indexes, *known]
                self._indexes = [min(ends), max(ends)]
            part = b"".join(kind.format_row(row, signed) for row in batch)
            self._size += len(part)
            if self._watch is not None:
                self._watch(self.records, self._size)
            yield part

    def manifest_fields(
        self, name: str, format_name: str, digest: DigestWriter, wanted: RecordSearch
    ) -> dict[str, object]:
        return {
            "file": name,
            "format": format_name,
            "sha256": digest.sha256,
            "size": digest.size,
            "records": self.records,
            "indexes": "-".join(map(str, self._indexes)) or "none",
            "filters": urlencode(wanted.filters) or "none",
            "time": timezone.now().isoformat(),
        }


def signed_size(organization: str) -> SignedSize:
    newest = Checkpoint.objects.filter(log__name=organization).order_by("-size", "-id").first()
    origin = key_files.log_origin(organization)
    return SignedSize(origin, newest.size, newest.note) if newest else SignedSize(origin, 0, "")


def _quote_cell(cell: str) -> str:
    if any(mark in cell for mark in ',"\r\n'):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _jsonl_line(row: ExportRow, signed: SignedSize) -> bytes:
    return row.line + b"\n"


def _csv_line(row: ExportRow, signed: SignedSize) -> bytes:
    fields: dict[str, Any] = orjson.loads(row.body)
    fields |= {
        "occurred_at": row.moment,
        "details": orjson.dumps(fields["details"]).decode(),
        "log_index": row.index,
        "leaf_hash": row.hash.hex() if row.hash else None,
    }
    cells = ("" if fields[name] is None else str(fields[name]) for name in _COLUMNS)
    return csv_row(cells)


def _ocsf_line(row: ExportRow, signed: SignedSize) -> bytes:
    fields = ocsf.ocsf_event(
        orjson.loads(row.body), row.occurred_at, row.line.decode(), signed.seal_of(row)
    )
    return orjson.dumps(fields) + b"\n"


def _read_batch(wanted: RecordSearch, after: tuple[datetime, UUID] | None) -> list[ExportRow]:
    ids = record_search.ascending_ids(wanted, BATCH, after)
    with connection.cursor() as cursor:
        cursor.execute(_ROWS.replace("/* next */", ids.sql), ids.values)
        return [
            ExportRow(
                at, identifier, body.encode(), moment, bytes(mac), index, leaf and bytes(leaf)
            )
            for at, identifier, body, moment, mac, index, leaf in cursor.fetchall()
        ]


FORMATS = {
    "jsonl": ExportFormat("jsonl", "application/x-ndjson", _jsonl_line),
    "csv": ExportFormat(
        "csv", "text/csv; charset=utf-8; header=present", _csv_line, csv_row(_COLUMNS)
    ),
    "ocsf": ExportFormat("ocsf.jsonl", "application/x-ndjson", _ocsf_line),
}


_slots = ExportSlots()
