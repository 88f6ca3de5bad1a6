"""Server-sent events, bounded. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from tools.mcpclient.errors import Unusable
from tools.mcpclient.messages import MOST_BYTES

MOST_IN_ALL = 16 * MOST_BYTES
MOST_LINES = 200_000
_LONGEST_RETRY_MS = 5_000


@dataclass(frozen=True)
class Event:
    kind: str
    data: bytes


class Events:
    """Fed with bytes as they come. Remembers the last event's id and how long to wait before
    asking for those after it."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_ms = 1_000
        self._line = bytearray()
        self._data: list[bytes] = []
        self._kind = "message"
        self._size = self._total = self._lines = 0
        self._after_return = False

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Raises Unusable beyond the bounds."""
        self._total += len(piece)
        self._lines += piece.count(b"\n") + piece.count(b"\r")
        if self._total > MOST_IN_ALL or self._lines > MOST_LINES:
            raise Unusable("The MCP server's stream is longer than is read of one.")
        if self._after_return and piece.startswith(b"\n"):
            piece = piece[1:]
        self._after_return = piece.endswith(b"\r")
        lines = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines[:-1]:
            self._line += line
            whole, self._line = bytes(self._line), bytearray()
            self._count(0)
            event = self._read(whole)
            if event is not None:
                yield event
        self._line += lines[-1]
        self._count(0)

    def forgive(self) -> None:
        """A lasting stream brought what was asked for: its length counts from here."""
        self._total = self._lines = 0

    def _count(self, more: int) -> None:
        self._size += more
        if self._size + len(self._line) > MOST_BYTES + 1024:
            raise Unusable("The MCP server sent a longer message than is read.")

    def _read(self, line: bytes) -> Event | None:
        if not line:
            return self._ended()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._count(len(value) + 1)
        elif name == b"event":
            self._kind = value[:100].decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value and len(value) <= 1_000:
            self.last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 9:
            self.retry_ms = min(int(value), _LONGEST_RETRY_MS)
        return None

    def _ended(self) -> Event | None:
        data, kind = b"\n".join(self._data), self._kind
        self._data, self._kind, self._size = [], "message", 0
        return Event(kind, data) if data else None
