"""Length-prefixed frames over a stream socket, the same inside and outside the sandbox."""

import socket
import struct

_LENGTH = struct.Struct(">I")
_CHUNK = 1 << 16


class FrameTooLarge(Exception):
    """The other side announced more than it may send; nothing of it was read."""


class ConnectionEnded(Exception):
    """The other side closed; what came of a frame is lost."""


def pack(*payloads: bytes) -> list[bytes]:
    """Buffers for one sendmsg: lengths and payloads in turn."""
    return [part for load in payloads for part in (_LENGTH.pack(len(load)), load)]


def send(channel: socket.socket, *payloads: bytes) -> None:
    channel.sendall(b"".join(pack(*payloads)))


class FrameReader:
    """Collects what a socket delivers and hands out whole frames."""

    def __init__(self, channel: socket.socket, cap: int) -> None:
        self._channel = channel
        self._buffer = bytearray()
        self.cap = cap

    def read(self) -> bytes:
        """The next frame, waiting for it. Raises ConnectionEnded and FrameTooLarge."""
        while (frame := self.next_whole()) is None:
            if not self.feed():
                raise ConnectionEnded
        return frame

    def feed(self) -> bool:
        """Receive once; False when the other side has closed."""
        try:
            received = self._channel.recv(_CHUNK)
        except ConnectionError:
            return False
        self._buffer += received
        return bool(received)

    def next_whole(self) -> bytes | None:
        """A frame out of what is already here, or None. Raises FrameTooLarge."""
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > self.cap:
            raise FrameTooLarge(length)
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return frame
