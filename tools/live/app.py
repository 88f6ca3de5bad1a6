"""`GET /live/?of=…`: an ASGI application that serves page updates as server-sent events, only to
pages of the product. An event reports that something changed, without content.

A stream costs a coroutine: no thread, and no connection to any store.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.conf import settings
from django.http.cookie import parse_cookie
from django.http.request import split_domain_port, validate_host

from tools.definitions.values.server_sent_events import encode_event
from tools.live.live_streams import LiveStream, LiveStreams, StreamLimitReached, Topics
from tools.live.readers import DATABASE_ERRORS, ReaderLookup
from tools.live.relay import Relay

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
log = logging.getLogger(__name__)
PATH = "/live/"
GAP_S = 1.0  # between two events of a stream
HEARTBEAT_S = 15.0
_LONGEST = 1_000  # characters of the topics of a page
_KEY_LENGTH = 64
_FIRST_COMMENT, _HEARTBEAT_COMMENT = b": following\n\n", b": still here\n\n"
_SEND_TIMEOUT_S = 30.0  # for a client that reads nothing


class Refusal(Exception):
    """The stream is not opened; the status says why."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Live:
    def __init__(self) -> None:
        self.streams = LiveStreams(settings.LIVE_STREAMS)
        self.reader_lookup = ReaderLookup()
        self.relay = Relay(self.streams)
        self._tasks: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            event = (await receive())["type"]
            if event == "lifespan.startup":
                work = (
                    self.relay.listen,
                    self.relay.notify_streams,
                    self.relay.watch,
                    self.reader_lookup.run,
                )
                self._tasks = [asyncio.create_task(one()) for one in work]
                for task in self._tasks:
                    task.add_done_callback(_exit_when_done)
            else:
                for task in self._tasks:
                    task.cancel()
                self.streams.end_all()
            await send({"type": f"{event}.complete"})
            if event == "lifespan.shutdown":
                return

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        try:
            key, topics = self._parse_request(scope, headers)
            address = scope["client"][0] if scope.get("client") else ""
            with self.streams.open_stream(key, topics, address) as stream:
                await self._admit(stream)
                await send(response_start(200, headers.get("origin")))
                await self._follow(stream, receive, send)
        except Refusal as refusal:
            await refuse(send, refusal.status)
        except StreamLimitReached:
            await refuse(send, 503)

    def _parse_request(self, scope: Scope, headers: dict[str, str]) -> tuple[str, Topics]:
        """The browser's session key, and the topics of its page. Raises `Refusal`."""
        if scope["path"] != PATH:
            raise Refusal(404)
        if scope["method"] != "GET":
            raise Refusal(405)
        if not is_own_origin(headers):
            raise Refusal(403)
        key = parse_cookie(headers.get("cookie", "")).get(settings.SESSION_COOKIE_NAME, "")
        if not key.isascii() or not key.isalnum() or len(key) > _KEY_LENGTH:
            raise Refusal(401)
        query = bytes(scope["query_string"])[:_LONGEST].decode("ascii", "replace")
        try:
            return key, Topics.read(parse_qs(query, max_num_fields=16).get("of", []))
        except ValueError:
            raise Refusal(400) from None

    async def _admit(self, stream: LiveStream) -> None:
        if not self.relay.subscribed:
            raise Refusal(503)
        try:
            reader = await self.reader_lookup.reader(stream.key)
        except DATABASE_ERRORS as error:
            log.warning("The logged-in user cannot be loaded: %s", type(error).__name__)
            raise Refusal(503) from error
        if reader is None:
            raise Refusal(401)
        self.streams.admit(stream, reader)
        if not self.relay.subscribed:  # the subscription may have ended meanwhile
            raise Refusal(503)

    async def _follow(self, stream: LiveStream, receive: Receive, send: Send) -> None:
        """Send events until the client disconnects or loses access."""
        gone = asyncio.create_task(_watch_disconnect(receive, stream))
        try:
            await send_body(send, _FIRST_COMMENT)
            while not stream.over:
                await self._send_next(stream, send)
            await send_end(send)
        except (TimeoutError, OSError, RuntimeError):
            pass  # it takes nothing any more
        finally:
            gone.cancel()

    async def _send_next(self, stream: LiveStream, send: Send) -> None:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await stream.changed.wait()
        except TimeoutError:
            await send_body(send, _HEARTBEAT_COMMENT)
            return
        if stream.over:
            return
        stream.changed.clear()
        await send_body(send, encode_event("changed", self.streams.spread_ms))
        await asyncio.sleep(GAP_S)


application = Live()


def is_own_origin(headers: Mapping[str, str]) -> bool:
    """Whether the request is from the product's own origin: by `Origin`, else `Sec-Fetch-Site`."""
    host = headers.get("host", "")
    domain, _ = split_domain_port(host)
    if not domain or not validate_host(domain, settings.ALLOWED_HOSTS):
        return False
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site", "none") in {"none", "same-origin"}
    return origin in settings.CSRF_TRUSTED_ORIGINS or _is_same_host(origin, host, domain)


def headers_of(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): said.decode("latin-1") for name, said in scope["headers"]}


async def send_end(send: Send) -> None:
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def send_body(send: Send, body: bytes) -> None:
    async with asyncio.timeout(_SEND_TIMEOUT_S):
        await send({"type": "http.response.body", "body": body, "more_body": True})


def response_start(status: int, origin: str | None) -> MutableMapping[str, Any]:
    headers = [
        (b"content-type", b"text/event-stream" if status == 200 else b"text/plain"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
        (b"x-content-type-options", b"nosniff"),
        (b"vary", b"Origin, Cookie"),
    ]
    if origin:
        headers += [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-allow-credentials", b"true"),
        ]
    return {"type": "http.response.start", "status": status, "headers": headers}


async def refuse(send: Send, status: int) -> None:
    await send(response_start(status, None))
    await send_end(send)


def _exit_when_done(task: asyncio.Task[None]) -> None:
    """End the process when a loop ends, since streams would get no events: the supervisor restarts
    it."""
    if not task.cancelled():
        log.critical("The live process ends", exc_info=task.exception())
        os._exit(1)


async def _watch_disconnect(receive: Receive, stream: LiveStream) -> None:
    try:
        with suppress(OSError, RuntimeError):  # raised by the server after a client disconnected
            while (await receive())["type"] != "http.disconnect":
                pass
    finally:
        stream.end()


def _is_same_host(origin: str, host: str, domain: str) -> bool:
    """Whether the origin is this address, or that of the web process on the same host."""
    try:
        found = urlsplit(origin)
        port = found.port or {"http": 80, "https": 443}.get(found.scheme)
    except ValueError:
        return False
    if found.scheme not in {"http", "https"} or origin != f"{found.scheme}://{found.netloc}":
        return False
    at, _ = split_domain_port(found.netloc)
    return found.netloc.lower() == host.lower() or (at == domain and port == settings.WEB_PORT)
