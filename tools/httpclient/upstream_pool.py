"""The HTTP client for servers that the operator named: keep-alive connections, no redirects, and a
deadline that is the run's.

A response is read in slices with a check for cancellation between them, so that a silent server
does not delay a cancelled call.
"""

import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import httpcore2

SLICE_S = 0.1
CONNECT_S = 5.0
DRAIN_S, DRAIN_BYTES = 0.5, 16_384
_MOST_CONNECTIONS = 512  # more than a worker has threads
_IDLE_CONNECTIONS = 32
_IDLE_S = 60.0


class RequestStopped(Exception):
    """The run was cancelled."""


class TimeUp(Exception):
    """The run's time is over."""


class Unreachable(Exception):
    """Nothing was sent."""


class Broken(Exception):
    """Something may have been sent, and no complete response came."""


@dataclass(frozen=True, slots=True)
class RequestBounds:
    """What ends one run: an event, a time of the monotonic clock, and a deadline that may move."""

    stop: threading.Event
    ends_at: float
    until: Callable[[], float] | None = None

    def check(self) -> None:
        """Raises `RequestStopped` or `TimeUp`."""
        now = time.monotonic()
        if self.stop.is_set() or (self.until is not None and self.until() <= now):
            raise RequestStopped
        if now >= self.ends_at:
            raise TimeUp

    def left_s(self) -> float:
        return max(0.0, self.ends_at - time.monotonic())

    def pause(self, seconds: float) -> None:
        """Returns after so long. Raises as `check` does."""
        resumes_at = time.monotonic() + seconds
        while (left := resumes_at - time.monotonic()) > 0:
            self.stop.wait(min(left, SLICE_S, max(0.001, self.left_s())))
            self.check()


@dataclass(frozen=True, slots=True)
class UpstreamResponse:
    """`headers` have names in lower case; `pieces` raises `RequestStopped`, `TimeUp` and
    `Broken`.
    """

    status: int
    headers: Mapping[str, str]
    pieces: Iterator[bytes] = field(repr=False)

    def body(self, most: int) -> bytes:
        """At most so many bytes; the rest is not read."""
        read = bytearray()
        for piece in self.pieces:
            read += piece
            if len(read) >= most:
                break
        return bytes(read[:most])

    def drain(self) -> None:
        """Reads the rest of a complete response, so that its connection can be reused; a connection
        with much left, or without data for long, is closed."""
        bounds = _thread_state.bounds
        _thread_state.bounds = replace(
            bounds, ends_at=min(bounds.ends_at, time.monotonic() + DRAIN_S)
        )
        with suppress(RequestStopped, TimeUp, Broken):
            self.body(DRAIN_BYTES)
        _thread_state.bounds = bounds


class UpstreamPool:
    """The connections of this process to servers of one kind; threads share them."""

    def __init__(self) -> None:
        self._pool = httpcore2.ConnectionPool(
            ssl_context=ssl.create_default_context(),
            max_connections=_MOST_CONNECTIONS,
            max_keepalive_connections=_IDLE_CONNECTIONS,
            keepalive_expiry=_IDLE_S,
            network_backend=_SlicedBackend(),
        )

    @contextmanager
    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, bounds: RequestBounds
    ) -> Iterator[UpstreamResponse]:
        """Raises `Unreachable`, `Broken`, `RequestStopped` and `TimeUp`."""
        bounds.check()
        with (
            _translate_errors(bounds),
            _bound_reads(bounds),
            self._pool.stream(
                "POST",
                url,
                headers=[*headers.items(), ("Accept-Encoding", "identity")],
                content=body,
                extensions={"timeout": _timeouts(bounds)},
            ) as response,
        ):
            yield UpstreamResponse(
                response.status, _headers(response.headers), _pieces(response, bounds)
            )

    def close(self) -> None:
        self._pool.close()


def _timeouts(bounds: RequestBounds) -> dict[str, float]:
    left_s = bounds.left_s()
    return {"connect": min(CONNECT_S, left_s), "read": left_s, "write": left_s, "pool": left_s}


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw}


def _pieces(response: httpcore2.Response, bounds: RequestBounds) -> Iterator[bytes]:
    with _translate_errors(bounds):
        for piece in response.iter_stream():
            bounds.check()
            yield piece
        bounds.check()


@contextmanager
def _translate_errors(bounds: RequestBounds) -> Iterator[None]:
    try:
        yield
    except (
        httpcore2.ConnectError,
        httpcore2.ConnectTimeout,
        httpcore2.UnsupportedProtocol,
        httpcore2.LocalProtocolError,
    ) as error:
        bounds.check()
        raise Unreachable(_error_text(error)) from None
    except (
        httpcore2.TimeoutException,
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
    ) as error:
        bounds.check()
        raise Broken(_error_text(error)) from None


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()[:300]


_thread_state = threading.local()


@contextmanager
def _bound_reads(bounds: RequestBounds) -> Iterator[None]:
    """All reads of this thread meanwhile are within these bounds."""
    _thread_state.bounds = bounds
    try:
        yield
    finally:
        _thread_state.bounds = None


class _SlicedBackend(httpcore2.SyncBackend):
    def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore2.NetworkStream:
        return _SlicedStream(super().connect_tcp(*arguments, **options))


class _SlicedStream(httpcore2.NetworkStream):
    """A network stream that is read in slices."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while True:
            bounds = getattr(_thread_state, "bounds", None)
            if bounds is None:
                return self._stream.read(max_bytes, timeout)
            bounds.check()
            try:
                return self._stream.read(max_bytes, SLICE_S)
            except httpcore2.ReadTimeout:
                continue

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)

    def start_tls(self, *arguments: Any, **options: Any) -> httpcore2.NetworkStream:
        return _SlicedStream(self._stream.start_tls(*arguments, **options))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._stream.close()
