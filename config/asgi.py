"""The ASGI application for REST and pages: bodies arrive on the event loop, within bounds, and
Django runs in threads, which are assigned in rotation (config/http/turns.py)."""

import asyncio
import hashlib
import sys
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from itertools import chain, islice
from threading import Thread
from typing import Any
from urllib.parse import unquote_to_bytes
from wsgiref.util import FileWrapper

from asgiref.typing import (
    ASGIReceiveCallable,
    ASGISendCallable,
    ASGISendEvent,
    HTTPScope,
    LifespanScope,
)
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.utils.module_loading import import_string

from config.http import turns
from config.http.request_bodies import RequestBodyFlaw, most_bytes
from config.http.turns import Crowded, RequestQueue, RequestSlot

# The timeout of a body, extended by a second for each kibibyte received (mod_reqtimeout).
BODY_S, BODY_BYTES_PER_S = 10.0, 1024
# Of one address, until its bodies are whole.
BODIES_OF_ONE, BODY_BYTES_OF_ONE = 64, 64 * 1024 * 1024
BODIES, BODY_BYTES = 1024, 512 * 1024 * 1024
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
PROBE_THREADS, PAGE_THREADS = 4, 32
_PIECE_BYTES, _AT_ONCE = 64 * 1024, 16  # of a file
_READER_S = 30.0  # for a piece of a stream
_MOST_KNOWN = 10_000
_BUSY = b'{"code":"unavailable","message":"Too many requests wait. Try again in a moment."}'


class Bodies:
    """The bodies that are arriving."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    @contextmanager
    def arriving(self, address: str) -> Iterator["Body"]:
        body = Body(self, address)
        self._counts[address] += 1
        try:
            yield body
        finally:
            self._counts[address] -= 1
            self._bytes[address] -= body.reserved
            if not self._counts[address]:
                del self._counts[address], self._bytes[address]

    def room(self, address: str) -> bool:
        return (
            self._counts[address] <= BODIES_OF_ONE
            and self._counts.total() <= BODIES
            and self._bytes[address] <= BODY_BYTES_OF_ONE
            and self._bytes.total() <= BODY_BYTES
        )

    def reserve(self, address: str, size: int) -> bool:
        self._bytes[address] += size
        return self.room(address)


class Body:
    def __init__(self, bodies: Bodies, address: str) -> None:
        self._bodies, self._address = bodies, address
        self.reserved = 0
        self.content = bytearray()

    async def read(
        self, receive: ASGIReceiveCallable, announced: str, most: int
    ) -> RequestBodyFlaw | None:
        """Read the body into `content`. Returns what is wrong with it, if anything."""
        if announced.isdigit() and int(announced) > most:
            return RequestBodyFlaw.TOO_LARGE
        if not self._bodies.room(self._address):
            return RequestBodyFlaw.NO_ROOM
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(began + BODY_S) as patience:
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return RequestBodyFlaw.CUT_OFF
                    self.content += message["body"]
                    if len(self.content) > most:
                        return RequestBodyFlaw.TOO_LARGE
                    if not message["more_body"]:
                        return None
                    if not self._reserve(len(self.content)):
                        return RequestBodyFlaw.NO_ROOM
                    patience.reschedule(began + BODY_S + len(self.content) / BODY_BYTES_PER_S)
        except TimeoutError:
            return RequestBodyFlaw.SLOW

    def _reserve(self, size: int) -> bool:
        more, self.reserved = size - self.reserved, size
        return self._bodies.reserve(self._address, more)


class Web:
    def __init__(self, wsgi: Any) -> None:
        self._wsgi = wsgi
        self._bodies = Bodies()
        calls = settings.WEB_THREADS
        # The last quarter of each kind is never one organization's.
        self._probes = RequestQueue(PROBE_THREADS, share=PROBE_THREADS // 2)
        self._pages = RequestQueue(PAGE_THREADS, share=PAGE_THREADS * 3 // 4)
        self._calls = RequestQueue(calls, share=max(1, calls * 3 // 4))
        # Waiting requests gave up their turn: places for waits and events, and for outputs.
        most = calls + PAGE_THREADS + PROBE_THREADS + 2 * settings.WAITING_PLACES
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="request")
        self._organizations: OrderedDict[bytes, str] = OrderedDict()  # by credential

    async def __call__(
        self,
        scope: HTTPScope | LifespanScope,
        receive: ASGIReceiveCallable,
        send: ASGISendCallable,
    ) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["path"] == "/healthz" and scope["method"] in {"GET", "HEAD"}:
            await _answer(send, 200, b'{"status": "ok"}')
        else:
            await self._serve(scope, receive, send)

    async def _serve(
        self, scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        environ = _environ(scope)
        address = environ["REMOTE_ADDR"]
        if "CONTENT_LENGTH" in environ or "HTTP_TRANSFER_ENCODING" in environ:
            with self._bodies.arriving(address) as body:
                most = most_bytes(scope["path"], environ.get("CONTENT_TYPE", ""))
                announced = environ.get("CONTENT_LENGTH", "")
                environ["toolcrib.flaw"] = await body.read(receive, announced, most)
            environ["wsgi.input"] = BytesIO(body.content)
            if environ["toolcrib.flaw"] is None:
                environ["CONTENT_LENGTH"] = str(len(body.content))
        credential = _credential(environ)
        owner = self._organizations.get(credential, address) if credential else address
        try:
            turn = await self._kind(scope["path"]).take(owner)
        except Crowded:
            await _answer(send, 503, _BUSY, (b"retry-after", b"1"))
            return
        exchange = Exchange(self._wsgi, environ, turn, receive, send)
        try:
            await exchange.run(self._threads)
        finally:
            turn.end()
            if credential and turn.organization:
                self._remember(credential, turn.organization)

    def _kind(self, path: str) -> RequestQueue:
        if path in PROBES:
            return self._probes
        return self._calls if path.startswith("/api/") else self._pages

    def _remember(self, credential: bytes, organization: str) -> None:
        self._organizations[credential] = organization
        self._organizations.move_to_end(credential)
        if len(self._organizations) > _MOST_KNOWN:
            self._organizations.popitem(last=False)


class Exchange:
    """One request and its answer, in a thread; what is streamed is handed to the event loop."""

    def __init__(
        self,
        wsgi: Any,
        environ: dict[str, Any],
        turn: RequestSlot,
        receive: ASGIReceiveCallable,
        send: ASGISendCallable,
    ) -> None:
        self._wsgi, self._environ, self._turn = wsgi, environ, turn
        self._receive, self._send = receive, send
        self._loop = asyncio.get_running_loop()
        self._head: ASGISendEvent | None = None
        self._watching: Future[None] | None = None
        turn.watch = self._begin_watching

    async def run(self, threads: ThreadPoolExecutor) -> None:
        try:
            content = await self._loop.run_in_executor(threads, self._in_thread)
        finally:
            if self._watching is not None:
                self._watching.cancel()
        if content is not None:
            await self._send(self._sized(len(content)))
            await self._send(_piece(content))

    def _in_thread(self) -> bytes | None:
        """The content of the answer; None where it was sent already, in pieces."""
        mark = turns.current.set(self._turn)
        try:
            answer = self._wsgi(self._environ, self._start)
            try:
                pieces: Iterable[bytes] = answer
                if isinstance(answer, _File):
                    # A short one at once: no thread waits for a slow reader.
                    begun = list(islice(answer, _AT_ONCE))
                    pieces = begun if len(begun) < _AT_ONCE else chain(begun, answer)
                if isinstance(pieces, list) or not getattr(answer, "streaming", True):
                    return b"".join(pieces)
                self._stream(pieces)
                return None
            finally:
                answer.close()
        finally:
            turns.current.reset(mark)

    def _sized(self, length: int) -> ASGISendEvent:
        assert self._head is not None and self._head["type"] == "http.response.start"
        headers = [*self._head["headers"]]
        if not any(name == b"content-length" for name, _ in headers) and length:
            headers.append((b"content-length", str(length).encode()))
        return {**self._head, "headers": headers}

    def _start(self, status: str, headers: list[tuple[str, str]], _: object = None) -> None:
        encoded = [
            (name.lower().encode("latin-1"), said.encode("latin-1")) for name, said in headers
        ]
        self._head = {
            "type": "http.response.start",
            "status": int(status[:3]),
            "headers": encoded,
            "trailers": False,
        }

    def _stream(self, pieces: Iterable[bytes]) -> None:
        """Until its end, or until the client has gone or takes nothing any more."""
        self._turn.watch_client()
        assert self._head is not None
        self._wait(self._send(self._head))
        for piece in pieces:
            if self._turn.disconnected.is_set():
                return
            if piece:
                self._wait(self._send(_piece(piece, more=True)))
        self._wait(self._send(_piece(b"")))

    def _wait(self, sending: Awaitable[None]) -> None:
        """Raises TimeoutError, which ends the connection."""

        async def sent() -> None:
            async with asyncio.timeout(_READER_S):
                await sending

        asyncio.run_coroutine_threadsafe(sent(), self._loop).result()

    def _begin_watching(self) -> None:
        """Not before a request waits: to receive is also to ask for a body that was refused."""
        self._watching = asyncio.run_coroutine_threadsafe(self._watch(), self._loop)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._turn.disconnect()


class _File(FileWrapper):
    """Return whole chunks, regardless of the size Django asks for."""

    def __init__(self, file: Any, _: int) -> None:
        super().__init__(file, _PIECE_BYTES)


def _piece(content: bytes, *, more: bool = False) -> ASGISendEvent:
    return {"type": "http.response.body", "body": content, "more_body": more}


async def _answer(
    send: ASGISendCallable, status: int, content: bytes, *headers: tuple[bytes, bytes]
) -> None:
    length = str(len(content)).encode()
    said = [(b"content-type", b"application/json"), (b"content-length", length), *headers]
    await send(
        {"type": "http.response.start", "status": status, "headers": said, "trailers": False}
    )
    await send(_piece(content))


async def _live(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    while True:
        asked = (await receive())["type"]
        if asked == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return


def _environ(scope: HTTPScope) -> dict[str, Any]:
    """What PEP 3333 wants. Of a header that came several times, the values in their order; none
    with an underscore, which would pass for another with a hyphen."""
    said: dict[str, str] = {}
    for raw, content in scope["headers"]:
        name = raw.decode("latin-1")
        if "_" not in name:
            given = content.decode("latin-1")
            between = "; " if name == "cookie" else ","
            said[name] = f"{said[name]}{between}{given}" if name in said else given
    server = scope["server"] or ("", 0)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(scope["raw_path"]).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "REMOTE_ADDR": scope["client"][0] if scope["client"] else "",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "wsgi.file_wrapper": _File,
        "toolcrib.forwarded": bool((scope.get("state") or {}).get("forwarded")),
    }
    for name, plain in (("content-type", "CONTENT_TYPE"), ("content-length", "CONTENT_LENGTH")):
        if name in said:
            environ[plain] = said.pop(name)
    environ.update(
        (f"HTTP_{name.upper().replace('-', '_')}", given) for name, given in said.items()
    )
    return environ


def _credential(environ: dict[str, Any]) -> bytes:
    """A key that identifies a request's credential without revealing it."""
    said = environ.get("HTTP_AUTHORIZATION") or environ.get("HTTP_COOKIE") or ""
    return hashlib.sha256(said.encode("latin-1")).digest() if said else b""


application = Web(get_wsgi_application())
# Generate the OpenAPI document in the background, before the first client asks for it.
Thread(target=import_string("tools.api.documentation.make"), name="openapi", daemon=True).start()
