"""Records get their places: all of them, once, and none behind a slow transaction."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.conf import settings
from django.db import connection, connections, transaction

from audit import metrics
from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.log import checkpoint_publication, leaves, log_status, merkle, seal_batches, sealer
from audit.log.sealer import Sealer, seal_logs
from audit.models import AuditLeaf, AuditLog, AuditNode, AuditRecord, Checkpoint
from config.local.embedded import database_url
from tests.audit.logs import lines_of, scribble, settled, write
from tests.conditions import until


def root_of(name):
    log = AuditLog.objects.get(name=name)
    return merkle.frontier_root(seal_batches.split_frontier(bytes(log.frontier), log.size))


def indexes(name):
    leaves = AuditLeaf.objects.filter(log__name=name).order_by("index")
    return list(leaves.values_list("index", flat=True))


def test_every_record_has_its_place_and_the_tree_is_that_of_their_lines(ledger):
    write("here", 5)
    write("there", 3)
    assert seal_logs() == 8
    assert indexes("here") == [0, 1, 2, 3, 4]
    assert root_of("here") == merkle.leaves_root(map(merkle.leaf_hash, lines_of("here")))
    assert Checkpoint.objects.get(log__name="there").size == 3


def test_what_is_sealed_is_not_sealed_again(ledger):
    write("here", 2)
    assert [seal_logs(), seal_logs(), seal_logs("here")] == [2, 0, 0]


def test_only_the_log_that_is_named_is_sealed(ledger):
    write("here", 1)
    write("there", 1)
    assert seal_logs("there") == 1
    assert not AuditLog.objects.filter(name="here").exists()


def test_the_macs_of_places_bind_them(ledger):
    write("here", 2)
    seal_logs()
    for leaf in AuditLeaf.objects.all():
        assert bytes(leaf.mac) == leaves.position_mac("here", leaf.index, bytes(leaf.hash))


def test_complete_subtrees_are_kept(ledger, monkeypatch):
    monkeypatch.setattr(seal_batches, "BATCH", 100)
    write("here", 600)
    seal_logs()
    hashes = [merkle.leaf_hash(line) for line in lines_of("here")]
    assert [bytes(node.hash) for node in AuditNode.objects.order_by("index")] == [
        merkle.leaves_root(hashes[:256]),
        merkle.leaves_root(hashes[256:512]),
    ]


def test_batches_follow_each_other_without_a_gap(ledger, monkeypatch):
    monkeypatch.setattr(seal_batches, "BATCH", 7)
    monkeypatch.setattr(seal_batches, "PLAN", 20)
    write("here", 50)
    assert seal_logs() == 50
    assert indexes("here") == list(range(50))
    assert root_of("here") == merkle.leaves_root(map(merkle.leaf_hash, lines_of("here")))


def test_a_slow_transaction_does_not_slip_behind_the_sealer(ledger):
    """The sealer waits for a transaction that began before it, and seals it in its order."""
    wrote, finish = threading.Event(), threading.Event()

    def slowly():
        with transaction.atomic():
            write("here", 1)
            wrote.set()
            assert finish.wait(30)
        connection.close()

    with ThreadPoolExecutor() as pool:
        slow = pool.submit(slowly)
        assert wrote.wait(30)
        scribble("here", 3)
        sealed_meanwhile = seal_logs()
        finish.set()
        slow.result()
    assert (sealed_meanwhile, seal_logs()) == (0, 4)
    first = AuditLeaf.objects.get(index=0).record_id
    assert first == AuditRecord.objects.order_by("occurred_at").first().pk


def test_the_horizon_moves_on_so_that_little_is_looked_through(ledger):
    write("here", 1)
    seal_logs()
    before = AuditLog.objects.get().horizon
    write("here", 1)
    seal_logs()
    assert int(AuditLog.objects.get().horizon) > int(before)


@pytest.mark.parametrize("horizon", ["9000000000000000000", None])
def test_a_backup_in_another_server_is_sealed_to_the_end(ledger, horizon):
    """There the numbers of transactions begin again: rows come from what looks like the future."""
    write("here", 2)
    seal_logs()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE audit_auditlog SET horizon = %s::xid8", [horizon])
        cursor.execute(
            "ALTER TABLE audit_auditrecord ALTER transaction SET DEFAULT '8000000000000000000'"
        )
    write("here", 2)
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE audit_auditrecord ALTER transaction SET DEFAULT pg_current_xact_id()"
        )
    write("here", 1)
    assert seal_logs() == 3
    assert int(AuditLog.objects.get().horizon) < 8 * 10**18


@pytest.mark.parametrize("horizon", ["9000000000000000000", "3"])
def test_a_backup_in_another_server_is_sealed_to_the_end_after_a_halt(ledger, horizon):
    """A sealer that began while the log was halted has looked for such rows in vain."""
    write("here", 2)
    seal_logs()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE audit_auditlog SET horizon = %s::xid8", [horizon])
        cursor.execute(
            "UPDATE audit_auditlog SET halted_at = now(), halted_reason = 'It was put back.'"
        )
        cursor.execute(
            "ALTER TABLE audit_auditrecord ALTER transaction SET DEFAULT '8000000000000000000'"
        )
    write("here", 2)
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE audit_auditrecord ALTER transaction SET DEFAULT pg_current_xact_id()"
        )
    assert seal_batches.seal_log("here") == (0, False)
    checkpoint_publication.accept_break(
        name="here", by=Actor("person", "p", "here"), reason="restored"
    )
    until(settled)
    assert seal_batches.seal_log("here", foreign=False) == (3, False)


def test_a_forged_record_is_sealed_unchanged_and_reported(ledger):
    made = write("here", 3)[1]
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE audit_auditrecord DISABLE TRIGGER USER")
        cursor.execute("GRANT UPDATE ON audit_auditrecord TO CURRENT_USER")
        cursor.execute("UPDATE audit_auditrecord SET actor = 'eve' WHERE id = %s", [made])
    before = metrics.forged._value.get()
    assert seal_logs() == 3
    report = AuditRecord.objects.get(code=Event.AUDIT_FORGED)
    assert report.details == {"count": 1, "first": [{"record": str(made), "index": 1}]}
    assert metrics.forged._value.get() == before + 1
    assert seal_logs() == 1


def test_two_sealers_at_once_give_each_record_one_place(ledger, monkeypatch):
    monkeypatch.setattr(seal_batches, "BATCH", 5)
    write("here", 60)

    def work():
        try:
            return seal_logs()
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as pool:
        counts = [one.result() for one in [pool.submit(work) for _ in range(3)]]
    assert sum(counts) == 60
    assert indexes("here") == list(range(60))
    assert seal_logs() == 0


@pytest.fixture
def working(ledger):
    stop = threading.Event()

    def run():
        Sealer(stop).run()
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    yield
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


def test_the_sealer_seals_and_signs_what_comes(working):
    write("here", 3)
    until(lambda: Checkpoint.objects.filter(size=3).exists())
    write("there", 1)
    until(lambda: Checkpoint.objects.filter(log__name="there").exists())
    assert log_status.sealer_silent_s() < 10


def test_an_open_transaction_is_reported_once(ledger, monkeypatch):
    monkeypatch.setattr(sealer, "OVERDUE_S", 0)
    working = Sealer(threading.Event())
    other = connections.create_connection("default")
    with other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT pg_backend_pid(), pg_current_xact_id()")
        pid, _ = cursor.fetchone()
        scribble("here", 2)
        for _ in range(2):
            monkeypatch.setattr(working, "_beaten", float("-inf"))
            working._run_pass()
        cursor.execute("ROLLBACK")
    other.close()
    report = AuditRecord.objects.get(code=Event.AUDIT_UNSEALED)
    assert (report.organization, report.reason) == ("here", "transaction_open")
    assert (report.details["pid"], report.details["application"]) == (pid, ledger)
    until(settled)
    assert seal_logs() == 3


def test_the_sealer_goes_on_when_its_connections_are_cut(working, ledger):
    write("here", 1)
    until(lambda: AuditLeaf.objects.count() == 1)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND application_name = %s",
            [ledger],
        )
    write("here", 1)
    until(lambda: AuditLeaf.objects.count() == 2)


@pytest.mark.part("faults")
def test_a_sealer_may_be_killed_at_any_moment(ledger, anchored):
    """No record is left out, none has two places, and the tree and its anchors are right."""
    url = f"{database_url(settings.DATA_DIR)}&options=-csearch_path%3D{ledger}"
    killed = subprocess.Popen(
        [sys.executable, "-m", "tests.audit.sealer_kills", "20", "7"],
        env=os.environ | {"DATABASE_URL": url, "AUDIT_ANCHORS_DIR": str(anchored)},
        stderr=subprocess.DEVNULL,
    )
    written = 0
    while killed.poll() is None:
        written += len(write("here", 5) + write("there", 1))
    sealed_meanwhile = AuditLeaf.objects.count()
    seal_logs()
    for name in ("here", "there"):
        assert indexes(name) == list(range(AuditLog.objects.get(name=name).size))
        assert root_of(name) == merkle.leaves_root(map(merkle.leaf_hash, lines_of(name)))
    checkpoint_publication.compare_logs()
    assert not AuditLog.objects.exclude(halted_at=None).exists()
    assert killed.returncode == 0
    assert 0 < sealed_meanwhile <= written == AuditLeaf.objects.count()


def test_a_sealer_that_never_spoke_is_known_to_be_silent(ledger):
    assert log_status.sealer_silent_s() is None
    record(Event.LOGIN, by=Actor("person", "p", "here"), outcome=Outcome.SUCCESS)
    assert log_status.sealer_silent_s() == float("inf")


def test_a_log_grown_record_by_record_has_the_roots_of_a_rebuilt_log(ledger):
    for _ in range(33):
        write("here")
        seal_logs("here")
    hashes = [merkle.leaf_hash(line) for line in lines_of("here")]
    roots = AuditLog.objects.get(name="here").checkpoints.values_list("size", "root")
    assert {size: bytes(root) for size, root in roots} == {
        size: merkle.leaves_root(hashes[:size]) for size in range(1, 34)
    }
