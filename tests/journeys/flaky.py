"""A connection that breaks at a chosen byte: a proxy on loopback before the running product."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import BinaryIO
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_END = b"\r\n\r\n"


class Cut(Enum):
    """Where the connection ends."""

    UNSENT = "before anything is sent"
    REQUEST_HEAD = "amid the headers of the request"
    REQUEST_BODY = "amid the body of the request"
    REQUEST_LAST = "before the last byte of the request"
    UNHEARD = "after the request, and nobody waits for the answer"
    UNANSWERED = "after the request was carried out, before the answer"
    ANSWER_HEAD = "amid the headers of the answer"
    ANSWER_BODY = "amid the body of the answer"
    ANSWER_LAST = "before the last byte of the answer"


_OF_REQUEST = (Cut.UNSENT, Cut.REQUEST_HEAD, Cut.REQUEST_BODY, Cut.REQUEST_LAST)


@dataclass
class Flaky:
    """Breaks each request at each of the `cuts` in their order, then lets it through. Which request
    one is, its bytes say: a client repeats the same ones."""

    upstream: tuple[str, int]
    cuts: tuple[Cut, ...]
    url: str = ""
    broken: list[bytes] = field(default_factory=list)  # lines of the requests
    whole: list[bytes] = field(default_factory=list)
    _request: bytes = b""
    _next: int = 0

    def handle(self, client: socket.socket) -> None:
        """One connection, which has one request."""
        with client, client.makefile("rb") as arrives:
            if not (head := _head(arrives)):
                return
            length = _LENGTH.search(head)
            body = arrives.read(int(length[1])) if length else b""
            cut = self._cut(head + body)
            (self.whole if cut is None else self.broken).append(head.partition(b" HTTP")[0])
            if cut not in _OF_REQUEST:
                client.sendall(self._answer(head, body, cut))
                return
            sent = _part(head, body, cut)
            if sent:
                self._sent(sent).close()

    def _cut(self, request: bytes) -> Cut | None:
        if request != self._request:
            self._request, self._next = request, 0
        if self._next == len(self.cuts):
            self._next = 0
            return None
        self._next += 1
        return self.cuts[self._next - 1]

    def _sent(self, content: bytes) -> socket.socket:
        server = socket.create_connection(self.upstream, timeout=90)
        server.sendall(content)
        return server

    def _answer(self, head: bytes, body: bytes, cut: Cut | None) -> bytes:
        """As much of it as the client gets."""
        ends = head.removesuffix(_END) + b"\r\nConnection: close" + _END
        with self._sent(ends + body) as server, server.makefile("rb") as arrives:
            if cut is Cut.UNHEARD:
                return b""
            answer = arrives.read()
        if cut is None:
            return answer
        head, _, body = answer.partition(_END)
        return _part(head + _END, body, cut)


def _part(head: bytes, body: bytes, cut: Cut) -> bytes:
    """Of a message, what comes before the cut. It never comes whole."""
    whole = len(head) + len(body)
    ends = {
        Cut.UNSENT: 0,
        Cut.UNANSWERED: 0,
        Cut.REQUEST_HEAD: len(head) // 2,
        Cut.ANSWER_HEAD: len(head) // 2,
        Cut.REQUEST_BODY: len(head) + len(body) // 2,
        Cut.ANSWER_BODY: len(head) + len(body) // 2,
    }
    return (head + body)[: min(ends.get(cut, whole), whole - 1)]


def _head(arrives: BinaryIO) -> bytes:
    head = b""
    while line := arrives.readline():
        head += line
        if line == b"\r\n":
            return head
    return b""


@contextmanager
def flaky(url: str, cuts: tuple[Cut, ...]) -> Iterator[Flaky]:
    """A proxy before the product at `url`. It takes one connection after the other, as its client
    makes them."""
    place = urlsplit(url)
    assert place.hostname and place.port
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy = Flaky((place.hostname, place.port), cuts)
        proxy.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread = threading.Thread(target=_accept, args=(listening, proxy))
        thread.start()
        try:
            yield proxy
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(listening: socket.socket, proxy: Flaky) -> None:
    while True:
        try:
            client, _ = listening.accept()
        except OSError:
            return
        proxy.handle(client)
