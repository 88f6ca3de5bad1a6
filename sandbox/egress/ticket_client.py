"""The worker's client of the egress broker: a ticket for each run with egress."""

import json
import os
import select
import socket
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any, Self

from sandbox.egress import control
from sandbox.egress.rules.egress_policy import EgressPolicy, EgressSummary
from sandbox.errors import ErrorCode, RunRefused, SpecInvalid
from sandbox.inside.frames import ConnectionEnded, FrameReader, FrameTooLarge

_TIMEOUT_S = 5.0


class Ticket:
    """Good for one run, until it is closed or this process ends. Also a context manager."""

    def __init__(self, name: str, client: "EgressClient", line: "BrokerConnection") -> None:
        self.name = name
        self._client, self._line = client, line
        self._tally: EgressSummary | None = None

    def close(self) -> EgressSummary:
        """End what is left of the run's connections; what it tried is complete then.

        The same answer when called again. Raises OSError when the broker is gone: what it had
        counted is gone with it.
        """
        if self._tally is None:
            answer = self._line.ask({"type": "close"})
            self._tally = EgressSummary.from_wire(answer["tally"])
            self._client.keep(self._line)
        return self._tally

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EgressClient:
    """Thread-safe; keeps connections for further tickets and none across a fork."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._idle: list[BrokerConnection] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def open(
        self, policy: EgressPolicy, organization: str, door: socket.socket | None = None
    ) -> Ticket:
        """Raises OSError when there is no broker, SpecInvalid when it does not take the policy.

        `door` is the far end of a socket pair on which this process makes the requests itself; the
        broker has its own descriptor of it.
        """
        line = self._line()
        request = {"type": "open", "policy": policy.to_wire(), "organization": organization}
        answer = line.ask(request, [] if door is None else [door.fileno()])
        if "refused" in answer:
            self.keep(line)
            raise SpecInvalid(answer["refused"])
        return Ticket(answer["ticket"], self, line)

    def close(self) -> None:
        with self._lock:
            lines, self._idle = self._idle, []
        for line in lines:
            line.close()

    def keep(self, line: "BrokerConnection") -> None:
        with self._lock:
            if line.pid == self._pid == os.getpid():
                self._idle.append(line)

    def _line(self) -> "BrokerConnection":
        """A kept one that still lives, else a new one. Raises OSError."""
        while (kept := self._pop()) is not None:
            if kept.fresh():
                return kept
            kept.close()
        return BrokerConnection(self._path)

    def _pop(self) -> "BrokerConnection | None":
        with self._lock:
            if self._pid != os.getpid():
                self._idle, self._pid = [], os.getpid()
            return self._idle.pop() if self._idle else None


class BrokerConnection:
    """One connection to the broker."""

    def __init__(self, path: str) -> None:
        self.pid = os.getpid()
        self._channel = connect(path)
        self._reader = FrameReader(self._channel, control.FRAME_CAP)

    def ask(self, question: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        """Raises OSError; the connection is of no use then."""
        with ExitStack() as undo:
            undo.callback(self.close)
            frame = control.encode(question)
            sent = socket.send_fds(self._channel, [frame], descriptors) if descriptors else 0
            self._channel.sendall(frame[sent:])
            answer = read_answer(self._reader)
            undo.pop_all()
        return answer

    def fresh(self) -> bool:
        """Nothing has come since the last answer: neither bytes nor an end."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Also where a child of ours still has a copy of the descriptor."""
        if self.pid == os.getpid():
            with suppress(OSError):  # it had ended
                self._channel.shutdown(socket.SHUT_RDWR)
        self._channel.close()


def connect(path: str) -> socket.socket:
    """Raises OSError."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    channel.settimeout(_TIMEOUT_S)
    try:
        channel.connect(path)
    except OSError:
        channel.close()
        raise
    return channel


def read_answer(reader: FrameReader) -> dict[str, Any]:
    """Raises OSError."""
    try:
        return dict(json.loads(reader.read()))
    except (ConnectionEnded, FrameTooLarge):
        raise ConnectionResetError("the broker ended the connection") from None


def attach(
    path: str, ticket: str, *, helper: socket.socket, proxy: socket.socket | None
) -> socket.socket:
    """The run's lifeline: closing it ends every connection of the run at once.

    The broker has its own descriptors of the sockets; the caller's may be closed after this.
    Raises Refused with EGRESS_UNAVAILABLE.
    """
    try:
        lifeline = connect(path)
    except OSError as error:
        raise _unavailable(f"the egress broker cannot be reached: {error.strerror}") from None
    try:
        _present(lifeline, ticket, [helper] if proxy is None else [helper, proxy])
    except OSError as error:
        lifeline.close()
        raise _unavailable(f"the egress broker did not answer: {error}") from None
    except RunRefused:
        lifeline.close()
        raise
    return lifeline


def _present(lifeline: socket.socket, ticket: str, doors: list[socket.socket]) -> None:
    request = control.encode({"type": "attach", "ticket": ticket})
    socket.send_fds(lifeline, [request], [door.fileno() for door in doors])
    answer = read_answer(FrameReader(lifeline, control.FRAME_CAP))
    if "refused" in answer:
        raise _unavailable(f"the egress broker refused: {answer['refused']}")
    lifeline.settimeout(None)


def _unavailable(reason: str) -> RunRefused:
    return RunRefused(ErrorCode.EGRESS_UNAVAILABLE, reason)
