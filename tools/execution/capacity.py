"""How many executions this process takes at a time, and whether it takes any more at all.

Celery's tasks and the poller share one number, so that a worker that polls is not overloaded. They
also tell each other here that they live.
"""

import threading
import time

from django.conf import settings

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
