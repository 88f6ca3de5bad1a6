"""HTTP/1.1 to one origin over reused connections: only to addresses that are allowed, without
redirects, with limits on all responses."""

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
from tools.mcpclient.errors import (
    AnswerLost,
    InvalidAnswer,
    Unauthorized,
    UpstreamUnavailable,
    parse_challenge,
    quote_text,
)
from tools.mcpclient.json_rpc import MOST_MESSAGE_BYTES

MOST_CONNECTIONS = 32
KEEP_ALIVE_S = 4.0  # many servers close after five; the Keep-Alive header may say otherwise
_LONGEST_KEEP_ALIVE_S = 60.0
_HEADER_BYTES = 64 * 1024
_MOST_INTERIM_RESPONSES = 16
_LONGEST_ADDRESS = 300
_DRAIN_TIMEOUT_S = 1.0
_DRAIN_BYTES = 64 * 1024
_KEEP_ALIVE_TIMEOUT = re.compile(r"timeout\s*=\s*(\d{1,5})", re.IGNORECASE)

Headers = list[tuple[str, str]]


class McpHttpResponse:
    """A response whose headers were received, and whose body is read later."""

    def __init__(self, connection: "_Connection", response: h11.Response) -> None:
        self._connection = connection
        self.complete = False  # True if the rest of the body is not needed
        self.status = int(response.status_code)
        self.headers = {name.decode(): value.decode("latin-1") for name, value in response.headers}
        challenges = [value for name, value in response.headers if name == b"www-authenticate"]
        if challenges:  # each scheme may have a header of its own
            self.headers["www-authenticate"] = b", ".join(challenges).decode("latin-1")

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def iter_body(self) -> AsyncIterator[bytes]:
        """Raises AnswerLost if the body is not complete."""
        while isinstance(event := await self._connection.next_event(), h11.Data):
            yield bytes(event.data)

    async def read_body(self, limit: int = MOST_MESSAGE_BYTES) -> bytes:
        """Raises AnswerLost, InvalidAnswer."""
        body = bytearray()
        async for piece in self.iter_body():
            body += piece
            if len(body) > limit:
                raise InvalidAnswer(f"The MCP server answered with more than {limit} bytes.")
        return bytes(body)


def unauthorized_error(answer: McpHttpResponse) -> Unauthorized:
    """The error of a status 401 or 403."""
    message = f"The MCP server refused our credentials (status {answer.status})."
    return Unauthorized(message, parse_challenge(answer.headers.get("www-authenticate", "")))


def redirect_error(answer: McpHttpResponse, url: Url) -> InvalidAnswer:
    """The error of a status from 300 to 399. It names the target without its query, which may be
    secret."""
    base = f"{url.scheme}://{url.authority}{url.target}"
    try:
        target = Url.parse(urljoin(base, answer.headers.get("location", "").strip()))
    except (BrokenGrammar, ValueError):
        target = url
    if target == url:
        message = f"The MCP server redirects (status {answer.status}); that is not followed."
        return InvalidAnswer(message)
    address = quote_text(f"{target.scheme}://{target.authority}{target.path}", _LONGEST_ADDRESS)
    same_origin = (target.scheme, target.host, target.port) == (url.scheme, url.host, url.port)
    advice = "enter that address" if same_origin else "enter that address if you trust it"
    return InvalidAnswer(f"The MCP server redirects to {address}; that is not followed: {advice}.")


class OriginConnections:
    """The connections to the origin of one URL, at most `MOST_CONNECTIONS` at a time."""

    def __init__(self, url: Url, dialer: Dialer) -> None:
        self._url, self._dialer = url, dialer
        self._turns = dialer.turns()
        self._slots = asyncio.Semaphore(MOST_CONNECTIONS)
        self._idle: list[_Connection] = []
        self._drain_tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def exchange(
        self, method: str, target: str, headers: Headers, body: bytes = b""
    ) -> AsyncIterator[McpHttpResponse]:
        """Raises UpstreamUnavailable, AnswerLost, InvalidAnswer."""
        async with self._slots:
            connection = await self._send_request(method, target, headers, body)
            answer = None
            try:
                answer = McpHttpResponse(connection, await connection.response())
                yield answer
            finally:
                if connection.start_next_exchange():
                    self._idle.append(connection)
                elif answer is not None and answer.complete:
                    self._drain_later(connection, answer)
                else:
                    connection.close()

    def _drain_later(self, connection: "_Connection", answer: McpHttpResponse) -> None:
        """A stream usually ends soon after its answer; then its connection can be reused."""
        task = asyncio.get_running_loop().create_task(self._drain(connection, answer))
        self._drain_tasks.add(task)
        task.add_done_callback(self._drain_tasks.discard)

    async def _drain(self, connection: "_Connection", answer: McpHttpResponse) -> None:
        try:
            async with asyncio.timeout(_DRAIN_TIMEOUT_S):
                await answer.read_body(_DRAIN_BYTES)
        except (AnswerLost, InvalidAnswer, TimeoutError):
            connection.close()
        except BaseException:
            connection.close()
            raise
        else:
            if connection.start_next_exchange():
                self._idle.append(connection)
            else:
                connection.close()

    async def _send_request(
        self, method: str, target: str, headers: Headers, body: bytes
    ) -> "_Connection":
        request = h11.Request(
            method=method,
            target=target,
            headers=[("Host", self._url.authority), *headers, ("Content-Length", str(len(body)))],
        )
        while (connection := self._take_idle()) is not None:
            try:
                await connection.send(request, body)
            except UpstreamUnavailable:
                continue
            return connection
        connection = await self._open_connection()
        await connection.send(request, body)
        return connection

    def _take_idle(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable():
                return connection
            connection.close()
        return None

    async def _open_connection(self) -> "_Connection":
        try:
            upstream = await self._dialer.connect(self._url.host, self._url.port, self._turns)
        except Denied as refusal:
            raise UpstreamUnavailable(f"The MCP server cannot be reached: {refusal}.") from None
        try:
            secure = self._url.scheme == "https"
            stream = (
                await self._dialer.secure(upstream, self._url.host) if secure else upstream.stream
            )
        except Denied as refusal:
            upstream.stream.close()
            raise UpstreamUnavailable(f"The MCP server cannot be reached: {refusal}.") from None
        except BaseException:
            upstream.stream.close()
            raise
        return _Connection(upstream, stream)

    def close(self) -> None:
        for task in self._drain_tasks:
            task.cancel()
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class _Connection:
    def __init__(self, upstream: UpstreamConnection, stream: ByteStream) -> None:
        self._upstream, self._stream = upstream, stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEADER_BYTES)
        self._keep_alive_s = KEEP_ALIVE_S
        self._idle_until = 0.0
        self._ended = False

    async def send(self, request: h11.Request, body: bytes) -> None:
        """Raises UpstreamUnavailable: then the server has not received the complete request."""
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
            event = await self.next_event()
            if isinstance(event, h11.Response):
                self._read_keep_alive(event)
                return event
        raise InvalidAnswer("The MCP server answered with interim responses only.")

    async def next_event(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                received = await self._stream.receive()
                self._ended = not received
                self._http.receive_data(received)
        except h11.RemoteProtocolError:
            if self._ended:
                raise AnswerLost(
                    "The MCP server closed the connection before its answer was complete."
                ) from None
            raise InvalidAnswer("The MCP server's answer is not HTTP.") from None
        except OSError:
            raise AnswerLost("The connection to the MCP server broke.") from None
        if isinstance(event, h11.ConnectionClosed):
            raise AnswerLost("The MCP server closed the connection before its answer was complete.")
        return event

    def _read_keep_alive(self, response: h11.Response) -> None:
        header = dict(response.headers).get(b"keep-alive", b"").decode("latin-1")
        if match := _KEEP_ALIVE_TIMEOUT.search(header):
            self._keep_alive_s = min(max(int(match.group(1)) - 1.0, 0.0), _LONGEST_KEEP_ALIVE_S)

    def start_next_exchange(self) -> bool:
        """Makes the connection ready for another exchange; False if it cannot be reused."""
        if not (self._http.our_state is h11.DONE and self._http.their_state is h11.DONE):
            return False
        self._http.start_next_cycle()
        self._idle_until = time.monotonic() + self._keep_alive_s
        return True

    def is_reusable(self) -> bool:
        """Whether the server has neither sent anything nor closed it since the last answer."""
        poller = select.poll()
        poller.register(self._upstream.stream.channel, select.POLLIN)
        return time.monotonic() < self._idle_until and not poller.poll(0)

    def close(self) -> None:
        self._stream.close()
