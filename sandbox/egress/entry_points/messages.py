"""HTTP/1.1 of one request: the message that is sent, and the parts of the response a run gets.

Every message is rewritten from its parts. Nothing that frames a message on one side reaches the
other, so no two readers can disagree about where it ends (request smuggling).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import h11

from sandbox.egress.entry_points.streams import ByteStream
from sandbox.egress.ledger import EgressLedgerEntry
from sandbox.egress.rules.egress_policy import Code, Denied
from sandbox.egress.rules.grammar import Url
from sandbox.egress.rules.host_rules import HEADER_NAME, OF_THE_CONNECTION

HEAD_BYTES = 64 * 1024
MOST_HEADERS = 128
VERSIONS = frozenset({b"1.0", b"1.1"})  # the library takes any pair of digits
_PIECES_IN_A_ROW = 32  # then others have their turn: one byte may make a piece

_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})  # these say so when theirs is empty

type Headers = list[tuple[str, str]]


async def no_body() -> AsyncIterator[bytes]:
    return
    yield


@dataclass(frozen=True)
class EgressRequest:
    """What a run wants. `length` is that of the body, None when its end comes as a surprise."""

    method: str
    url: str
    headers: Headers = field(default_factory=list)
    length: int | None = 0
    body: AsyncIterator[bytes] = field(default_factory=no_body)
    timeout_s: float | None = None


@dataclass(frozen=True)
class EgressResponse:
    """`length` is None when it is known only at the end of the body."""

    status: int
    headers: Headers
    length: int | None
    body: AsyncIterator[bytes]


def decoded(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def likened(name: str) -> str:
    """Many servers do not distinguish X_Key from X-Key: a run that may not send one may not send
    the other."""
    return name.lower().replace("_", "-")


def end_to_end(headers: Headers) -> Headers:
    """Without what belongs to one connection, also where the message itself says so."""
    named = {
        likened(word.strip())
        for name, value in headers
        if likened(name) == "connection"
        for word in value.split(",")
    }
    dropped = OF_THE_CONNECTION | named
    return [(name.lower(), value) for name, value in headers if likened(name) not in dropped]


def check(headers: Headers) -> None:
    """Raises Denied for what HTTP does not know, and for a body with two lengths."""
    names = {likened(name) for name, _ in headers}
    if len(headers) > MOST_HEADERS:
        raise Denied(Code.REQUEST_INVALID, f"more than {MOST_HEADERS} headers")
    if sum(len(name) + len(value) for name, value in headers) > HEAD_BYTES:
        raise Denied(Code.REQUEST_INVALID, f"headers of more than {HEAD_BYTES} bytes")
    if not all(HEADER_NAME.fullmatch(name) for name in names):
        raise Denied(Code.REQUEST_INVALID, "a header name that HTTP does not know")
    if names >= {"content-length", "transfer-encoding"}:
        raise Denied(Code.REQUEST_INVALID, "a body with two lengths")


def outgoing(
    request: EgressRequest, url: Url, credentials: Iterable[tuple[str, str]]
) -> h11.Request:
    """Raises Denied. A credential takes the place of the run's own header of that name."""
    added = [(name.lower(), value) for name, value in credentials]
    replaced = {likened(name) for name, _ in added}
    kept = [pair for pair in end_to_end(request.headers) if likened(pair[0]) not in replaced]
    headers = [("host", url.authority), *kept, *added, ("connection", "close")]
    if request.length is None:
        headers.append(("transfer-encoding", "chunked"))
    elif request.length or request.method in _WITH_BODY:
        headers.append(("content-length", str(request.length)))
    try:
        return h11.Request(
            method=request.method.encode("ascii"),
            target=url.target.encode("ascii"),
            headers=[(name.encode("ascii"), value.encode("latin-1")) for name, value in headers],
        )
    except (h11.LocalProtocolError, UnicodeEncodeError):
        raise Denied(Code.REQUEST_INVALID, "a header value that HTTP does not know") from None


async def gathered(
    http: h11.Connection, receive: Callable[[], Awaitable[None]]
) -> AsyncIterator[bytes]:
    """A body as it comes. Pieces that came together stay together, however small they are.

    Raises EOFError when something else comes than the end of the message, and what h11 raises.
    """
    pieces: list[bytes] = []
    while not isinstance(event := http.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Data):
            pieces.append(bytes(event.data))
        elif event is not h11.NEED_DATA:
            raise EOFError
        if pieces and (event is h11.NEED_DATA or len(pieces) >= _PIECES_IN_A_ROW):
            yield b"".join(pieces)
            pieces.clear()
            await asyncio.sleep(0)
        if event is h11.NEED_DATA:
            await receive()
    if pieces:
        yield b"".join(pieces)


class EgressUpstream:
    """One request on one connection, which is closed after it."""

    def __init__(self, stream: ByteStream, entry: EgressLedgerEntry) -> None:
        self._stream, self._entry = stream, entry
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)

    async def send(self, request: h11.Request, body: AsyncIterator[bytes]) -> None:
        """Raises Denied. A host that hangs up meanwhile may have answered before."""
        if not await self._write(request):
            return
        async for chunk in body:
            if not await self._write(h11.Data(data=chunk)):
                return
        await self._write(h11.EndOfMessage())

    async def answer(self) -> EgressResponse:
        """Raises Denied."""
        while not isinstance(event := self._event(), h11.Response):
            if event is h11.NEED_DATA:
                await self._receive()
            elif not isinstance(event, h11.InformationalResponse):
                raise Denied(Code.RESPONSE_INVALID, "the host hung up before it answered")
        if event.http_version not in VERSIONS:
            raise Denied(Code.RESPONSE_INVALID, "the answer is not HTTP/1.1")
        headers = end_to_end(decoded(event.headers))
        return EgressResponse(event.status_code, headers, _length(event.headers), self._body())

    async def _body(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in gathered(self._http, self._receive):
                yield chunk
        except (h11.RemoteProtocolError, EOFError):
            reason = "the host hung up in the middle of its answer"
            raise Denied(Code.RESPONSE_INVALID, reason) from None

    async def _write(self, event: h11.Request | h11.Data | h11.EndOfMessage) -> bool:
        """False when the receiver is gone."""
        try:
            data = self._http.send(event)
        except h11.LocalProtocolError:
            reason = "the body is not as long as announced"
            raise Denied(Code.REQUEST_INVALID, reason) from None
        self._entry.sent(len(data))
        try:
            await self._stream.send(data)
        except OSError:
            return False
        return True

    def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError:
            raise Denied(Code.RESPONSE_INVALID, "the answer is not HTTP/1.1") from None

    async def _receive(self) -> None:
        try:
            data = await self._stream.receive()
        except OSError:
            raise Denied(Code.RESPONSE_INVALID, "the connection broke") from None
        self._entry.received(len(data))
        self._http.receive_data(data)


def _length(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """Raises Denied for a message that states its length twice, in two ways."""
    found = dict(headers)
    if b"transfer-encoding" in found:
        if b"content-length" in found:
            raise Denied(Code.RESPONSE_INVALID, "the answer has two lengths")
        return None
    return int(found[b"content-length"]) if b"content-length" in found else None
