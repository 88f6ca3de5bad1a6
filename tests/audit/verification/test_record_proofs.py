"""Each step of a proof holds for what is as it was, and the right one breaks for what is not."""

import dataclasses

import pytest
from django.db import connection

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.log import checkpoints, key_files, merkle
from audit.log.proofs import NotProvable, record_line, subtree_reader
from audit.log.sealer import seal_logs
from audit.models import AuditLeaf, AuditRecord, Checkpoint
from audit.records import record_access
from audit.verification.record_proofs import prove_record
from tests.audit.logs import write

SEALED = "It is as it was sealed"
OURS = "Toolcrib wrote it"
PLACED = "It stands in the log"
SIGNED = "The checkpoint is signed"
OUTSIDE = "A file outside the database agrees"
COMMITTED = "What went in and came out is what it speaks of"


def changed(*statements, of):
    """As a user who may write to every table."""
    with connection.cursor() as cursor:
        for table in ("auditrecord", "auditleaf", "checkpoint", "auditpayload"):
            cursor.execute(f"ALTER TABLE audit_{table} DISABLE TRIGGER USER")
            cursor.execute(f"GRANT ALL ON audit_{table} TO CURRENT_USER")
        for statement in statements:
            cursor.execute(statement, {"id": of})


def broken(record_id):
    found = AuditRecord.objects.get(pk=record_id)
    steps = prove_record(found, record_access.read_payload(found, may_open=True))
    assert len({step.title for step in steps}) == len(steps) and all(step.says for step in steps)
    return {step.title for step in steps if not step.holds}


@pytest.fixture
def published(ledger):
    """One of several records, under a checkpoint that is kept in a file as well."""
    made = write("acme", 5)
    seal_logs("acme")
    write("acme", 3)
    seal_logs("acme")
    return made[2]


@pytest.fixture
def with_payload(ledger):
    by = Actor("agent", "magpie", "acme")
    made = record(Event.TOOL_END, by=by, outcome=Outcome.SUCCESS, payload={"output": {"shiny": 7}})
    write("acme")
    seal_logs("acme")
    return made


def test_every_step_holds_for_an_unchanged_record(published):
    found = AuditRecord.objects.get(pk=published)
    steps = prove_record(found, record_access.read_payload(found, may_open=True))
    assert [(step.title, step.holds) for step in steps] == [
        (title, True) for title in (SEALED, OURS, PLACED, SIGNED, OUTSIDE)
    ]


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            "UPDATE audit_auditrecord SET actor = 'q' WHERE id = %(id)s",
            {SEALED, OURS, PLACED, OUTSIDE},
        ),
        (
            "UPDATE audit_auditrecord SET occurred_at = occurred_at + interval '1 s' "
            "WHERE id = %(id)s",
            {SEALED, PLACED, OUTSIDE},
        ),
        ("UPDATE audit_auditleaf SET hash = sha256('x') WHERE record_id = %(id)s", {SEALED}),
        (
            "UPDATE audit_auditleaf SET hash = sha256('x') WHERE index = 0 AND %(id)s <> ''",
            {PLACED, OUTSIDE},
        ),
        ("UPDATE audit_checkpoint SET root = sha256('x') WHERE %(id)s <> ''", {PLACED, SIGNED}),
        (
            "UPDATE audit_checkpoint SET note = regexp_replace(note, 'time 2', 'time 1') "
            "WHERE %(id)s <> ''",
            {SIGNED},
        ),
        (
            "UPDATE audit_checkpoint SET note = split_part(note, E'\\n\\n', 1) || E'\\n\\n' "
            "WHERE %(id)s <> ''",
            {SIGNED},
        ),
    ],
)
def test_a_step_breaks_for_what_was_changed(published, statement, expected):
    changed(statement, of=str(published))
    assert broken(published) == expected


def test_a_log_rewritten_with_the_key_is_detected_by_the_published_file(published):
    """Row, leaf and checkpoint agree again, and the signature is good: the file remembers."""
    changed("UPDATE audit_auditrecord SET actor = 'q' WHERE id = %(id)s", of=str(published))
    leaf = AuditLeaf.objects.get(record_id=published)
    leaf_hash = merkle.leaf_hash(record_line(published).encode())
    AuditLeaf.objects.filter(pk=leaf.pk).update(hash=leaf_hash)
    newest = Checkpoint.objects.latest("size")
    root = subtree_reader(leaf.log)(0, newest.size)
    statement = dataclasses.replace(checkpoints.read_note(newest.note), root=root)
    note = checkpoints.sign_statement(statement, *key_files.next_signers("acme", ""))
    Checkpoint.objects.filter(size=newest.size).update(root=root, note=note)
    assert broken(published) == {OURS, OUTSIDE}


def test_a_payload_that_is_another_breaks_its_step(with_payload):
    assert broken(with_payload) == set()
    found = AuditRecord.objects.get(pk=with_payload)
    payload = record_access.read_payload(found, may_open=True)
    payload.content["output"]["shiny"] = 8
    assert [step.title for step in prove_record(found, payload) if not step.holds] == [COMMITTED]


def test_a_withheld_payload_has_no_proof_step(with_payload):
    found = AuditRecord.objects.get(pk=with_payload)
    steps = prove_record(found, record_access.read_payload(found, may_open=False))
    assert COMMITTED not in {step.title for step in steps}


def test_a_record_that_is_not_sealed_has_no_steps(ledger):
    found = AuditRecord.objects.get(pk=write("acme")[0])
    with pytest.raises(NotProvable, match="not sealed yet"):
        prove_record(found, record_access.read_payload(found, may_open=True))
