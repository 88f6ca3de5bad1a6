"""`GET /live/?of=…`: an ASGI application that serves page updates as server-sent events. An event
reports that something changed, without content.

A stream costs a coroutine: no thread, and no connection to any store.
"""

import asyncio
import logging
import os
from contextlib import suppress
from urllib.parse import parse_qs

from django.conf import settings
from django.http.cookie import parse_cookie

from tools.live.asgi import (
    Receive,
    Scope,
    Send,
    headers_of,
    refuse,
    response_start,
    send_body,
    send_end,
)
from tools.live.asking import DATABASE_ERRORS, ReaderLookup
from tools.live.live_streams import LiveStream, LiveStreams, StreamLimitReached, Topics
from tools.live.origins import is_own_origin
from tools.live.relay import Relay

log = logging.getLogger(__name__)
PATH = "/live/"
GAP_S = 1.0  # between two events of a stream
HEARTBEAT_S = 15.0
_LONGEST = 1_000  # characters of the topics of a page
_KEY_LENGTH = 64
_FIRST_COMMENT, _HEARTBEAT_COMMENT = b": following\n\n", b": still here\n\n"


class Refusal(Exception):
    """The stream is not opened; the status says why."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Live:
    def __init__(self) -> None:
        self.streams = LiveStreams(settings.LIVE_STREAMS)
        self.door = ReaderLookup()
        self.relay = Relay(self.streams)
        self._tasks: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            asked = (await receive())["type"]
            if asked == "lifespan.startup":
                work = (self.relay.listen, self.relay.tell, self.relay.watch, self.door.open)
                self._tasks = [asyncio.create_task(one()) for one in work]
                for task in self._tasks:
                    task.add_done_callback(_exit_when_done)
            else:
                for task in self._tasks:
                    task.cancel()
                self.streams.end_all()
            await send({"type": f"{asked}.complete"})
            if asked == "lifespan.shutdown":
                return

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        try:
            key, topics = self._asked(scope, headers)
            address = scope["client"][0] if scope.get("client") else ""
            with self.streams.place(key, topics, address) as stream:
                await self._enter(stream)
                await send(response_start(200, headers.get("origin")))
                await self._follow(stream, receive, send)
        except Refusal as refusal:
            await refuse(send, refusal.status)
        except StreamLimitReached:
            await refuse(send, 503)

    def _asked(self, scope: Scope, headers: dict[str, str]) -> tuple[str, Topics]:
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

    async def _enter(self, stream: LiveStream) -> None:
        if not self.relay.hears:
            raise Refusal(503)
        try:
            reader = await self.door.reader(stream.key)
        except DATABASE_ERRORS as error:
            log.warning("nobody knows who is logged in: %s", type(error).__name__)
            raise Refusal(503) from error
        if reader is None:
            raise Refusal(401)
        self.streams.admit(stream, reader)
        if not self.relay.hears:  # the subscription may have ended meanwhile
            raise Refusal(503)

    async def _follow(self, stream: LiveStream, receive: Receive, send: Send) -> None:
        """Send events until the client disconnects or loses access."""
        gone = asyncio.create_task(_watch_disconnect(receive, stream))
        try:
            await send_body(send, _FIRST_COMMENT)
            while not stream.over:
                await self._next(stream, send)
            await send_end(send)
        except (TimeoutError, OSError, RuntimeError):
            pass  # it takes nothing any more
        finally:
            gone.cancel()

    async def _next(self, stream: LiveStream, send: Send) -> None:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await stream.rung.wait()
        except TimeoutError:
            await send_body(send, _HEARTBEAT_COMMENT)
            return
        if stream.over:
            return
        stream.rung.clear()
        await send_body(send, f"event: changed\ndata: {self.streams.spread_ms}\n\n".encode())
        await asyncio.sleep(GAP_S)


def _exit_when_done(task: asyncio.Task[None]) -> None:
    """End the process when a loop ends, since streams would get no events: the supervisor restarts
    it."""
    if not task.cancelled():
        log.critical("the live process ends", exc_info=task.exception())
        os._exit(1)


async def _watch_disconnect(receive: Receive, stream: LiveStream) -> None:
    try:
        with suppress(OSError, RuntimeError):  # raised by the server after a client disconnected
            while (await receive())["type"] != "http.disconnect":
                pass
    finally:
        stream.end()


application = Live()
