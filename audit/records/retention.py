"""Retention of evidence: old payloads are erased; old records are archived to files in whole sealed
ranges of their log, each under a checkpoint, and removed once the file was read back.

Records are removed with their month, which is dropped when all of it is archived
(`archived_months`). What is in no month, or in one that cannot be dropped, is removed row by row.

It may be killed at any moment. A file without its segment is written again; a segment whose records
are not all removed is continued, if its file is still what it was. Leaves stay, so the log verifies
over what has left.
"""

import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from audit import shared_files
from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.log import key_files, leaves, merkle
from audit.models import AuditLeaf, AuditLog, AuditSegment, Checkpoint
from audit.partitions import Partition
from audit.records import erasure
from audit.records.archived_months import drop_archived_months, is_intact

RETENTION = "retention"
LONGEST = 100_000  # records in one file
BATCH = 2_000
_BY_TIME = "r.occurred_at < %s AND p.record_id < %s"
_YOUNGER = """
SELECT l.index FROM audit_auditleaf l JOIN audit_auditrecord r ON r.id = l.record_id
WHERE l.log_id = %s AND l.index >= %s AND l.index < %s AND r.occurred_at >= %s
ORDER BY l.index LIMIT 1
"""
_LINES = f"""
SELECT r.id, {leaves.body_sql("r")}, {leaves.moment_sql("r")}, r.mac
FROM audit_auditrecord r WHERE r.id = ANY(%s)
"""  # noqa: S608
# Of a range of a log: those of months that stay, and the others.
_STAYING = """
SELECT record_id FROM audit_auditleaf WHERE log_id = %s AND index >= %s AND index < %s AND EXISTS (
    SELECT FROM unnest(%s::uuid[], %s::uuid[]) AS month (first, until)
    WHERE record_id >= month.first AND record_id < month.until
)
"""
_IN_RANGE = _STAYING.replace("AND EXISTS", "AND NOT EXISTS")
_REMOVE_PAYLOADS = f"""
DELETE FROM audit_auditpayload WHERE sealed IS NULL AND record_id IN ({_IN_RANGE})
"""  # noqa: S608
_REMOVE = f"DELETE FROM audit_auditrecord WHERE id IN ({_IN_RANGE})"  # noqa: S608


class RetentionFailed(Exception):
    """A file of evidence is not what it should be, so nothing is removed; the message says why."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """Of a log, and the one place where its file may be."""

    log: AuditLog
    first: int
    end: int

    @property
    def file(self) -> str:
        return f"{key_files.safe_name(self.log.name)}/{self.first:012}-{self.end:012}.jsonl.gz"

    @property
    def path(self) -> Path:
        return archive_directory() / self.file


@dataclass(frozen=True, slots=True)
class DueRange(LogRange):
    """To be written now, under its checkpoint."""

    checkpoint: Checkpoint


def archive_directory() -> Path:
    return Path(settings.DATA_DIR) / "audit-archive"


def apply_retention(*, records_days: int, payload_days: int) -> dict[str, int]:
    """Erase and move what is older; 0 days are for ever. What cannot be done in one log keeps
    no other waiting; at the end it raises `RetentionFailed`."""
    done, problems = {"erased": 0, "archived": 0}, dict[str, str]()
    shortest = min((days for days in (records_days, payload_days) if days), default=0)
    logs = [*AuditLog.objects.order_by("name")]
    for found in logs:
        if shortest:
            done["erased"] += _erase_payloads(found.name, _days_ago(shortest))
        if records_days and found.halted_at is None:
            with _noting(found.name, problems):
                done["archived"] += _archive_all(found, _days_ago(records_days))
    if records_days:
        staying = drop_archived_months(_days_ago(records_days), archive_directory())
        for found in logs:
            with _noting(found.name, problems):
                for segment in found.segments.filter(removed_at=None).order_by("first"):
                    _remove_records(segment, staying)
    if problems:
        raise RetentionFailed(" ".join(problems.values()))
    return done


@contextmanager
def _noting(name: str, problems: dict[str, str]) -> Iterator[None]:
    """A failure in one log is put on record, once in a run, and keeps no other log waiting."""
    try:
        yield
    except RetentionFailed as problem:
        if name not in problems:
            _record_retention(name, "records", Outcome.FAILURE, problem=str(problem))
        problems.setdefault(name, str(problem))


def record_expiry(organization: str, kind: str, rows: Mapping[str, int], before: datetime) -> None:
    """That so many rows went, by their kinds. Call it in the transaction that deletes them."""
    record(
        Event.ROWS_EXPIRE,
        by=Actor("system", RETENTION, organization),
        outcome=Outcome.CHANGED,
        subject=kind,
        details={"rows": dict(rows), "before": before.isoformat()},
    )


def _days_ago(days: int) -> datetime:
    return timezone.now() - timedelta(days=days)


def _erase_payloads(organization: str, before: datetime) -> int:
    # An id begins with the clock of the program: a day leaves room for one that is wrong.
    latest = UUID(int=int((before + timedelta(days=1)).timestamp() * 1000) << 80)
    what = organization, _BY_TIME, [before, latest]
    if not erasure.exists_where(*what):
        return 0
    # First of all: a missing payload without a record of its erasure is damage.
    _record_retention(organization, "payloads", Outcome.STARTED, before=before.isoformat())
    done = erasure.erase_where(*what, by=RETENTION)
    _record_retention(
        organization, "payloads", Outcome.SUCCESS, erased=done, before=before.isoformat()
    )
    return done


def _archive_all(found: AuditLog, before: datetime) -> int:
    done = 0
    while (due := next_range(found, before)) is not None and archive_range(due) is not None:
        done += due.end - due.first
    return done


def next_range(found: AuditLog, before: datetime) -> DueRange | None:
    """The oldest sealed and signed records in no file, up to the first younger one."""
    checkpoint = found.checkpoints.order_by("-size", "-id").first()
    last = found.segments.order_by("-end").first()
    first = last.end if last else 0
    if checkpoint is None or checkpoint.size <= first:
        return None
    end = min(checkpoint.size, first + LONGEST)
    with connection.cursor() as cursor:
        cursor.execute(_YOUNGER, [found.pk, first, end, before])
        younger = cursor.fetchone()
    end = younger[0] if younger else end
    return DueRange(found, first, end, checkpoint) if end > first else None


def archive_range(due: DueRange) -> AuditSegment | None:
    """Write the file, read it back, and only then say that its records may leave. None where
    another run was faster."""
    shared_files.make_directory(due.path.parent)
    shared_files.sync_directory(archive_directory())
    shared_files.write_atomically(due.path, compress_lines(range_lines(due)))
    check_file(due)
    sha256 = shared_files.file_sha256(due.path)
    shared_files.write_atomically(
        due.path.with_suffix(".checkpoint"), [due.checkpoint.note.encode()]
    )
    manifest = key_files.signed_manifest(due.log.name, _manifest_fields(due, sha256))
    shared_files.write_atomically(due.path.with_suffix(".manifest"), [manifest.encode()])
    return _create_segment(due, sha256)


@transaction.atomic
def _create_segment(due: DueRange, sha256: str) -> AuditSegment | None:
    AuditLog.objects.select_for_update().get(pk=due.log.pk)
    if due.log.segments.filter(end__gt=due.first).exists():
        return None
    segment = AuditSegment.objects.create(
        log=due.log,
        first=due.first,
        end=due.end,
        file=due.file,
        sha256=sha256,
        note=due.checkpoint.note,
    )
    file = {"file": segment.file, "sha256": sha256}
    # Its hash once more, as a digest: in details a part of one may look like the number of a card.
    digest, place = f"sha256:{sha256}", {"first": due.first, "end": due.end}
    _record_retention(due.log.name, "records", Outcome.STARTED, digest, **place, **file)
    return segment


def range_lines(due: LogRange) -> Iterator[bytes]:
    """The sealed lines in the order of their leaves."""
    for first in range(due.first, due.end, BATCH):
        batch = AuditLeaf.objects.filter(
            log=due.log, index__gte=first, index__lt=min(first + BATCH, due.end)
        )
        ids = [*batch.order_by("index").values_list("record_id", flat=True)]
        with connection.cursor() as cursor:
            cursor.execute(_LINES, [ids])  # not a join, which would read months of other records
            rows = {row[0]: row[1:] for row in cursor.fetchall()}
        for body, moment, mac in (rows[record_id] for record_id in ids if record_id in rows):
            yield leaves.leaf_line(body.encode(), bytes(mac), moment) + b"\n"


def compress_lines(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The same lines make the same bytes: they contain no time and no name."""
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as packed:
        for line in lines:
            packed.write(line)
            if out.tell() > 1 << 20:
                yield out.getvalue()
                out.seek(0)
                out.truncate()
    yield out.getvalue()


def check_file(due: LogRange) -> None:
    """That the file holds, line by line, what the leaves of the range were made of. Raises
    `RetentionFailed`."""
    index = due.first
    with gzip.open(due.path) as lines:
        while index < due.end:
            hashes = _leaf_hashes(due.log, index, min(index + BATCH, due.end))
            for expected in hashes:
                if merkle.leaf_hash(lines.readline().removesuffix(b"\n")) != expected:
                    raise RetentionFailed(
                        f"Record {index} of the log {due.log.name} is not what was sealed. "
                        "Nothing was removed; audit_verify says more."
                    )
                index += 1
        if lines.read(1):
            raise RetentionFailed(f"{due.path.name} holds more than its range.")


def _leaf_hashes(found: AuditLog, first: int, end: int) -> list[bytes]:
    rows = AuditLeaf.objects.filter(log=found, index__gte=first, index__lt=end).order_by("index")
    hashes = [bytes(row) for row in rows.values_list("hash", flat=True)]
    if len(hashes) != end - first:
        raise RetentionFailed(
            f"The log {found.name} has no leaf for each index from {first} to {end}."
        )
    return hashes


def _remove_records(segment: AuditSegment, staying: Sequence[Partition] = ()) -> None:
    """Remove the records of a segment by batches, but those of the months that stay. Raises
    `RetentionFailed` if its file is gone."""
    if not is_intact(segment, archive_directory()):
        raise RetentionFailed(
            f"{segment.file} is not the file that was written. Nothing more is removed: bring it "
            f"back; its SHA-256 is {segment.sha256}."
        )
    months: list[Any] = [[one.first for one in staying], [one.end for one in staying]]
    if not _exists(_IN_RANGE, segment.log_id, segment.first, segment.end, *months):
        return
    for first in range(segment.first, segment.end, BATCH):
        place: list[Any] = [segment.log_id, first, min(first + BATCH, segment.end), *months]
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_REMOVE_PAYLOADS, place)
            cursor.execute(_REMOVE, place)
    if not _exists(_STAYING, segment.log_id, segment.first, segment.end, *months):
        _mark_removed(segment)


def _exists(statement: str, *values: Any) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT EXISTS ({statement})", values)
        found: bool = cursor.fetchone()[0]
    return found


@transaction.atomic
def _mark_removed(segment: AuditSegment) -> None:
    row = AuditSegment.objects.filter(pk=segment.pk, removed_at=None)
    if row.update(removed_at=timezone.now()):
        digest, place = f"sha256:{segment.sha256}", {"first": segment.first, "end": segment.end}
        name = segment.log.name
        _record_retention(name, "records", Outcome.SUCCESS, digest, **place, file=segment.file)


def _manifest_fields(due: LogRange, sha256: str) -> dict[str, object]:
    return {
        "file": due.path.name,
        "format": "jsonl.gz",
        "sha256": sha256,
        "size": due.path.stat().st_size,
        "records": due.end - due.first,
        "indexes": f"{due.first}-{due.end - 1}",
    }


def _record_retention(
    organization: str, subject: str, outcome: Outcome, digest: str = "", **details: object
) -> None:
    record(
        Event.AUDIT_RETENTION,
        by=Actor("system", RETENTION, organization),
        outcome=outcome,
        subject=subject,
        digest=digest,
        details=details,
    )
