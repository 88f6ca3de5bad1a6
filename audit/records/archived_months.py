"""Drop whole months of records and payloads, once all of them are in files that were verified.

A month is dropped when retention is over for all of it. Until then its records stay, archived or
not; so a record is in the database for up to a month longer than retention says, and its payload is
not. A month in which anything is not archived, such as that of a log that is halted, is left to be
removed row by row.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from pathlib import Path

from django.db import connection

from audit import partitions, shared_files
from audit.models import AuditSegment
from audit.partitions import Partition, PartitionBusy

log = logging.getLogger(__name__)
RECORDS = "audit_auditrecord"
PAYLOADS = "audit_auditpayload"
_NOT_ARCHIVED_SQL = """
SELECT EXISTS (
    SELECT FROM {name} r WHERE NOT EXISTS (
        SELECT FROM audit_auditleaf l
        JOIN unnest(%s::bigint[], %s::bigint[], %s::bigint[]) AS archived (log_id, first, until)
            ON archived.log_id = l.log_id AND l.index >= archived.first AND l.index < archived.until
        WHERE l.record_id = r.id
    )
)
"""
_NOT_ERASED_SQL = "SELECT EXISTS (SELECT FROM {name} WHERE sealed IS NOT NULL)"


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """Of a log, in files that are what was written."""

    log_id: int
    first: int
    end: int


def drop_archived_months(before: datetime, directory: Path) -> list[Partition]:
    """Drop the months that ended before then and are archived in that directory. The months whose
    records stay for now: those that ended later, and those that were in use at the moment."""
    months = [one for one in partitions.partitions_of(RECORDS) if one.end is not None]
    oldest = partitions.first_id(before)
    due = [one for one in months if one.end is not None and one.end <= oldest]
    staying = [one for one in months if one not in due and one.first is not None]
    if due:
        archived = _archived_ranges(directory)
        staying += [one for one in due if not _drop_unless_kept(one, archived)]
    return staying


def is_intact(segment: AuditSegment, directory: Path) -> bool:
    """Whether the file of a segment is there, and what was written."""
    path = directory / segment.file
    return path.is_file() and shared_files.file_sha256(path) == segment.sha256


def _drop_unless_kept(month: Partition, archived: Sequence[ArchivedRange]) -> bool:
    """False where something uses the tables now."""
    bounds = month.first, month.end
    payloads = [one for one in partitions.partitions_of(PAYLOADS) if (one.first, one.end) == bounds]
    keep = partial(_is_kept, month, payloads, archived)
    try:
        if not partitions.drop_partitions([month, *payloads], keep=keep):
            log.info("%s has records that are not archived", month.name)
    except PartitionBusy as problem:
        log.info("%s is dropped later: %s", month.name, problem)
        return False
    return True


def _is_kept(
    month: Partition, payloads: Sequence[Partition], archived: Sequence[ArchivedRange]
) -> bool:
    columns = [[getattr(one, name) for one in archived] for name in ArchivedRange.__slots__]
    with connection.cursor() as cursor:
        cursor.execute(_NOT_ARCHIVED_SQL.format(name=month.name), columns)
        kept: bool = cursor.fetchone()[0]
        for one in payloads:
            cursor.execute(_NOT_ERASED_SQL.format(name=one.name))
            kept = kept or cursor.fetchone()[0]
    return kept


def _archived_ranges(directory: Path) -> list[ArchivedRange]:
    """Adjacent segments as one range: a log has a file for each day, and each record is looked for
    in all ranges of its log."""
    rows = AuditSegment.objects.filter(removed_at=None).order_by("log_id", "first")
    intact = [row for row in rows if is_intact(row, directory)]
    ranges: list[ArchivedRange] = []
    for log_id, segments in groupby(intact, key=lambda row: row.log_id):
        for row in segments:
            last = ranges[-1] if ranges else None
            if last is not None and (last.log_id, last.end) == (log_id, row.first):
                ranges[-1] = ArchivedRange(log_id, last.first, row.end)
            else:
                ranges.append(ArchivedRange(log_id, row.first, row.end))
    return ranges
