"""What is old leaves the database, never the evidence; killed at any step it goes on."""

import gzip
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from audit.events import Event
from audit.log import checkpoints, key_files, merkle
from audit.log.sealer import seal_logs
from audit.models import AuditLeaf, AuditLog, AuditPayload, AuditRecord, AuditSegment
from audit.records import erasure, retention
from audit.records.retention import RetentionFailed
from tests.audit.evidence import HERE, call, database_now, events, sealed


class Killed(BaseException):
    pass


@pytest.fixture
def archive(ledger, tmp_path, settings):
    """The directory of exported files."""
    settings.DATA_DIR = tmp_path
    return tmp_path / "audit-archive"


@pytest.fixture
def years_later(monkeypatch):
    """Everything so far is a thousand days old."""
    moment = database_now() + timedelta(days=1000)
    monkeypatch.setattr(retention.timezone, "now", lambda: moment)


def keep(records_days=400, payload_days=90):
    return retention.apply_retention(records_days=records_days, payload_days=payload_days)


def lines(archive):
    files = sorted(archive.rglob("*.jsonl.gz"))
    return [line for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]


def old(made):
    return AuditRecord.objects.filter(pk__in=made).count()


def test_what_is_young_stays(archive):
    made = sealed(3)
    assert keep() == {"erased": 0, "archived": 0}
    assert old(made) == 3


def test_for_ever_is_for_ever(archive, years_later):
    made = sealed(3)
    assert keep(0, 0) == {"erased": 0, "archived": 0}
    assert old(made) == 3


def test_old_payloads_are_erased_and_records_stay(archive, years_later):
    made = sealed(2)
    assert keep(records_days=0) == {"erased": 2, "archived": 0}
    assert {row.erased_by for row in AuditPayload.objects.filter(pk__in=made)} == {"retention"}
    assert old(made) == 2


def test_old_records_move_to_a_file_that_holds_the_sealed_lines(archive, years_later):
    made = sealed(5)
    assert keep()["archived"] == 5
    hashes = AuditLeaf.objects.filter(index__lt=5).order_by("index").values_list("hash", flat=True)
    assert [merkle.leaf_hash(line) for line in lines(archive)] == [bytes(one) for one in hashes]
    assert (old(made), AuditPayload.objects.filter(pk__in=made).count()) == (0, 0)
    assert AuditSegment.objects.get().removed_at is not None


def test_a_file_has_its_checkpoint_and_a_signed_manifest(archive, years_later):
    sealed(2)
    keep()
    (manifest,), (note,) = archive.rglob("*.manifest"), archive.rglob("*.checkpoint")
    (of_manifest,) = checkpoints.signed_by(manifest.read_text(), key_files.manifest_keys(HERE))
    assert of_manifest == key_files.manifest_signer(HERE).key_id
    (of_note,) = checkpoints.signed_by(note.read_text(), key_files.trusted_keys(HERE))
    assert of_note == key_files.next_signers(HERE, "")[0].key_id
    assert not checkpoints.signed_by(manifest.read_text(), key_files.trusted_keys(HERE))
    segment = AuditSegment.objects.get()
    assert f"sha256 {segment.sha256}\n" in manifest.read_text()
    assert checkpoints.read_note(note.read_text()).size >= segment.end


def test_what_retention_does_is_on_record(archive, years_later):
    sealed(2)
    keep()
    outcomes = [(row.subject, row.outcome) for row in events(Event.AUDIT_RETENTION)]
    assert outcomes == [
        ("payloads", "started"),
        ("payloads", "success"),
        ("records", "started"),
        ("records", "success"),
    ]


def test_records_leave_up_to_the_first_younger_one(archive, monkeypatch):
    made = sealed(3)
    border = AuditRecord.objects.get(pk=made[1]).occurred_at
    found = retention.next_range(AuditLog.objects.get(), border)
    assert (found.first, found.end) == (0, 1)


def test_what_is_not_signed_does_not_leave(archive, years_later):
    call()
    assert keep(payload_days=0)["archived"] == 0


def test_a_later_run_goes_on_behind_the_last_segment(archive, years_later, monkeypatch):
    monkeypatch.setattr(retention, "LONGEST", 2)
    sealed(5)
    keep()
    seal_logs(HERE)
    segments = AuditSegment.objects.order_by("first").values_list("first", "end")
    assert [*segments][:2] == [(0, 2), (2, 4)]
    assert len(lines(archive)) == AuditSegment.objects.latest("end").end


STEPS = [
    "shared_files.write_atomically",
    "check_file",
    "key_files.signed_manifest",
    "_create_segment",
    "_remove_records",
    "_mark_removed",
]


@pytest.mark.part("faults", but_each=4)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_step_the_next_run_completes_it(
    archive, years_later, monkeypatch, step, when
):
    made = sealed(5)
    monkeypatch.setattr(retention, "BATCH", 2)
    place, _, name = step.rpartition(".")
    owner = getattr(retention, place) if place else retention
    deed = getattr(owner, name)

    def killed(*args, **options):
        if when == "after":
            deed(*args, **options)
        raise Killed

    with monkeypatch.context() as once:
        once.setattr(owner, name, killed)
        with pytest.raises(Killed):
            keep()
    keep()
    assert old(made) == 0
    assert len(lines(archive)) >= 5
    assert not AuditSegment.objects.filter(removed_at=None).exists()


def test_killed_between_two_batches_the_next_run_removes_the_rest(
    archive, years_later, monkeypatch
):
    made = sealed(5)
    due = retention.next_range(AuditLog.objects.get(), retention.timezone.now())
    erasure.erase_where(HERE, "true", [], by="retention")
    retention.archive_range(due)
    AuditRecord.objects.filter(pk__in=made[:2]).delete()
    keep()
    assert old(made) == 0


@pytest.mark.parametrize("harm", ["gone", "changed"])
def test_without_its_file_no_record_of_a_segment_is_removed(archive, years_later, harm):
    made = sealed(3)
    retention.archive_range(retention.next_range(AuditLog.objects.get(), retention.timezone.now()))
    (file,) = archive.rglob("*.jsonl.gz")
    file.unlink() if harm == "gone" else file.write_bytes(b"x")
    with pytest.raises(RetentionFailed, match="not the file"):
        keep()
    assert old(made) == 3
    assert events(Event.AUDIT_RETENTION)[-1].outcome == "failure"


def test_a_record_that_is_not_what_was_sealed_stops_it(archive, years_later, monkeypatch):
    made = sealed(3)
    monkeypatch.setattr(retention, "range_lines", lambda due: iter([b"{}\n"] * 3))
    with pytest.raises(RetentionFailed, match="Record 0"):
        keep()
    assert old(made) == 3
    assert not AuditSegment.objects.exists()


def test_the_command_says_what_it_did(archive, years_later, capsys):
    sealed(2)
    call_command("audit_retain")
    assert "2 payloads erased, 2 records moved" in capsys.readouterr().out
    with pytest.raises(CommandError):
        call_command("audit_retain", days=-1)
