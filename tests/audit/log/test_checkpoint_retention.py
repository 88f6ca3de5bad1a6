"""Checkpoints and anchors are thinned by age, and nothing that they prove is lost with them."""

import json
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import DatabaseError, connection, transaction

from audit.log import (
    anchors,
    checkpoint_publication,
    checkpoint_retention,
    checkpoints,
    key_files,
    merkle,
)
from audit.log.checkpoints import Acceptance
from audit.log.proofs import growth_proof, inclusion_proof, record_line, subtree_reader
from audit.log.sealer import seal_logs
from audit.models import AuditLog, Checkpoint
from audit.verification.inspection import VerificationRequest, inspect_logs
from audit.verifier import toolcrib_verify as verifier
from tests.audit.evidence import HERE, database_now
from tests.audit.logs import write

# Of each checkpoint, from one of one record on: how many hours ago it was signed. Minutes stay
# within an hour, for all begin at the same one.
AGES = [50.9, 50.5, 50.1, 49.9, 49.5, 30.5, 30.4, 23.5, 23.4, 23.3, 2.2, 0]
KEPT = [3, 5, 7, 8, 9, 10, 11, 12]


@pytest.fixture
def aged(ledger):
    """Twelve records, each under a checkpoint of its own."""
    made = []
    for _ in AGES:
        made += write("here")
        seal_logs()
    backdate(dict(enumerate(AGES, 1)))
    return made


@contextmanager
def owner():
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE audit_checkpoint DISABLE TRIGGER USER")
        cursor.execute("GRANT ALL ON audit_checkpoint TO CURRENT_USER")
        yield cursor
        cursor.execute("ALTER TABLE audit_checkpoint ENABLE TRIGGER USER")


def audit_log():
    return AuditLog.objects.get(name=HERE)


def sizes():
    rows = Checkpoint.objects.filter(log__name="here").order_by("size")
    return [*rows.values_list("size", flat=True)]


def published():
    return [one.statement.size for one in anchors.read_anchors("here")]


def backdate(ages, accepted=()):
    """Checkpoints and anchors as they would be had they been signed then, by size."""
    (signer,) = key_files.next_signers("here", "")
    hour = database_now().replace(minute=59, second=59, microsecond=0) - timedelta(hours=1)
    lines = []
    with owner() as cursor:
        for row in audit_log().checkpoints.order_by("size"):
            statement = checkpoints.read_note(row.note)
            at = hour - timedelta(hours=ages[row.size])
            broken = Acceptance("root", "restored", "rolled back") if row.size in accepted else None
            note = checkpoints.sign_statement(
                checkpoints.CheckpointStatement(
                    statement.origin, statement.size, statement.root, at, broken
                ),
                signer,
            )
            cursor.execute(
                "UPDATE audit_checkpoint SET note = %s, created_at = %s WHERE id = %s",
                [note, at, row.pk],
            )
            lines.append(json.dumps({"log": "here", "note": note}) + "\n")
    (file,) = anchors._anchor_files(anchors._log_directory("here"))
    file.write_text("".join(lines))


def finding_places():
    (report,) = inspect_logs(VerificationRequest("here"))
    return {(str(one.kind), one.index) for one in report.findings}


def test_all_of_the_last_day_stay_and_one_an_hour_before(aged):
    assert finding_places() == set()
    assert checkpoint_retention.thin_checkpoints(audit_log()) == 4
    assert anchors.thin_anchors("here") == 4
    assert sizes() == published() == KEPT
    assert finding_places() == set()
    assert (checkpoint_retention.thin_checkpoints(audit_log()), anchors.thin_anchors("here")) == (
        0,
        0,
    )


@pytest.mark.parametrize(
    "thinned", [checkpoint_retention.thin_checkpoints, lambda log: anchors.thin_anchors(log.name)]
)
def test_while_only_one_of_the_two_is_thinned_nothing_is_missed(aged, monkeypatch, thinned):
    monkeypatch.setattr(checkpoint_retention, "BATCH", 2)
    assert thinned(audit_log()) == 4
    assert finding_places() == set()


def test_every_kept_tree_is_proved_to_go_on_to_the_next(aged):
    before = {row.size: bytes(row.root) for row in audit_log().checkpoints.all()}
    checkpoint_retention.thin_checkpoints(audit_log())
    kept = {row.size: bytes(row.root) for row in audit_log().checkpoints.all()}
    for old, new in [*pairwise(sorted(kept)), (1, 3), (2, 3), (4, 5), (6, 7)]:
        proof = merkle.consistency_proof(old, new, subtree_reader(audit_log()))
        assert merkle.is_consistent(old, new, before[old], kept[new], proof)


def test_proofs_that_were_handed_out_still_hold(aged):
    key = checkpoint_publication.public_keys()[0]
    row = audit_log().checkpoints.get(size=2)
    handed = inclusion_proof(aged[1])
    checkpoint_retention.thin_checkpoints(audit_log())
    assert verifier.check_record(handed, record_line(aged[1]).encode(), key)
    assert verifier.check_growth(row.note, growth_proof("here", 2).encode(), key)


def test_the_database_lets_nothing_else_go(aged):
    for size in KEPT:
        with pytest.raises(DatabaseError, match="covers may go"), transaction.atomic():
            audit_log().checkpoints.filter(size=size).delete()
    with pytest.raises(DatabaseError, match="covers may go"), transaction.atomic():
        audit_log().checkpoints.all().delete()
    assert len(sizes()) == len(AGES)

    with connection.cursor() as cursor, pytest.raises(DatabaseError), transaction.atomic():
        cursor.execute("UPDATE audit_checkpoint SET size = 1 WHERE size = 2")


def test_what_states_an_accepted_break_stays(aged):
    backdate(dict(enumerate(AGES, 1)), accepted=[2])
    checkpoint_retention.thin_checkpoints(audit_log())
    anchors.thin_anchors("here")
    assert sizes() == published() == [2, *KEPT]
    with pytest.raises(DatabaseError, match="covers may go"), transaction.atomic():
        audit_log().checkpoints.filter(size=2).delete()


def test_a_checkpoint_less_than_that_is_missed(aged):
    checkpoint_retention.thin_checkpoints(audit_log())
    anchors.thin_anchors("here")
    for row in audit_log().checkpoints.all():
        with owner() as cursor:
            cursor.execute("DELETE FROM audit_checkpoint WHERE id = %s", [row.pk])
        assert finding_places() == {("missing", row.size)}
        row.save(force_insert=True)


def test_an_anchor_less_than_that_is_missed(aged):
    checkpoint_retention.thin_checkpoints(audit_log())
    anchors.thin_anchors("here")
    (file,) = anchors._anchor_files(anchors._log_directory("here"))
    lines = file.read_text().splitlines(keepends=True)
    for place, size in enumerate(KEPT[:-1]):
        file.write_text("".join(lines[:place] + lines[place + 1 :]))
        assert finding_places() == {("missing", size)}


def test_an_anchor_that_a_killed_sealer_did_not_leave_is_left_by_the_next(ledger, monkeypatch):
    write("here")
    seal_logs()
    with monkeypatch.context() as killed:
        killed.setattr(anchors, "append_anchor", lambda name, note: None)
        write("here")
        seal_logs()
    assert published() == [1]
    write("here")
    seal_logs()
    assert published() == [1, 2, 3]
    assert finding_places() == set()


def test_a_file_that_is_thinned_while_it_is_read_is_read_to_its_end(aged):
    reading = anchors.read_anchors("here")
    first = next(reading)
    anchors.thin_anchors("here")
    write("here")
    seal_logs()
    assert (first.statement.size, [*reading][-1].statement.size) == (1, 13)


def test_only_the_owner_reads_a_file_that_was_thinned(aged):
    anchors.thin_anchors("here")
    (file,) = anchors._anchor_files(anchors._log_directory("here"))
    assert file.stat().st_mode & 0o777 == 0o600


def test_workers_still_read_a_file_that_was_thinned(aged):
    """Started by root, `anchors` is of the sealer and its group: workers compare at their start."""
    directory = anchors._log_directory("here")
    directory.chmod(0o2750)
    anchors.thin_anchors("here")
    (file,) = anchors._anchor_files(directory)
    assert file.stat().st_mode & 0o777 == 0o640
