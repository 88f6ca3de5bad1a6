"""Server-Sent Events of one reader, in a thread of its own: as many as there are places."""

import json
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from tools.errors import Unavailable

LAST_EVENT = OpenApiParameter(
    "Last-Event-ID", OpenApiTypes.INT, OpenApiParameter.HEADER, description="Replay after it."
)
# Whoever follows or waits for a call keeps a thread; without a place, a wait is answered at once.
_places = threading.BoundedSemaphore(settings.EVENT_STREAMS)


@contextmanager
def place() -> Iterator[bool]:
    """Whether there was one; it is given back at the end."""
    free = _places.acquire(blocking=False)
    try:
        yield free
    finally:
        if free:
            _places.release()


@contextmanager
def waiting() -> Iterator[None]:
    """While a request waits for what is outside. Raises `Unavailable` without a place, so that
    others find a thread."""
    with place() as free:
        if not free:
            raise Unavailable("Too many requests wait already. Try again in a moment.")
        yield


def last_event(request: Request) -> int:
    """The number of the last event that the reader has, or 0."""
    raw = request.headers.get("Last-Event-ID")
    return int(raw) if raw and raw.isascii() and raw.isdigit() and len(raw) < 10 else 0


def event(number: int, kind: str, body: dict[str, Any]) -> bytes:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(body)}\n\n".encode()


def streamed[E](events: Generator[E | None], sent: Callable[[E], bytes]) -> StreamingHttpResponse:
    """What `events` yields, None as a sign of life. Raises `Unavailable` without a place."""
    if not _places.acquire(blocking=False):
        raise Unavailable("Too many event streams are open. Poll instead.")
    response = StreamingHttpResponse(
        _Stream(events, sent), content_type="text/event-stream; charset=utf-8"
    )
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


class _Stream[E]:
    """The bytes of one event stream. Gives its place back however it ends, also unread."""

    def __init__(self, events: Generator[E | None], sent: Callable[[E], bytes]) -> None:
        self._events, self._sent = events, sent
        self._begun = False
        self._open = True

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if not self._begun:
            self._begun = True
            return b": following\n\n"
        found = next(self._events)
        return b": still here\n\n" if found is None else self._sent(found)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._events.close()
            _places.release()
