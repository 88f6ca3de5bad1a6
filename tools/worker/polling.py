"""Poll the database for queued executions: the row is the outbox, a dispatch only saves time.

One thread in every worker process looks for unclaimed rows, and begins them in a pool of its own.
It needs only the database, so accepted calls are run while Redis is unavailable, and also where
Celery's consumer has silently stopped consuming.
"""

import logging
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import connection

from config import timeouts
from config.database import CONNECTION_ERRORS, replace_dead_connections
from tools import metrics
from tools.approvals import decisions
from tools.execution import dispatch, events
from tools.execution.dispatch import Turn
from tools.execution.perform import perform_turn
from tools.models import Execution
from tools.worker import reaper

log = logging.getLogger(__name__)
DISPATCH_PATIENCE = timedelta(seconds=1)  # the time a dispatch may take
CONSUMER_SILENT_AFTER = 20  # consecutive calls that were found by polling
MAX_BACKOFF_S = 8.0
FORGOTTEN_AFTER_S = 60.0


class PollBackoff:
    """Backoff for rows that were tried and still wait, for example for another call's result."""

    def __init__(self) -> None:
        self._until: dict[UUID, tuple[float, float]] = {}  # when it may be tried, and the pause
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._until)

    def is_due(self, execution_id: UUID) -> bool:
        """True once the pause is over; another one begins then."""
        now = time.monotonic()
        with self._lock:
            until, pause_s = self._until.get(execution_id, (0.0, timeouts.POLL_S))
            if now < until:
                return False
            self._until[execution_id] = (now + pause_s, min(pause_s * 2, MAX_BACKOFF_S))
            return True

    def reset(self, execution_ids: Iterable[UUID]) -> None:
        with self._lock:
            for execution_id in execution_ids:
                self._until.pop(execution_id, None)

    def drop_old(self) -> None:
        """Drop rows that were not polled for long."""
        now = time.monotonic()
        with self._lock:
            self._until = {
                key: (until, pause_s)
                for key, (until, pause_s) in self._until.items()
                if now < until + FORGOTTEN_AFTER_S
            }


class Poller:
    def __init__(self) -> None:
        self._backoff = PollBackoff()
        self._pool = ThreadPoolExecutor(settings.WORKER_THREADS, thread_name_prefix="polled")
        self._undispatched = 0  # calls found since Celery's consumer last delivered a dispatch
        self._found_at = 0.0

    def poll(self) -> None:
        """Begin queued calls without a worker; run urgent tasks if beat is silent."""
        broker_answers = events.redis_answers()
        if reaper.is_silent(redis_answers=broker_answers):
            due = reaper.reap()
            dispatch.wake_workers(due if broker_answers else [])
            decisions.expire_overdue()
        self._backoff.drop_old()
        limit = settings.WORKER_THREADS + len(self._backoff)
        for turn in _waiting(limit, broker_answers=broker_answers):
            is_due = self._backoff.is_due(turn.execution_id)
            if is_due and not self._begin(turn, broker_answers):
                break
        dispatch.polled.beat()

    def _begin(self, turn: Turn, broker_answers: bool) -> bool:
        """False when every thread is busy."""
        if not dispatch.take_thread(wait=False):
            self._backoff.reset([turn.execution_id])
            return False
        metrics.polled.labels(self._reason(broker_answers)).inc()
        self._pool.submit(self._perform, turn)
        return True

    def _reason(self, broker_answers: bool) -> str:
        """A few late dispatches are normal; many late and none delivered mean a stuck consumer."""
        if not broker_answers:
            return "redis_silent"
        dispatched = dispatch.dispatched.age_s < time.monotonic() - self._found_at
        self._undispatched = 1 if dispatched else self._undispatched + 1
        self._found_at = time.monotonic()
        if self._undispatched < CONSUMER_SILENT_AFTER:
            return "hint_late"
        if self._undispatched == CONSUMER_SILENT_AFTER:
            log.error(
                "the consumer delivers no dispatches; calls are found by polling until it does"
            )
        return "consumer_silent"

    def _perform(self, turn: Turn) -> None:
        try:
            self._backoff.reset(perform_turn(turn))
        except CONNECTION_ERRORS as error:
            log.warning("an execution was not begun: %s", type(error).__name__)
            replace_dead_connections()
        except Exception:  # the thread's outermost edge
            log.exception("the poller failed unexpectedly")
        finally:
            connection.close()
            dispatch.release_thread()


def _waiting(limit: int, *, broker_answers: bool) -> list[Turn]:
    """Unclaimed rows, in fair order. Dispatched ones are left a moment for their worker."""
    fair = dispatch.next_waiting(limit)
    if not broker_answers or not fair:
        return fair
    found = [turn.execution_id for turn in fair]
    late = Execution.objects.waiting_longer_than(DISPATCH_PATIENCE).filter(pk__in=found)
    late_ids = set(late.values_list("pk", flat=True))
    return [turn for turn in fair if turn.execution_id in late_ids]
