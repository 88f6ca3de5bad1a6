"""The product under faults, once, from a seed: `make soak` is the long run of the same."""

import subprocess
import sys

import pytest

from tests.crib import CHECKOUT

SEED = 7
FAULTS = 40
CALLS = 300
LEAST = 15  # of both, on the slowest machine
MOST_STORM_S = 180  # from the start
FINISHED_WITHIN_S = 60  # a slow machine has its own idea of 30
MOST_S = 360
TO_CLEAR_UP_S = 60


@pytest.mark.timeout(MOST_S + 30)
def test_nothing_is_lost_doubled_or_unproved_while_things_die():
    words = ["--seed", SEED, "--faults", FAULTS, "--calls", CALLS, "--seconds", MOST_STORM_S]
    words += ["--least", LEAST, "--within", FINISHED_WITHIN_S]
    status, said = _ended(*map(str, words))
    print(said)
    assert status == 0, said


def _ended(*words: str) -> tuple[int, str]:
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
            said, _ = process.communicate(timeout=MOST_S - TO_CLEAR_UP_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            said = _last_words(process)
    return process.returncode, said


def _last_words(process: subprocess.Popen[str]) -> str:
    try:
        said, _ = process.communicate(timeout=TO_CLEAR_UP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
    return said
