"""The worker's client of sandboxd. A run has either a result or a SANDBOX_ERROR; nothing is raised
for it.

The code shows whether anything of the tool ran: with one of `errors.NEVER_RAN` nothing did, and
with LOST it is unknown.
"""

import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, repeat
from typing import Any

from sandbox import wire
from sandbox.egress.rules.egress_policy import EgressPolicy, EgressSummary
from sandbox.egress.ticket_client import EgressClient
from sandbox.errors import ErrorCode, SpecInvalid
from sandbox.inside import sandbox_http
from sandbox.inside.toolcrib import ToolError
from sandbox.spec import Mount, Network, RunOutcome, SandboxResult, SandboxSpec

_CONNECT_TIMEOUT_S = 5.0
_REACH_S = 10.0  # a sandboxd that was killed is back in one or two; in several on a busy machine
_PAUSES_S = (0.05, 0.1, 0.2, 0.4)
_SPARE_TIME_S = 30.0  # beyond the run's wall limit: waiting for a slot, a loaded machine
_LOOK_AT_EVENT_S = 0.05
_SPEAK_S = 1.0
_CANCEL_TIMEOUT_S = 1.0

Until = Callable[[], float]  # a time of the monotonic clock; later each time a lease is renewed


class SandboxClient:
    """Thread-safe; keeps connections for further runs and none across a fork.

    `reach_s` is how long a sandboxd that is away is waited for, and `spare_s` how long it may take
    for a run beyond the run's own time.
    """

    def __init__(
        self,
        socket_path: str,
        egress_path: str = "",
        *,
        reach_s: float = _REACH_S,
        spare_s: float = _SPARE_TIME_S,
    ) -> None:
        self._path, self._reach_s, self._spare_s = socket_path, reach_s, spare_s
        self._egress = EgressClient(egress_path) if egress_path else None
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def run(
        self,
        spec: SandboxSpec,
        *,
        cancelled: threading.Event | None = None,
        until: Until | None = None,
    ) -> SandboxResult:
        """Blocks until the run has ended; setting `cancelled` ends it within a second.

        `until` says for how long this process may let it run; it is sent to sandboxd, which ends
        the run then, also when this process was stopped or hangs. A sandboxd that is unavailable is
        waited for; the run is not repeated when the connection breaks, for it may have begun.
        """
        watch = RunWatch(cancelled or threading.Event(), until)
        if spec.profile.network == Network.NONE:
            return self._run(spec, None, watch)
        return self._with_ticket(
            spec.egress, spec.organization, watch, lambda name: self._run(spec, name, watch)
        )

    def exchange(
        self,
        egress: EgressPolicy,
        organization: str,
        work: Callable[[sandbox_http.Door], Any],
        *,
        wall_s: float,
        cancelled: threading.Event,
        until: Until | None = None,
    ) -> SandboxResult:
        """Requests of this process itself, through the egress broker and in no sandbox. `work` gets
        the door to make them by; its value is the output, a `ToolError` of it the failure."""
        watch = RunWatch(cancelled, until)
        near, far = socket.socketpair()

        def make_requests(_ticket: str) -> SandboxResult:
            far.close()  # the broker has its own, whose end is to be noticed
            return _exchanged(work, _WatchedDoor(near, watch, wall_s))

        with near, far:
            return self._with_ticket(egress, organization, watch, make_requests, far)

    def _with_ticket(
        self,
        egress: EgressPolicy,
        organization: str,
        watch: "RunWatch",
        work: Callable[[str], SandboxResult],
        door: socket.socket | None = None,
    ) -> SandboxResult:
        """The result of `work`, which gets the ticket's name, with what the broker counted."""
        if self._egress is None:
            return _without_egress("no egress broker was named")
        # The broker hears from us alone what this run may reach.
        open_ticket = partial(self._egress.open, egress, organization, door)
        try:
            ticket = self._retry_while_unreachable(open_ticket, watch)
        except (OSError, SpecInvalid) as error:
            return _without_egress(f"it took no ticket: {error}")
        if ticket is None:
            return _not_begun()
        result = work(ticket.name)
        try:
            return _with_tally(result, ticket.close())
        except OSError:  # the broker died, and with it what it had counted
            return replace(result, usage=replace(result.usage, network_requests=None))

    def _run(self, spec: SandboxSpec, ticket: str | None, watch: "RunWatch") -> SandboxResult:
        try:
            connection = self._retry_while_unreachable(
                partial(self._submitted, spec, ticket, watch), watch
            )
        except OSError as error:
            return _unreachable(error)
        if connection is None:
            return _not_begun()
        try:
            result = connection.result(spec.limits.wall_s + self._spare_s, watch)
        except (OSError, wire.ConnectionEnded, wire.FrameTooLarge) as error:
            return _lost(error)
        self._keep(connection)
        return result

    def _submitted(self, spec: SandboxSpec, ticket: str | None, watch: "RunWatch") -> "Connection":
        """One that took the whole request. Raises OSError."""
        connection = self._connection()
        connection.submit(spec, ticket, watch)
        return connection

    def _retry_while_unreachable[Got](
        self, work: Callable[[], Got], watch: "RunWatch"
    ) -> Got | None:
        """What a process gives that may be away for a moment; None when the run was given up
        meanwhile. Raises OSError when it stays away."""
        deadline = time.monotonic() + self._reach_s
        for pause_s in chain(_PAUSES_S, repeat(_PAUSES_S[-1])):
            if watch.is_over():
                return None
            try:
                return work()
            except OSError:
                if time.monotonic() + pause_s > deadline:
                    raise
            watch.cancelled.wait(pause_s)
        return None

    def ping(self) -> dict[str, Any]:
        """What this sandboxd can do and how many slots it has. Raises OSError."""
        return self._ask({"type": "ping"})

    def examine(self, mounts: Sequence[Mount]) -> dict[str, str]:
        """What is wrong with paths of a profile, by source, for sandboxd's user. Raises OSError."""
        return self._ask({"type": "examine", "mounts": [asdict(mount) for mount in mounts]})

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        connection = self._connection()
        answer = connection.ask(question)
        self._keep(connection)
        return answer

    def close(self) -> None:
        for connection in self._take_all():
            connection.close()
        if self._egress is not None:
            self._egress.close()

    def _connection(self) -> "Connection":
        """A kept one that still lives, else a new one that was answered on. Raises OSError.

        A sandboxd that hangs, or lets us not in, is found out before anything is asked of it.
        """
        while (kept := self._pop()) is not None:
            if kept.fresh():
                return kept
            kept.close()
        made = Connection(self._path)
        made.ask({"type": "ping"})
        return made

    def _pop(self) -> "Connection | None":
        with self._lock:
            if self._pid != os.getpid():
                self._idle, self._pid = [], os.getpid()
            return self._idle.pop() if self._idle else None

    def _keep(self, connection: "Connection") -> None:
        with self._lock:
            if connection.usable:
                self._idle.append(connection)
                return
        connection.close()

    def _take_all(self) -> "list[Connection]":
        with self._lock:
            taken, self._idle = self._idle, []
            return taken


class Connection:
    """One socket to sandboxd. Profiles are sent once; runs then name them by digest."""

    def __init__(self, path: str) -> None:
        self.usable = True
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_CONNECT_TIMEOUT_S)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._reader = wire.FrameReader(self._socket, wire.FRAME_CAP)
        self._sent_profiles: set[str] = set()

    def close(self) -> None:
        self.usable = False
        self._socket.close()

    def fresh(self) -> bool:
        """Nothing has come since the last answer: neither bytes nor an end."""
        return not self._readable(0)

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Raises OSError."""
        try:
            with self._closed_by_failure():
                wire.send(self._socket, wire.encode(question))
                return dict(json.loads(self._reader.read()))
        except wire.ConnectionEnded:
            raise ConnectionResetError("sandboxd closed the connection") from None

    def submit(self, spec: SandboxSpec, ticket: str | None, watch: "RunWatch") -> None:
        """Raises OSError, and then sandboxd has not the whole of it: nothing can have begun."""
        with self._closed_by_failure():
            wire.send(self._socket, *self._frames(spec, ticket, watch))

    def result(self, patience_s: float, watch: "RunWatch") -> SandboxResult:
        """Of what was submitted. Raises OSError, ConnectionEnded and FrameTooLarge."""
        try:
            with self._closed_by_failure():  # which ends the run, if it has begun
                header = self._await(patience_s, watch)
                return _result(header, self._reader.read())
        except SandboxRunCancelled:
            message = "the caller ended the run"
            return SandboxResult(RunOutcome.CANCELLED, None, ErrorCode.CANCELLED, message)

    @contextmanager
    def _closed_by_failure(self) -> Iterator[None]:
        """A connection whose conversation broke off cannot be reused."""
        with ExitStack() as undo:
            undo.callback(self.close)
            yield
            undo.pop_all()

    def _frames(self, spec: SandboxSpec, ticket: str | None, watch: "RunWatch") -> list[bytes]:
        frames = list(wire.run_frames(spec, ticket, watch.sent_until))
        if spec.profile.digest not in self._sent_profiles:
            if len(self._sent_profiles) >= wire.PROFILES_PER_CONNECTION:
                self._sent_profiles.clear()  # as the other side does at this point
            frames.insert(0, wire.profile_frame(spec))
            self._sent_profiles.add(spec.profile.digest)
        return frames

    def _await(self, patience_s: float, watch: "RunWatch") -> bytes:
        """The header of the answer. Raises Cancelled, ConnectionEnded, OSError."""
        deadline = time.monotonic() + patience_s
        while (header := self._reader.next_whole()) is None:
            if self.usable and watch.is_over():
                self._hang_up()
                deadline = time.monotonic() + _CANCEL_TIMEOUT_S
            left = deadline - time.monotonic()
            if left <= 0:
                raise (
                    TimeoutError("sandboxd did not answer") if self.usable else SandboxRunCancelled
                )
            if self.usable and (until := watch.news()) is not None:
                wire.send(self._socket, wire.alive_frame(until))
            if self._readable(min(left, _LOOK_AT_EVENT_S)) and not self._reader.feed():
                raise wire.ConnectionEnded
        return header

    def _hang_up(self) -> None:
        """Half-closing makes sandboxd kill the run, and its result can still be received."""
        self.usable = False
        self._socket.shutdown(socket.SHUT_WR)

    def _readable(self, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))


class RunWatch:
    """What may end one run from this side: an event, and a time that moves on."""

    def __init__(self, cancelled: threading.Event, until: Until | None) -> None:
        self.cancelled, self._until = cancelled, until
        self.sent_until = until() if until is not None else None
        self._spoke_at = time.monotonic()

    def is_over(self) -> bool:
        if self.cancelled.is_set():
            return True
        return self._until is not None and self._until() <= time.monotonic()

    def news(self) -> float | None:
        """A later time than sandboxd has, about once a second."""
        now = time.monotonic()
        if self._until is None or now - self._spoke_at < _SPEAK_S:
            return None
        self._spoke_at, until = now, self._until()
        if until == self.sent_until:
            return None
        self.sent_until = until
        return until


class SandboxRunCancelled(Exception):
    """The run was given up and sandboxd had nothing more to say about it."""


class _WatchedDoor(sandbox_http.Door):
    """Of this process: it stops to wait when the run is given up, and when its time is over."""

    def __init__(self, channel: socket.socket, watch: RunWatch, wall_s: float) -> None:
        super().__init__(channel)
        self.wall_s, self._watch, self._ends_at = wall_s, watch, time.monotonic() + wall_s

    def receive(self, deadline: float) -> bytes | None:
        """Raises `SandboxRunCancelled` and `TimeoutError`."""
        deadline = min(deadline, self._ends_at)
        while True:
            until = min(deadline, time.monotonic() + _LOOK_AT_EVENT_S)
            received = super().receive(until)
            if received is not None:
                return received
            if self._watch.is_over():
                raise SandboxRunCancelled
            if time.monotonic() >= deadline:
                raise TimeoutError


def _exchanged(work: Callable[[sandbox_http.Door], Any], door: _WatchedDoor) -> SandboxResult:
    try:
        return SandboxResult(RunOutcome.SUCCESS, work(door))
    except ToolError as error:
        return SandboxResult(RunOutcome.FAILED, None, error.code, error.message)
    except SandboxRunCancelled:
        message = "the caller ended the run"
        return SandboxResult(RunOutcome.CANCELLED, None, ErrorCode.CANCELLED, message)
    except TimeoutError:
        message = f"the tool ran longer than {door.wall_s} s"
        return SandboxResult(RunOutcome.TIMEOUT, None, ErrorCode.TIMEOUT, message)


def _result(header: bytes, output: bytes) -> SandboxResult:
    wire_result = json.loads(header)
    wire_result["output"] = json.loads(output) if output else None
    return SandboxResult.from_wire(wire_result)


def _with_tally(result: SandboxResult, tally: EgressSummary) -> SandboxResult:
    """The broker counted; nothing of it comes from the run."""
    usage = replace(result.usage, network_requests=tally.requests)
    return replace(result, usage=usage, network=tally.attempts)


def _without_egress(why: str) -> SandboxResult:
    return SandboxResult(
        RunOutcome.SANDBOX_ERROR,
        error_code=ErrorCode.EGRESS_UNAVAILABLE,
        error_message=f"the egress broker cannot be used: {why}",
    )


def _unreachable(error: Exception) -> SandboxResult:
    return SandboxResult(
        RunOutcome.SANDBOX_ERROR,
        error_code=ErrorCode.SANDBOX_UNREACHABLE,
        error_message=f"sandboxd cannot be reached: {type(error).__name__} {error}".strip(),
    )


def _not_begun() -> SandboxResult:
    message = "the caller ended the run before it began"
    return SandboxResult(RunOutcome.CANCELLED, None, ErrorCode.NOT_BEGUN, message)


def _lost(error: Exception) -> SandboxResult:
    return SandboxResult(
        RunOutcome.SANDBOX_ERROR,
        error_code=ErrorCode.LOST,
        error_message=f"sandboxd was lost during the run: {type(error).__name__} {error}".strip(),
    )
