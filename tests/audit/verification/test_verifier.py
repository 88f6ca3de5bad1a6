"""The one file that needs nothing of ours, run where nothing of ours is installed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from audit.log import checkpoint_publication
from audit.log.proofs import growth_proof, inclusion_proof, record_line
from audit.log.sealer import seal_logs
from audit.models import AuditRecord, Checkpoint
from audit.verifier import toolcrib_verify as verifier
from tests.audit.logs import write


@pytest.fixture
def standalone_verifier(tmp_path):
    """Runs the file from an empty directory, by an interpreter that sees no packages."""
    shutil.copy(verifier.__file__, tmp_path / "v.py")
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"

    def run(*words):
        done = subprocess.run(
            [python, "-I", "v.py", *words], cwd=tmp_path, capture_output=True, text=True,
            check=False, env={},
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    run.write_file = lambda name, text: (tmp_path / name).write_text(text, "utf-8")
    return run


@pytest.fixture
def handed(ledger, standalone_verifier):
    """Proof, line, an old checkpoint and growth since, of a log with eleven records; its key."""
    write("here", 3)
    seal_logs()
    ids = write("here", 8)
    seal_logs()
    standalone_verifier.write_file("x.tlog-proof", inclusion_proof(ids[4]))
    standalone_verifier.write_file("x.line", record_line(ids[4]) + "\n")
    standalone_verifier.write_file("old.note", Checkpoint.objects.get(size=3).note)
    standalone_verifier.write_file("x.growth", growth_proof("here", 3))
    return checkpoint_publication.public_keys()[0]


def test_it_needs_less_than_150_lines():
    assert len(Path(verifier.__file__).read_text().splitlines()) < 150


def test_a_record_is_proved(standalone_verifier, handed):
    code, output = standalone_verifier("record", "x.tlog-proof", "x.line", handed)
    assert (code, output.strip()) == (
        0,
        "The record stands in the log at 7, in a tree of 11 records.",
    )


def test_growth_is_proved(standalone_verifier, handed):
    code, output = standalone_verifier("growth", "old.note", "x.growth", handed)
    assert code == 0
    assert "grew from 3 to 11 records" in output


@pytest.mark.part("matrices")
def test_every_record_is_proved_in_trees_of_many_sizes(ledger):
    key = None
    for _ in range(9):
        write("here")
        seal_logs()
        key = key or checkpoint_publication.public_keys()[0]
        for made in AuditRecord.objects.values_list("pk", flat=True):
            assert verifier.check_record(inclusion_proof(made), record_line(made).encode(), key)
    for note in Checkpoint.objects.exclude(size=0).values_list("note", flat=True):
        since = int(note.split("\n")[1])
        assert verifier.check_growth(note, growth_proof("here", since).encode(), key)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("x.line", "LOGIN", "LOGON"),
        ("x.tlog-proof", "index 7", "index 6"),
        ("x.tlog-proof", "\n11\n", "\n12\n"),
        ("x.tlog-proof", "time 2", "time 3"),
    ],
)
def test_what_was_changed_is_not_proved(standalone_verifier, handed, tmp_path, name, old, new):
    text = (tmp_path / name).read_text("utf-8")
    assert old in text
    standalone_verifier.write_file(name, text.replace(old, new, 1))
    code, output = standalone_verifier("record", "x.tlog-proof", "x.line", handed)
    assert code == 1
    assert output.startswith("NOT PROVED: ")


def test_another_key_proves_nothing(standalone_verifier, handed):
    name = handed.split("+")[0]
    public = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    other = checkpoint_publication.checkpoints.verifier_key(name, public)
    code, output = standalone_verifier("record", "x.tlog-proof", "x.line", other)
    assert (code, "no good signature" in output) == (1, True)


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    "words",
    [
        [],
        ["record", "none", "x.line", "a+b+c"],
        ["record", "x.line", "x.line", "a+b+c"],
        ["other", "x.line", "x.line", "a"],
        ["record", "x.tlog-proof", "x.line", "a+b+c"],
    ],
)
def test_what_cannot_be_read_is_said(standalone_verifier, handed, words):
    code, output = standalone_verifier(*words)
    assert code == 2
    assert "Traceback" not in output


@pytest.mark.part("matrices")
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=64), st.integers(0, 511))
def test_its_signatures_are_those_of_everybody_else(seed, text, bit):
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public, signature = key.public_key().public_bytes_raw(), key.sign(text)
    assert verifier.signed(public, signature, text)
    changed = int.from_bytes(signature) ^ (1 << bit)
    try:
        assert not verifier.signed(public, changed.to_bytes(64), text)
    except verifier.Untrue:
        pass
