"""HTTP/1.1 to one origin over connections that are kept: to checked addresses, without redirects,
with bounds on all that comes back."""

import asyncio
import re
import select
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urljoin

import h11

from sandbox.egress.dial import Dialer, UpstreamConnection
from sandbox.egress.entry_points.streams import ByteStream
from sandbox.egress.rules.egress_policy import Denied
from sandbox.egress.rules.grammar import BrokenGrammar, Url
from tools.mcpclient.challenge import parse_challenge
from tools.mcpclient.errors import (
    AnswerLost,
    InvalidAnswer,
    Unauthorized,
    UpstreamUnavailable,
    quote_text,
)
from tools.mcpclient.messages import MOST_MESSAGE_BYTES

MOST_CONNECTIONS = 32
KEEP_ALIVE_S = 4.0  # many servers close after five; one that says so is kept longer
_LONGEST_KEEP_ALIVE_S = 60.0
_HEADER_BYTES = 64 * 1024
_MOST_INTERIM_RESPONSES = 16
_LONGEST_ADDRESS = 300
_DRAIN_TIMEOUT_S = 1.0
_DRAIN_BYTES = 64 * 1024
_KEEP_ALIVE_TIMEOUT = re.compile(r"timeout\s*=\s*(\d{1,5})", re.IGNORECASE)

Headers = list[tuple[str, str]]


class McpHttpResponse:
    """Status and headers; the body is still to come."""

    def __init__(self, connection: "_Connection", response: h11.Response) -> None:
        self._connection = connection
        self.done = False  # what still comes of the body is of no interest
        self.status = int(response.status_code)
        self.headers = {name.decode(): value.decode("latin-1") for name, value in response.headers}
        wanted = [value for name, value in response.headers if name == b"www-authenticate"]
        if wanted:  # each way of authentication may have a line of its own
            self.headers["www-authenticate"] = b", ".join(wanted).decode("latin-1")

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Raises Lost where it ends before its end."""
        while isinstance(event := await self._connection.event(), h11.Data):
            yield bytes(event.data)

    async def whole(self, most: int = MOST_MESSAGE_BYTES) -> bytes:
        """Raises Lost, Unusable."""
        body = bytearray()
        async for piece in self.pieces():
            body += piece
            if len(body) > most:
                raise InvalidAnswer(f"The MCP server answered with more than {most} bytes.")
        return bytes(body)


def unauthorized_error(answer: McpHttpResponse) -> Unauthorized:
    """Of a status 401 or 403."""
    message = f"The MCP server refused our credentials (status {answer.status})."
    return Unauthorized(message, parse_challenge(answer.headers.get("www-authenticate", "")))


def redirect_error(answer: McpHttpResponse, url: Url) -> InvalidAnswer:
    """Of a status from 300 to 399: where to, without a query, which may hold a secret."""
    here = f"{url.scheme}://{url.authority}{url.target}"
    try:
        there = Url.parse(urljoin(here, answer.headers.get("location", "").strip()))
    except (BrokenGrammar, ValueError):
        there = url
    if there == url:
        message = f"The MCP server redirects (status {answer.status}); that is not followed."
        return InvalidAnswer(message)
    address = quote_text(f"{there.scheme}://{there.authority}{there.path}", _LONGEST_ADDRESS)
    same = (there.scheme, there.host, there.port) == (url.scheme, url.host, url.port)
    advice = "enter that address" if same else "enter that address if you trust it"
    return InvalidAnswer(f"The MCP server redirects to {address}; that is not followed: {advice}.")


class OriginConnections:
    """The connections to the host of one URL."""

    def __init__(self, url: Url, dialer: Dialer) -> None:
        self._url, self._dialer = url, dialer
        self._turns = dialer.turns()
        self._room = asyncio.Semaphore(MOST_CONNECTIONS)
        self._kept: list[_Connection] = []
        self._draining: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def exchange(
        self, method: str, target: str, headers: Headers, body: bytes = b""
    ) -> AsyncIterator[McpHttpResponse]:
        """Raises NeverBegan, Lost and Unusable."""
        async with self._room:
            connection = await self._sent(method, target, headers, body)
            answer = None
            try:
                answer = McpHttpResponse(connection, await connection.response())
                yield answer
            finally:
                if connection.finished():
                    self._kept.append(connection)
                elif answer is not None and answer.done:
                    self._drain_later(connection, answer)
                else:
                    connection.close()

    def _drain_later(self, connection: "_Connection", answer: McpHttpResponse) -> None:
        """A stream ends soon after its answer; then the connection may be used again."""
        task = asyncio.get_running_loop().create_task(self._drained(connection, answer))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    async def _drained(self, connection: "_Connection", answer: McpHttpResponse) -> None:
        try:
            async with asyncio.timeout(_DRAIN_TIMEOUT_S):
                await answer.whole(_DRAIN_BYTES)
        except (AnswerLost, InvalidAnswer, TimeoutError):
            connection.close()
        except BaseException:
            connection.close()
            raise
        else:
            if connection.finished():
                self._kept.append(connection)
            else:
                connection.close()

    async def _sent(self, method: str, target: str, headers: Headers, body: bytes) -> "_Connection":
        request = h11.Request(
            method=method,
            target=target,
            headers=[("Host", self._url.authority), *headers, ("Content-Length", str(len(body)))],
        )
        while (kept := self._fresh()) is not None:
            try:
                await kept.send(request, body)
            except UpstreamUnavailable:
                continue
            return kept
        made = await self._connected()
        await made.send(request, body)
        return made

    def _fresh(self) -> "_Connection | None":
        while self._kept:
            connection = self._kept.pop()
            if connection.fresh():
                return connection
            connection.close()
        return None

    async def _connected(self) -> "_Connection":
        try:
            line = await self._dialer.connect(self._url.host, self._url.port, self._turns)
        except Denied as refusal:
            raise UpstreamUnavailable(f"The MCP server cannot be reached: {refusal}.") from None
        try:
            secure = self._url.scheme == "https"
            stream = await self._dialer.secure(line, self._url.host) if secure else line.stream
        except Denied as refusal:
            line.stream.close()
            raise UpstreamUnavailable(f"The MCP server cannot be reached: {refusal}.") from None
        except BaseException:
            line.stream.close()
            raise
        return _Connection(line, stream)

    def close(self) -> None:
        for task in self._draining:
            task.cancel()
        kept, self._kept = self._kept, []
        for connection in kept:
            connection.close()


class _Connection:
    def __init__(self, line: UpstreamConnection, stream: ByteStream) -> None:
        self._line, self._stream = line, stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEADER_BYTES)
        self._kept_s = KEEP_ALIVE_S
        self._until = 0.0
        self._ended = False

    async def send(self, request: h11.Request, body: bytes) -> None:
        """Raises NeverBegan, and then the server has not the whole of it."""
        try:
            data = [self._http.send(request), self._http.send(h11.Data(data=body))]
            data.append(self._http.send(h11.EndOfMessage()))
            await self._stream.send(b"".join(part for part in data if part))
        except OSError:
            self.close()
            raise UpstreamUnavailable("The MCP server closed the connection.") from None
        except BaseException:
            self.close()
            raise

    async def response(self) -> h11.Response:
        for _ in range(_MOST_INTERIM_RESPONSES):
            event = await self.event()
            if isinstance(event, h11.Response):
                self._note_patience(event)
                return event
        raise InvalidAnswer("The MCP server answered with interim answers alone.")

    async def event(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                received = await self._stream.receive()
                self._ended = not received
                self._http.receive_data(received)
        except h11.RemoteProtocolError:
            if self._ended:
                raise AnswerLost("The MCP server closed the connection midway.") from None
            raise InvalidAnswer("The MCP server's answer is no HTTP.") from None
        except OSError:
            raise AnswerLost("The connection to the MCP server broke.") from None
        if isinstance(event, h11.ConnectionClosed):
            raise AnswerLost("The MCP server closed the connection midway.")
        return event

    def _note_patience(self, response: h11.Response) -> None:
        told = dict(response.headers).get(b"keep-alive", b"").decode("latin-1")
        if found := _KEEP_ALIVE_TIMEOUT.search(told):
            self._kept_s = min(max(int(found.group(1)) - 1.0, 0.0), _LONGEST_KEEP_ALIVE_S)

    def finished(self) -> bool:
        """Whether it can carry another exchange; then it is ready for one."""
        if not (self._http.our_state is h11.DONE and self._http.their_state is h11.DONE):
            return False
        self._http.start_next_cycle()
        self._until = time.monotonic() + self._kept_s
        return True

    def fresh(self) -> bool:
        """Nothing has come since the last answer: neither bytes nor an end."""
        look = select.poll()
        look.register(self._line.stream.channel, select.POLLIN)
        return time.monotonic() < self._until and not look.poll(0)

    def close(self) -> None:
        self._stream.close()
