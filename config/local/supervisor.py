"""The supervisor: start processes in order, restart those that die, stop all in reverse order.

One thread, no polling in normal operation: signals report the end of a child (SIGCHLD) and a
request to stop (SIGINT, SIGTERM, SIGHUP).
"""

import ctypes
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from config.local import orphans
from config.local.child_processes import Child, LogFile, ProcessSpec, worth_telling

PR_SET_CHILD_SUBREAPER = 36
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
START_TIMEOUT_S = 60.0
GLANCE_S = 0.02  # between two questions whether a starting process is ready
LOG_S = 1.0
STEADY_S = 10.0  # a process that ran this long restarts at once
MOST_DELAY_S = 15.0
QUIET_S = 60.0  # the same warning is shown once in this time


class StartFailed(Exception):
    """A process did not become ready; the message says what it said."""


class StopRequested(Exception):
    """A stop was requested during startup."""


@dataclass
class ManagedProcess:
    """One process over its restarts."""

    child: Child
    started_at: float = 0.0
    deaths: int = 0
    next_start: float | None = None  # None while it lives

    def schedule(self, now: float) -> None:
        self.deaths = 1 if now - self.started_at > STEADY_S else self.deaths + 1
        delay = 0.0 if self.deaths == 1 else min(0.5 * 2 ** (self.deaths - 2), MOST_DELAY_S)
        self.next_start = now + delay


class Supervisor:
    def __init__(self, data: Path, report: Callable[[str], None] = print) -> None:
        self.logs = data / "log"
        self.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.record = data / "processes.json"
        self.noted = True  # whether the record names every child that runs
        self._report = report
        self.lives: dict[str, ManagedProcess] = {}
        self.stopping = False
        self.adopts = False
        self.guests: frozenset[int] = frozenset()  # session leaders that are none of our business
        self.told: dict[str, float] = {}
        self.wakeup, self._alarm = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def __enter__(self) -> Self:
        orphans.sweep(self.record)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        os.close(self.wakeup)
        os.close(self._alarm)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """A context in which signals request a stop, and this process adopts orphans of its
        children."""
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.adopts = True
        before = {number: signal.signal(number, self._ask_to_stop) for number in STOPPING}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        alarm = signal.set_wakeup_fd(self._alarm, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(alarm)
            for number, handler in before.items():
                signal.signal(number, handler)

    def report(self, sentence: str) -> None:
        """Print to the operator; ignore write errors such as a full disk."""
        with suppress(OSError):
            self._report(sentence)

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True

    def start(self, *specs: ProcessSpec) -> None:
        """Returns when all of them are ready; they start side by side."""
        for spec in specs:
            self.start_soon(spec)
        self.wait_until(self.all_ready, by=" or ".join(spec.name for spec in specs))

    def all_ready(self) -> bool:
        return all(life.child.spec.ready() for life in self.lives.values())

    def start_soon(self, spec: ProcessSpec) -> None:
        """Does not wait; who needs it ready asks with `wait_until`."""
        log = LogFile(self.logs / f"{spec.name}.log")
        life = self.lives[spec.name] = ManagedProcess(Child(spec, log))
        self._spawn(life)

    def wait_until(
        self, condition: Callable[[], bool], *, by: str, timeout_s: float = START_TIMEOUT_S
    ) -> None:
        """Raises StartFailed when a process ends meanwhile or the time is over."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self.stopping:
                raise StopRequested
            for name, life in self.lives.items():
                if life.child.ended():
                    raise StartFailed(f"{name} {life.child.cause_of_death()}")
            if time.monotonic() > deadline:
                raise StartFailed(f"{by} was not ready within {timeout_s:.0f} s.")
            self._sleep(GLANCE_S)

    def watch(self) -> None:
        """Returns when a stop is requested."""
        while not self.stopping:
            self.look()
            if self._sleep(self._until_next_start()):
                self._bury_orphans()

    def look(self) -> None:
        """One pass: reap ended processes, start due ones, print log messages."""
        now = time.monotonic()
        for life in self.lives.values():
            if life.next_start is None and life.child.ended():
                self.report(
                    f"{life.child.spec.name} {life.child.cause_of_death()}; starting it again"
                )
                life.schedule(now)
                self._bury_orphans()
        for life in self.lives.values():
            if life.next_start is not None and life.next_start <= now:
                self._start_again(life, now)
        if not self.noted:
            self._note()
        for life in self.lives.values():
            self._tell(life.child, now)

    def stop(self) -> None:
        """The last started stops first; one that does not within its grace period is killed."""
        self.stopping = True
        while self.lives:
            _, life = self.lives.popitem()
            life.child.ask_to_stop()
            deadline = time.monotonic() + life.child.spec.grace_s
            while not life.child.ended():
                if time.monotonic() > deadline:
                    life.child.kill()
                self._sleep(GLANCE_S)
            self._bury_orphans()
        self.record.unlink(missing_ok=True)

    def _spawn(self, life: ManagedProcess) -> None:
        life.next_start = None
        life.started_at = time.monotonic()
        life.child.spawn()
        self._note()

    def _start_again(self, life: ManagedProcess, now: float) -> None:
        """A process that cannot start now (a full disk) is retried later and ends none of the
        others: the disk is full for all of them, and most can wait for it."""
        try:
            self._spawn(life)
        except OSError as error:
            self.report(f"{life.child.spec.name} could not be started: {error.strerror or error}")
            life.schedule(now)

    def _note(self) -> None:
        """For the next supervisor, should this one be killed; later where there is no room."""
        try:
            orphans.remember(self.record, (life.child.pid for life in self.lives.values()))
        except OSError:
            self.noted = False
        else:
            self.noted = True

    def _bury_orphans(self) -> None:
        if self.adopts:
            known = frozenset(life.child.pid for life in self.lives.values())
            orphans.bury_adopted(known | self.guests, self.guests)

    def _tell(self, child: Child, now: float) -> None:
        for line in child.log.new_lines():
            short = worth_telling(line, child.spec.alarming)
            if short and now - self.told.get(short, -QUIET_S) >= QUIET_S:
                self.told[short] = now
                self.report(f"{child.spec.name}: {short}")
        child.log.rotate()

    def _until_next_start(self) -> float:
        due = [life.next_start for life in self.lives.values() if life.next_start is not None]
        return max(0.0, min([LOG_S, *(at - time.monotonic() for at in due)]))

    def _sleep(self, seconds: float) -> bool:
        """True when a signal ended it early."""
        if not select.select([self.wakeup], [], [], seconds)[0]:
            return False
        os.read(self.wakeup, 4096)
        return True
