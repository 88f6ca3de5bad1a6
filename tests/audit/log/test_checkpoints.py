"""A signed note says one thing, in one way, by whom it says."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audit.log import checkpoints
from audit.log.checkpoints import Acceptance, BadNote, CheckpointStatement, Signer

SIGNER = Signer("toolcrib/acme", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
STATED = CheckpointStatement("toolcrib/acme", 12, bytes(32), datetime(2026, 5, 4, 3, 2, 1, 5, UTC))
NOTE = checkpoints.sign_statement(STATED, SIGNER)
KEYS = {SIGNER.key_id: SIGNER.public}


def test_a_note_is_read_as_it_was_stated():
    assert checkpoints.read_note(NOTE) == STATED
    assert checkpoints.signed_by(NOTE, KEYS) == [SIGNER.key_id]


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        ("\n12\n", "\n012\n"),
        ("\n12\n", "\n\u0661\u0662\n"),
        ("\n12\n", "\n" + "9" * 5000 + "\n"),
        ("\n12\n", "\n-12\n"),
        ("AAAA=\n", "AAAB=\n"),
        ("AAAA=\n", "AAAA\n"),
        (".000005Z", ".5Z"),
        ("2026-05-04", "2026-5-4"),
        ("time ", "time  "),
        ("\n\n", "\nmore\n\n"),
        ("\n\n", '\naccepted {"by": "a"}\n\n'),
        ("\n\n", "\naccepted " + "[" * 100_000 + "\n\n"),
        ("\n\n", "\n"),
    ],
)
def test_a_second_spelling_of_a_note_is_refused(part, instead):
    assert part in NOTE
    with pytest.raises(BadNote):
        checkpoints.read_note(NOTE.replace(part, instead, 1))


def test_that_a_break_was_accepted_is_in_what_is_signed():
    accepted = Acceptance("ada", 'a "backup"\n\nof Sunday', "rolled back")
    statement = replace(STATED, accepted=accepted)
    note = checkpoints.sign_statement(statement, SIGNER)
    assert checkpoints.read_note(note) == statement
    with pytest.raises(BadNote):
        checkpoints.signed_by(note.replace("ada", "eve"), KEYS)


def test_a_signature_under_another_name_is_not_counted():
    assert checkpoints.signed_by(NOTE.replace(" toolcrib/acme ", " eve "), KEYS) == []


def test_a_signature_below_another_text_is_refused():
    with pytest.raises(BadNote, match="not good"):
        checkpoints.signed_by(NOTE.replace("\n12\n", "\n13\n"), KEYS)


def test_a_signature_of_an_unknown_key_is_skipped():
    assert checkpoints.signed_by(NOTE, {}) == []
