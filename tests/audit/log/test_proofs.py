"""A record's place is proved by few rows, in a form that others can check."""

import base64

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from audit.log import checkpoints, merkle, seal_batches
from audit.log.checkpoint_publication import public_keys
from audit.log.proofs import NotProvable, inclusion_proof, proof_text, subtree_reader
from audit.log.sealer import seal_logs
from audit.models import AuditLeaf, AuditLog
from tests.audit.logs import lines_of, write


def read(text):
    head, _, note = text.partition("\n\n")
    header, index, *hashes = head.split("\n")
    assert header == "c2sp.org/tlog-proof@v1"
    return int(index.removeprefix("index ")), [base64.b64decode(one) for one in hashes], note


def test_a_proof_leads_from_the_record_to_the_signed_root(ledger):
    records = write("here", 700)
    seal_logs()
    lines = lines_of("here")
    for index in (0, 255, 256, 511, 512, 699):
        place, hashes, note = read(inclusion_proof(records[index]))
        statement = checkpoints.read_note(note)
        leaf = merkle.leaf_hash(lines[index])
        assert place == index
        assert merkle.root_from_inclusion(index, statement.size, leaf, hashes) == statement.root


@pytest.mark.part("matrices")
def test_a_proof_reads_few_rows_in_few_queries(ledger):
    made = write("here", 700)[300]
    seal_logs()
    with CaptureQueriesContext(connection) as queries:
        inclusion_proof(made)
    assert len(queries) <= 6


def test_a_proof_in_a_log_of_a_million_has_less_than_two_kilobytes():
    signer = "toolcrib/0123456789abcdef/" + "a" * 63
    note = f"{signer}\n1000000\n{'A' * 44}\ntime 2026-01-01T00:00:00.000000Z\n\n"
    note += 2 * f"\u2014 {signer} {'A' * 92}\n"  # while a key is being replaced
    assert len(proof_text(999_999, [bytes(32)] * 20, note).encode()) <= 2048


def test_a_record_without_a_place_has_no_proof_yet(ledger):
    (made,) = write("here")
    with pytest.raises(NotProvable, match="not sealed yet"):
        inclusion_proof(made)
    seal_batches.seal_log("here")
    with pytest.raises(NotProvable, match="not under a checkpoint yet"):
        inclusion_proof(made)


def test_a_proof_over_a_hole_is_refused(ledger):
    made = write("here", 4)[0]
    seal_logs()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE audit_auditleaf DISABLE TRIGGER USER")
        cursor.execute("GRANT DELETE ON audit_auditleaf TO CURRENT_USER")
        cursor.execute("DELETE FROM audit_auditleaf WHERE index = 3")
    with pytest.raises(NotProvable, match="leaf 3 is missing"):
        inclusion_proof(made)


@pytest.mark.part("matrices")
def test_every_part_of_the_tree_is_that_of_its_leaves(ledger):
    write("here", 600)
    seal_logs()
    log = AuditLog.objects.get()
    hashes = [
        bytes(one) for one in AuditLeaf.objects.order_by("index").values_list("hash", flat=True)
    ]
    part = subtree_reader(log)
    for first, end in [(0, 600), (0, 512), (256, 512), (512, 600), (0, 256), (598, 600), (7, 8)]:
        assert part(first, end) == merkle.leaves_root(hashes[first:end])


def test_trees_of_all_sizes_go_on_from_each_other(ledger):
    write("here", 300)
    seal_logs()
    log = AuditLog.objects.get()
    hashes = [
        bytes(one) for one in AuditLeaf.objects.order_by("index").values_list("hash", flat=True)
    ]
    for old in (1, 2, 3, 255, 256, 257, 299):
        proof = merkle.consistency_proof(old, 300, subtree_reader(log))
        roots = merkle.leaves_root(hashes[:old]), merkle.leaves_root(hashes)
        assert merkle.is_consistent(old, 300, *roots, proof)


def test_the_printed_key_is_the_one_the_proof_is_signed_with(ledger):
    (made,) = write("here")
    seal_logs()
    name, key_id, raw = public_keys()[0].split("+", 2)
    note = read(inclusion_proof(made))[2]
    assert checkpoints.signed_by(note, {key_id: base64.b64decode(raw)[1:]}) == [key_id]
    assert checkpoints.read_note(note).origin == name
