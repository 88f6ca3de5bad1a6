"""Attach the egress sockets of a starting run to the broker. Called by sandboxd."""

import socket

from sandbox.egress import control
from sandbox.egress.ticket_client import connect, read_answer
from sandbox.errors import ErrorCode, RunRefused
from sandbox.inside.frames import FrameReader


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
    asked = control.encode({"type": "attach", "ticket": ticket})
    socket.send_fds(lifeline, [asked], [door.fileno() for door in doors])
    answer = read_answer(FrameReader(lifeline, control.FRAME_CAP))
    if "refused" in answer:
        raise _unavailable(f"the egress broker refused: {answer['refused']}")
    lifeline.settimeout(None)


def _unavailable(reason: str) -> RunRefused:
    return RunRefused(ErrorCode.EGRESS_UNAVAILABLE, reason)
