"""Parses server-sent events of chat endpoints: the `data` of each, within limits."""

from collections.abc import Iterable, Iterator

LONGEST_EVENT = 1_000_000  # bytes


class BadStream(ValueError):
    """Not a stream of events that may be read; the message says why."""


def data_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The data of one event after the other. Raises `BadStream`."""
    data: list[bytes] = []
    size = 0
    for line in _lines(pieces):
        if not line:
            if data:
                yield b"\n".join(data)
            data, size = [], 0
            continue
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
            size += len(line)
            if size > LONGEST_EVENT:
                raise BadStream("an event without end")


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Without their ends: LF, or CR LF. An unterminated one at the end of the stream is no line."""
    rest = bytearray()
    for piece in pieces:
        searched = len(rest)
        rest += piece
        begin = 0
        while (end := rest.find(b"\n", max(begin, searched))) >= 0:
            yield bytes(rest[begin:end]).removesuffix(b"\r")
            begin = end + 1
        del rest[:begin]
        if len(rest) > LONGEST_EVENT:
            raise BadStream("a line without end")
