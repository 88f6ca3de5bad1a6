"""Dispatch: workers are woken, which call each takes, and how many this process has room for.

A dispatch names one call and is good for one, whichever that is. A call that has hardly waited is
taken by its name, in one statement. When it has waited, there is a backlog: then organizations take
turns, so that a caller of thousands of calls delays only their own organization. Calls that take
long hold no more of a worker than their organization's share: see `Shares`.
"""

import logging
import math
import os
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID

import redis
from celery import current_app
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from kombu.exceptions import OperationalError

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools import metrics
from tools.definitions.callers import CallerKind
from tools.definitions.results import Status
from tools.execution import confirmations, events
from tools.execution.requeue import end_waiting
from tools.models import Execution, queue
from tools.models.queue import Shares

_PATIENCE_S = 0.5
_free_threads = threading.BoundedSemaphore(settings.WORKER_THREADS)
stopping = threading.Event()  # set once, when the process is to stop


def take_thread(*, wait: bool) -> bool:
    """A free hand, to be given back with `give`. False without one, and once we are stopping."""
    while not stopping.is_set():
        if (
            _free_threads.acquire(timeout=_PATIENCE_S)
            if wait
            else _free_threads.acquire(blocking=False)
        ):
            return True
        if not wait:
            break
    return False


def await_thread() -> bool:
    """Whether a thread is free, which is waited for for a moment; it stays free."""
    if not _free_threads.acquire(timeout=_PATIENCE_S):
        return False
    _free_threads.release()
    return True


def release_thread() -> None:
    _free_threads.release()


def await_idle(within_s: float) -> bool:
    """Whether no thread performs an execution any more, within the time. None begins after it."""
    deadline = time.monotonic() + within_s
    return all(
        _free_threads.acquire(timeout=max(0.0, deadline - time.monotonic()))
        for _ in range(settings.WORKER_THREADS)
    )


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
    if not take_thread(wait=False):
        return None
    with ExitStack() as place:
        place.callback(release_thread)
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
dispatched = Pulse()  # a dispatch has arrived, by Redis or by Celery


log = logging.getLogger(__name__)
EXPIRED = "EXPIRED"
_KEY_IS_FREE: dict[str, Any] = {"idempotency_key": None}  # who calls again may use it again
_HARDLY = timedelta(milliseconds=100)
_BACKLOG_S, _FRESH_S = 0.5, 0.1
_CANDIDATES = 32  # as many as workers may take at the same moment
_NEVER_BEGAN = "No worker took the call in time; it never began. Call again."
_NOT_AGAIN = "No worker took the call in time to begin it again."


@dataclass(frozen=True, slots=True)
class Turn:
    """A call to claim, unless it has waited longer, or its organization holds `most` places or,
    where that is not said, its share."""

    execution_id: UUID
    younger_than: timedelta | None = None
    most: int | None = None
    organization_id: UUID | None = None  # where it is known

    @property
    def has_room(self) -> bool:
        return self.organization_id not in seats.holding(self.most)


class _Line:
    """Whose turn it is, asked for once for all threads of this process: each takes another one.

    Where calls were found waiting a moment ago there is a backlog.
    """

    def __init__(self) -> None:
        self._turns: deque[Turn] = deque()
        self._asked_at = -math.inf
        self._more = False
        self._found_at = -math.inf
        self._lock = threading.Lock()

    @property
    def is_long(self) -> bool:
        return time.monotonic() - self._found_at < _BACKLOG_S

    @property
    def goes_on(self) -> bool:
        """Whether more than `_CANDIDATES` waited a moment ago: wake-ups or not, there is one to
        take."""
        return self._more and self.is_long

    def ask(self) -> None:
        """Who asks while another does has his answer."""
        since = time.monotonic()
        with self._lock:
            if self._asked_at < since:
                self._asked_at = time.monotonic()
                self._turns = deque(next_waiting(_CANDIDATES))
                self._more = len(self._turns) == _CANDIDATES
                if self._turns:
                    self._found_at = self._asked_at

    def take(self) -> Turn | None:
        """The next one whose organization has a place here."""
        with self._lock:
            if time.monotonic() - self._asked_at > _FRESH_S:
                self._turns.clear()
            while self._turns:
                turn = self._turns.popleft()
                if turn.has_room:
                    return turn
            return None


line = _Line()


def turns(hinted: UUID | None) -> Iterator[Turn]:
    """What a worker tries to claim, until it has one: with a dispatch, or after another call."""
    if hinted is not None and not line.is_long:
        yield Turn(hinted, _HARDLY, seats.shares.half)
    yield from iter(line.take, None)
    line.ask()
    yield from iter(line.take, None)


def next_waiting(limit: int) -> list[Turn]:
    """Whose turn it is, in fair order; nothing that has no room or must wait for another.

    Organizations that hold half of this process or more have their turn when no other waits.
    """
    half, most = seats.shares
    crowded = seats.holding(half)
    full = seats.holding(most)
    found = queue.next_waiting(limit, full=full, last=crowded)
    alone = bool(crowded and found) and found[0].organization_id in crowded
    return [
        Turn(one.id, most=most if alone else half, organization_id=one.organization_id)
        for one in found
        if alone or one.organization_id not in crowded
    ]


def freed_by(execution: Execution) -> list[UUID]:
    """Who may go on because this one is over: where a limit made its place one that is waited for.

    One of its organization: those of others did not wait for it.
    """
    return queue.next_of_organization(execution.organization_id) if execution.limited else []


def drop_expired() -> int:
    """End what has waited too long to begin; how many. Safe to repeat, also at the same time."""
    late = Execution.objects.waiting_longer_than(timedelta(seconds=settings.EXECUTION_QUEUE_S))
    rows = late.unparked().order_by("queued_at").values_list("pk", flat=True)
    dropped = 0
    for execution_id in list(rows):
        with passed_by("an expired execution was not ended"):
            dropped += _drop(execution_id)
    return dropped


@contextmanager
def passed_by(what: str) -> Iterator[None]:
    """One that cannot be settled, for want of evidence perhaps, keeps no other waiting."""
    try:
        yield
    except DatabaseError as error:
        if not connection.is_usable():
            raise
        log.warning("%s: %s", what, type(error).__name__)


@transaction.atomic
def _drop(execution_id: UUID) -> bool:
    """False when another process has it in hand at this moment, or was faster."""
    rows = Execution.objects.select_for_update(skip_locked=True, of=("self",), no_key=True)
    waiting = rows.select_related("organization", "tool_version").filter(status=Status.PENDING)
    execution = waiting.filter(pk=execution_id).first()
    if execution is None:
        return False
    message, more = (_NOT_AGAIN, {}) if execution.fence else (_NEVER_BEGAN, _KEY_IS_FREE)
    end_waiting(execution, status=Status.CANCELLED, code=EXPIRED, message=message, **more)
    by = Actor(CallerKind.SYSTEM, "queue", execution.organization.slug)
    confirmations.withdraw_confirmation(execution_id, by=by, reason="expired")
    _put_on_record(execution, by)
    transaction.on_commit(lambda: events.notify_waiters(execution_id))
    return True


def _put_on_record(execution: Execution, by: Actor) -> None:
    record(
        Event.TOOL_EXPIRE,
        by=by,
        outcome=Outcome.FAILURE,
        subject=execution.tool_name,
        digest=execution.tool_version.digest,
        reason=EXPIRED,
        execution_id=execution.pk,
        details={
            "queued_at": execution.queued_at.isoformat(),
            "limit_s": settings.EXECUTION_QUEUE_S,
            "attempt": execution.attempt,
            **execution.error_details,
        },
    )
    metrics.expired_calls.inc()
    metrics.executions.labels(execution.tool_name, Status.CANCELLED).inc()


RUN_EXECUTION = "tools.execution.tasks.run_execution"
WAKE_UPS = "toolcrib:wake-ups"  # a list; each entry is good for one call
MOST_WAKE_UPS = 1_000  # a list that no worker reads does not grow beyond it
_places, _PLACE_S = threading.BoundedSemaphore(4), 0.05


def wake_workers(execution_ids: Iterable[UUID]) -> None:
    """Dispatch the executions to workers. Those that cannot be dispatched are found by polling.

    A Redis that hangs holds up as many callers as there are places, and then none for a moment.
    """
    ids = [str(execution_id) for execution_id in execution_ids]
    if not ids or events.redis_pause or not _places.acquire(timeout=_PLACE_S):
        return
    try:
        if settings.EXECUTION_DISPATCH == "wake":
            _push_wake_ups(ids)
        else:
            _send_messages(ids)
    except (OperationalError, redis.RedisError) as error:
        events.redis_pause.begin()
        log.warning("no worker was woken: %s", type(error).__name__)
    finally:
        _places.release()


def _push_wake_ups(ids: list[str]) -> None:
    length = int(events.impatient_connection().rpush(WAKE_UPS, *ids))
    if length > MOST_WAKE_UPS:
        events.impatient_connection().ltrim(WAKE_UPS, -MOST_WAKE_UPS, -1)


def _send_messages(ids: list[str]) -> None:
    """By the task's name: what the task runs may dispatch in its turn."""
    for execution_id in ids:
        current_app.send_task(RUN_EXECUTION, (execution_id,), ignore_result=True, retry=False)
