"""What was published and is not in the database any more, and anchors as a backup has them."""

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from audit.log import anchors, checkpoint_publication, log_status
from audit.log.anchors import BadAnchor
from audit.log.sealer import seal_logs
from audit.models import AuditLog, Checkpoint
from audit.verification import verification_report
from tests.audit.log.test_anchors import put_back
from tests.audit.logs import write


def published(*sizes):
    """A checkpoint of the log at each of the sizes."""
    for size in sizes:
        here = AuditLog.objects.filter(name="here")
        write("here", size - (here[0].size if here else 0))
        seal_logs()


def lose_leaves_of(name):
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE audit_auditleaf DISABLE TRIGGER USER")
        cursor.execute("GRANT DELETE ON audit_auditleaf TO CURRENT_USER")
        cursor.execute(
            "DELETE FROM audit_auditleaf USING audit_auditlog l WHERE l.id = log_id AND l.name=%s",
            [name],
        )


def test_nothing_is_missing_of_a_log_that_holds_what_was_published(ledger):
    published(3, 5)
    assert verification_report.find_losses() == []


def test_missing_records_are_reported_by_their_sequence_numbers(ledger):
    published(3, 5, 9)
    times = [one.statement.at for one in anchors.read_anchors("here")]
    put_back(3)
    (loss,) = verification_report.find_losses()
    assert loss == verification_report.RecordLoss("here", 3, 9, 2, *times[1:])
    assert loss.says.startswith(
        "here: 6 of 9 published records are missing (records 3 to 8; 2 checkpoints, "
    )


def test_what_was_accepted_is_missing_no_more(ledger, capsys):
    published(3, 4)
    put_back(3)
    checkpoint_publication.compare_logs()
    call_command("audit_accept", "here", reason="restored")
    assert "1 of 4 published records is missing (record 3; 1 checkpoint" in capsys.readouterr().out
    assert verification_report.find_losses() == []


def test_every_log_that_is_halted_is_accepted_by_one_command(ledger, capsys):
    write("there", 2)
    write("elsewhere", 1)
    published(2, 4)
    put_back(2)
    with_more = anchors.newest_anchor("there").note
    checkpoint_publication.compare_logs()
    AuditLog.objects.filter(name="there").update(halted_at="2026-01-01T00:00Z", halted_reason="so")
    call_command("audit_accept", "--all", reason="restored", by="ada")
    output = capsys.readouterr().out
    assert (
        "log here goes on" in output and "log there goes on" in output and "elsewhere" not in output
    )
    assert (
        anchors.newest_anchor("here").accepted.by
        == anchors.newest_anchor("there").accepted.by
        == "ada"
    )
    assert anchors.newest_anchor("there").note != with_more
    for name in ("here", "there", "elsewhere"):
        log_status.check_halted(name)


def test_one_that_cannot_go_on_keeps_no_other_from_it(ledger, capsys):
    write("there", 2)
    published(2)
    AuditLog.objects.update(halted_at="2026-01-01T00:00Z", halted_reason="so")
    lose_leaves_of("here")
    with pytest.raises(CommandError, match="The log here cannot go on over a hole"):
        call_command("audit_accept", "--all", reason="restored")
    log_status.check_halted("there")


def test_there_may_be_nothing_to_accept(ledger, capsys):
    published(1)
    call_command("audit_accept", "--all", reason="restored")
    assert capsys.readouterr().out == "No log is halted.\n"


@pytest.mark.parametrize("words", [[], ["here", "--all"]])
def test_it_is_one_log_or_all_of_them(words):
    with pytest.raises(CommandError):
        call_command("audit_accept", *words, reason="so")


def copied(into, **until):
    anchors.copy_anchors(into, until)
    return {path.parent.name: path.read_text().count("\n") for path in into.rglob("*.jsonl")}


def test_anchors_newer_than_a_backup_are_not_in_it(ledger, tmp_path):
    published(1, 3, 4)
    notes = [one.note for one in anchors.read_anchors("here")]
    assert copied(tmp_path / "a", here={notes[1]}) == {"here": 2}
    assert copied(tmp_path / "b", here={notes[1], notes[2]}) == {"here": 3}
    assert copied(tmp_path / "c") == {}


def test_anchors_whose_end_is_not_known_are_copied_whole(ledger, tmp_path):
    published(1, 3)
    assert copied(tmp_path / "a", here={"of another file"}) == {"here": 2}
    assert copied(tmp_path / "b", here=set()) == {"here": 2}


def test_anchors_of_several_files_end_in_the_right_one(ledger, anchored, tmp_path, monkeypatch):
    monkeypatch.setattr(anchors, "FULL_BYTES", 1)
    published(1, 3, 4)
    second = [one.note for one in anchors.read_anchors("here")][1]
    anchors.copy_anchors(tmp_path / "a", {"here": {second}})
    assert sorted(path.name for path in (tmp_path / "a" / "here").iterdir()) == [
        "00000001.jsonl",
        "00000002.jsonl",
    ]


def test_anchors_come_back_where_there_are_none_and_newer_ones_stay(ledger, tmp_path, settings):
    published(1, 3)
    anchors.copy_anchors(tmp_path / "backup", {"here": {Checkpoint.objects.latest("id").note}})
    published(4)
    live = settings.ANCHORS_DIR
    settings.ANCHORS_DIR = tmp_path / "empty"
    anchors.restore_anchors(tmp_path / "backup")
    assert anchors.newest_anchor("here").statement.size == 3
    settings.ANCHORS_DIR = live
    anchors.restore_anchors(tmp_path / "backup")
    assert anchors.newest_anchor("here").statement.size > 3


def test_anchors_that_end_before_a_backup_are_not_taken_for_newer(ledger, tmp_path, settings):
    published(1, 3)
    first = next(anchors.read_anchors("here")).note
    anchors.copy_anchors(tmp_path / "older", {"here": {first}})
    live, settings.ANCHORS_DIR = settings.ANCHORS_DIR, tmp_path / "older"
    with pytest.raises(BadAnchor, match="end before those of the backup"):
        anchors.restore_anchors(live)
