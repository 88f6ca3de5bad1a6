"""The control protocol of the egress broker for workers and sandboxd: JSON in length-prefixed
frames.

A worker: {"type": "open", "policy": …, "organization": name} → {"ticket": name}, then
{"type": "close"} → {"tally": …}; one ticket at a time on a connection. A descriptor that comes with
the first is the socket of a run without a sandbox: the worker's own requests. sandboxd: {"type":
"attach", "ticket": name}, with the descriptors of the egress sockets → {"attached": true}; the
connection is then the run's lifeline. Each may be answered with {"refused": reason}.
"""

import asyncio
import json
import os
import socket
import struct
from typing import Any

from sandbox.errors import SpecInvalid
from sandbox.strict_fields import Fields

FRAME_CAP = 1 << 20
MOST_DOORS = 2
_PREFIX = struct.Struct(">I")
_PEER = struct.Struct("3i")
_CHUNK = 1 << 16


def encode(message: dict[str, Any]) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return _PREFIX.pack(len(body)) + body


def decode(body: bytes) -> Fields:
    """Raises SpecInvalid."""
    try:
        return Fields(json.loads(body))
    except (ValueError, RecursionError):
        raise SpecInvalid("not a JSON object") from None


def peer_uid(channel: socket.socket) -> int:
    raw = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(raw)[1])


class Frames:
    """The broker's end of a connection. `doors` has the sockets that came with a frame."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self.doors: list[socket.socket] = []
        self._channel = channel
        self._buffer = bytearray()
        self._loop = asyncio.get_running_loop()

    async def next(self) -> bytes | None:
        """None at the end of the connection. Raises OSError, and SpecInvalid for a large one."""
        while (frame := self._take_frame()) is None:
            if not (received := await self._receive()):
                return None
            self._buffer += received
        return frame

    async def send(self, message: dict[str, Any]) -> None:
        await self._loop.sock_sendall(self._channel, encode(message))

    def drop_doors(self) -> None:
        while self.doors:
            self.doors.pop().close()

    def _take_frame(self) -> bytes | None:
        if len(self._buffer) < _PREFIX.size:
            return None
        (length,) = _PREFIX.unpack_from(self._buffer)
        if length > FRAME_CAP:
            raise SpecInvalid("a frame that is too long")
        end = _PREFIX.size + length
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[_PREFIX.size : end])
        del self._buffer[:end]
        return frame

    async def _receive(self) -> bytes:
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(
                    self._channel, _CHUNK, MOST_DOORS, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                await self._readable()
            else:
                self._take(descriptors)
                return data

    def _take(self, descriptors: list[int]) -> None:
        """A descriptor that is not a socket is refused."""
        for descriptor in descriptors:
            try:
                self.doors.append(socket.socket(fileno=descriptor))
            except OSError:
                os.close(descriptor)

    async def _readable(self) -> None:
        ready = asyncio.Event()
        self._loop.add_reader(self._channel, ready.set)
        try:
            await ready.wait()
        finally:
            self._loop.remove_reader(self._channel)
