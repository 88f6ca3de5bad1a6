import os
import subprocess
import sys
import time

import pytest

from tests.faults import clocks

TELL = "import time, datetime as d; print(time.time(), d.datetime.now().timestamp())"
SLEEP = "import time; b = time.monotonic(); time.sleep(0.01); print(time.monotonic() - b)"


@pytest.fixture
def clock(tmp_path):
    made = clocks.make_clock(tmp_path)
    if made is None:
        pytest.skip("there is no C compiler")
    return made


def run_with_clock(clock, source):
    environment = os.environ | clock.environment
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    return [float(word) for word in done.stdout.split()]


@pytest.mark.parametrize("seconds", [0, 86_400, -86_400])
def test_a_turned_clock_is_off_by_so_much(clock, seconds):
    clock.set_offset(seconds)
    assert run_with_clock(clock, TELL) == [pytest.approx(time.time() + seconds, abs=30)] * 2


@pytest.mark.parametrize("seconds", [86_400, -86_400])
def test_who_sleeps_wakes_as_always(clock, seconds):
    clock.set_offset(seconds)
    assert 0.01 <= run_with_clock(clock, SLEEP)[0] < 30
