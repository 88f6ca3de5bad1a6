"""Logs that the product sealed, in the database: clean ones are clean, and damage is named."""

import json
import os
import random
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.utils import timezone

from audit import shared_files
from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.log import anchors, checkpoint_publication, checkpoints, key_files, leaves
from audit.log.sealer import seal_logs
from audit.models import AuditLog, AuditRecord, Checkpoint
from audit.records import payloads as kept
from audit.records import retention
from audit.records.erasure import ErasureScope, erase_payloads
from audit.verification import inspection
from audit.verification.chunks import ChunkTask
from audit.verification.database_source import DatabaseSource
from audit.verification.inspection import VerificationRequest, inspect_logs
from audit.verification.statements import PublishedNote
from tests.audit import evidence, worlds
from tests.audit.logs import settled, write
from tests.audit.tamperings import ATTACKS, Attack, a_node_changed
from tests.conditions import until

BY = Actor("agent", "a", "here")


@pytest.fixture
def sealed(ledger):
    """Nine records under three checkpoints, and the ids of them in their order."""
    for _ in range(3):
        write("here", 3)
        seal_logs()
    source = DatabaseSource("here", None)
    return [row[1].hex() for row in source.rows(0, 9)]


def finding_places(log="here", **question):
    (report,) = inspect_logs(VerificationRequest(log, **question))
    return {(str(one.kind), one.index) for one in report.findings}


@contextmanager
def owner():
    """Of the tables: nothing refuses what it does."""
    tables = ["auditrecord", "auditleaf", "auditlog", "auditnode", "checkpoint", "auditsegment"]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint"
            " WHERE contype IN ('c', 'f') AND connamespace = current_schema()::regnamespace"
            " AND conislocal"
        )
        for table, name in cursor.fetchall():
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
        for table in tables:
            cursor.execute(f"ALTER TABLE audit_{table} DISABLE TRIGGER USER")
            cursor.execute(f"GRANT ALL ON audit_{table} TO CURRENT_USER")
        yield cursor


def test_a_log_that_was_left_alone_is_clean(sealed):
    assert finding_places() == set()
    (report,) = inspect_logs(VerificationRequest("here"))
    assert (report.size, report.checkpoints, report.anchors) == (9, 3, 3)


def test_what_is_not_sealed_yet_is_no_damage(sealed):
    write("here", 2)
    assert finding_places() == set()


def test_all_logs_are_verified_and_those_without_a_seal(sealed):
    write("there")
    assert [report.log for report in inspect_logs(VerificationRequest())] == ["here", "there"]


CHANGES = [
    ("UPDATE audit_auditrecord SET subject = 'x' WHERE id = %s", "mutated", 4),
    ("UPDATE audit_auditrecord SET details = '{\"number\":7}' WHERE id = %s", "mutated", 4),
    ("UPDATE audit_auditrecord SET mac = '' WHERE id = %s", "mutated", 4),
    ("UPDATE audit_auditrecord SET organization = 'there' WHERE id = %s", "mutated", 4),
    (
        "UPDATE audit_auditrecord SET occurred_at = occurred_at - interval '1 day' WHERE id = %s",
        "backdated",
        4,
    ),
    ("UPDATE audit_auditrecord SET occurred_at = 'infinity' WHERE id = %s", "backdated", 4),
    ("UPDATE audit_auditrecord SET occurred_at = '0044-03-15 BC' WHERE id = %s", "backdated", 4),
    ("UPDATE audit_auditrecord SET id = gen_random_uuid() WHERE id = %s", "mutated", 4),
    ("DELETE FROM audit_auditrecord WHERE id = %s", "missing", 4),
    ("UPDATE audit_auditleaf SET hash = mac WHERE record_id = %s", "mutated", 4),
    ("UPDATE audit_auditleaf SET hash = '' WHERE record_id = %s", "mutated", 4),
    ("DELETE FROM audit_auditleaf WHERE record_id = %s", "missing", 4),
    ("UPDATE audit_auditleaf SET index = 99 WHERE record_id = %s", "reordered", 4),
    (
        "UPDATE audit_auditleaf SET index = 9223372036854775807 WHERE record_id = %s",
        "reordered",
        4,
    ),
]


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(("statement", "kind", "index"), CHANGES)
def test_a_change_of_a_row_is_found_and_named(sealed, statement, kind, index):
    with owner() as cursor:
        cursor.execute(statement, [sealed[4]])
    assert finding_places() == {(kind, index)}


WHOLE = [
    ("DELETE FROM audit_auditleaf WHERE index >= 7", {("truncated", 7)}),
    ("UPDATE audit_auditlog SET size = 12", {("truncated", 9)}),
    ("UPDATE audit_auditlog SET size = 5", {("mutated", 5)}),
    ("UPDATE audit_auditlog SET frontier = ''", {("mutated", 9)}),
    ("UPDATE audit_checkpoint SET root = '' WHERE size = 6", {("bad_signature", 6)}),
    ("UPDATE audit_checkpoint SET note = 'x' WHERE size = 6", {("bad_signature", 6)}),
    ("DELETE FROM audit_checkpoint WHERE size = 6", {("missing", 6)}),
    ("DELETE FROM audit_auditlog", {("rolled_back", 0)}),
    (
        "UPDATE audit_auditleaf SET index = CASE index WHEN 2 THEN -5 ELSE index END",
        {("missing", 2)},
    ),
]


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(("statement", "expected"), WHOLE)
def test_a_change_of_the_log_is_found_and_named(sealed, statement, expected):
    with owner() as cursor:
        cursor.execute(statement)
    assert finding_places() == expected


def test_a_forged_record_is_reported_before_it_is_sealed_and_after(sealed):
    with owner() as cursor:
        cursor.execute(
            "INSERT INTO audit_auditrecord SELECT (r).* FROM (SELECT jsonb_populate_record(r, "
            "jsonb_build_object('id', gen_random_uuid())) AS r FROM audit_auditrecord r LIMIT 1)"
        )
    assert finding_places() == {("inserted", None)}


def test_an_invented_segment_hides_no_missing_record(sealed):
    with owner() as cursor:
        cursor.execute(
            'INSERT INTO audit_auditsegment (log_id, first, "end", file, sha256, note, created_at)'
            " SELECT id, 3, 5, 'here/x.jsonl.gz', repeat('0', 64), '', now() FROM audit_auditlog"
        )
        cursor.execute("DELETE FROM audit_auditrecord WHERE id IN (%s, %s)", sealed[3:5])
    assert finding_places() == {("missing", 3)}


FORGED_SEGMENT = """
INSERT INTO audit_auditsegment (log_id, first, "end", file, sha256, note, created_at)
SELECT id, 0, 9, %s, %s, '', now() FROM audit_auditlog WHERE name = 'here'
"""


@pytest.mark.parametrize("copied", [False, True])
def test_another_logs_file_lets_no_record_leave(sealed, tmp_path, settings, copied):
    """Done with the rights that the product has: the trigger believes the segment's row."""
    settings.DATA_DIR = tmp_path
    write("there", 9)
    seal_logs()
    exported_there = export("there")  # genuine, and of as many records
    file = exported_there.relative_to(retention.archive_directory())
    if copied:
        own = retention.LogRange(AuditLog.objects.get(name="here"), 0, 9)
        own.path.parent.mkdir()
        own.path.write_bytes(exported_there.read_bytes())
        file = own.file
    with connection.cursor() as cursor:
        cursor.execute(FORGED_SEGMENT, [str(file), shared_files.file_sha256(exported_there)])
        cursor.execute("DELETE FROM audit_auditrecord WHERE organization = 'here'")
    assert finding_places() == {("missing", 0)}
    assert finding_places(pubkeys=(here_key(),)) == {("missing", 0)}


def here_key():
    return next(key for key in checkpoint_publication.public_keys() if "/here+" in key)


def export(name):
    due = retention.next_range(AuditLog.objects.get(name=name), timezone.now() + timedelta(1))
    retention._remove_records(retention.archive_range(due))
    seal_logs(name)
    return due.path


@pytest.fixture
def exported(sealed, tmp_path, settings):
    settings.DATA_DIR = tmp_path
    return export("here")


def test_records_that_were_exported_may_be_gone(exported):
    assert not AuditRecord.objects.filter(code=Event.LOGIN).exists()
    assert finding_places() == set()
    assert finding_places(pubkeys=(here_key(),)) == set()


def test_so_may_those_whose_record_of_it_was_exported_itself(exported):
    second = export("here")
    assert finding_places() == set()
    exported.unlink()
    second.unlink()
    assert {("missing", 0), ("missing", 9)} <= finding_places()


def test_the_only_copy_of_records_is_missed_when_it_is_gone(exported, capsys):
    exported.unlink()
    assert finding_places() == {("missing", 0)}
    assert finding_places(elsewhere=True) == set()
    call_command("audit_verify", "--processes", "1", "--archive-elsewhere")
    assert "here: clean" in capsys.readouterr().out


def test_a_files_hash_may_look_like_the_number_of_a_card(sealed, tmp_path, settings, monkeypatch):
    settings.DATA_DIR = tmp_path
    monkeypatch.setattr(
        shared_files, "file_sha256", lambda path: f"{'a' * 20}4111111111111111{'b' * 28}"
    )
    export("here").unlink()
    monkeypatch.undo()
    assert finding_places(elsewhere=True) == set()


def test_a_change_of_the_only_copy_of_records_is_reported(exported):
    exported.write_bytes(exported.read_bytes()[:-1])
    assert finding_places() == {("mutated", 0)}
    assert finding_places(elsewhere=True) == {("mutated", 0)}


def test_records_that_leave_meanwhile_are_not_missed(sealed, tmp_path, settings):
    """What was found wrong is looked at again when there is a file more."""
    settings.DATA_DIR = tmp_path
    left = threading.Event()

    class Elsewhere(Executor):
        """Looks when the records have left, as a process of a pool may."""

        def submit(self, work, batch):
            made = Future()
            with ThreadPoolExecutor(1) as other:
                if isinstance(batch, ChunkTask) and not left.is_set():
                    other.submit(in_another_connection, lambda: export("here")).result()
                    left.set()
                made.set_result(other.submit(in_another_connection, lambda: work(batch)).result())
            return made

    (report,) = inspect_logs(VerificationRequest("here"), Elsewhere())
    assert left.is_set()
    assert report.findings == ()


def in_another_connection(deed):
    try:
        return deed()
    finally:
        connection.close()


def test_anchors_that_were_removed_are_missed(sealed, anchored):
    with owner() as cursor:
        cursor.execute("SELECT note FROM audit_checkpoint ORDER BY id")
        notes = [note for (note,) in cursor.fetchall()]
    (signer,) = key_files.next_signers("here", "")
    statement = checkpoints.read_note(notes[-1])
    later = checkpoints.sign_statement(
        replace(statement, at=statement.at + timedelta(minutes=6)), signer
    )
    (file,) = anchored.rglob("*.jsonl")
    Checkpoint.objects.create(log=AuditLog.objects.get(), size=9, root=statement.root, note=later)
    assert finding_places() == {("missing", 9)}
    file.unlink()
    assert finding_places() == {("missing", 9)}
    kept = anchored / "kept"
    kept.write_text(notes[0])
    assert finding_places(anchor=str(kept)) == set()


def test_a_record_that_waits_too_long_for_its_seal_is_reported(ledger):
    with connection.cursor() as cursor:
        made = write("here")[0]
        with owner():
            cursor.execute(
                "UPDATE audit_auditrecord SET occurred_at = occurred_at - interval '2 minutes'"
                " WHERE id = %s",
                [made],
            )
    assert finding_places() == {("unsealed_too_old", None)}


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    ("end", "fence", "expected"),
    [
        (None, 1, True),
        (Event.TOOL_END, 1, False),
        (Event.TOOL_LOST, 1, False),
        (Event.TOOL_DENY, 1, False),
        (Event.TOOL_LOST, 2, True),
        (Event.TOOL_CANCEL, None, True),
    ],
)
def test_a_call_without_an_end_is_reported(ledger, end, fence, expected):
    """Its end is known by its fence: that of another attempt is none, and a clock that was set back
    between the two changes nothing."""
    three_hours_ago = timezone.now() - timedelta(hours=3)
    about = {"by": BY, "execution_id": UUID("01a20276-dedb-7468-8896-38eb9a1ac85b")}
    record(Event.TOOL_START, outcome=Outcome.STARTED, details={"fence": 1}, **about)
    if end is not None:
        details = {"fence": fence} if fence else {}
        record(end, outcome=Outcome.SUCCESS, details=details, **about)
    with owner():
        AuditRecord.objects.filter(code=Event.TOOL_START).update(occurred_at=three_hours_ago)
        ended = AuditRecord.objects.exclude(code=Event.TOOL_START)
        ended.update(occurred_at=three_hours_ago - timedelta(seconds=1))
    seal_logs()
    assert ("start_without_end" in {kind for kind, _ in finding_places()}) is expected


def test_a_break_that_was_accepted_is_still_reported_and_is_no_damage(sealed):
    with owner() as cursor:
        cursor.execute("DELETE FROM audit_auditrecord WHERE id = ANY(%s::uuid[])", [sealed[6:]])
        cursor.execute("DELETE FROM audit_auditleaf WHERE index >= 6")
        cursor.execute("DELETE FROM audit_checkpoint WHERE size > 6")
        cursor.execute("UPDATE audit_auditlog SET size = 6, frontier = (SELECT "
                       "frontier FROM audit_auditlog)")  # fmt: skip
    checkpoint_publication.compare_logs()
    checkpoint_publication.accept_break(
        name="here", by=Actor("person", "Ada", "here"), reason="an exercise"
    )
    write("here", 3)
    seal_logs()
    (report,) = inspect_logs(VerificationRequest("here"))
    assert not report.damaged
    assert [(str(one.kind), one.index) for one in report.findings] == [("forked", 6)]
    assert "accepted by Ada: an exercise" in report.findings[0].says


@pytest.mark.part("matrices", but_each=5)
@pytest.mark.parametrize("attack_of", [one for one in ATTACKS if one is not a_node_changed])
def test_a_really_sealed_log_is_attacked_in_every_way(ledger, attack_of):
    """Done to rows read from the database, and written back there."""
    (signer,) = key_files.next_signers("here", "")
    source, past = DatabaseSource("here", None), []
    for _ in range(3):
        write("here", 3)
        seal_logs()
        published = [PublishedNote(one.note) for one in anchors.read_anchors("here")]
        past.append(worlds.read(DatabaseSource("here", None), published, signer))
    attack = Attack(random.Random(7), past[-1].copy(), past)
    expected = attack_of(attack)
    with owner() as cursor:
        worlds.write(cursor, attack.world)
    assert source.count() == attack.size
    assert finding_places() == expected


def test_the_command_says_what_is_wrong_and_exits_with_one(sealed, capsys):
    call_command("audit_verify", "--processes", "1")
    assert "here: clean, 9 records, 3 checkpoints, 3 anchors" in capsys.readouterr().out
    with owner() as cursor:
        cursor.execute("UPDATE audit_auditrecord SET subject = 'x' WHERE id = %s", [sealed[4]])
    with pytest.raises(SystemExit) as left:
        call_command("audit_verify", "--json", "--processes", "1")
    assert left.value.code == 1
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["findings"][0]["kind"], report["findings"][0]["index"]) == ("mutated", 4)


def test_the_public_key_alone_finds_the_damaged_range(sealed):
    key = checkpoint_publication.public_keys()[0]
    assert finding_places(pubkeys=(key,)) == set()
    with owner() as cursor:
        cursor.execute("UPDATE audit_auditleaf SET hash = mac WHERE index = 4")
    assert finding_places(pubkeys=(key,)) == {("mutated", 4)}


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    "wrong",
    [
        {"log": "nowhere"},
        {"log": "here", "pubkey": "x"},
        {"log": "here", "pubkey": "a+b+AAAA"},
        {"log": "here", "anchor": "no such file"},
        {"pubkey": "a+b+c"},
        {"log": "here", "first": -1},
    ],
)
def test_a_question_that_cannot_be_answered_exits_with_two(sealed, wrong):
    words = [f"--{name.replace('first', 'from')}={text}" for name, text in wrong.items()]
    with pytest.raises(CommandError) as error:
        call_command("audit_verify", "--processes=1", *words)
    assert error.value.returncode == 2


def test_the_daily_check_is_on_record_and_fails_when_there_is_damage(sealed):
    inspection.verify_all_logs()
    with owner() as cursor:
        cursor.execute("UPDATE audit_auditrecord SET subject = 'x' WHERE id = %s", [sealed[4]])
    inspection.verify_all_logs()
    made = AuditRecord.objects.filter(code="AUDIT.VERIFY").order_by("occurred_at", "id")
    assert [(row.outcome, row.reason) for row in made] == [("success", ""), ("failure", "mutated")]


def more_checkpoints(count):
    """Of the log as it is, each a minute after the one before, genuine and published."""
    (signer,) = key_files.next_signers("here", "")
    log = AuditLog.objects.get(name=evidence.HERE)
    last = anchors.newest_anchor("here").statement
    notes = [
        checkpoints.sign_statement(replace(last, at=last.at + timedelta(minutes=n)), signer)
        for n in range(1, count + 1)
    ]
    log.checkpoints.bulk_create(
        Checkpoint(log=log, size=last.size, root=last.root, note=note) for note in notes
    )
    file = sorted((anchors._log_directory("here")).glob("*.jsonl"))[-1]
    with file.open("a") as out:
        out.writelines(json.dumps({"log": "here", "note": note}) + "\n" for note in notes)


@pytest.mark.parametrize(
    "count", [2_000, pytest.param(20_000, marks=pytest.mark.part("generated"))]
)
def test_reading_checkpoints_holds_no_transaction_open(sealed, count):
    """PostgreSQL ends a session that is idle in a transaction for longer than a batch takes."""
    more_checkpoints(count)
    with connection.cursor() as cursor:
        cursor.execute("SET idle_in_transaction_session_timeout = '100ms'")
    (report,) = inspect_logs(VerificationRequest("here"))
    assert report.findings == ()
    assert (report.checkpoints, report.anchors) == (count + 3, count + 3)


def test_the_daily_check_goes_on_from_what_was_verified(sealed):
    (first,) = inspection.verify_all_logs()
    write("here", 4)
    seal_logs()
    (second,) = inspection.verify_all_logs()
    assert (first.since, second.since) == (0, 9)
    assert second.findings == ()
    assert second.checkpoints == 2  # that of nine records, and the one above them


HARM_SINCE = [
    ("UPDATE audit_auditrecord SET subject = 'x' WHERE id = %s", ("mutated", 10)),
    ("DELETE FROM audit_auditrecord WHERE id = %s", ("missing", 10)),
    ("UPDATE audit_auditleaf SET hash = mac WHERE index = 3 AND %s <> ''", ("mutated", 3)),
    ("DELETE FROM audit_auditleaf WHERE index > 8 AND %s <> ''", ("truncated", 9)),
    ("DELETE FROM audit_checkpoint WHERE size = 13 AND %s <> ''", ("missing", 13)),
]


@pytest.mark.parametrize(("statement", "expected"), HARM_SINCE)
def test_the_daily_check_finds_what_was_done_since(sealed, statement, expected):
    inspection.verify_all_logs()
    ids = write("here", 3)
    seal_logs()
    assert AuditLog.objects.get().size == 13
    with owner() as cursor:
        cursor.execute(statement, [str(ids[0])])
    (report,) = inspection.verify_all_logs()
    assert report.since == 9
    assert expected in {(str(one.kind), one.index) for one in report.findings}


def test_who_has_the_database_alone_moves_the_verified_checkpoint_back_and_never_on(sealed):
    inspection.verify_all_logs()
    write("here", 1)
    seal_logs()
    with owner() as cursor:  # in a record of its own, and in the one there is
        cursor.execute(
            "INSERT INTO audit_auditrecord SELECT (r).* FROM (SELECT jsonb_populate_record(r, "
            "jsonb_build_object('id', gen_random_uuid(), 'occurred_at', now() + '1 hour', 'details'"
            ", replace(details::text, '\"size\":9', '\"size\":11')::json)) AS r"
            " FROM audit_auditrecord r WHERE code = 'AUDIT.VERIFY') made"
        )
    (report,) = inspect_logs(VerificationRequest("here", resume=True))
    assert (report.since, finding_places()) == (9, {("inserted", None)})
    with owner() as cursor:
        cursor.execute("UPDATE audit_auditrecord SET mac = '' WHERE code = 'AUDIT.VERIFY'")
    (report,) = inspect_logs(VerificationRequest("here", resume=True))
    assert report.since == 0


def test_a_week_after_the_last_whole_one_the_daily_check_takes_the_whole_log(sealed, monkeypatch):
    inspection.verify_all_logs()
    (again,) = inspection.verify_all_logs()
    later = timezone.now() + timedelta(days=7)
    monkeypatch.setattr(inspection.timezone, "now", lambda: later)
    (whole,) = inspection.verify_all_logs()
    assert (again.since, whole.since) == (9, 0)


def test_after_a_break_was_accepted_the_whole_log_is_verified(sealed):
    inspection.verify_all_logs()
    AuditLog.objects.update(halted_at=timezone.now(), halted_reason="for the test")
    checkpoint_publication.accept_break(name="here", by=BY, reason="restored")
    seal_logs()
    (report,) = inspection.verify_all_logs()
    assert (report.since, report.damaged) == (0, False)


def test_a_connection_that_the_server_ended_fails_one_log_alone(sealed, monkeypatch):
    write("there", 2)
    seal_logs()
    look = DatabaseSource.count

    def count_without_connection(source):
        if source.name == "here":
            connection.connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return look(source)

    monkeypatch.setattr(DatabaseSource, "count", count_without_connection)
    reports = inspection.verify_all_logs()
    kinds = {one.log: [str(found.kind) for found in one.findings] for one in reports}
    assert kinds == {"here": ["not_verified"], "there": []}
    outcomes = AuditRecord.objects.filter(code="AUDIT.VERIFY").values_list(
        "organization", "outcome"
    )
    assert set(outcomes) == {("here", "failure"), ("there", "success")}


def test_one_log_that_cannot_be_verified_keeps_no_other_from_it(sealed, anchored):
    write("there", 1)
    seal_logs()
    (anchored / "here" / "00000000.jsonl").mkdir()
    inspection.verify_all_logs()
    made = AuditRecord.objects.filter(code="AUDIT.VERIFY").order_by("organization")
    assert [(row.organization, row.outcome, row.reason) for row in made] == [
        ("here", "failure", "not_verified"),
        ("there", "success", ""),
    ]


def test_an_unreadable_directory_of_anchors_is_reported_for_every_log(sealed, anchored):
    anchored.chmod(0)
    try:
        reports = inspection.verify_all_logs()
    finally:
        anchored.chmod(0o700)
    assert [(one.log, one.damaged) for one in reports] == [("here", os.getuid() != 0)]


@pytest.fixture
def payloads(ledger):
    """Three calls with what went in, at 0, 1 and 2."""
    made = evidence.sealed(3)
    assert finding_places() == set()
    return made


EMPTY = (
    "UPDATE audit_auditpayload SET sealed = NULL, words = '{}', erased_at = now(), erased_by = %s"
)


def test_a_payload_that_is_gone_without_an_erasure_is_reported(payloads):
    with connection.cursor() as cursor:  # the database itself lets the product do that
        cursor.execute(f"{EMPTY} WHERE record_id = %s", ["retention", payloads[1]])
    assert finding_places() == {("missing", 1)}
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM audit_auditpayload WHERE record_id = %s", [payloads[1]])
    assert finding_places() == {("missing", 1)}
    assert finding_places(pubkeys=(here_key(),)) == {("missing", 1)}


def test_an_erasure_speaks_for_no_other_payload(payloads):
    execution = AuditRecord.objects.get(pk=payloads[0]).execution_id
    erase_payloads(ErasureScope("here", execution=execution), by=evidence.ADMIN, reason="asked for")
    assert finding_places() == set()
    with connection.cursor() as cursor:
        cursor.execute(f"{EMPTY} WHERE record_id = %s", ["root", payloads[2]])
    assert finding_places() == {("missing", 2)}


@pytest.mark.parametrize("scope", [{"agent": "magpie"}, {}], ids=["of an agent", "of all"])
def test_payloads_with_a_recorded_erasure_are_not_reported(payloads, scope):
    erase_payloads(ErasureScope("here", **scope), by=evidence.ADMIN, reason="asked for")
    assert finding_places() == set()


def test_a_missing_payload_key_is_reported(payloads):
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM audit_auditkey")
    kept._keys.clear()  # as after a new start
    assert finding_places() == {("missing", 0)}
    evidence.sealed(1)
    assert finding_places() == {("missing", 0)}


def test_payloads_that_retention_erased_are_not_missed(payloads, monkeypatch):
    later = timezone.now() + timedelta(days=100)
    monkeypatch.setattr(retention.timezone, "now", lambda: later)
    assert retention.apply_retention(records_days=0, payload_days=90)["erased"] == 3
    monkeypatch.undo()
    assert finding_places() == set()


DECIDED = {
    "confirmation": "01a20276-dedb-7468-8896-38eb9a1ac85b",
    "decision": "approved",
    "bound_hash": "ab" * 32,
    "reasons": ["rule:spending"],
    "approvals_needed": 2,
    "reason": "It is due.",
    "waited_ms": 4711,
    "displayed_s": 12.5,
    "policy_version": 7,
    "session": "01a20276-dedb-7468-8896-38eb9a1ac85c",
    "issued_its_token": False,
}
COLUMNS = [
    ("actor", "'mallory'"), ("actor_id", "'x'"), ("actor_kind", "'person'"),
    ("code", "'CONFIRM.REJECT'"), ("execution_id", "gen_random_uuid()"),
    ("id", "gen_random_uuid()"), ("organization", "'there'"), ("outcome", "'denied'"),
    ("reason", "'x'"), ("request_id", "'x'"), ("source_ip", "'x'"), ("subject", "'x'"),
    ("subject_digest", "'x'"), ("token_id", "'x'"), ("mac", "decode('00', 'hex')"),
    ("occurred_at", "occurred_at + interval '1 day'"),
]  # fmt: skip


def test_every_field_of_a_decided_confirmation_is_sealed(ledger):
    """What was decided, by which rule and whom, over which arguments, policy and session."""
    arguments = {"parameters": {"text": "x"}}
    with transaction.atomic():
        made = record(
            Event.CONFIRM_APPROVE,
            by=BY,
            outcome=Outcome.CHANGED,
            details=DECIDED,
            payload=arguments,
        )
    until(settled)
    seal_logs()
    assert finding_places() == set()
    for name, value in COLUMNS:
        assert _changed(made, f"{name} = {value}"), name
    assert {name for name, _ in COLUMNS} | {"details"} == {*leaves.COLUMNS, "mac", "occurred_at"}
    details = AuditRecord.objects.get(pk=made).details
    assert details.keys() >= {*DECIDED, "parameters_commitment"}
    for name in [*details, "more"]:
        other = leaves.canonical_details(details | {name: "changed"}).decode()
        assert _changed(made, f"details = $${other}$$"), name
        without = leaves.canonical_details(
            {key: one for key, one in details.items() if key != name}
        )
        if name in details:
            assert _changed(made, f"details = $${without.decode()}$$"), name


def _changed(record_id, setting):
    """What is found while the record is so; it is put back."""
    with owner() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE kept AS SELECT * FROM audit_auditrecord")
        cursor.execute(f"UPDATE audit_auditrecord SET {setting} WHERE id = %s", [record_id])
        seen = finding_places()
        cursor.execute("DELETE FROM audit_auditrecord")
        cursor.execute("INSERT INTO audit_auditrecord SELECT * FROM kept")
        cursor.execute("DROP TABLE kept")
    return seen


@pytest.fixture
def own_keys(tmp_path, settings):
    """Key files of the test's own, and the way to have them read again."""
    settings.KEYS_DIR, settings.DATA_DIR = tmp_path / "keys", tmp_path

    def forget():
        key_files.root_key.cache_clear()
        key_files.derived_key.cache_clear()
        kept._keys.clear()

    forget()
    yield forget
    settings.KEYS_DIR = tmp_path / "keys"
    forget()


def test_every_file_that_is_emptied_or_removed_is_missed(own_keys, ledger, anchored, monkeypatch):
    monkeypatch.setattr(anchors, "FULL_BYTES", 1)  # a file for each anchor
    evidence.sealed(2)
    export("here")
    checkpoint_publication.rotate_key(by=lambda name: Actor("person", "root", name))
    seal_logs()
    checkpoint_publication.finish_rotation()  # which removes the old private half
    export("here")
    evidence.sealed(2)
    more_checkpoints(10)  # what was published less than five minutes ago may still be under way
    assert finding_places() == set()
    root = key_files.path_of("").parent
    # The public half is read where the private one is not, and the sealer writes it again.
    files = [path for path in root.rglob("*") if path.is_file() and path.suffix != ".public"]
    assert {path.suffix for path in files} >= {
        ".jsonl", ".gz", ".manifest", ".checkpoint", ".key", ".pem", ".retired", ".id",
    }  # fmt: skip
    for path in files:
        content = path.read_bytes()
        for harm in (lambda path: path.write_bytes(b""), Path.unlink):
            harm(path)
            own_keys()
            assert finding_places(), path
            path.write_bytes(content)
            own_keys()
    assert finding_places() == set()
