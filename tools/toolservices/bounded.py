"""A broker connection that limits the size of one answer.

Services write their answers to the broker themselves, each as long as they like; a worker that took
one in whole could be brought down by it, with the calls of all organizations it has in hand.
"""

from typing import Any

from redis._parsers import _RESP2Parser
from redis._parsers.socket import SocketBuffer

MOST_BYTES = 16 * 1024 * 1024
_OF_EACH = 64  # memory of a value beside its bytes


class ReplyTooLong(Exception):
    """The connection is closed; the requested answer is too long."""


class _Buffer(SocketBuffer):
    room = MOST_BYTES

    def read(self, length: int, *args: Any, **options: Any) -> bytes:
        self.room -= length + _OF_EACH
        if self.room < 0:
            raise ReplyTooLong
        return bytes(super().read(length, *args, **options))

    def purge(self) -> None:
        """After each answer that was read to its end."""
        self.room = MOST_BYTES
        super().purge()


class BoundedParser(_RESP2Parser):
    def on_connect(self, connection: Any) -> None:
        super().on_connect(connection)  # type: ignore[no-untyped-call]
        self._buffer = _Buffer(connection._sock, self.socket_read_size, connection.socket_timeout)
