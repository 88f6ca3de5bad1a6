"""Background exports: files that a user requests, a worker writes, the user downloads, and that are
deleted after a day. Their content is that of `audit.export.export`."""

import shutil
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet, Sum
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from audit import shared_files
from audit.actions import Actor, record
from audit.errors import AuditFlaw
from audit.events import Event, Outcome
from audit.export import export
from audit.models import AuditExport, ExportState
from audit.records import record_search
from audit.records.record_search import RecordSearch
from audit.records.retention import record_expiry

EXPIRES_AFTER = timedelta(days=1)
MOST_EXPORTS = 5  # of one user at a time
MOST_RUNNING, ORGANIZATION_RUNNING = 2, 1  # each keeps a worker
MOST_BYTES = 2 * 1024**3
ORGANIZATION_BYTES = 5 * 1024**3  # of all its existing exports
FREE_BYTES = 1024**3  # free disk space left for everything else
_SILENT = timedelta(minutes=10)  # after which its worker is considered dead
_LOCK_KEY = 5_017_344  # before one begins, those under way are counted


class ExportTooLarge(Exception):
    """The export exceeds its limit, or the free disk space; the message says which."""


def export_directory() -> Path:
    return Path(settings.DATA_DIR) / "audit-exports"


def export_path(row: AuditExport) -> Path:
    return export_directory() / f"{row.pk}.{export.FORMATS[row.format].suffix}"


def manifest_path(row: AuditExport) -> Path:
    path = export_path(row)
    return path.with_name(f"{path.name}.manifest")


def download_name(row: AuditExport) -> str:
    """The file name that a browser saves it under."""
    suffix = export.FORMATS[row.format].suffix
    return f"audit-{row.organization}-{row.created_at:%Y-%m-%d-%H%M%S}.{suffix}"


@transaction.atomic
def request_export(*, wanted: RecordSearch, format_name: str, by: Actor) -> AuditExport:
    """The request is on record before anything is read. Raises `AuditFlaw` at the user's limit."""
    _lock()
    own = AuditExport.objects.requested_by(by.organization, by.id)
    if own.with_file().count() >= MOST_EXPORTS:
        raise AuditFlaw(f"You have {MOST_EXPORTS} exports already. Remove one first.", "format")
    if _stored_bytes(by.organization) >= ORGANIZATION_BYTES:
        raise AuditFlaw(
            f"Your organization's exports hold {ORGANIZATION_BYTES // 1024**3} GiB already. They"
            " are removed after a day, or by those who asked for them.",
            "format",
        )
    row = AuditExport.objects.create(
        organization=wanted.organization,
        format=format_name,
        filters=wanted.filters,
        opened=wanted.opened,
        asked_by=by.name,
        asked_by_id=by.id,
    )
    row.refresh_from_db()
    _record(row, by, Outcome.STARTED)
    return row


@transaction.atomic
def remove_export(*, row: AuditExport, by: Actor) -> None:
    """Delete its file; one that is being written ends soon. Safe to repeat."""
    if (
        AuditExport.objects.with_file()
        .filter(pk=row.pk)
        .update(state=ExportState.GONE, moved_at=Now())
    ):
        _record(row, by, Outcome.CHANGED, removed=True)
        transaction.on_commit(partial(_delete_files, row))


def record_download(*, row: AuditExport, by: Actor) -> None:
    """The download is on record before a byte leaves."""
    _record(row, by, Outcome.SUCCESS, fetched=True)


def write_next_export() -> AuditExport | None:
    """Write the oldest queued export; None if none is queued, or the limit is reached."""
    row = _claim_export()
    if row is None:
        return None
    try:
        shared_files.make_directory(export_directory())
        _write_export(row)
    except ExportTooLarge as refusal:
        _fail(row, str(refusal))
    except OSError as error:
        _fail(row, f"It could not be written: {error.strerror or 'the disk refused'}.")
    return row


def delete_expired() -> int:
    """Delete expired exports, and mark those whose worker died as failed."""
    for row in AuditExport.objects.filter(state=ExportState.RUNNING, moved_at__lt=Now() - _SILENT):
        _fail(row, "Its worker ended before it was written. Ask again.")
    over = AuditExport.objects.filter(state=ExportState.READY, expires_at__lte=Now())
    found = list(over)
    for row in found:
        AuditExport.objects.filter(pk=row.pk).update(state=ExportState.GONE, moved_at=Now())
        _delete_files(row)
    past = AuditExport.objects.filter(state__in=(ExportState.FAILED, ExportState.GONE))
    if days := settings.RETENTION_DAYS["exports"]:
        _delete_rows(past, timezone.now() - timedelta(days=days))
    _delete_orphaned_files(AuditExport.objects.with_file().values_list("pk", flat=True))
    return len(found)


@transaction.atomic
def _delete_rows(past: QuerySet[AuditExport], before: datetime) -> None:
    old = past.select_for_update(skip_locked=True).filter(created_at__lt=before)
    due = dict(old.values_list("pk", "organization"))
    AuditExport.objects.filter(pk__in=due).delete()
    for organization, count in Counter(due.values()).items():
        record_expiry(organization, "exports", {"exports": count}, before)


@transaction.atomic
def _claim_export() -> AuditExport | None:
    _lock()
    running = Counter(
        AuditExport.objects.filter(
            state=ExportState.RUNNING, moved_at__gte=Now() - _SILENT
        ).values_list("organization", flat=True)
    )
    full = [name for name, count in running.items() if count >= ORGANIZATION_RUNNING]
    waiting = AuditExport.objects.filter(state=ExportState.WAITING).exclude(organization__in=full)
    oldest = waiting.order_by("created_at", "id")
    row = oldest.first() if running.total() < MOST_RUNNING else None
    if row is not None:
        AuditExport.objects.filter(pk=row.pk).update(state=ExportState.RUNNING, moved_at=Now())
    return row


def _write_export(row: AuditExport) -> None:
    """Records up to the time of the request. The record of its content is written with its name."""
    wanted = record_search.read_search(row.organization, row.filters, opened=row.opened)
    until = min(wanted.until or row.created_at, row.created_at)
    by = Actor("person", row.asked_by, row.organization, id=row.asked_by_id)
    digest = export.write_export_file(
        record_search.replace_filters(wanted, until=until),
        row.format,
        export_path(row),
        by=by,
        watch=partial(_update_progress, row),
    )
    rows = AuditExport.objects.filter(pk=row.pk, state=ExportState.RUNNING)
    kept = rows.update(
        state=ExportState.READY,
        records=digest["records"],
        size=digest["size"],
        sha256=digest["sha256"],
        expires_at=Now() + EXPIRES_AFTER,
        moved_at=Now(),
    )
    if not kept:  # it was removed meanwhile
        _delete_files(row)


def _update_progress(row: AuditExport, records: int, size: int) -> None:
    """Raises `ExportTooLarge`, and `OSError` for one that was removed meanwhile."""
    if size > MOST_BYTES:
        raise ExportTooLarge(
            f"It would hold more than {MOST_BYTES // 1024**3} GiB. Ask for less at once."
        )
    if _stored_bytes(row.organization, besides=row.pk) + size > ORGANIZATION_BYTES:
        raise ExportTooLarge(
            f"With it your organization's exports would hold more than"
            f" {ORGANIZATION_BYTES // 1024**3} GiB. Remove others, or ask for less at once."
        )
    if shutil.disk_usage(export_directory()).free < FREE_BYTES:
        raise ExportTooLarge("The disk of this installation has no room for it now.")
    rows = AuditExport.objects.filter(pk=row.pk, state=ExportState.RUNNING)
    if not rows.update(records=records, size=size, moved_at=Now()):
        raise OSError(0, "somebody removed it")


def _stored_bytes(organization: str, besides: UUID | None = None) -> int:
    """The total bytes of its exports that exist or are being written."""
    kept = AuditExport.objects.with_file().filter(organization=organization)
    kept = kept.exclude(pk=besides) if besides else kept
    stored: int = kept.aggregate(bytes=Coalesce(Sum("size"), 0))["bytes"]
    return stored


def _fail(row: AuditExport, problem: str) -> None:
    rows = AuditExport.objects.filter(pk=row.pk, state=ExportState.RUNNING)
    rows.update(state=ExportState.FAILED, problem=problem, moved_at=Now())
    _delete_files(row)


def _delete_files(row: AuditExport) -> None:
    for path in (export_path(row), manifest_path(row)):
        path.unlink(missing_ok=True)


def _delete_orphaned_files(kept: Iterable[UUID]) -> None:
    """Orphaned files without a row: of a worker that died, or a database that was restored."""
    names = {str(pk) for pk in kept}
    for path in export_directory().glob("*") if export_directory().exists() else ():
        if path.name.lstrip(".").partition(".")[0] not in names:
            path.unlink(missing_ok=True)


def _lock() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_KEY])


def _record(row: AuditExport, by: Actor, outcome: Outcome, **more: bool) -> None:
    details = {"export": str(row.pk), "filters": row.filters, "opened": row.opened}
    record(Event.AUDIT_EXPORT, by=by, outcome=outcome, subject=row.format, details=details | more)
