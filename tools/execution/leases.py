"""Leases: a worker that cannot say it is alive must stop, before another may begin.

One thread per process renews the lease of every run of this process and does nothing else, so that
a busy run cannot starve it. A run whose lease cannot be renewed in time, or whose cancellation was
asked for, is told to stop; the database's clock decides what is in time.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, connection

from tools.models import Execution

log = logging.getLogger(__name__)
LOOK_S = 0.5  # how soon a cancellation is seen


@dataclass(eq=False)
class Lease:
    """One running execution of this process. `stop` is set when its run must end."""

    execution_id: UUID
    fence: int
    stop: threading.Event = field(default_factory=threading.Event)
    cancelled: bool = False
    renewed_at: float = field(default_factory=time.monotonic)


class _Keeper:
    def __init__(self) -> None:
        self._held: set[Lease] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def held(self, execution_id: UUID, fence: int) -> Iterator[Lease]:
        lease = Lease(execution_id, fence)
        with self._lock:
            self._held.add(lease)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._keep, name="leases", daemon=True)
                self._thread.start()
        try:
            yield lease
        finally:
            with self._lock:
                self._held.discard(lease)

    def _keep(self) -> None:
        while True:
            time.sleep(LOOK_S)
            with self._lock:
                leases = tuple(self._held)
            for lease in leases:
                self._look_after(lease)
            connection.close()

    def _look_after(self, lease: Lease) -> None:
        """Self-fence after two thirds of the lease: well before the row counts as abandoned."""
        age_s = time.monotonic() - lease.renewed_at
        try:
            if _cancel_requested(lease):
                lease.cancelled = True
                lease.stop.set()
            if age_s > settings.EXECUTION_LEASE_S / 4:
                self._renew(lease)
        except DatabaseError as error:
            log.warning("a lease was not renewed: %s", type(error).__name__)
            if age_s > settings.EXECUTION_LEASE_S * 2 / 3:
                lease.stop.set()

    def _renew(self, lease: Lease) -> None:
        asked_at = time.monotonic()
        if Execution.objects.renew(
            lease.execution_id, lease.fence, lease_s=settings.EXECUTION_LEASE_S
        ):
            lease.renewed_at = asked_at
        else:
            lease.stop.set()


def _cancel_requested(lease: Lease) -> bool:
    row = Execution.objects.held(lease.execution_id, lease.fence)
    return row.filter(cancel_requested_at__isnull=False).exists()


held = _Keeper().held
