"""The product under faults, from a seed: each process killed once in `make test`, every kind of
fault in `make test-all PART=faults`. `make soak` is the long run of the same."""

import subprocess
import sys

import pytest

from tests.crib import CHECKOUT

EACH_PROCESS = [
    "kill web", "kill worker", "kill beat", "kill sealer", "kill sandboxd", "kill egress",
    "kill run", "kill service", "redis killed", "postgres killed",
]  # fmt: skip
SEED = 7
FAULTS = 40
CALLS = 300
LEAST = 15  # of both, on the slowest machine
MOST_STORM_S = 180  # from the start
FINISHED_WITHIN_S = 60  # a slow machine has its own idea of 30
MOST_S = 360
TO_CLEAR_UP_S = 60


@pytest.mark.timeout(MOST_S + 30)
def test_nothing_is_lost_doubled_or_unproved_when_each_process_is_killed_once():
    often = len(EACH_PROCESS)
    words = ["--seed", SEED, "--faults", often, "--calls", 100, "--seconds", MOST_STORM_S]
    words += ["--pause", 1, "--least", often, "--within", FINISHED_WITHIN_S]
    status, output = _run_soak(*map(str, words), "--migrated", "--kinds", *EACH_PROCESS)
    assert status == 0, output


@pytest.mark.part("faults")
@pytest.mark.timeout(MOST_S + 30)
def test_nothing_is_lost_doubled_or_unproved_while_things_die():
    words = ["--seed", SEED, "--faults", FAULTS, "--calls", CALLS, "--seconds", MOST_STORM_S]
    words += ["--least", LEAST, "--within", FINISHED_WITHIN_S]
    status, output = _run_soak(*map(str, words))
    assert status == 0, output


def _run_soak(*words: str) -> tuple[int, str]:
    """Status and output. A run that takes too long is asked to clear up behind it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.soak", *words],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            output, _ = process.communicate(timeout=MOST_S - TO_CLEAR_UP_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            output = _last_words(process)
    return process.returncode, output


def _last_words(process: subprocess.Popen[str]) -> str:
    try:
        said, _ = process.communicate(timeout=TO_CLEAR_UP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
    return said
