"""However a run is ended from outside, nothing of it lives on; it does what it can to stay."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sandbox import wire
from sandbox.spec import CodeSource, IsolationLevel, RunOutcome, SandboxResult, SandboxSpec
from tests.attacks.attack import NONE, USUAL, limited
from tests.attacks.kit import Parameters, brand, forever, in_child, report_ready, succeeds
from tests.attacks.siege import Siege
from tests.attacks.sources import source_of
from tests.conditions import LIMIT_S
from tests.sandbox.conftest import Daemon
from tests.sandbox.run_observer import ENDLESS_S, wait_readable

type Needs = Callable[[IsolationLevel], None]

every_level = pytest.mark.parametrize("level", list(IsolationLevel))


def stays(p: Parameters) -> object:
    """By each way that is open: a child, a daemon, one deaf to signals, one always on the move."""
    brand(p)

    def daemon() -> None:
        os.setsid()
        in_child(forever)

    def deaf() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        forever()

    def comet() -> None:
        until = time.monotonic() + p["flees_s"]
        while time.monotonic() < until:
            if os.fork():
                os._exit(0)

    for way in (forever, daemon, deaf, comet):
        succeeds(lambda one=way: in_child(one))
    report_ready(p)
    forever()


class Guest:
    """A run that does not want to end, and the connection it was asked for on."""

    def __init__(self, siege: Siege, daemon: Daemon, level: IsolationLevel) -> None:
        self._scene = siege.scene
        limits = limited({"wall_s": ENDLESS_S})
        parameters = siege.scene.parameters(limits, sandboxed=level != NONE)
        self.marker = parameters["marker"]
        program = CodeSource(source_of(stays))
        self.spec = SandboxSpec("acme", siege.profile(level), limits, program, parameters)
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.connect(daemon.path)

    def begin(self) -> None:
        """Returns when it is there, with company."""
        with self._scene.meeting() as (ready, _):
            frames = wire.run_frames(self.spec, *_ticket())
            wire.send(self.connection, wire.profile_frame(self.spec), *frames)
            assert wait_readable(ready), "the run never began"
        assert self._scene.survivors(self.marker, patience_s=0.01) > 0

    def is_gone(self) -> bool:
        return self._scene.survivors(self.marker) == 0


def _ticket() -> tuple[None, ...]:
    """Nothing that leads to a broker."""
    return (None,) * (wire.run_frames.__code__.co_argcount - 1)


@every_level
def test_nothing_lives_on_when_its_caller_hangs_up(
    siege: Siege, needs: Needs, level: IsolationLevel
) -> None:
    needs(level)
    guest = Guest(siege, siege.daemon, level)
    guest.begin()
    guest.connection.close()
    assert guest.is_gone()


@every_level
def test_nothing_lives_on_when_its_caller_ends_the_run(
    siege: Siege, needs: Needs, level: IsolationLevel
) -> None:
    needs(level)
    guest = Guest(siege, siege.daemon, level)
    guest.begin()
    guest.connection.shutdown(socket.SHUT_WR)
    header = wire.FrameReader(guest.connection, wire.FRAME_CAP).read()
    guest.connection.close()
    assert b"CANCELLED" in header
    assert guest.is_gone()


@pytest.mark.part("sandbox")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "asked"])
def test_nothing_lives_on_when_sandboxd_ends(
    siege: Siege, make_daemon: Callable[[], Daemon], number: signal.Signals
) -> None:
    daemon = make_daemon()
    with guests(siege, daemon) as all_levels:
        daemon.stop(number)
        assert stayed(all_levels) == []


@pytest.mark.part("sandbox")
@every_level
def test_nothing_lives_on_when_its_first_process_is_killed(
    siege: Siege, needs: Needs, level: IsolationLevel
) -> None:
    """By the kernel for want of memory, say. The others still hold all its descriptors."""
    needs(level)
    guest = Guest(siege, siege.daemon, level)
    guest.begin()
    os.kill(siege.scene.oldest(guest.marker), signal.SIGKILL)
    gone = guest.is_gone()
    guest.connection.close()
    assert gone


@pytest.mark.part("sandbox")
def test_nothing_lives_on_when_what_it_was_forked_from_is_killed(
    siege: Siege, make_daemon: Callable[[], Daemon]
) -> None:
    daemon = make_daemon()
    with guests(siege, daemon) as all_levels:
        for child in templates_of(daemon.process.pid):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        assert stayed(all_levels) == []
    assert daemon.run("def main(p):\n    return 1").output == 1


@pytest.mark.part("sandbox")
def test_nothing_lives_on_when_what_gives_accounts_is_killed(
    siege: Siege, make_daemon: Callable[[], Daemon]
) -> None:
    """Sandboxd ends with it, and its supervisor starts it again."""
    daemon = make_daemon()
    helpers = helpers_of(daemon.process.pid)
    if not helpers:
        pytest.skip("sandboxd was not started by root: templates have no accounts of their own")
    with guests(siege, daemon) as all_levels:
        for helper in helpers:
            os.kill(helper, signal.SIGKILL)
        daemon.process.wait(LIMIT_S)
        assert stayed(all_levels) == []


@contextmanager
def guests(siege: Siege, daemon: Daemon) -> Iterator[list[Guest]]:
    """One of each level."""
    there = [Guest(siege, daemon, level) for level in IsolationLevel if level in siege.served]
    try:
        for guest in there:
            guest.begin()
        yield there
    finally:
        for guest in there:
            guest.connection.close()


def stayed(there: list[Guest]) -> list[IsolationLevel]:
    return [guest.spec.profile.level for guest in there if not guest.is_gone()]


@pytest.mark.part("sandbox")
def test_runs_that_are_cancelled_at_any_point_leave_nothing(siege: Siege) -> None:
    level = IsolationLevel.STANDARD
    results: list[SandboxResult] = []
    for _ in range(20):
        cancelled = threading.Event()
        caller = threading.Thread(target=_run_and_keep, args=(siege, level, cancelled, results))
        caller.start()
        cancelled.set()
        caller.join(LIMIT_S)
    assert {one.outcome for one in results} <= {RunOutcome.CANCELLED, RunOutcome.SUCCESS}
    assert siege.leaves_settle() and siege.descriptors_settle()


def _run_and_keep(
    siege: Siege, level: IsolationLevel, cancelled: threading.Event, results: list[SandboxResult]
) -> None:
    program = CodeSource("def main(p):\n    while True: pass")
    spec = SandboxSpec("acme", siege.profile(level), USUAL, program, {})
    results.append(siege.daemon.client.run(spec, cancelled=cancelled))


def helpers_of(sandboxd: int) -> list[int]:
    """The process that gives accounts: a fork of sandboxd that executes nothing else."""
    command = _command_of(sandboxd)
    return [child for child in children_of(sandboxd) if _command_of(child) == command]


def templates_of(sandboxd: int) -> list[int]:
    helpers = helpers_of(sandboxd)
    of_sandboxd = [child for child in children_of(sandboxd) if child not in helpers]
    return of_sandboxd + [child for helper in helpers for child in children_of(helper)]


def _command_of(pid: int) -> bytes:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def children_of(pid: int) -> list[int]:
    """Direct ones, of all threads."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for one in lists for child in one.read_text().split()]
