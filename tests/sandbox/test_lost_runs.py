"""A run whose worker, slot or sandboxd is lost: what ends it, and what can be said of it."""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from sandbox import wire
from sandbox.client import SandboxClient
from sandbox.spec import CodeSource, IsolationLevel, Limits, Mount, Profile, RunOutcome, SandboxSpec
from tests.conditions import LIMIT_S, until
from tests.sandbox.conftest import GROUPS, ROOT, STANDARD
from tests.sandbox.run_observer import (
    ENDLESS_S,
    SPAWN_AND_TELL,
    STUBBORN,
    all_end,
    arrange,
    pidfds_of,
)
from tests.sandbox.test_endings import leaves

FAULTS = pytest.mark.part("sandbox")
OWN = f"{GROUPS}-own"
ONE = "def main(p):\n    return 1"
TELLS_AND_SLEEPS = (
    "import time\ndef main(p):\n    open('/meet/fifo', 'w').write('x')\n    time.sleep(3600)"
)
ENDS_ITSELF = "import os\ndef main(p):\n    os._exit(9)"
WORKER = """
import sys, time
from sandbox.client import SandboxClient
from sandbox.spec import *
profile = Profile(IsolationLevel.STANDARD, (Mount(sys.argv[2], "/meet", True),))
limits = Limits(wall_s=3600)
spec = SandboxSpec("acme", profile, limits, CodeSource(sys.argv[4]), {"marker": sys.argv[3]})
SandboxClient(sys.argv[1]).run(spec, until=lambda: time.monotonic() + 2)
"""


class Begun:
    """A run in a thread of its own that was heard of."""

    def __init__(self, daemon, directory, source=TELLS_AND_SLEEPS, **options):
        self.meeting = arrange(directory)
        options = {"profile": self.meeting.profile, "wall_s": ENDLESS_S, **options}
        self.results = []
        self._thread = threading.Thread(
            target=lambda: self.results.append(daemon.run(source, **options))
        )
        self._thread.start()
        self.meeting.hear()

    @property
    def result(self):
        self._thread.join(LIMIT_S)
        return self.results[0]


def processes(root):
    """Of all runs and ready slots of a sandboxd."""
    return {pid for leaf in leaves(root) for pid in _inside(leaf)}


def _inside(leaf: Path) -> set[int]:
    """Nothing when its run is over: sandboxd removes the leaf after it has answered."""
    try:
        return set(map(int, (leaf / "cgroup.procs").read_text().split()))
    except OSError as gone:
        if gone.errno in (errno.ENOENT, errno.ENODEV):
            return set()
        raise


def pidfds(root) -> list[int]:
    """Of those that were still there when they were asked for."""
    opened = []
    for pid in processes(root):
        with contextlib.suppress(ProcessLookupError):
            opened.append(os.pidfd_open(pid))
    return opened


def signalled(root, number) -> int:
    """How many processes were there to get the signal."""
    reached = 0
    for pid in processes(root):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            reached += 1
    return reached


def started(daemon, tmp_path, source):
    meeting, marker = arrange(tmp_path), uuid.uuid4().hex
    command = [sys.executable, "-c", WORKER, daemon.path, str(tmp_path), marker, source]
    worker = subprocess.Popen(command, cwd=ROOT)
    meeting.hear()
    return worker, pidfds_of(marker, besides=worker.pid)


@pytest.mark.part("sandbox")
def test_a_stopped_workers_run_is_gone_before_the_time_it_named(daemon, tmp_path):
    """It keeps its socket open, and its lease runs out."""
    worker, members = started(daemon, tmp_path, SPAWN_AND_TELL)
    os.kill(worker.pid, signal.SIGSTOP)
    assert len(members) >= 3 and all_end(members)
    worker.kill()
    worker.wait()


@pytest.mark.part("sandbox")
def test_a_run_goes_on_as_long_as_its_worker_names_later_times(daemon):
    """It names one each second."""
    sleeping = CodeSource("import time\ndef main(p):\n    time.sleep(5.5)\n    return 'slept'")
    spec = SandboxSpec("acme", STANDARD, Limits(), sleeping, {})
    result = daemon.client.run(spec, until=lambda: time.monotonic() + 5)
    assert (result.outcome, result.output) == (RunOutcome.SUCCESS, "slept")


def test_a_run_whose_time_is_not_moved_is_ended_then(daemon, tmp_path):
    meeting, limits = arrange(tmp_path), Limits(wall_s=ENDLESS_S)
    spec = SandboxSpec("acme", meeting.profile, limits, CodeSource(TELLS_AND_SLEEPS), {})
    named, results = [time.monotonic() + LIMIT_S], []
    thread = threading.Thread(
        target=lambda: results.append(daemon.client.run(spec, until=lambda: named[0]))
    )
    thread.start()
    meeting.hear()
    named[0] = time.monotonic() + 0.4
    thread.join(LIMIT_S)
    assert time.monotonic() >= named[0]
    assert results[0].outcome == RunOutcome.CANCELLED or results[0].error_code == "LOST"


def test_a_run_that_is_asked_for_too_late_does_not_begin(daemon, tmp_path):
    """As when a sandboxd that was stopped finds the request of a worker that is gone."""
    profile = Profile(IsolationLevel.STANDARD, (Mount(str(tmp_path), "/meet", True),))
    source = CodeSource("def main(p):\n    open('/meet/ran', 'w')")
    spec = SandboxSpec("acme", profile, Limits(), source, {})
    answer = _submit(daemon, spec, time.monotonic() - 1)
    assert (answer["outcome"], answer["error_code"]) == ("CANCELLED", "NOT_BEGUN"), daemon.log[-3:]
    assert not (tmp_path / "ran").exists()


def test_a_run_that_was_given_up_is_not_even_asked_for(tmp_path):
    cancelled = threading.Event()
    cancelled.set()
    spec = SandboxSpec("acme", STANDARD, Limits(), CodeSource(ONE), {})
    result = SandboxClient(str(tmp_path / "none")).run(spec, cancelled=cancelled)
    assert (result.outcome, result.error_code) == (RunOutcome.CANCELLED, "NOT_BEGUN")


def test_waiting_for_a_sandboxd_that_is_away_ends_when_the_run_is_given_up(tmp_path):
    cancelled = threading.Event()
    threading.Timer(0.3, cancelled.set).start()
    spec = SandboxSpec("acme", STANDARD, Limits(), CodeSource(ONE), {})
    client = SandboxClient(str(tmp_path / "none"), reach_s=ENDLESS_S)
    result = client.run(spec, cancelled=cancelled)
    assert (result.outcome, result.error_code) == (RunOutcome.CANCELLED, "NOT_BEGUN")


@pytest.mark.part("sandbox", but_each=4)
@pytest.mark.parametrize(
    "word",
    [
        b'{"type":"ping"}', b"[]", b"not json", b'{"type":"alive","until":NaN}',
        b'{"type":"alive","until":1e999}', b'{"type":"alive","until":"x"}',
        b'{"type":"alive","until":1,"more":1}', b'{"type":"alive"}' + b" " * 300,
    ],
)  # fmt: skip
def test_a_worker_that_says_anything_else_during_a_run_loses_it(daemon, tmp_path, word):
    meeting = arrange(tmp_path)
    spec = SandboxSpec("acme", meeting.profile, Limits(), CodeSource(TELLS_AND_SLEEPS), {})
    with socket.socket(socket.AF_UNIX) as worker:
        worker.connect(daemon.path)
        wire.send(worker, wire.profile_frame(spec), *wire.run_frames(spec, None))
        meeting.hear()
        wire.send(worker, word)
        worker.settimeout(LIMIT_S)
        assert worker.recv(1) == b""
    assert daemon.run(ONE).output == 1


def test_a_message_after_the_end_of_a_run_is_ignored(daemon):
    spec = SandboxSpec("acme", STANDARD, Limits(), CodeSource(ONE), {})
    with socket.socket(socket.AF_UNIX) as worker:
        worker.connect(daemon.path)
        reader = wire.FrameReader(worker, wire.FRAME_CAP)
        for _ in range(2):
            wire.send(worker, wire.profile_frame(spec), *wire.run_frames(spec, None))
            assert wire.decode(reader.read()).text("outcome") == "SUCCESS"
            assert reader.read() == b"1"
            wire.send(worker, wire.alive_frame(time.monotonic() + 9))


@FAULTS
def test_a_sandboxd_that_is_away_for_a_moment_is_waited_for(own_daemon):
    daemon = own_daemon()
    client = SandboxClient(daemon.path, reach_s=LIMIT_S)
    daemon.process.kill()
    daemon.process.wait()
    spec, results = SandboxSpec("acme", STANDARD, Limits(), CodeSource(ONE), {}), []
    thread = threading.Thread(target=lambda: results.append(client.run(spec)))
    thread.start()
    own_daemon()
    thread.join(LIMIT_S)
    assert results[0].output == 1


@pytest.mark.part("sandbox")
def test_eight_runs_under_a_killed_sandboxd_are_lost_and_gone(own_daemon, tmp_path):
    daemon, runs = own_daemon(), []
    for number in range(8):
        (tmp_path / str(number)).mkdir()
        runs.append(Begun(daemon, tmp_path / str(number)))
    inside = pidfds(OWN)
    os.kill(daemon.process.pid, signal.SIGKILL)
    assert len(inside) >= 8 and all_end(inside)
    ends = {(run.result.outcome, run.result.error_code) for run in runs}
    assert ends == {(RunOutcome.SANDBOX_ERROR, "LOST")}
    assert own_daemon().run(ONE).output == 1


@FAULTS
def test_a_sandboxd_that_hangs_under_a_run_loses_it(own_daemon):
    daemon = own_daemon()
    client = SandboxClient(daemon.path, reach_s=0.5, spare_s=0.5)
    patient, spec = (
        SandboxSpec("acme", STANDARD, Limits(wall_s=wall_s), CodeSource(ONE), {})
        for wall_s in (LIMIT_S, 0.5)
    )
    assert client.run(patient).output == 1
    os.kill(daemon.process.pid, signal.SIGSTOP)
    assert client.run(spec).error_code == "LOST"
    assert client.run(spec).error_code == "SANDBOX_UNREACHABLE"  # a new one got no answer
    os.kill(daemon.process.pid, signal.SIGCONT)
    assert client.run(patient).output == 1


@pytest.mark.part("sandbox")
def test_a_killed_slot_is_lost_and_one_that_ends_itself_is_not(own_daemon, tmp_path):
    daemon = own_daemon()
    assert daemon.run(ENDS_ITSELF).error_code == "EXITED"
    lost = Begun(daemon, tmp_path)
    assert signalled(OWN, signal.SIGKILL)
    assert (lost.result.outcome, lost.result.error_code) == (RunOutcome.SANDBOX_ERROR, "LOST")
    assert daemon.run(ONE).output == 1


@FAULTS
def test_a_slot_that_died_before_its_job_is_replaced(own_daemon):
    daemon = own_daemon()
    for _ in range(3):
        daemon.run(ONE)
        until(lambda: daemon.client.ping()["slots"] >= 4)
        assert signalled(OWN, signal.SIGKILL)
    result = daemon.run(ONE)
    assert (result.error_code, result.output) == (None, 1)


@pytest.mark.part("sandbox")
def test_cancelling_leaves_nothing_of_grandchildren_that_refuse_to_end(own_daemon, tmp_path):
    daemon, cancelled, marker = own_daemon(), threading.Event(), uuid.uuid4().hex
    run = Begun(daemon, tmp_path, STUBBORN, parameters={"marker": marker}, cancelled=cancelled)
    members = pidfds_of(marker)
    mine = [leaf for leaf in leaves(OWN) if any(marker in _words(pid) for pid in _inside(leaf))]
    cancelled.set()
    assert len(members) >= 4 and mine and all_end(members)
    assert run.result.outcome == RunOutcome.CANCELLED
    until(lambda: not any(leaf.exists() for leaf in mine))


def _words(pid: int) -> str:
    """What a process was started with; nothing when it has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _submit(daemon, spec: SandboxSpec, until: float) -> dict[str, object]:
    with socket.socket(socket.AF_UNIX) as worker:
        worker.connect(daemon.path)
        wire.send(worker, wire.profile_frame(spec), *wire.run_frames(spec, None, until))
        answer = wire.decode(wire.FrameReader(worker, wire.FRAME_CAP).read())
    return {key: answer.value(key) for key in ("outcome", "error_code")}


@FAULTS
def test_a_slot_that_does_not_take_its_job_is_ended_and_the_next_one_gets_it(own_daemon):
    daemon, text = own_daemon(), "x" * 1_000_000
    assert daemon.run(ONE).output == 1
    assert signalled(OWN, signal.SIGSTOP)
    result = daemon.run("def main(p):\n    return len(p['text'])", {"text": text})
    assert (result.outcome, result.output) == (RunOutcome.SUCCESS, len(text))
