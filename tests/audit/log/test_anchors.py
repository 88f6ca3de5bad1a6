"""What was published outlives the database: a log that was put back is found, and halted."""

import json
import logging
import resource
import shutil
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.core.management import CommandError, call_command
from django.db import connection

from audit.events import Event
from audit.log import (
    anchors,
    checkpoint_publication,
    checkpoints,
    key_files,
    log_status,
    remote_anchors,
)
from audit.log.anchors import BadAnchor
from audit.log.checkpoints import Acceptance, CheckpointStatement, Signer
from audit.log.sealer import seal_logs
from audit.models import AuditLeaf, AuditLog, AuditRecord, Checkpoint, CheckpointKey
from audit.verification.inspection import VerificationRequest, inspect_logs
from tests.audit.logs import settled, write
from tests.conditions import until


@pytest.fixture
def keys(tmp_path, settings):
    settings.KEYS_DIR = tmp_path / "keys"


def put_back(size):
    """The log as it was at that size; only the owner of the tables could, and with work."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE audit_auditlog DISABLE TRIGGER USER")
        for table, column in {"auditleaf": "index", "checkpoint": "size - 1"}.items():
            cursor.execute(f"ALTER TABLE audit_{table} DISABLE TRIGGER USER")
            cursor.execute(f"GRANT DELETE ON audit_{table} TO CURRENT_USER")
            cursor.execute(f"DELETE FROM audit_{table} WHERE {column} >= {size}")
        cursor.execute("ALTER TABLE audit_auditrecord DISABLE TRIGGER USER")
        cursor.execute(
            "DELETE FROM audit_auditrecord r"
            " WHERE NOT EXISTS (SELECT FROM audit_auditleaf l WHERE l.record_id = r.id)"
        )
    logs = AuditLog.objects.filter(name="here")
    logs.update(size=size, frontier=bytes(32 * size.bit_count()), horizon=None)
    checkpoint_publication._repair_frontier(logs.get())


def signed(log, size, *signers, accepted=None):
    statement = CheckpointStatement(
        key_files.log_origin(log), size, bytes(32), datetime.now(UTC), accepted
    )
    return checkpoints.sign_statement(statement, *signers)


def test_each_checkpoint_is_left_outside_the_database(ledger, anchored):
    write("here", 3)
    seal_logs()
    write("here", 1)
    seal_logs()
    assert [one.statement.size for one in anchors.read_anchors("here")] == [3, 4]
    assert anchors.newest_anchor("here").note == Checkpoint.objects.latest("id").note
    assert anchors.anchored_logs() == ["here"]


def test_only_its_owner_reads_an_anchor(ledger, anchored):
    write("here")
    seal_logs()
    (file,) = anchored.rglob("*.jsonl")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_checkpoint_is_written_to_the_log_of_the_process(ledger, caplog):
    write("here")
    with caplog.at_level(logging.INFO, "audit.log.anchors"):
        seal_logs()
    # A thread that watches the queue may complain meanwhile: it meets a schema of the audit alone.
    (line,) = (record for record in caplog.records if record.name == "audit.log.anchors")
    assert (line.log, line.size) == ("here", 1)


def test_a_line_that_was_never_ended_counts_for_nothing(ledger, anchored):
    write("here")
    seal_logs()
    with next(anchored.rglob("*.jsonl")).open("a") as file:
        file.write('{"log": "here", "no')
    write("here")
    seal_logs()
    assert [one.statement.size for one in anchors.read_anchors("here")] == [1, 2]
    assert len(list(anchored.rglob("*.jsonl"))) == 2


def test_a_file_that_is_full_is_followed_by_the_next(ledger, anchored, monkeypatch):
    monkeypatch.setattr(anchors, "FULL_BYTES", 1)
    for _ in range(3):
        write("here")
        seal_logs()
    assert [one.statement.size for one in anchors.read_anchors("here")] == [1, 2, 3]
    assert [file.name for file in sorted(anchored.rglob("*.jsonl"))][-1] == "00000003.jsonl"


def test_an_older_checkpoint_adds_nothing(ledger):
    write("here")
    seal_logs()
    first = anchors.newest_anchor("here").note
    write("here")
    seal_logs()
    anchors.append_anchor("here", first)
    assert anchors.newest_anchor("here").statement.size == 2


@pytest.mark.parametrize("name", ["here", "../../etc", "ä ö", "a" * 63, ".", "a.b"])
def test_a_log_of_any_name_has_a_place_of_its_own(anchored, name):
    note = "toolcrib/x/y\n0\n" + "A" * 43 + "=\ntime 2026-01-01T00:00:00.000000Z\n\n"
    anchors.append_anchor(name, note)
    assert anchors.anchored_logs() == [name]
    assert next(anchored.rglob("*.jsonl")).parent.parent == anchored


def test_a_log_that_was_put_back_is_halted_and_signed_no_more(ledger):
    write("here", 4)
    seal_logs()
    write("here", 3)
    seal_logs()
    put_back(4)
    checkpoint_publication.compare_logs()
    log = AuditLog.objects.get()
    assert "holds 4 records where 7 were published" in log.halted_reason
    assert AuditRecord.objects.get(code=Event.AUDIT_HALTED).reason == "rolled_back"
    assert (seal_logs(), checkpoint_publication.publish_checkpoint("here")) == (0, None)


def test_a_log_that_was_put_back_and_has_grown_again_is_found_before_it_is_signed(ledger):
    write("here", 4)
    seal_logs()
    write("here", 3)
    seal_logs()
    put_back(4)
    write("here", 20)
    seal_logs()
    assert AuditLog.objects.get().halted_reason.startswith("Its first 7 records are not those")
    assert Checkpoint.objects.latest("id").size == 4


def test_another_history_of_the_same_length_is_found(ledger):
    write("here", 4)
    seal_logs()
    put_back(3)
    write("here", 1)
    seal_logs()
    assert AuditRecord.objects.get(code=Event.AUDIT_HALTED).reason == "forked"


def test_a_database_from_before_the_log_began_is_found(ledger):
    anchors.append_anchor("lost", signed("lost", 5, *key_files.next_signers("lost", "")))
    checkpoint_publication.compare_logs()
    with pytest.raises(log_status.LogHalted, match="holds 0 records where 5"):
        log_status.check_halted("lost")


def test_a_hole_in_the_tree_is_found_and_is_not_to_be_gone_on_from(ledger):
    write("here", 4)
    seal_logs()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE audit_auditleaf DISABLE TRIGGER USER")
        cursor.execute("GRANT DELETE ON audit_auditleaf TO CURRENT_USER")
        cursor.execute("DELETE FROM audit_auditleaf WHERE index = 3")
    write("here", 3)
    seal_logs()
    assert AuditRecord.objects.get(code=Event.AUDIT_HALTED).reason == "truncated"
    with pytest.raises(CommandError, match="leaf 3 is missing"):
        call_command("audit_accept", "here", reason="try")


def test_an_anchor_that_cannot_be_read_halts_its_log_alone(ledger, anchored):
    for name in ("here", "there"):
        write(name)
    seal_logs()
    (anchored / "here" / "00000001.jsonl").write_text("scribble\n")
    with pytest.raises(BadAnchor):
        anchors.newest_anchor("here")
    checkpoint_publication.compare_logs()
    assert list(AuditLog.objects.exclude(halted_at=None).values_list("name")) == [("here",)]


def halted_because():
    checkpoint_publication.compare_logs()
    return list(
        AuditRecord.objects.filter(code=Event.AUDIT_HALTED).values_list("reason", flat=True)
    )


@pytest.mark.parametrize("accepted", [None, Acceptance("eve", "so", "none")])
def test_what_is_signed_by_no_key_of_ours_lets_no_log_go_on(ledger, accepted):
    """Nor does a key that was put beside ours below a genuine note, and into the database."""
    write("here", 4)
    seal_logs()
    write("here", 3)
    seal_logs()
    put_back(4)
    stranger = Signer(key_files.log_origin("here"), Ed25519PrivateKey.generate())
    genuine = anchors.newest_anchor("here").note
    text = genuine.partition("\n\n")[0] + "\n"
    CheckpointKey.objects.create(key_id=stranger.key_id, name=stranger.name, public=stranger.public)
    file = anchors._anchor_files(anchors._log_directory("here"))[-1]
    with file.open("a") as lines:
        for note in (genuine + stranger.line(text), signed("here", 4, stranger, accepted=accepted)):
            sent = {
                "log": "here",
                "note": note,
                "accepted": {"by": "e", "reason": "", "problem": ""},
            }
            lines.write(json.dumps(sent) + "\n")
    assert halted_because() == ["bad_anchor"]
    (report,) = inspect_logs(VerificationRequest("here"))
    assert report.damaged
    assert {"wrong_key", "rolled_back"} <= {str(one.kind) for one in report.findings}


def test_a_log_whose_anchors_are_gone_is_halted(ledger, anchored):
    for _ in range(2):
        write("here")
        seal_logs()
    shutil.move(anchored, anchored.with_name("elsewhere"))
    assert halted_because() == ["anchors_gone"]
    call_command("audit_accept", "here", reason="they are lost")
    seal_logs()
    assert halted_because() == ["anchors_gone"]
    assert AuditLog.objects.get().halted_at is None


@contextmanager
def full_disk(at):
    """No file grows beyond it; the database has another disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (at, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_log_that_was_signed_and_could_not_be_published_yet_goes_on(ledger, anchored):
    write("here")
    with full_disk(0), pytest.raises(OSError, match="too large"):
        seal_logs()
    assert Checkpoint.objects.count() == 1
    assert halted_because() == []
    write("here")
    seal_logs()
    assert anchors.newest_anchor("here").statement.size == 2


def test_a_database_without_its_keys_goes_on_with_no_others(ledger, keys, settings, tmp_path):
    write("here", 3)
    seal_logs()
    settings.KEYS_DIR = tmp_path / "made anew"
    assert halted_because() == []  # a record would be a forgery as soon as the keys are back
    with pytest.raises(log_status.LogHalted, match="keys/ are not those of this database"):
        log_status.check_halted("here")
    (report,) = inspect_logs(VerificationRequest("here"))
    assert [one.kind for one in report.findings] == ["wrong_key"]
    assert "keys/ are not those" in report.findings[0].says


@pytest.fixture
def halted(ledger):
    write("here", 3)
    seal_logs()
    put_back(2)
    checkpoint_publication.compare_logs()
    write("here", 2)


def test_a_break_that_is_accepted_stays_stated(halted, capsys):
    call_command("audit_accept", "here", reason="restored from Sunday's backup", by="ada")
    log_status.check_halted("here")
    accepted = anchors.newest_anchor("here").accepted
    assert (accepted.by, accepted.reason) == ("ada", "restored from Sunday's backup")
    assert "holds 2 records where 3" in accepted.problem
    acceptance = AuditRecord.objects.get(code=Event.AUDIT_ACCEPT)
    assert (acceptance.actor, acceptance.details["why"]) == ("ada", "restored from Sunday's backup")


def test_an_accepted_log_goes_on_with_all_that_came_meanwhile(halted, capsys):
    call_command("audit_accept", "here", reason="restored")
    assert seal_logs() == 4  # two records, that it was halted and that it was accepted
    checkpoint_publication.compare_logs()
    assert AuditLog.objects.get().halted_at is None
    assert anchors.newest_anchor("here").statement.size == 6


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_break_is_not_accepted_without_a_reason(halted, reason):
    with pytest.raises(CommandError):
        call_command("audit_accept", "here", reason=reason)


def test_a_log_that_is_not_there_has_nothing_to_accept(ledger):
    with pytest.raises(CommandError, match="no log of an organization nowhere"):
        call_command("audit_accept", "nowhere", reason="so")


def test_a_log_that_is_not_halted_has_nothing_to_accept(ledger):
    write("here")
    seal_logs()
    with pytest.raises(CommandError, match="not halted"):
        call_command("audit_accept", "here", reason="so")


def public(log):
    return {key.key_id: bytes(key.public) for key in CheckpointKey.objects.filter(
        name=key_files.log_origin(log))}  # fmt: skip


def test_a_new_key_is_introduced_by_the_old_one(ledger, keys, capsys):
    write("here")
    seal_logs()
    (old,) = public("here")
    call_command("audit_rotate_key")
    seal_logs()
    both = checkpoints.signed_by(anchors.newest_anchor("here").note, public("here"))
    checkpoint_publication.finish_rotation()
    write("here")
    seal_logs()
    after = checkpoints.signed_by(anchors.newest_anchor("here").note, public("here"))
    assert both == [*after, old]
    assert CheckpointKey.objects.get(pk=old).retired_at is not None


def rotate():
    call_command("audit_rotate_key")
    write("here")
    seal_logs()
    assert checkpoint_publication.finish_rotation()


def test_what_older_keys_signed_stays_good_and_is_known_from_files_alone(ledger, keys, capsys):
    write("here")
    seal_logs()
    rotate()
    rotate()
    connection.cursor().execute("ALTER TABLE audit_checkpointkey DISABLE TRIGGER USER")
    CheckpointKey.objects.all().delete()
    outside = checkpoint_publication.public_keys()
    assert len(outside) == 3
    for question in (
        VerificationRequest("here"),
        VerificationRequest("here", pubkeys=tuple(outside)),
    ):
        (report,) = inspect_logs(question)
        assert report.findings == ()
    (report,) = inspect_logs(VerificationRequest("here", pubkeys=tuple(outside[:1])))
    assert {str(one.kind) for one in report.findings} == {"wrong_key"}


def test_a_new_key_is_introduced_by_the_old_one_also_when_the_disk_was_full(
    ledger, keys, anchored, capsys
):
    """What counts is what others could see, not what the database holds."""
    write("here")
    seal_logs()
    call_command("audit_rotate_key")
    until(settled)
    (file,) = anchored.rglob("*.jsonl")
    with full_disk(file.stat().st_size), pytest.raises(OSError, match="too large"):
        seal_logs()
    assert not checkpoint_publication.finish_rotation()
    write("here")
    seal_logs()
    assert len(checkpoints.signed_by(anchors.newest_anchor("here").note, public("here"))) == 2
    assert checkpoint_publication.finish_rotation()
    (report,) = inspect_logs(VerificationRequest("here"))
    assert report.findings == ()


def test_the_old_key_is_kept_until_every_log_carries_the_new_one(ledger, keys, capsys):
    for name in ("here", "there"):
        write(name)
    seal_logs()
    call_command("audit_rotate_key")
    seal_logs("here")
    assert not checkpoint_publication.finish_rotation()
    with pytest.raises(CommandError, match="still being introduced"):
        call_command("audit_rotate_key")
    seal_logs()
    assert checkpoint_publication.finish_rotation()
    assert not key_files.is_rotating()


def test_public_keys_are_printed_for_readers_of_notes(ledger, keys, capsys):
    write("here")
    seal_logs()
    call_command("audit_keys")
    ((_, raw),) = public("here").items()
    assert capsys.readouterr().out.strip() == checkpoints.verifier_key(
        key_files.log_origin("here"), raw
    )


def test_the_private_key_is_nowhere_but_in_its_file(ledger, keys, settings):
    key_files.next_signers("here", "")
    file = settings.KEYS_DIR / key_files.CURRENT
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("not a key")
    with pytest.raises(key_files.BadKey):
        key_files.next_signers("here", "")


class Place(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.got.append((self.command, self.path, self.headers["Authorization"], body))
        self.send_response(self.server.answers.pop(0) if self.server.answers else 204)
        self.end_headers()

    do_PUT = do_POST  # noqa: N815

    def log_message(self, *args):
        pass


@pytest.fixture
def place(settings):
    settings.AUDIT_ANCHOR_TOKEN = "t"
    with HTTPServer(("127.0.0.1", 0), Place) as server:
        server.got, server.answers = [], []
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


@pytest.fixture
def publishers(settings, place, anchored):
    settings.AUDIT_ANCHOR_URL = f"{place.url}/hook?a=b"
    settings.AUDIT_ANCHOR_PUT_URL = f"{place.url}/bucket"
    made = remote_anchors.configured_publishers()
    yield made
    for publisher in made:
        publisher.stop()


def test_what_was_published_is_left_with_others_also_after_a_restart(ledger, place, publishers):
    write("here")
    seal_logs()
    note = anchors.newest_anchor("here").note
    at = anchors.newest_anchor("here").statement.at
    for publisher in publishers:
        publisher.start()
    until(lambda: len(place.got) == 2)
    assert sorted(place.got) == [
        ("POST", "/hook?a=b", "Bearer t", note),
        ("PUT", f"/bucket/here/000000000001-{at:%Y%m%dT%H%M%S.%fZ}.note", "Bearer t", note),
    ]


@pytest.mark.part("faults")
def test_a_place_that_does_not_take_it_is_asked_again(place, publishers):
    place.answers = [503, 302]
    publishers[0].start()
    publishers[0].enqueue("here", "note")
    until(lambda: len(place.got) == 3)
    assert {body for *_, body in place.got} == {"note"}


@pytest.mark.parametrize(
    "url", ["http://example.org/", "ftp://localhost", "https://", "https://u:p@a/", "https://a:x/"]
)
def test_a_publisher_address_without_encryption_is_refused(url, settings):
    settings.AUDIT_ANCHOR_URL = url
    with pytest.raises(remote_anchors.BadAddress):
        remote_anchors.configured_publishers()


def test_a_line_says_all_that_a_reader_needs(ledger, anchored):
    write("here")
    seal_logs()
    (line,) = next(anchored.rglob("*.jsonl")).read_text().splitlines()
    assert json.loads(line) == {"log": "here", "note": Checkpoint.objects.get().note}
    assert AuditLeaf.objects.count() == 1
