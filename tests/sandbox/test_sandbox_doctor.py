"""`manage.py sandbox_doctor` as the operator sees it."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from sandbox.daemon.trials.capability import AttackResult, Capability, LevelCapability
from sandbox.management.commands.sandbox_doctor import lines, refuses_something
from sandbox.spec import Backend, IsolationLevel
from tests.sandbox.conftest import ROOT

FULL = Capability(
    IsolationLevel.RESTRICTED,
    "hybrid",
    levels={level: LevelCapability(True, network=True) for level in IsolationLevel},
)
HOLE = AttackResult(
    "make a process", IsolationLevel.RESTRICTED, Backend.PROCESS, False, "a process"
)


def doctor(*options: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "manage.py", "sandbox_doctor", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False)


@pytest.mark.part("sandbox")
def test_it_attacks_and_prints_a_document():
    ended = doctor("--json")
    found = Capability.from_wire(json.loads(ended.stdout))
    assert len(found.attacks) > 48 and found.checked_ms > 0
    assert ended.returncode == int(refuses_something(found)) and ended.stderr == b""


@pytest.mark.part("sandbox")
def test_wrong_arguments_have_an_exit_code_of_their_own():
    ended = doctor("--nonsense")
    assert ended.returncode == 2 and b"--nonsense" in ended.stderr and ended.stdout == b""


def test_a_level_that_is_refused_is_a_failure():
    levels = {
        **FULL.levels,
        IsolationLevel.STRICT: LevelCapability(False, ("its wall does not hold",)),
    }
    assert refuses_something(replace(FULL, levels=levels))
    assert not refuses_something(FULL)


def test_people_read_the_levels_and_what_got_through():
    levels = {**FULL.levels, IsolationLevel.RESTRICTED: LevelCapability(False, ("it leaks",))}
    hurt = replace(FULL, levels=levels, attacks=(HOLE,), reasons=["Why."], fix=["Do this."])
    text = "\n".join(lines(hurt))
    assert "Restricted  refused: it leaks" in text and "cgroups     hybrid" in text
    assert "Restricted: make a process (a process)" in text
    assert "Why." in text and "Do this." in text
