"""A month that was archived leaves at once; anything in it that was not keeps it."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from django.db import connection
from uuid_utils.compat import uuid7

from audit import actions, partitions
from audit.log import proofs
from audit.models import AuditLeaf, AuditLog, AuditPayload, AuditRecord, AuditSegment
from audit.partitions import first_id
from audit.records import retention
from audit.records.archived_months import PAYLOADS, RECORDS
from audit.records.retention import RetentionFailed
from audit.verification.inspection import VerificationRequest, inspect_logs
from tests.audit.evidence import HERE, call, database_now, sealed

OVER = datetime(2020, 3, 14, tzinfo=UTC)
OPEN = datetime.now(UTC) + timedelta(days=700)  # less than 400 days before the time of `archive`


def keep():
    return retention.apply_retention(records_days=400, payload_days=90)["archived"]


def left(made):
    rows = AuditRecord.objects.filter(pk__in=made), AuditPayload.objects.filter(pk__in=made)
    return tuple(row.count() for row in rows)


def has_partition(month="2020_03"):
    names = [one.name for table in (RECORDS, PAYLOADS) for one in partitions.partitions_of(table)]
    return [f"{table}_{month}" in names for table in (RECORDS, PAYLOADS)]


def findings():
    (report,) = inspect_logs(VerificationRequest(HERE))
    return report.findings


@pytest.fixture
def archive(ledger, tmp_path, settings, monkeypatch):
    """The directory of archived files; everything so far is a thousand days old."""
    settings.DATA_DIR = tmp_path
    moment = database_now() + timedelta(days=1000)
    monkeypatch.setattr(retention.timezone, "now", lambda: moment)
    return tmp_path / "audit-archive"


@pytest.fixture
def records_of(archive, monkeypatch):
    """Makes sealed records of a month, with payloads, in partitions of it."""

    def make(month, count=3, of=sealed):
        for table, key in partitions.partitioned_tables().items():
            partitions.make_partitions(table, key, since=month)
        with monkeypatch.context() as clock:
            clock.setattr(actions, "uuid7", lambda: _id_in(month))
            return of(count)

    return make


def _id_in(month):
    return UUID(int=first_id(month).int | uuid7().int & (1 << 80) - 1)


def test_a_month_is_dropped_when_all_of_it_is_archived(records_of):
    made = records_of(OVER)
    assert has_partition() == [True, True]
    assert keep() == 3
    assert (has_partition(), left(made)) == ([False, False], (0, 0))
    assert AuditSegment.objects.get().removed_at is not None
    assert AuditLeaf.objects.filter(record_id__in=made).count() == 3
    assert findings() == ()


def test_its_records_are_not_removed_row_by_row(records_of):
    records_of(OVER)
    removed = []

    def watch(execute, sql, parameters, many, context):
        done = execute(sql, parameters, many, context)
        if sql.lstrip().startswith("DELETE"):
            removed.append(context["cursor"].rowcount)
        return done

    with connection.execute_wrapper(watch):
        assert keep() == 3
    assert removed and not any(removed)


def test_a_month_with_a_record_in_no_file_is_removed_row_by_row(records_of):
    made = records_of(OVER)
    waiting = records_of(OVER, 1, lambda _: [call()])
    assert keep() == 3
    assert (has_partition(), left(made), left(waiting)) == ([True, True], (0, 0), (1, 1))
    assert findings() == ()


def test_records_stay_until_their_month_is_over(records_of):
    made = records_of(OPEN)
    assert (keep(), keep()) == (3, 0)
    assert left(made) == (3, 3)
    assert AuditSegment.objects.get().removed_at is None
    assert not AuditPayload.objects.filter(pk__in=made, sealed__isnull=False).exists()
    assert findings() == ()


def test_a_segment_of_two_months_leaves_in_two_steps(records_of):
    first, second = records_of(OVER, 2), records_of(OPEN, 2)
    keep()
    segment = AuditSegment.objects.filter(first=0).get()
    assert (left(first), left(second), segment.removed_at) == ((0, 0), (2, 2), None)


def test_a_month_in_use_is_dropped_later(records_of):
    made = records_of(OVER)
    with psycopg.connect(**connection.get_connection_params()) as reader:
        reader.execute(f"SELECT FROM {RECORDS}")
        keep()
        assert (has_partition(), left(made)) == ([True, True], (3, 3))
    keep()
    assert (has_partition(), left(made)) == ([False, False], (0, 0))
    assert AuditSegment.objects.get().removed_at is not None


@pytest.mark.parametrize("harm", ["gone", "changed"])
def test_without_its_file_no_month_is_dropped(records_of, archive, harm):
    made = records_of(OVER)
    due = retention.next_range(AuditLog.objects.get(), retention.timezone.now())
    retention.archive_range(due)
    (file,) = archive.rglob("*.jsonl.gz")
    file.unlink() if harm == "gone" else file.write_bytes(b"x")
    with pytest.raises(RetentionFailed, match="not the file"):
        keep()
    assert (has_partition(), left(made)[0]) == ([True, True], 3)


def test_a_record_that_was_dropped_is_still_proved(records_of):
    made = records_of(OVER)
    before = proofs.inclusion_proof(made[0])
    keep()
    assert proofs.inclusion_proof(made[0]) == before
