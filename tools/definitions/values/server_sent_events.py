"""Server-sent events (HTML, 9.2): one reader, bounded, and one writer. Pure."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_LONGEST_RETRY_MS = 5_000


class EventTooLong(ValueError):
    """An event, or a line of the stream, is longer than is read."""


@dataclass(frozen=True)
class StreamEvent:
    kind: str
    data: bytes


class EventReader:
    """Fed with bytes as they come. Remembers the last event's id and how long to wait before
    asking for those after it."""

    def __init__(self, longest: int) -> None:
        self.last_id = ""
        self.retry_ms = 1_000
        self._longest = longest  # bytes of one event
        self._line = bytearray()
        self._data: list[bytes] = []
        self._kind = "message"
        self._size = 0
        self._after_return = False

    def feed(self, piece: bytes) -> Iterator[StreamEvent]:
        """The events that end in this piece. Raises `EventTooLong`."""
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

    def _count(self, more: int) -> None:
        self._size += more
        if self._size + len(self._line) > self._longest:
            raise EventTooLong("an event without end")

    def _read(self, line: bytes) -> StreamEvent | None:
        if not line:
            return self._finish()
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

    def _finish(self) -> StreamEvent | None:
        data, kind = self._data, self._kind
        self._data, self._kind, self._size = [], "message", 0
        return StreamEvent(kind, b"\n".join(data)) if data else None


def encode_event(kind: str, body: Any, *, number: int | None = None) -> bytes:
    """One event, its body as JSON; readers that come back name the last `number` they have."""
    head = "" if number is None else f"id: {number}\n"
    return f"{head}event: {kind}\ndata: {json.dumps(body)}\n\n".encode()
