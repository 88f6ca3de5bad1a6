"""Server-Sent Events and long polling: each request holds a thread and a concurrency slot."""

import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from uuid import UUID

from django.conf import settings
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from config.http import request_queue
from tools.definitions.callers import Caller
from tools.errors import Unavailable


class CallerConcurrency:
    """Slots, of which one organization may take half at most, and one caller a quarter."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[UUID] = Counter()  # by organization
        self._callers: Counter[UUID] = Counter()
        self._lock = threading.Lock()

    def acquire(self, caller: Caller) -> bool:
        """Take a slot; False where none is free. A request with a slot releases its turn for a
        thread."""
        organization, user = caller.organization_id, caller.user_id
        with self._lock:
            if (
                self._taken.total() >= self._most
                or self._taken[organization] >= (self._most + 1) // 2
                or self._callers[user] >= (self._most + 3) // 4
            ):
                return False
            self._taken[organization] += 1
            self._callers[user] += 1
        request_queue.release_slot()
        return True

    def release(self, caller: Caller) -> None:
        with self._lock:
            for taken, owner in (
                (self._taken, caller.organization_id),
                (self._callers, caller.user_id),
            ):
                taken[owner] -= 1
                if not taken[owner]:
                    del taken[owner]

    @contextmanager
    def slot(self, caller: Caller) -> Iterator[bool]:
        """Whether a slot was free; it is released at the end."""
        free = self.acquire(caller)
        try:
            yield free
        finally:
            if free:
                self.release(caller)


LAST_EVENT = OpenApiParameter(
    "Last-Event-ID", OpenApiTypes.INT, OpenApiParameter.HEADER, description="Replay after it."
)
_slots = CallerConcurrency(settings.WAITING_PLACES)


def waiting_slot(caller: Caller) -> AbstractContextManager[bool]:
    """Whether a slot is free for a request that waits; without one, it is answered at once."""
    return _slots.slot(caller)


@contextmanager
def required_waiting_slot(caller: Caller) -> Iterator[None]:
    """Held while a request waits for another server. Raises `Unavailable` without a free slot."""
    with waiting_slot(caller) as free:
        if not free:
            raise Unavailable("Too many requests wait already. Try again in a moment.")
        yield


def last_event_number(request: Request) -> int:
    """The number of the last event that the reader has, or 0."""
    raw = request.headers.get("Last-Event-ID")
    return int(raw) if raw and raw.isascii() and raw.isdigit() and len(raw) < 10 else 0


def stream_response[E](
    caller: Caller, events: Generator[E | None], sent: Callable[[E], bytes]
) -> StreamingHttpResponse:
    """A stream of what `events` yields, None as a heartbeat. Raises `Unavailable` without a free
    slot."""
    if not _slots.acquire(caller):
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
            _slots.release(self._caller)
