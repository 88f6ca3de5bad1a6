"""Server-sent events of an MCP server: bounded each, and all of a stream together. Pure."""

from collections.abc import Iterator

from tools.definitions.values.server_sent_events import EventReader, EventTooLong, StreamEvent
from tools.mcpclient.errors import InvalidAnswer
from tools.mcpclient.messages import MOST_MESSAGE_BYTES

MOST_STREAM_BYTES = 16 * MOST_MESSAGE_BYTES
MOST_STREAM_LINES = 200_000


class McpEventReader(EventReader):
    """The events of a stream that have data."""

    def __init__(self) -> None:
        super().__init__(MOST_MESSAGE_BYTES + 1024)
        self._total = self._lines = 0

    def feed(self, piece: bytes) -> Iterator[StreamEvent]:
        """Raises Unusable beyond the bounds."""
        self._total += len(piece)
        self._lines += piece.count(b"\n") + piece.count(b"\r")
        if self._total > MOST_STREAM_BYTES or self._lines > MOST_STREAM_LINES:
            raise InvalidAnswer("The MCP server's stream is longer than is read of one.")
        try:
            yield from (event for event in super().feed(piece) if event.data)
        except EventTooLong:
            raise InvalidAnswer("The MCP server sent a longer message than is read.") from None

    def forgive(self) -> None:
        """A lasting stream brought what was asked for: its length counts from here."""
        self._total = self._lines = 0
