"""The supervisor starts processes in order, restarts those that die, and stops all in reverse.

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
from config.local.child_processes import ChildProcess, LogFile, ProcessSpec, alarming_text

PR_SET_CHILD_SUBREAPER = 36
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
START_TIMEOUT_S = 60.0
READINESS_POLL_S = 0.02  # between two checks whether a starting process is ready
LOG_S = 1.0
STABLE_S = 10.0  # a process that ran this long restarts at once
MOST_DELAY_S = 15.0
REPEAT_REPORT_S = 60.0  # the same warning is shown once in this time


class StartFailed(Exception):
    """A process did not become ready; the message says what it said."""


class StopRequested(Exception):
    """A stop was requested during startup."""


@dataclass
class ManagedProcess:
    """One process over its restarts."""

    child: ChildProcess
    started_at: float = 0.0
    deaths: int = 0
    next_start: float | None = None  # None while it lives

    def schedule(self, now: float) -> None:
        self.deaths = 1 if now - self.started_at > STABLE_S else self.deaths + 1
        delay = 0.0 if self.deaths == 1 else min(0.5 * 2 ** (self.deaths - 2), MOST_DELAY_S)
        self.next_start = now + delay


class Supervisor:
    def __init__(self, data: Path, report: Callable[[str], None] = print) -> None:
        self.logs = data / "log"
        self.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.record = data / "processes.json"
        self.is_recorded = True  # whether the record names every child that runs
        self._report = report
        self.managed: dict[str, ManagedProcess] = {}
        self.stopping = False
        self.adopts = False
        self.foreign_sessions: frozenset[int] = frozenset()  # leaders that are not supervised
        self.reported_at: dict[str, float] = {}
        self.wakeup, self._alarm = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def __enter__(self) -> Self:
        orphans.end_survivors(self.record)
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
        before = {number: signal.signal(number, self._request_stop) for number in STOPPING}
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

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True

    def start(self, *specs: ProcessSpec) -> None:
        """Returns when all of them are ready; they start side by side."""
        for spec in specs:
            self.start_soon(spec)
        self.wait_until(self.all_ready, by=" or ".join(spec.name for spec in specs))

    def all_ready(self) -> bool:
        return all(managed.child.spec.ready() for managed in self.managed.values())

    def start_soon(self, spec: ProcessSpec) -> None:
        """Start it and return at once; `wait_until` waits until it is ready."""
        log = LogFile(self.logs / f"{spec.name}.log")
        managed = self.managed[spec.name] = ManagedProcess(ChildProcess(spec, log))
        self._spawn(managed)

    def wait_until(
        self, condition: Callable[[], bool], *, by: str, timeout_s: float = START_TIMEOUT_S
    ) -> None:
        """Raises StartFailed when a process ends meanwhile or the time is over."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self.stopping:
                raise StopRequested
            for name, managed in self.managed.items():
                if managed.child.has_ended():
                    raise StartFailed(f"{name} {managed.child.describe_end()}")
            if time.monotonic() > deadline:
                raise StartFailed(f"{by} was not ready within {timeout_s:.0f} s.")
            self._sleep(READINESS_POLL_S)

    def watch(self) -> None:
        """Returns when a stop is requested."""
        while not self.stopping:
            self.run_pass()
            if self._sleep(self._until_next_start()):
                self._reap_orphans()

    def run_pass(self) -> None:
        """One pass: reap ended processes, start due ones, print log messages."""
        now = time.monotonic()
        for managed in self.managed.values():
            if managed.next_start is None and managed.child.has_ended():
                self.report(
                    f"{managed.child.spec.name} {managed.child.describe_end()}; starting it again"
                )
                managed.schedule(now)
                self._reap_orphans()
        for managed in self.managed.values():
            if managed.next_start is not None and managed.next_start <= now:
                self._restart(managed, now)
        if not self.is_recorded:
            self._record_processes()
        for managed in self.managed.values():
            self._report_log(managed.child, now)

    def stop(self) -> None:
        """The last started stops first; one that does not within its grace period is killed."""
        self.stopping = True
        while self.managed:
            _, managed = self.managed.popitem()
            managed.child.request_stop()
            deadline = time.monotonic() + managed.child.spec.grace_s
            while not managed.child.has_ended():
                if time.monotonic() > deadline:
                    managed.child.kill()
                self._sleep(READINESS_POLL_S)
            self._reap_orphans()
        self.record.unlink(missing_ok=True)

    def _spawn(self, managed: ManagedProcess) -> None:
        managed.next_start = None
        managed.started_at = time.monotonic()
        managed.child.spawn()
        self._record_processes()

    def _restart(self, managed: ManagedProcess, now: float) -> None:
        """A process that cannot start now (a full disk) is retried later and ends none of the
        others: the disk is full for all of them, and most can wait for it."""
        try:
            self._spawn(managed)
        except OSError as error:
            self.report(
                f"{managed.child.spec.name} could not be started: {error.strerror or error}"
            )
            managed.schedule(now)

    def _record_processes(self) -> None:
        """For the next supervisor, if this one is killed; retried later when the disk is full."""
        try:
            orphans.record_leaders(
                self.record, (managed.child.pid for managed in self.managed.values())
            )
        except OSError:
            self.is_recorded = False
        else:
            self.is_recorded = True

    def _reap_orphans(self) -> None:
        if self.adopts:
            known = frozenset(managed.child.pid for managed in self.managed.values())
            orphans.reap_adopted(known | self.foreign_sessions, self.foreign_sessions)

    def _report_log(self, child: ChildProcess, now: float) -> None:
        for line in child.log.new_lines():
            text = alarming_text(line, child.spec.alarming)
            if text and now - self.reported_at.get(text, -REPEAT_REPORT_S) >= REPEAT_REPORT_S:
                self.reported_at[text] = now
                self.report(f"{child.spec.name}: {text}")
        child.log.rotate()

    def _until_next_start(self) -> float:
        due = [
            managed.next_start
            for managed in self.managed.values()
            if managed.next_start is not None
        ]
        return max(0.0, min([LOG_S, *(at - time.monotonic() for at in due)]))

    def _sleep(self, seconds: float) -> bool:
        """True when a signal ended it early."""
        if not select.select([self.wakeup], [], [], seconds)[0]:
            return False
        os.read(self.wakeup, 4096)
        return True
