"""Leases: a worker that cannot renew the lease of a run stops it before another may start it.

Two threads in each process. One reads all running executions of the process from the database:
which were cancelled, which have a new fence; and it renews the leases that are due, by the clock of
the database. The other reads only the local clock, and stops every run whose lease was not renewed
for two thirds of its time: a hung database must not let a run continue.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from config import timeouts
from tools.definitions.results import Status
from tools.execution.requeue import HANDED_BACK, LEASE_LOST
from tools.models.pipeline_sql import RENEW_LEASES, SELECT_LEASES

log = logging.getLogger(__name__)
CANCELLED = "cancelled"
type LeaseKey = tuple[UUID, int]  # an execution and the fence it was claimed with


@dataclass(eq=False)
class Lease:
    """One running execution of this process. `stop` is set when its run must end."""

    execution_id: UUID
    fence: int
    renewed_at: float = field(default_factory=time.monotonic)
    stop: threading.Event = field(default_factory=threading.Event)
    reason: str = ""  # the first reason why it was stopped

    @property
    def cancelled(self) -> bool:
        """Whether it was requested; a worker may also give up a run by itself."""
        return self.reason == CANCELLED

    @property
    def key(self) -> LeaseKey:
        return self.execution_id, self.fence

    @property
    def age_s(self) -> float:
        """The time since the last successful renewal was sent."""
        return time.monotonic() - self.renewed_at

    def end(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.stop.set()


class Leases:
    """The leases of this process."""

    def __init__(self) -> None:
        self._held: set[Lease] = set()
        self._lock = threading.Lock()
        self._busy = threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self._closing = False

    @contextmanager
    def hold(
        self, execution_id: UUID, fence: int, *, since: float | None = None
    ) -> Iterator[Lease]:
        """`since`, on the monotonic clock, is when the claim was sent: its lease starts then."""
        lease = Lease(execution_id, fence, time.monotonic() if since is None else since)
        with self._lock:
            self._held.add(lease)
            self._busy.set()
            self._start("fencing", self._stop_expired_leases)
            self._start("leases", self._check_leases)
        if self._closing:
            lease.end(HANDED_BACK)
        try:
            yield lease
        finally:
            with self._lock:
                self._held.discard(lease)
                if not self._held:
                    self._busy.clear()

    def hand_back(self) -> int:
        """Stops all runs, also later ones, at the end of a worker. Returns how many ran."""
        self._closing = True
        leases = self._current_leases()
        for lease in leases:
            lease.end(HANDED_BACK)
        return len(leases)

    def _start(self, name: str, work: Callable[[], None]) -> None:
        thread = self._threads.get(name)
        if thread is None or not thread.is_alive():
            self._threads[name] = threading.Thread(target=work, name=name, daemon=True)
            self._threads[name].start()

    def _current_leases(self) -> tuple[Lease, ...]:
        with self._lock:
            return tuple(self._held)

    def _stop_expired_leases(self) -> None:
        """Stops runs with old leases. Must not wait for anything but the clock."""
        while self._busy.wait():
            time.sleep(timeouts.LEASE_CHECK_S)
            for lease in self._current_leases():
                if lease.age_s > timeouts.lease_fence_s(settings.EXECUTION_LEASE_S):
                    lease.end(LEASE_LOST)

    def _check_leases(self) -> None:
        database = _dedicated_connection()
        while True:
            if not self._busy.is_set():
                database.close()
            self._busy.wait()
            time.sleep(timeouts.LEASE_CHECK_S)
            try:
                check_leases(self._current_leases(), database)
            except (DatabaseError, InterfaceError) as error:
                log.warning("no lease was renewed: %s", type(error).__name__)
                database.close()
            except Exception:  # the outermost call of the thread, which later runs need
                log.exception("the check of the leases failed")
                database.close()


def check_leases(leases: Iterable[Lease], database: BaseDatabaseWrapper) -> None:
    """Renews due leases, and stops cancelled and lost runs. At most two statements."""
    known = {lease.key: lease for lease in leases}
    lease_s = settings.EXECUTION_LEASE_S
    due = [key for key, lease in known.items() if lease.age_s > timeouts.lease_renewal_s(lease_s)]
    asked_at = time.monotonic()
    for key in _renew_leases(due, lease_s, database):
        known[key].renewed_at = asked_at
    ours = _read_leases(list(known), database)
    for key, lease in known.items():
        if key not in ours:
            lease.end(LEASE_LOST)
        elif ours[key]:
            lease.end(CANCELLED)


def _renew_leases(
    due: list[LeaseKey], lease_s: int, database: BaseDatabaseWrapper
) -> list[LeaseKey]:
    if not due:
        return []
    with database.cursor() as cursor:
        cursor.execute(RENEW_LEASES.text, {**_lease_parameters(due), "lease": lease_s})
        return [(pk, fence) for pk, fence in cursor.fetchall()]


def _read_leases(held: list[LeaseKey], database: BaseDatabaseWrapper) -> dict[LeaseKey, bool]:
    """The leases that are still ours, and whether their execution was cancelled."""
    if not held:
        return {}
    with database.cursor() as cursor:
        cursor.execute(SELECT_LEASES.text, _lease_parameters(held))
        return {(pk, fence): cancelled for pk, fence, cancelled in cursor.fetchall()}


def _lease_parameters(held: list[LeaseKey]) -> dict[str, Any]:
    return {
        "ids": [pk for pk, _ in held],
        "fences": [fence for _, fence in held],
        "running": Status.RUNNING,
    }


def _dedicated_connection() -> BaseDatabaseWrapper:
    """A connection outside the pool, which busy runs may have exhausted. It detects a dead network
    in seconds.

    No statement here waits for a lock, so none needs a statement timeout.
    """
    database = connection.copy()  # with the same alias, which signal handlers look up
    database.settings_dict["OPTIONS"] = {
        **{key: value for key, value in database.settings_dict["OPTIONS"].items() if key != "pool"},
        "connect_timeout": 2,
        "keepalives_idle": 2,
        "keepalives_interval": 1,
        "keepalives_count": 3,
        "tcp_user_timeout": 4_000,
    }
    return database


LEASES = Leases()
hold_lease = LEASES.hold
