import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from config.local import orphans
from config.local.child_processes import ProcessSpec
from config.local.supervisor import StartFailed, Supervisor
from tests.conditions import until
from tests.config.local.processes import alive

CHECKOUT = Path(__file__).resolve().parents[3]
FAULTS = pytest.mark.part("faults")


@contextmanager
def crib(data: Path) -> Iterator[subprocess.Popen[str]]:
    """The supervisor of crib.py, ready; killed at the end when the test has not ended it."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("crib.py")), str(data)],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert read_line(process) == "ready"
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
        for pid in pids(data, "first") + pids(data, "second"):
            orphans.kill(pid)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def pids(data: Path, name: str) -> list[int]:
    file = data / f"{name}.pids"
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


def none_alive(of: list[int]) -> bool:
    return not any(alive(pid) for pid in of)


@pytest.mark.parametrize("name", ["first", pytest.param("second", marks=FAULTS)])
def test_a_killed_process_is_back_and_what_it_left_is_gone(tmp_path: Path, name: str) -> None:
    with crib(tmp_path) as supervisor:
        before = pids(tmp_path, name)
        os.kill(before[0], signal.SIGKILL)
        assert read_line(supervisor) == f"{name} was killed by SIGKILL; starting it again"
        after = until(lambda: {*pids(tmp_path, name)} - {*before})
        assert all(alive(pid) for pid in after)
        until(lambda: none_alive(before))


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(one, marks=FAULTS) for one in (signal.SIGINT, signal.SIGHUP))],
)
def test_a_signal_stops_everything_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    with crib(tmp_path) as supervisor:
        running = pids(tmp_path, "first") + pids(tmp_path, "second")
        supervisor.send_signal(number)
        assert supervisor.wait(timeout=20) == 0
        assert none_alive(running)
        assert not (tmp_path / "processes.json").exists()


@pytest.mark.part("faults")
def test_children_die_with_a_killed_supervisor_and_the_next_one_ends_the_rest(
    tmp_path: Path,
) -> None:
    with crib(tmp_path) as supervisor:
        first, second = pids(tmp_path, "first"), pids(tmp_path, "second")
        supervisor.kill()
        until(lambda: none_alive([first[0], second[0]]))
    with crib(tmp_path):
        assert none_alive([first[1], second[1]])


def test_a_process_that_does_not_start_says_why(tmp_path: Path) -> None:
    spec = ProcessSpec(
        name="broken",
        command=(sys.executable, "-c", "import sys; sys.exit('no such thing as a free lunch')"),
        directory=tmp_path,
        ready=lambda: False,
    )
    with (
        pytest.raises(StartFailed, match=r"^broken ended with status 1: no such thing"),
        Supervisor(tmp_path) as supervisor,
    ):
        supervisor.start(spec)
