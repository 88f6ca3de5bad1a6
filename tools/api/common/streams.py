"""Server-Sent Events and long polling: each request holds a thread and a concurrency slot."""

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from django.conf import settings
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from tools.api.common.places import CallerConcurrency
from tools.definitions.callers import Caller
from tools.errors import Unavailable

LAST_EVENT = OpenApiParameter(
    "Last-Event-ID", OpenApiTypes.INT, OpenApiParameter.HEADER, description="Replay after it."
)
_places = CallerConcurrency(settings.WAITING_PLACES)


def place(caller: Caller) -> AbstractContextManager[bool]:
    """Whether a slot is free for a request that waits; without one, it is answered at once."""
    return _places.one(caller)


@contextmanager
def waiting(caller: Caller) -> Iterator[None]:
    """Held while a request waits for another server. Raises `Unavailable` without a free slot."""
    with place(caller) as free:
        if not free:
            raise Unavailable("Too many requests wait already. Try again in a moment.")
        yield


def last_event(request: Request) -> int:
    """The number of the last event that the reader has, or 0."""
    raw = request.headers.get("Last-Event-ID")
    return int(raw) if raw and raw.isascii() and raw.isdigit() and len(raw) < 10 else 0


def event(number: int, kind: str, body: dict[str, Any]) -> bytes:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(body)}\n\n".encode()


def streamed[E](
    caller: Caller, events: Generator[E | None], sent: Callable[[E], bytes]
) -> StreamingHttpResponse:
    """A stream of what `events` yields, None as a heartbeat. Raises `Unavailable` without a free
    slot."""
    if not _places.take(caller):
        raise Unavailable("Too many event streams are open. Poll instead.")
    response = StreamingHttpResponse(
        _Stream(caller, events, sent), content_type="text/event-stream; charset=utf-8"
    )
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


class _Stream[E]:
    """The bytes of one event stream. Its slot is released at the end, also when it is not read."""

    def __init__(
        self, caller: Caller, events: Generator[E | None], sent: Callable[[E], bytes]
    ) -> None:
        self._caller, self._events, self._sent = caller, events, sent
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
            _places.give_back(self._caller)
