"""HTTP with server-sent events, as servers of 2024 speak it: one lasting stream brings everything,
what we say is posted to an address that the stream begins with."""

import asyncio
from urllib.parse import urljoin

from sandbox.egress.dial import Dialer
from sandbox.egress.rules.grammar import BrokenGrammar, Url
from tools.mcpclient.duplex import StreamTransport, stream_error
from tools.mcpclient.errors import AnswerLost, InvalidAnswer, UpstreamFailure, UpstreamUnavailable
from tools.mcpclient.http import Headers, OriginConnections, redirect_error, unauthorized_error
from tools.mcpclient.messages import parse_message_in_thread
from tools.mcpclient.sse import McpEventReader

_ENDPOINT_TIMEOUT_S = 10.0


class HttpSseTransport(StreamTransport):
    def __init__(self, url: Url, headers: Headers, dialer: Dialer) -> None:
        super().__init__()
        self._url, self._headers = url, [*headers, ("User-Agent", "toolcrib")]
        self._origin = OriginConnections(url, dialer)
        self._address: asyncio.Future[str] | None = None
        self._reader: asyncio.Task[None] | None = None

    async def _connect(self) -> None:
        await self._stop_reading()
        loop = asyncio.get_running_loop()
        self._address = loop.create_future()
        self._reader = loop.create_task(self._read(self._address))
        try:
            async with asyncio.timeout(_ENDPOINT_TIMEOUT_S):
                await asyncio.shield(self._address)
        except TimeoutError:
            raise UpstreamUnavailable("The MCP server did not begin its stream.") from None
        except AnswerLost as problem:
            raise UpstreamUnavailable(str(problem)) from None

    async def _write(self, message: bytes) -> None:
        if self._address is None or not self._address.done():
            raise UpstreamUnavailable("The MCP server's stream has not begun.")
        headers = [*self._headers, ("Content-Type", "application/json")]
        async with self._origin.exchange(
            "POST", self._address.result(), headers, message
        ) as answer:
            await answer.whole()
            if answer.status in {401, 403}:
                raise unauthorized_error(answer)
            if 300 <= answer.status < 400:
                raise redirect_error(answer, self._url)
            if not 200 <= answer.status < 300:
                raise UpstreamUnavailable(
                    f"The MCP server took no message (status {answer.status})."
                )

    async def _hang_up(self) -> None:
        await self._stop_reading()
        self._origin.close()

    async def _stop_reading(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        if self._address is not None and self._address.done():
            self._address.exception()  # nobody else may have looked at it

    async def _read(self, address: asyncio.Future[str]) -> None:
        problem: UpstreamFailure = AnswerLost("The MCP server ended the stream.")
        try:
            await self._events(address)
        except UpstreamFailure as failure:
            problem = failure
        finally:
            if not address.done():
                address.set_exception(problem)
                address.exception()
            elif address is self._address:
                self._ended(stream_error(problem))

    async def _events(self, address: asyncio.Future[str]) -> None:
        headers = [*self._headers, ("Accept", "text/event-stream")]
        async with self._origin.exchange("GET", self._url.target, headers) as answer:
            if answer.status in {401, 403}:
                raise unauthorized_error(answer)
            if 300 <= answer.status < 400:
                raise redirect_error(answer, self._url)
            if answer.status != 200 or answer.kind != "text/event-stream":
                raise InvalidAnswer("The MCP server has no stream of events at this address.")
            events = McpEventReader()
            async for piece in answer.pieces():
                for event in events.feed(piece):
                    if event.kind == "endpoint" and not address.done():
                        address.set_result(self._target(event.data))
                    elif event.kind == "message" and await self._take(
                        await parse_message_in_thread(event.data)
                    ):
                        events.forgive()

    def _target(self, data: bytes) -> str:
        """Where to post, at the same origin: credentials go nowhere else."""
        here = f"{self._url.scheme}://{self._url.authority}{self._url.target}"
        try:
            there = Url.parse(urljoin(here, data.decode("ascii").strip()))
        except (BrokenGrammar, ValueError):
            raise InvalidAnswer("The MCP server named an address that cannot be called.") from None
        same = (self._url.scheme, self._url.host, self._url.port)
        if (there.scheme, there.host, there.port) != same:
            raise InvalidAnswer("The MCP server named an address of another host.")
        return there.target
