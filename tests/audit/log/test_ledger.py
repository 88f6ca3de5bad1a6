"""The tables of evidence by themselves: what the database refuses."""

import pytest
from django.conf import settings
from django.db import DatabaseError, connection, transaction

from audit.actions import Actor, record
from audit.errors import Unwritable
from audit.events import Event, Outcome
from audit.log import key_files
from audit.models import (
    AuditKey,
    AuditLeaf,
    AuditLog,
    AuditPayload,
    AuditRecord,
    AuditSegment,
    CheckpointKey,
)

BY = Actor("person", "p", "here")


def written(**fields):
    return record(Event.LOGIN, by=BY, outcome=Outcome.SUCCESS, **fields)


def test_a_ledger_is_a_place_of_its_own(ledger):
    with transaction.atomic():
        made = written(payload={"parameters": {"text": "x"}})
    assert [row.pk for row in AuditRecord.objects.all()] == [made]


ADDED_ONLY = ["auditleaf", "auditnode", "checkpoint", "auditrecord"]


KEYS = ["auditkey", "checkpointkey"]


@pytest.mark.parametrize("table", [*ADDED_ONLY, *KEYS, "auditpayload", "auditlog", "auditsegment"])
def test_nothing_of_it_is_truncated(ledger, table):
    with pytest.raises(DatabaseError), connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE audit_{table} CASCADE")


@pytest.mark.parametrize("table", ADDED_ONLY)
def test_no_statement_of_ours_may_change_what_is_only_added(ledger, table):
    column = "hash" if table in {"auditleaf", "auditnode"} else "id"
    with pytest.raises(DatabaseError, match="permission denied"), connection.cursor() as cursor:
        cursor.execute(f"UPDATE audit_{table} SET {column} = {column}")


def test_no_refusal_is_silent_in_a_session_that_says_it_is_a_replica(ledger):
    """Only a superuser could say so; the catalogue tells what would be."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgrelid::regclass::text, tgenabled = 'A' FROM pg_trigger JOIN pg_class c"
            " ON c.oid = tgrelid WHERE NOT tgisinternal AND relnamespace = %s::regnamespace",
            [ledger],
        )
        always = cursor.fetchall()
    assert {table for table, _ in always} >= {
        f"audit_{table}" for table in [*ADDED_ONLY, *KEYS, "auditpayload", "auditlog"]
    }
    assert all(enabled for _, enabled in always)


def test_a_public_key_is_retired_or_stays_as_it_is(ledger):
    CheckpointKey.objects.create(key_id="0a0b0c0d", name="n", public=bytes(32))
    row = CheckpointKey.objects.filter(pk="0a0b0c0d")
    with pytest.raises(DatabaseError, match="retired"):
        row.update(public=bytes(31))
    with pytest.raises(DatabaseError, match="retired"):
        row.delete()
    row.update(retired_at="2026-01-01T00:00Z")
    with pytest.raises(DatabaseError, match="retired"):
        row.update(retired_at=None)


def test_a_key_of_payloads_is_never_changed_only_forgotten(ledger):
    AuditKey.objects.create(organization="here", wrapped=b"x")
    row = AuditKey.objects.filter(pk="here")
    with pytest.raises(DatabaseError, match="permission denied"):
        row.update(wrapped=b"y")
    row.delete()


@pytest.fixture
def no_keys(tmp_path, monkeypatch):
    """Another process's: what was read before is not remembered."""
    monkeypatch.setattr(settings, "KEYS_DIR", tmp_path / "keys")
    key_files.root_key.cache_clear()
    key_files.derived_key.cache_clear()
    yield tmp_path / "keys"
    key_files.root_key.cache_clear()
    key_files.derived_key.cache_clear()


def test_a_key_that_cannot_be_used_makes_the_audit_unwritable(ledger, no_keys):
    no_keys.mkdir()
    (no_keys / key_files.ROOT_KEY_FILE).write_bytes(b"short")
    with pytest.raises(Unwritable) as refused:
        written()
    assert "does not hold 32 bytes" in str(refused.value.__cause__)
    (no_keys / key_files.ROOT_KEY_FILE).unlink()
    (no_keys / key_files.ROOT_KEY_FILE).mkdir()
    with pytest.raises(Unwritable):
        written()
    assert AuditRecord.objects.count() == 0


def test_a_log_only_grows(ledger):
    log = AuditLog.objects.create(name="here", size=5)
    AuditLog.objects.filter(pk=log.pk).update(size=6)
    AuditLog.objects.filter(pk=log.pk).update(anchored=True)
    for change in [{"size": 4}, {"name": "there"}, {"anchored": False}]:
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
