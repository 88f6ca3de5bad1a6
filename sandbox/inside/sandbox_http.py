"""HTTP for tools: `import sandbox_http`. There is no other way out, and any request may be refused.

Requests go as frames to the egress broker outside, which checks, resolves, connects and speaks TLS.
A frame is its length, a kind, the number of its request and a payload. In: REQUEST (JSON) and as
much BODY as it announced, or CANCEL. Out: HEAD (JSON), BODY and END, or REFUSED (JSON) at any time.
"""

import json
import os
import select
import socket
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from sandbox.inside.toolcrib import ToolError

FRAME_CAP = 1 << 19
PIECE = 1 << 16
_HEADER = struct.Struct(">IBI")
_PREFIX = 4  # what the length does not count
_SPARE_S = 5.0  # the broker's own clock ends a request; this one is for a broker that hangs
_LONGEST_S = 86_400
_LONGEST_HEAD = 1 << 17
_MOST_BYTES = 50 << 20
_MOST_RATIO = 20
_SMALL = 1 << 20  # below this a page of spaces is just a page of spaces
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SECRETS = frozenset({"authorization", "cookie", "proxy-authorization"})
_GZIP, _ZLIB, _RAW = 31, 15, -15  # as zlib calls them
# Everything printable may stand for itself: what is refused is the broker's to say.
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


_door: "Door | None" = None


class EgressError(ToolError):
    """No answer, or not a whole one; `code` says why, such as HOST_NOT_ALLOWED or TIMEOUT."""


class Response(NamedTuple):
    """Header names are in lower case; values of one that came twice are joined with a comma, those
    of set-cookie with a line feed. `body` is unpacked; `url` is the one that answered.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    url: str


def get(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 30,
    max_bytes: int | None = None,
    redirects: int = 0,
) -> Response:
    return request(
        "GET",
        url,
        headers=headers,
        timeout_s=timeout_s,
        max_bytes=max_bytes,
        redirects=redirects,
    )


def request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    timeout_s: float = 30,
    max_bytes: int | None = None,
    redirects: int = 0,
    door: "Door | None" = None,
) -> Response:
    """Any status is an answer. `timeout_s` and `max_bytes` are for all of it, unpacked. A process
    that has a connection to the broker of its own, outside the sandbox, gives it as `door`.

    A redirect is followed as often as `redirects` says, each time as a new request that may be
    refused; to another origin it goes without credentials. Raises EgressError.
    """
    if not 0 < timeout_s <= _LONGEST_S:
        raise EgressError("REQUEST_INVALID", f"timeout_s is a number up to {_LONGEST_S}")
    deadline = time.monotonic() + timeout_s
    current = _Request(method.upper(), _escaped(url), _complete(headers or {}), body)
    left = redirects
    while True:
        most = _MOST_BYTES if max_bytes is None else max_bytes
        answer = _perform(current, deadline, most, door or _own_door())
        following = current.redirected_request(answer) if redirects else None
        if following is None:
            return answer
        if left == 0:
            raise EgressError("TOO_MANY_REDIRECTS", f"more than {redirects} redirects")
        current, left = following, left - 1


def open_door(descriptor: int) -> None:
    """Called once, by the process that made this one, with the near end of the socket."""
    global _door  # noqa: PLW0603 - there is one door, as there is one network
    _door = Door(socket.socket(fileno=descriptor))


class FrameKind(IntEnum):
    REQUEST = 1
    BODY = 2
    CANCEL = 3
    HEAD = 4
    END = 5
    REFUSED = 6


class Frame(NamedTuple):
    kind: FrameKind
    number: int
    payload: bytes


def pack(frame: Frame) -> bytes:
    length = _HEADER.size - _PREFIX + len(frame.payload)
    return _HEADER.pack(length, frame.kind, frame.number) + frame.payload


def unpack(buffer: bytearray) -> Frame | None:
    """Take one whole frame off the front. Raises ValueError for what is none."""
    if len(buffer) < _HEADER.size:
        return None
    length, kind, number = _HEADER.unpack_from(buffer)
    if not _HEADER.size - _PREFIX <= length <= FRAME_CAP:
        raise ValueError("a frame of an impossible length")
    if kind not in _KINDS:
        raise ValueError("a frame of an unknown kind")
    end = _PREFIX + length
    if len(buffer) < end:
        return None
    frame = Frame(FrameKind(kind), number, bytes(buffer[_HEADER.size : end]))
    del buffer[:end]
    return frame


_KINDS = frozenset(FrameKind)


class _Request(NamedTuple):
    method: str
    url: str
    headers: dict[str, str]
    body: bytes

    def redirected_request(self, answer: Response) -> "_Request | None":
        """The request a redirect asks for; None when there is none to follow."""
        location = answer.headers.get("location")
        if answer.status not in _REDIRECTS or location is None:
            return None
        url = _joined(self.url, location)
        headers, method, body = dict(self.headers), self.method, self.body
        if answer.status == 303 or (answer.status in {301, 302} and method == "POST"):
            method, body = ("HEAD" if method == "HEAD" else "GET"), b""
            headers.pop("content-type", None)
        if _origin(url) != _origin(self.url):
            headers = {name: text for name, text in headers.items() if name not in _SECRETS}
        return _Request(method, url, headers, body)


def _own_door() -> "Door":
    if _door is None or _door.pid != os.getpid():
        raise EgressError("NETWORK_OFF", "this process has no way out")
    return _door


def _perform(request: _Request, deadline: float, max_bytes: int, door: "Door") -> Response:
    with door.conversation(request, deadline) as talk:
        status, headers = talk.head()
        unpacker = _Unpacker(headers.get("content-encoding", ""), max_bytes)
        body = b"".join(unpacker.unpacked(talk.pieces()))
    return Response(status, headers, body, request.url)


class Door:
    """Shared by the threads of one process: the thread that waits reads for all of them."""

    def __init__(self, channel: socket.socket) -> None:
        self.pid = os.getpid()
        self._channel = channel
        self._buffer = bytearray()
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._reading = False
        self._ended = False
        self._last = 0
        self._waiting: dict[int, deque[Frame]] = {}

    def conversation(self, request: _Request, deadline: float) -> "_HttpExchange":
        head = {
            "method": request.method,
            "url": request.url,
            "headers": list(request.headers.items()),
            "length": len(request.body),
            "timeout_s": max(0.001, deadline - time.monotonic()),
        }
        payload = json.dumps(head).encode()
        if len(payload) > _LONGEST_HEAD:
            raise EgressError("REQUEST_INVALID", "the headers are too long")
        with self._sending:
            number = self._announce()
            self._channel_send(Frame(FrameKind.REQUEST, number, payload))
        return _HttpExchange(self, number, request.body, deadline + _SPARE_S)

    def _announce(self) -> int:
        with self._changed:
            self._last += 1
            self._waiting[self._last] = deque()
            return self._last

    def send(self, frame: Frame) -> None:
        with self._sending:
            self._channel_send(frame)

    def _channel_send(self, frame: Frame) -> None:
        try:
            self._channel.sendall(pack(frame))
        except OSError:
            raise _lost() from None

    def forget(self, number: int) -> None:
        with self._changed:
            self._waiting.pop(number, None)

    def next_frame(self, number: int, deadline: float) -> Frame:
        """Raises EgressError."""
        with self._changed:
            mine = self._waiting[number]
            while not mine:
                if self._ended:
                    raise _lost()
                if self._reading:
                    self._changed.wait(max(0.0, deadline - time.monotonic()))
                else:
                    self._read(deadline)
                if not mine and time.monotonic() > deadline:
                    raise EgressError("TIMEOUT", "the broker does not answer")
            return mine.popleft()

    def _read(self, deadline: float) -> None:
        """Once, without the lock; then everybody looks whether something came for them."""
        self._reading = True
        self._changed.release()
        try:
            received = self.receive(deadline)
        finally:
            self._changed.acquire()
            self._reading = False
            self._changed.notify_all()
        if received is None:
            return
        self._ended = not received
        self._buffer += received
        while (frame := unpack(self._buffer)) is not None:
            if frame.number in self._waiting:
                self._waiting[frame.number].append(frame)

    def receive(self, deadline: float) -> bytes | None:
        """None when nothing came in time."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return None
        try:
            return self._channel.recv(PIECE)
        except ConnectionError:
            return b""


class _HttpExchange:
    """One request and what comes of it. Leaving early cancels it."""

    def __init__(self, door: Door, number: int, body: bytes, deadline: float) -> None:
        self._door, self._number, self._deadline = door, number, deadline
        self._body = body
        self._over = False

    def __enter__(self) -> "_HttpExchange":
        for start in range(0, len(self._body), PIECE):
            piece = self._body[start : start + PIECE]
            self._door.send(Frame(FrameKind.BODY, self._number, piece))
        return self

    def __exit__(self, *_: object) -> None:
        self._door.forget(self._number)
        if not self._over:
            with suppress(EgressError):  # the door may be what was lost
                self._door.send(Frame(FrameKind.CANCEL, self._number, b""))

    def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers. Raises EgressError."""
        answer = json.loads(self._next().payload)
        headers: dict[str, str] = {}
        for name, value in answer["headers"]:
            glue = "\n" if name == "set-cookie" else ", "
            headers[name] = f"{headers[name]}{glue}{value}" if name in headers else value
        return answer["status"], headers

    def pieces(self) -> Iterator[bytes]:
        while (frame := self._next()).kind == FrameKind.BODY:
            yield frame.payload

    def _next(self) -> Frame:
        frame = self._door.next_frame(self._number, self._deadline)
        self._over = frame.kind in {FrameKind.END, FrameKind.REFUSED}
        if frame.kind == FrameKind.REFUSED:
            refusal = json.loads(frame.payload)
            raise EgressError(refusal["code"], refusal["message"])
        return frame


class _Unpacker:
    """Undoes gzip and deflate piece by piece, so that a bomb is noticed before it is large."""

    def __init__(self, encoding: str, most: int) -> None:
        self._encoding = encoding.strip().lower()
        self._packed = self._encoding in {"gzip", "x-gzip", "deflate"}
        self._most = most
        self._received = self._made = 0
        self._inflater: zlib._Decompress | None = None

    def unpacked(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Raises EgressError."""
        for piece in pieces:
            self._received += len(piece)
            yield from self._inflated(piece) if self._packed else [self._counted(piece)]
        if self._inflater is not None and not self._inflater.eof:
            raise EgressError("RESPONSE_INVALID", "the packed body ends too early")

    def _inflated(self, piece: bytes) -> Iterator[bytes]:
        left, made = piece, b""
        while left or len(made) == PIECE:
            if self._inflater is None or (self._inflater.eof and left):
                self._inflater = zlib.decompressobj(self._window(left))
            try:
                made = self._inflater.decompress(left, PIECE)
            except zlib.error:
                raise EgressError("RESPONSE_INVALID", "the body is not packed as it says") from None
            left = self._inflater.unconsumed_tail or self._inflater.unused_data
            yield self._counted(made)

    def _window(self, start: bytes) -> int:
        """What calls itself deflate comes with a header of zlib, or, against its rule, without."""
        if self._encoding != "deflate":
            return _GZIP
        return _ZLIB if start[0] & 0x0F == 8 else _RAW

    def _counted(self, made: bytes) -> bytes:
        self._made += len(made)
        if self._made > self._most:
            raise EgressError("TOO_LARGE", f"the body has more than {self._most} bytes")
        if self._made > max(_SMALL, _MOST_RATIO * self._received):
            raise EgressError("TOO_LARGE", f"the body unpacks to over {_MOST_RATIO} times its size")
        return made


def _lost() -> EgressError:
    return EgressError("EGRESS_UNAVAILABLE", "the way out is closed")


def _complete(headers: Mapping[str, str]) -> dict[str, str]:
    lowered = {name.lower(): value for name, value in headers.items()}
    if not all(isinstance(value, str) for value in lowered.values()):
        raise EgressError("REQUEST_INVALID", "the value of a header is a text")
    return {"accept": "*/*", "accept-encoding": "gzip, deflate", "user-agent": "toolcrib"} | lowered


def _escaped(url: str) -> str:
    """Letters of other alphabets behind the host in the form HTTP has for them; no fragment."""
    start, slashes, rest = url.partition("#")[0].partition("://")
    end = next((at for at, letter in enumerate(rest) if letter in "/?"), len(rest))
    target = quote(rest[end:], safe=_PRINTABLE, errors="replace")
    return f"{start}{slashes}{rest[:end]}{target}"


def _joined(base: str, location: str) -> str:
    try:
        return _escaped(urljoin(base, location))
    except ValueError:
        raise EgressError("REQUEST_INVALID", "a redirect to what is no URL") from None


def _origin(url: str) -> tuple[str, str]:
    """What is the same origin in other words counts as another one."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()
