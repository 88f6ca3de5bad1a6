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
from tools.execution import bell, capacity, claiming, hints
from tools.execution.claiming import Turn
from tools.execution.pipeline import take
from tools.models import Execution
from tools.worker import reaper

log = logging.getLogger(__name__)
HINT_PATIENCE = timedelta(seconds=1)  # the time a dispatch may take
DEAF_AFTER = 20  # consecutive calls that were found by polling
MOST_REST_S = 8.0
FORGOTTEN_AFTER_S = 60.0


class Resting:
    """Backoff for rows that were tried and still wait, for example for another call's result."""

    def __init__(self) -> None:
        self._until: dict[UUID, tuple[float, float]] = {}  # when it may be tried, and the pause
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._until)

    def may_go(self, execution_id: UUID) -> bool:
        """True once the pause is over; another one begins then."""
        now = time.monotonic()
        with self._lock:
            until, pause_s = self._until.get(execution_id, (0.0, timeouts.POLL_S))
            if now < until:
                return False
            self._until[execution_id] = (now + pause_s, min(pause_s * 2, MOST_REST_S))
            return True

    def wake(self, execution_ids: Iterable[UUID]) -> None:
        with self._lock:
            for execution_id in execution_ids:
                self._until.pop(execution_id, None)

    def forget(self) -> None:
        """Rows that were not asked about for long are dropped."""
        now = time.monotonic()
        with self._lock:
            self._until = {
                key: (until, pause_s)
                for key, (until, pause_s) in self._until.items()
                if now < until + FORGOTTEN_AFTER_S
            }


class Poller:
    def __init__(self) -> None:
        self._resting = Resting()
        self._hands = ThreadPoolExecutor(settings.WORKER_THREADS, thread_name_prefix="polled")
        self._unheard = 0  # calls that were found since Celery's consumer last delivered a dispatch
        self._found_at = 0.0

    def look(self) -> None:
        """Begin queued calls without a worker; run urgent tasks if beat is silent."""
        told = bell.answers()
        if reaper.silent_s() > timeouts.BEAT_SILENT_S:
            due = reaper.reap()
            hints.tell(due if told else [])
            decisions.expire_overdue()
        self._resting.forget()
        for turn in _waiting(settings.WORKER_THREADS + len(self._resting), told=told):
            if self._resting.may_go(turn.execution_id) and not self._begin(turn, told):
                break
        capacity.polled.beat()

    def _begin(self, turn: Turn, told: bool) -> bool:
        """False when every thread is busy."""
        if not capacity.take(wait=False):
            self._resting.wake([turn.execution_id])
            return False
        metrics.polled.labels(self._reason(told)).inc()
        self._hands.submit(self._perform, turn)
        return True

    def _reason(self, told: bool) -> str:
        """A few late dispatches are normal; many late and none delivered mean a stuck consumer."""
        if not told:
            return "redis_silent"
        heard = capacity.hinted.age_s < time.monotonic() - self._found_at
        self._unheard = 1 if heard else self._unheard + 1
        self._found_at = time.monotonic()
        if self._unheard < DEAF_AFTER:
            return "hint_late"
        if self._unheard == DEAF_AFTER:
            log.error("the consumer brings no hints; calls are found by looking until it does")
        return "consumer_silent"

    def _perform(self, turn: Turn) -> None:
        try:
            self._resting.wake(take(turn))
        except CONNECTION_ERRORS as error:
            log.warning("an execution was not begun: %s", type(error).__name__)
            replace_dead_connections()
        except Exception:  # the thread's outermost edge
            log.exception("the poller met a fault of ours")
        finally:
            connection.close()
            capacity.give()


def _waiting(limit: int, *, told: bool) -> list[Turn]:
    """Unclaimed rows, in fair order. Dispatched ones are left a moment for their worker."""
    fair = claiming.next_waiting(limit)
    if not told or not fair:
        return fair
    found = [turn.execution_id for turn in fair]
    late = Execution.objects.waiting_longer_than(HINT_PATIENCE).filter(pk__in=found)
    unheard = set(late.values_list("pk", flat=True))
    return [turn for turn in fair if turn.execution_id in unheard]
