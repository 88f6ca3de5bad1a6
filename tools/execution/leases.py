"""Leases: a worker that cannot say it is alive must stop, before another may begin.

Two threads per process. One asks the database about all runs of the process at once: who was
cancelled, whose fence is no longer ours, and it renews what is due; the database's clock decides.
The other looks at the clock alone and stops every run that was not renewed for two thirds of its
lease, whatever the first one is waiting for: a hung database must not keep a run going.
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

log = logging.getLogger(__name__)
CANCELLED = "cancelled"
type Held = tuple[UUID, int]  # an execution and the fence it was claimed with
_LOOK = """
    SELECT e.id, e.fence, e.cancel_requested_at IS NOT NULL
    FROM tools_execution e
    JOIN unnest(%(ids)s::uuid[], %(fences)s::int[]) AS held (id, fence)
        ON held.id = e.id AND held.fence = e.fence
    WHERE e.status = %(running)s
"""
# A row that another process has locked just now waits for the next look and holds up no other.
_RENEW = """
    WITH ours AS (
        SELECT e.id FROM tools_execution e
        JOIN unnest(%(ids)s::uuid[], %(fences)s::int[]) AS held (id, fence)
            ON held.id = e.id AND held.fence = e.fence
        WHERE e.status = %(running)s
        ORDER BY e.id FOR NO KEY UPDATE OF e SKIP LOCKED
    )
    UPDATE tools_execution e SET lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
    FROM ours WHERE e.id = ours.id RETURNING e.id, e.fence
"""


@dataclass(eq=False)
class Lease:
    """One running execution of this process. `stop` is set when its run must end."""

    execution_id: UUID
    fence: int
    renewed_at: float = field(default_factory=time.monotonic)
    stop: threading.Event = field(default_factory=threading.Event)
    reason: str = ""  # why it was stopped: the first word stands

    @property
    def cancelled(self) -> bool:
        """Whether it was requested; a worker may also give up a run by itself."""
        return self.reason == CANCELLED

    @property
    def key(self) -> Held:
        return self.execution_id, self.fence

    @property
    def age_s(self) -> float:
        """Since the last renewal that succeeded was asked for."""
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
        """`since`, on the monotonic clock, is when the claim was asked for: its lease runs."""
        lease = Lease(execution_id, fence, time.monotonic() if since is None else since)
        with self._lock:
            self._held.add(lease)
            self._busy.set()
            self._start("fencing", self._fence)
            self._start("leases", self._keep)
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
        """Stop every run, those that begin from now on too; how many ran. For a worker's end."""
        self._closing = True
        leases = self._leases()
        for lease in leases:
            lease.end(HANDED_BACK)
        return len(leases)

    def _start(self, name: str, work: Callable[[], None]) -> None:
        thread = self._threads.get(name)
        if thread is None or not thread.is_alive():
            self._threads[name] = threading.Thread(target=work, name=name, daemon=True)
            self._threads[name].start()

    def _leases(self) -> tuple[Lease, ...]:
        with self._lock:
            return tuple(self._held)

    def _fence(self) -> None:
        """Nothing here may wait for anything but the clock."""
        while self._busy.wait():
            time.sleep(timeouts.LEASE_CHECK_S)
            for lease in self._leases():
                if lease.age_s > timeouts.lease_fence_s(settings.EXECUTION_LEASE_S):
                    lease.end(LEASE_LOST)

    def _keep(self) -> None:
        own = _own_connection()
        while True:
            if not self._busy.is_set():
                own.close()
            self._busy.wait()
            time.sleep(timeouts.LEASE_CHECK_S)
            try:
                check_leases(self._leases(), own)
            except (DatabaseError, InterfaceError) as error:
                log.warning("no lease was renewed: %s", type(error).__name__)
                own.close()
            except Exception:  # the thread's outermost edge: the next run needs it too
                log.exception("the leases met a fault of ours")
                own.close()


def check_leases(leases: Iterable[Lease], database: BaseDatabaseWrapper) -> None:
    """Renew what is due; stop what was cancelled or is no longer ours. Two statements at most."""
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


def _renew_leases(due: list[Held], lease_s: int, database: BaseDatabaseWrapper) -> list[Held]:
    if not due:
        return []
    with database.cursor() as cursor:
        cursor.execute(_RENEW, {**_lease_parameters(due), "lease": lease_s})
        return [(pk, fence) for pk, fence in cursor.fetchall()]


def _read_leases(held: list[Held], database: BaseDatabaseWrapper) -> dict[Held, bool]:
    """Those that are still ours, and whether their cancellation was requested."""
    if not held:
        return {}
    with database.cursor() as cursor:
        cursor.execute(_LOOK, _lease_parameters(held))
        return {(pk, fence): cancelled for pk, fence, cancelled in cursor.fetchall()}


def _lease_parameters(held: list[Held]) -> dict[str, Any]:
    return {
        "ids": [pk for pk, _ in held],
        "fences": [fence for _, fence in held],
        "running": Status.RUNNING,
    }


def _own_connection() -> BaseDatabaseWrapper:
    """Not of the pool, which busy runs may have emptied. A dead network is noticed in seconds.

    Nothing here waits for a lock, so no statement needs a time limit of the server's.
    """
    own = connection.copy()  # under its own name: signal handlers look it up by that
    own.settings_dict["OPTIONS"] = {
        **{key: value for key, value in own.settings_dict["OPTIONS"].items() if key != "pool"},
        "connect_timeout": 2,
        "keepalives_idle": 2,
        "keepalives_interval": 1,
        "keepalives_count": 3,
        "tcp_user_timeout": 4_000,
    }
    return own


LEASES = Leases()
hold_lease = LEASES.hold
