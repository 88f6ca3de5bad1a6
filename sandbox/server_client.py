"""The worker's client for a lasting server inside the sandbox, which is reached by two streams.

The server lives as long as its connection to sandboxd: closed, or gone with this process, every
process of the server is killed.
"""

import json
import os
import socket
from contextlib import ExitStack, suppress
from typing import Any

from sandbox import wire
from sandbox.egress.ticket_client import EgressClient, Ticket
from sandbox.errors import ErrorCode, RunRefused, SpecInvalid
from sandbox.inside.frames import FrameReader
from sandbox.spec import LONGEST_ANSWER, Network, ServerSpec

_CONNECT_S = 5.0
_START_S = 30.0
_LAST_WORDS_S = 2.0


class ServerProcess:
    """`stdio` is both the server's stdin and its stdout."""

    def __init__(self, stdio: socket.socket, control: socket.socket, ticket: Ticket | None) -> None:
        self.stdio, self._control, self._ticket = stdio, control, ticket

    def last_words(self) -> tuple[str, str]:
        """Why it ended and what it said last on stderr, once it has ended; both may be empty."""
        try:
            self._control.settimeout(_LAST_WORDS_S)
            answer = json.loads(FrameReader(self._control, LONGEST_ANSWER).read())
            return str(answer["reason"]), str(answer["said"])
        except (OSError, wire.ConnectionEnded, wire.FrameTooLarge, ValueError, KeyError):
            return "", ""  # sandboxd went with it

    def close(self) -> None:
        """Also where a child of ours still has a copy of the descriptors."""
        for channel in (self._control, self.stdio):
            with suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)
            channel.close()
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            _closed(ticket)


def start_server(socket_path: str, egress: EgressClient | None, spec: ServerSpec) -> ServerProcess:
    """Raises Refused, with nothing started, and OSError, when nothing has been or will be kept."""
    with ExitStack() as undo:
        ticket = _ticket(egress, spec)
        if ticket is not None:
            undo.callback(_closed, ticket)
        control = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        control.settimeout(_CONNECT_S)
        control.connect(socket_path)
        control.settimeout(_START_S)
        name = None if ticket is None else ticket.name
        wire.send(
            control, wire.encode({"type": "server", "server": spec.to_wire(), "ticket": name})
        )
        stdio = _started(control)
        undo.pop_all()
    return ServerProcess(stdio, control, ticket)


def _ticket(egress: EgressClient | None, spec: ServerSpec) -> Ticket | None:
    if spec.network == Network.NONE:
        return None
    if egress is None:
        raise RunRefused(ErrorCode.EGRESS_UNAVAILABLE, "no egress broker was named")
    try:
        return egress.open(spec.egress, spec.organization)
    except (OSError, SpecInvalid) as error:
        reason = f"the egress broker took no ticket: {error}"
        raise RunRefused(ErrorCode.EGRESS_UNAVAILABLE, reason) from None


def _closed(ticket: Ticket) -> None:
    with suppress(OSError):  # the broker is gone, and with it what it had counted
        ticket.close()


def _started(control: socket.socket) -> socket.socket:
    """The server's streams. The descriptor comes with the first bytes of the answer."""
    with ExitStack() as undo:
        answer, held = _answer(control, undo)
        if answer.get("type") == "started" and len(held) == 1:
            undo.pop_all()
            return socket.socket(fileno=held[0])
    if answer.get("type") == "refused":
        raise RunRefused(ErrorCode(answer["code"]), str(answer["reason"]))
    raise ConnectionResetError("sandboxd closed the connection")


def _answer(control: socket.socket, undo: ExitStack) -> tuple[dict[str, Any], list[int]]:
    """One whole frame, and not a byte more: what follows is said when the server has ended."""
    raw, held = b"", []
    while (missing := _missing(raw)) > 0:
        piece, came, _, _ = socket.recv_fds(control, missing, 1, socket.MSG_CMSG_CLOEXEC)
        held += came
        for one in came:
            undo.callback(os.close, one)
        if not piece:
            return {}, held
        raw += piece
    return dict(json.loads(raw[4:])), held


def _missing(raw: bytes) -> int:
    if len(raw) < 4:
        return 4 - len(raw)
    length = min(int.from_bytes(raw[:4]), LONGEST_ANSWER)
    return 4 + length - len(raw)
