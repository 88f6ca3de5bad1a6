"""The ASGI application for REST and pages: bodies arrive on the event loop, within bounds, and
Django runs in threads, which are assigned in rotation (config/http/request_queue.py)."""

import asyncio
import hashlib
import sys
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator
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

from config.http import request_queue
from config.http.request_bodies import RequestBodyFlaw, max_body_bytes
from config.http.request_queue import RequestQueue, RequestQueueFull, RequestSlot

# The timeout of a body, extended by a second for each kibibyte received (mod_reqtimeout).
BODY_S, BODY_BYTES_PER_S = 10.0, 1024
# Of one address, until its bodies are whole.
ADDRESS_BODIES, ADDRESS_BODY_BYTES = 64, 64 * 1024 * 1024
BODIES, BODY_BYTES = 1024, 512 * 1024 * 1024
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
PROBE_THREADS, PAGE_THREADS = 4, 32
_PIECE_BYTES, _UNSTREAMED_PIECES = 64 * 1024, 16  # of a file
# For calls that are performed here, after uvicorn's grace period and within the supervisor's.
HAND_BACK_S = 4.0
_SEND_S = 30.0  # timeout for sending one piece of a stream
_MOST_CREDENTIALS = 10_000
_BUSY = b'{"code":"unavailable","message":"Too many requests wait. Try again in a moment."}'


class IncomingBodies:
    """The bodies that are arriving."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    @contextmanager
    def arriving(self, address: str) -> Iterator["IncomingBody"]:
        body = IncomingBody(self, address)
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
            self._counts[address] <= ADDRESS_BODIES
            and self._counts.total() <= BODIES
            and self._bytes[address] <= ADDRESS_BODY_BYTES
            and self._bytes.total() <= BODY_BYTES
        )

    def reserve(self, address: str, size: int) -> bool:
        self._bytes[address] += size
        return self.room(address)


class IncomingBody:
    """The body of one request while it arrives."""

    def __init__(self, bodies: IncomingBodies, address: str) -> None:
        self._bodies, self._address = bodies, address
        self.reserved = 0
        self.content = bytearray()

    async def read(
        self, receive: ASGIReceiveCallable, announced: str, most: int
    ) -> RequestBodyFlaw | None:
        """Read the body into `content`. Returns its flaw, or None."""
        if announced.isdigit() and int(announced) > most:
            return RequestBodyFlaw.TOO_LARGE
        if not self._bodies.room(self._address):
            return RequestBodyFlaw.NO_ROOM
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(began + BODY_S) as timeout:
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
                    timeout.reschedule(began + BODY_S + len(self.content) / BODY_BYTES_PER_S)
        except TimeoutError:
            return RequestBodyFlaw.SLOW

    def _reserve(self, size: int) -> bool:
        more, self.reserved = size - self.reserved, size
        return self._bodies.reserve(self._address, more)


class WebApplication:
    """The ASGI application: it queues each request for a thread and runs Django there. At its end
    it calls `hand_back`, with the seconds it may take."""

    def __init__(self, wsgi: Any, hand_back: Callable[[float], object]) -> None:
        self._wsgi, self._hand_back = wsgi, hand_back
        self._bodies = IncomingBodies()
        calls = settings.WEB_THREADS
        # The last quarter of each kind is never one organization's.
        self._probes = RequestQueue(PROBE_THREADS, share=PROBE_THREADS // 2)
        self._pages = RequestQueue(PAGE_THREADS, share=PAGE_THREADS * 3 // 4)
        self._calls = RequestQueue(calls, share=max(1, calls * 3 // 4))
        # Waiting requests hold no slot, but a thread each: for waits and events, and for outputs.
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
            await self._answer_lifespan(receive, send)
        elif scope["path"] == "/healthz" and scope["method"] in {"GET", "HEAD"}:
            await _send_response(send, 200, b'{"status": "ok"}')
        else:
            await self._serve(scope, receive, send)

    async def _serve(
        self, scope: HTTPScope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        environ = _wsgi_environ(scope)
        address = environ["REMOTE_ADDR"]
        if "CONTENT_LENGTH" in environ or "HTTP_TRANSFER_ENCODING" in environ:
            with self._bodies.arriving(address) as body:
                most = max_body_bytes(scope["path"], environ.get("CONTENT_TYPE", ""))
                announced = environ.get("CONTENT_LENGTH", "")
                environ["toolcrib.flaw"] = await body.read(receive, announced, most)
            environ["wsgi.input"] = BytesIO(body.content)
            if environ["toolcrib.flaw"] is None:
                environ["CONTENT_LENGTH"] = str(len(body.content))
        credential = _credential_key(environ)
        owner = self._organizations.get(credential, address) if credential else address
        try:
            slot = await self._queue_for(scope["path"]).acquire(owner)
        except RequestQueueFull:
            await _send_response(send, 503, _BUSY, (b"retry-after", b"1"))
            return
        exchange = RequestExchange(self._wsgi, environ, slot, receive, send)
        try:
            await exchange.run(self._threads)
        finally:
            slot.release()
            if credential and slot.organization:
                self._remember(credential, slot.organization)

    async def _answer_lifespan(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        while True:
            event = (await receive())["type"]
            if event == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await asyncio.to_thread(self._hand_back, HAND_BACK_S)
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _queue_for(self, path: str) -> RequestQueue:
        if path in PROBES:
            return self._probes
        return self._calls if path.startswith("/api/") else self._pages

    def _remember(self, credential: bytes, organization: str) -> None:
        self._organizations[credential] = organization
        self._organizations.move_to_end(credential)
        if len(self._organizations) > _MOST_CREDENTIALS:
            self._organizations.popitem(last=False)


class RequestExchange:
    """One request and its answer, in a thread; what is streamed is handed to the event loop."""

    def __init__(
        self,
        wsgi: Any,
        environ: dict[str, Any],
        slot: RequestSlot,
        receive: ASGIReceiveCallable,
        send: ASGISendCallable,
    ) -> None:
        self._wsgi, self._environ, self._slot = wsgi, environ, slot
        self._receive, self._send = receive, send
        self._loop = asyncio.get_running_loop()
        self._head: ASGISendEvent | None = None
        self._watching: Future[None] | None = None
        slot.watch = self._begin_watching

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
        """The content of the response; None where it was streamed already."""
        mark = request_queue.current_slot.set(self._slot)
        try:
            answer = self._wsgi(self._environ, self._start)
            try:
                pieces: Iterable[bytes] = answer
                if isinstance(answer, _File):
                    # A short one at once: no thread waits for a slow reader.
                    first = list(islice(answer, _UNSTREAMED_PIECES))
                    pieces = first if len(first) < _UNSTREAMED_PIECES else chain(first, answer)
                if isinstance(pieces, list) or not getattr(answer, "streaming", True):
                    return b"".join(pieces)
                self._stream(pieces)
                return None
            finally:
                answer.close()
        finally:
            request_queue.current_slot.reset(mark)

    def _sized(self, length: int) -> ASGISendEvent:
        assert self._head is not None and self._head["type"] == "http.response.start"
        headers = [*self._head["headers"]]
        if not any(name == b"content-length" for name, _ in headers) and length:
            headers.append((b"content-length", str(length).encode()))
        return {**self._head, "headers": headers}

    def _start(self, status: str, headers: list[tuple[str, str]], _: object = None) -> None:
        encoded = [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers
        ]
        self._head = {
            "type": "http.response.start",
            "status": int(status[:3]),
            "headers": encoded,
            "trailers": False,
        }

    def _stream(self, pieces: Iterable[bytes]) -> None:
        """Send all pieces, or stop when the client disconnects or reads nothing any more."""
        self._slot.watch_client()
        assert self._head is not None
        self._wait(self._send(self._head))
        for piece in pieces:
            if self._slot.disconnected.is_set():
                return
            if piece:
                self._wait(self._send(_piece(piece, more=True)))
        self._wait(self._send(_piece(b"")))

    def _wait(self, sending: Awaitable[None]) -> None:
        """Raises TimeoutError, which ends the connection."""

        async def sent() -> None:
            async with asyncio.timeout(_SEND_S):
                await sending

        asyncio.run_coroutine_threadsafe(sent(), self._loop).result()

    def _begin_watching(self) -> None:
        """Called once a request waits: receiving would also request a body that was refused."""
        self._watching = asyncio.run_coroutine_threadsafe(self._watch(), self._loop)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._slot.disconnect()


class _File(FileWrapper):
    """Return whole chunks, regardless of the size Django asks for."""

    def __init__(self, file: Any, _: int) -> None:
        super().__init__(file, _PIECE_BYTES)


def _piece(content: bytes, *, more: bool = False) -> ASGISendEvent:
    return {"type": "http.response.body", "body": content, "more_body": more}


async def _send_response(
    send: ASGISendCallable, status: int, content: bytes, *headers: tuple[bytes, bytes]
) -> None:
    length = str(len(content)).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", length), *headers]
    await send(
        {"type": "http.response.start", "status": status, "headers": head, "trailers": False}
    )
    await send(_piece(content))


def _wsgi_environ(scope: HTTPScope) -> dict[str, Any]:
    """The environ of PEP 3333. Values of a repeated header are joined in their order; a header with
    an underscore is dropped, since it would pass for one with a hyphen."""
    headers: dict[str, str] = {}
    for raw, content in scope["headers"]:
        name = raw.decode("latin-1")
        if "_" not in name:
            value = content.decode("latin-1")
            separator = "; " if name == "cookie" else ","
            known = headers.get(name)
            headers[name] = value if known is None else f"{known}{separator}{value}"
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
    for name, variable in (("content-type", "CONTENT_TYPE"), ("content-length", "CONTENT_LENGTH")):
        if name in headers:
            environ[variable] = headers.pop(name)
    environ.update(
        (f"HTTP_{name.upper().replace('-', '_')}", value) for name, value in headers.items()
    )
    return environ


def _credential_key(environ: dict[str, Any]) -> bytes:
    """A key that identifies a request's credential without revealing it."""
    secret = environ.get("HTTP_AUTHORIZATION") or environ.get("HTTP_COOKIE") or ""
    return hashlib.sha256(secret.encode("latin-1")).digest() if secret else b""


application = WebApplication(
    get_wsgi_application(), import_string("tools.execution.perform.hand_back_calls")
)
# Generate the OpenAPI document in the background, before the first client asks for it.
Thread(
    target=import_string("tools.api.documentation.make_documents"), name="openapi", daemon=True
).start()
