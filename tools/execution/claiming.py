"""Which call a worker takes, and what becomes of those that none took in time.

A hint names one call and is good for one, whichever that is. A call that has hardly waited is taken
by its name, in one statement. When it has waited, there is a backlog: then organizations take
turns, so that whoever sends thousands of calls delays nobody but themselves. Calls that take long
hold no more of a worker than their organization's share: see `Shares`.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, connection, transaction

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools import metrics
from tools.definitions.callers import CallerKind
from tools.definitions.results import Status
from tools.execution import bell, capacity, confirmations
from tools.execution.returning import end_waiting
from tools.models import Execution, queue

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
        return self.organization_id not in capacity.seats.holding(self.most)


class _Line:
    """Whose turn it is, asked for once for all threads of this process: each takes another one.

    Where calls were found waiting a moment ago there is a backlog.
    """

    def __init__(self) -> None:
        self._turns: deque[Turn] = deque()
        self._asked_at = -math.inf
        self._found_at = -math.inf
        self._lock = threading.Lock()

    @property
    def is_long(self) -> bool:
        return time.monotonic() - self._found_at < _BACKLOG_S

    def ask(self) -> None:
        """Who asks while another does has his answer."""
        since = time.monotonic()
        with self._lock:
            if self._asked_at < since:
                self._asked_at = time.monotonic()
                self._turns = deque(next_waiting(_CANDIDATES))
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


def turns(hinted: UUID) -> Iterator[Turn]:
    """What a worker with a hint tries to claim, until it has one."""
    if not line.is_long:
        yield Turn(hinted, _HARDLY, capacity.seats.shares.half)
    yield from iter(line.take, None)
    line.ask()
    yield from iter(line.take, None)


def next_waiting(limit: int) -> list[Turn]:
    """Whose turn it is, in fair order; nothing that has no room or must wait for another.

    Organizations that hold half of this process or more have their turn when no other waits.
    """
    half, most = capacity.seats.shares
    crowded = capacity.seats.holding(half)
    full = capacity.seats.holding(most)
    found = queue.next_waiting(limit, full=full, last=crowded)
    alone = bool(crowded and found) and found[0].organization_id in crowded
    return [
        Turn(one.id, most=most if alone else half, organization_id=one.organization_id)
        for one in found
        if alone or one.organization_id not in crowded
    ]


def freed_by(execution: Execution) -> list[UUID]:
    """Who may go on because this one is over: where a limit made its place one that is waited for.

    One of its organization; of others nobody waited for it.
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
    """False when somebody has it in hand at this moment, or was faster."""
    rows = Execution.objects.select_for_update(skip_locked=True, of=("self",), no_key=True)
    waiting = rows.select_related("organization", "tool_version").filter(status=Status.PENDING)
    execution = waiting.filter(pk=execution_id).first()
    if execution is None:
        return False
    message, more = (_NOT_AGAIN, {}) if execution.fence else (_NEVER_BEGAN, _KEY_IS_FREE)
    end_waiting(execution, status=Status.CANCELLED, code=EXPIRED, message=message, **more)
    by = Actor(CallerKind.SYSTEM, "queue", execution.organization.slug)
    confirmations.withdraw(execution_id, by=by, reason="expired")
    _put_on_record(execution, by)
    transaction.on_commit(lambda: bell.ring(execution_id))
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
