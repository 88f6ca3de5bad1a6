"""The tables of evidence by themselves: what the database refuses."""

import pytest
from django.db import DatabaseError, connection, transaction

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import AuditLeaf, AuditLog, AuditPayload, AuditRecord, AuditSegment

BY = Actor("person", "p", "here")


def written(**fields):
    return record(Event.LOGIN, by=BY, outcome=Outcome.SUCCESS, **fields)


def test_a_ledger_is_a_place_of_its_own(ledger):
    with transaction.atomic():
        made = written(payload={"parameters": {"text": "x"}})
    assert [row.pk for row in AuditRecord.objects.all()] == [made]


ADDED_ONLY = ["auditleaf", "auditnode", "checkpoint", "auditrecord"]


@pytest.mark.parametrize("table", [*ADDED_ONLY, "auditpayload", "auditlog", "auditsegment"])
def test_nothing_of_it_is_truncated(ledger, table):
    with pytest.raises(DatabaseError), connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE audit_{table} CASCADE")


@pytest.mark.parametrize("table", ADDED_ONLY)
def test_no_statement_of_ours_may_change_what_is_only_added(ledger, table):
    column = "hash" if table in {"auditleaf", "auditnode"} else "id"
    with pytest.raises(DatabaseError, match="permission denied"), connection.cursor() as cursor:
        cursor.execute(f"UPDATE audit_{table} SET {column} = {column}")


def test_a_log_only_grows(ledger):
    log = AuditLog.objects.create(name="here", size=5)
    AuditLog.objects.filter(pk=log.pk).update(size=6)
    for change in [{"size": 4}, {"name": "there"}]:
        with pytest.raises(DatabaseError, match="only grows"):
            AuditLog.objects.filter(pk=log.pk).update(**change)
    with pytest.raises(DatabaseError, match="only grows"):
        log.delete()


def test_a_payload_is_erased_or_stays_as_it_is(ledger):
    made = written(payload={"parameters": {"text": "x"}})
    row = AuditPayload.objects.filter(pk=made)
    with pytest.raises(DatabaseError, match="erased"):
        row.update(sealed=b"other")
    with pytest.raises(DatabaseError, match="erased"):
        row.delete()
    row.update(sealed=None, words=[], erased_at="2026-01-01T00:00Z", erased_by="p")
    row.delete()


def test_a_record_leaves_when_its_segment_was_exported_and_not_before(ledger):
    made = written()
    log = AuditLog.objects.create(name="here", size=1)
    AuditLeaf.objects.create(log=log, index=0, record_id=made, hash=bytes(32), mac=bytes(32))
    row = AuditRecord.objects.filter(pk=made)
    with pytest.raises(DatabaseError, match="evidence"):
        row.delete()
    AuditSegment.objects.create(log=log, first=0, end=1, file="f", sha256="0" * 64, note="n")
    row.delete()
    assert AuditLeaf.objects.count() == 1
