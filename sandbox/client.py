"""What a worker calls. A run either has a result or a SANDBOX_ERROR; nothing is raised for it."""

import json
import os
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from typing import Any

from sandbox import wire
from sandbox.egress.client import EgressClient, Ticket
from sandbox.egress.policy import Tally
from sandbox.errors import ErrorCode, SpecInvalid
from sandbox.spec import Mount, Network, Outcome, SandboxResult, SandboxSpec

_CONNECT_TIMEOUT_S = 5.0
_SPARE_TIME_S = 30.0  # beyond the run's wall limit: waiting for a slot, a loaded machine
_LOOK_AT_EVENT_S = 0.05
_CANCEL_TIMEOUT_S = 1.0


class SandboxClient:
    """Thread-safe; keeps connections for further runs and none across a fork."""

    def __init__(self, socket_path: str, egress_path: str = "") -> None:
        self._path = socket_path
        self._egress = EgressClient(egress_path) if egress_path else None
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def run(self, spec: SandboxSpec, *, cancelled: threading.Event | None = None) -> SandboxResult:
        """Blocks until the run has ended; setting `cancelled` ends it within a second.

        Not repeated when the connection breaks: the job may have begun.
        """
        if spec.profile.network == Network.NONE:
            return self._run(spec, None, cancelled)
        try:
            ticket = self._ticket(spec)
        except (OSError, SpecInvalid) as error:
            return _without_egress(error)
        result = self._run(spec, ticket.name, cancelled)
        try:
            return _with_tally(result, ticket.close())
        except OSError:  # the broker died, and with it what it had counted
            return replace(result, usage=replace(result.usage, network_requests=None))

    def _ticket(self, spec: SandboxSpec) -> Ticket:
        """The broker hears from us alone what this run may reach. Raises OSError."""
        if self._egress is None:
            raise ConnectionRefusedError("no egress broker was named")
        return self._egress.open(spec.egress)

    def _run(
        self, spec: SandboxSpec, ticket: str | None, cancelled: threading.Event | None
    ) -> SandboxResult:
        try:
            connection = self._connection()
            result = connection.run(spec, ticket, cancelled)
        except (OSError, wire.ConnectionEnded, wire.FrameTooLarge) as error:
            return _unreachable(error)
        self._keep(connection)
        return result

    def ping(self) -> dict[str, Any]:
        """What this sandboxd can do and how many slots it has. Raises OSError."""
        return self._ask({"type": "ping"})

    def examine(self, mounts: Sequence[Mount]) -> dict[str, str]:
        """What is wrong with paths of a profile, by source, for sandboxd's user. Raises OSError."""
        return self._ask({"type": "examine", "mounts": [asdict(mount) for mount in mounts]})

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            connection = self._connection()
            answer = connection.ask(question)
        except wire.ConnectionEnded:
            raise ConnectionResetError("sandboxd closed the connection") from None
        self._keep(connection)
        return answer

    def close(self) -> None:
        for connection in self._take_all():
            connection.close()
        if self._egress is not None:
            self._egress.close()

    def _connection(self) -> "Connection":
        """A kept one that still lives, else a new one. Raises OSError."""
        while (kept := self._pop()) is not None:
            if kept.fresh():
                return kept
            kept.close()
        return Connection(self._path)

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
        with self._closed_by_failure():
            wire.send(self._socket, wire.encode(question))
            return dict(json.loads(self._reader.read()))

    def run(
        self, spec: SandboxSpec, ticket: str | None, cancelled: threading.Event | None
    ) -> SandboxResult:
        try:
            with self._closed_by_failure():  # which ends the run, if it has begun
                wire.send(self._socket, *self._frames(spec, ticket))
                header = self._await(spec.limits.wall_s + _SPARE_TIME_S, cancelled)
                return _result(header, self._reader.read())
        except Cancelled:
            message = "the caller ended the run"
            return SandboxResult(Outcome.CANCELLED, None, ErrorCode.CANCELLED, message)

    @contextmanager
    def _closed_by_failure(self) -> Iterator[None]:
        """A connection whose conversation broke off is of no use to anybody."""
        with ExitStack() as undo:
            undo.callback(self.close)
            yield
            undo.pop_all()

    def _frames(self, spec: SandboxSpec, ticket: str | None) -> list[bytes]:
        frames = list(wire.run_frames(spec, ticket))
        if spec.profile.digest not in self._sent_profiles:
            if len(self._sent_profiles) >= wire.PROFILES_PER_CONNECTION:
                self._sent_profiles.clear()  # as the other side does at this point
            frames.insert(0, wire.profile_frame(spec))
            self._sent_profiles.add(spec.profile.digest)
        return frames

    def _await(self, patience_s: float, cancelled: threading.Event | None) -> bytes:
        """The header of the answer. Raises Cancelled, ConnectionEnded, TimeoutError."""
        deadline = time.monotonic() + patience_s
        while (header := self._reader.next_whole()) is None:
            if cancelled is not None and cancelled.is_set() and self.usable:
                self._hang_up()
                deadline = time.monotonic() + _CANCEL_TIMEOUT_S
            left = deadline - time.monotonic()
            if left <= 0:
                raise (TimeoutError("sandboxd did not answer") if self.usable else Cancelled)
            wait_s = left if cancelled is None else min(left, _LOOK_AT_EVENT_S)
            if self._readable(wait_s) and not self._reader.feed():
                raise wire.ConnectionEnded
        return header

    def _hang_up(self) -> None:
        """Half-closing tells sandboxd to kill the run, and still lets its last words through."""
        self.usable = False
        self._socket.shutdown(socket.SHUT_WR)

    def _readable(self, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))


class Cancelled(Exception):
    """The run was given up and sandboxd had nothing more to say about it."""


def _result(header: bytes, output: bytes) -> SandboxResult:
    wire_result = json.loads(header)
    wire_result["output"] = json.loads(output) if output else None
    return SandboxResult.from_wire(wire_result)


def _with_tally(result: SandboxResult, tally: Tally) -> SandboxResult:
    """The broker counted; nothing of it comes from the run."""
    usage = replace(result.usage, network_requests=tally.requests)
    return replace(result, usage=usage, network=tally.attempts)


def _without_egress(error: Exception) -> SandboxResult:
    return SandboxResult(
        Outcome.SANDBOX_ERROR,
        error_code=ErrorCode.EGRESS_UNAVAILABLE,
        error_message=f"the egress broker took no ticket: {error}",
    )


def _unreachable(error: Exception) -> SandboxResult:
    return SandboxResult(
        Outcome.SANDBOX_ERROR,
        error_code=ErrorCode.SANDBOX_UNREACHABLE,
        error_message=f"sandboxd cannot be reached: {type(error).__name__} {error}".strip(),
    )
