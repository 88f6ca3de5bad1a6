"""How many executions this process takes at a time, and whether it takes any more at all.

Celery's tasks and the poller share one number, so that a worker that polls is not overloaded. They
also tell each other here that they live. Each organization holds a share of the number at most.
"""

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from uuid import UUID

from django.conf import settings

from tools.models.queue import Shares

_PATIENCE_S = 0.5
_free = threading.BoundedSemaphore(settings.WORKER_THREADS)
stopping = threading.Event()  # set once, when the process was told to stop


def take(*, wait: bool) -> bool:
    """A free hand, to be given back with `give`. False without one, and once we are stopping."""
    while not stopping.is_set():
        if _free.acquire(timeout=_PATIENCE_S) if wait else _free.acquire(blocking=False):
            return True
        if not wait:
            break
    return False


def give() -> None:
    _free.release()


def worker_name() -> str:
    """Of this thread, as a row names who performs it."""
    return f"{_host()}:{os.getpid()}:{threading.get_ident() % 100_000}"


@cache
def _host() -> str:
    return socket.gethostname()[:60]


class NoPlace(Exception):
    """The organization holds its share of this process."""


class Seat:
    """A place that is taken once it is known for which organization."""

    crowded = False  # whether others of its organization may have been turned away meanwhile

    def __init__(self, seats: "Seats", most: int | None) -> None:
        self._seats, self._most = seats, most
        self._organization_id: UUID | None = None

    @property
    def full(self) -> list[UUID]:
        """Organizations that have no place now."""
        return self._seats.holding(self._most)

    def take(self, organization_id: UUID) -> None:
        """Raises NoPlace."""
        self._seats.enter(organization_id, self._most)
        self._organization_id = organization_id

    def give_back(self) -> None:
        if self._organization_id is not None:
            self.crowded = self._seats.leave(self._organization_id)


class Seats:
    """Which organizations hold the places of this process."""

    def __init__(self, places: int) -> None:
        self.shares = Shares.of(places)
        self._held: Counter[UUID] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def seat(self, most: int | None = None) -> Iterator[Seat]:
        """For as long as the block runs. Without `most` it is the share that counts."""
        seat = Seat(self, most)
        try:
            yield seat
        finally:
            seat.give_back()

    def holding(self, many: int | None = None) -> list[UUID]:
        """Organizations that hold so many places or more; their whole share where none is said."""
        least = self.shares.most if many is None else many
        with self._lock:
            return [key for key, held in self._held.items() if held >= least]

    def enter(self, organization_id: UUID, most: int | None = None) -> None:
        """Raises NoPlace where it holds as many already."""
        with self._lock:
            if self._held[organization_id] >= (self.shares.most if most is None else most):
                raise NoPlace
            self._held[organization_id] += 1

    def leave(self, organization_id: UUID) -> bool:
        """Whether it held so many that calls of it may wait for this one's place."""
        with self._lock:
            crowded = self._held[organization_id] >= self.shares.half
            self._held[organization_id] -= 1
            if not self._held[organization_id]:
                del self._held[organization_id]
        return crowded


seats = Seats(settings.WORKER_THREADS)


def take_place(organization_id: UUID) -> ExitStack | None:
    """A place of this process for a call of the organization, until it is closed; None where there
    is none, or the organization holds its share."""
    if not take(wait=False):
        return None
    with ExitStack() as place:
        place.callback(give)
        seat = place.enter_context(seats.seat())
        try:
            seat.take(organization_id)
        except NoPlace:
            return None
        return place.pop_all()


class Pulse:
    """When something was last seen to work."""

    def __init__(self) -> None:
        self._at = time.monotonic()

    def beat(self) -> None:
        self._at = time.monotonic()

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._at


polled = Pulse()  # the poller has looked into the database
hinted = Pulse()  # Celery's consumer has brought a hint
