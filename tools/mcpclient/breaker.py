"""Not asking a server that cannot be reached, and finding out when it can be again.

Only failures of the transport count: a tool that fails says that its server lives.
"""

import threading
import time
from collections.abc import Callable

FAILURES_TO_OPEN = 5  # failures in a row
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0


class CircuitBreaker:
    """Closed, open, or half open: then one request at a time may try."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._failures, self._pause_s = 0, FIRST_PAUSE_S
        self._again_at, self._probing_until = 0.0, 0.0
        self.untried = True  # nothing has come from the server yet

    @property
    def open(self) -> bool:
        return self._failures >= FAILURES_TO_OPEN

    def admits(self, probe_s: float = 30.0) -> bool:
        """Whether to try. Who is let through while it is open says how it went."""
        with self._lock:
            now = self._clock()
            if not self.open:
                return True
            if now < self._again_at or now < self._probing_until:
                return False
            self._probing_until = now + probe_s  # also when the probe never tells
            return True

    def succeeded(self) -> None:
        with self._lock:
            self._failures, self._pause_s, self.untried = 0, FIRST_PAUSE_S, False
            self._probing_until = 0.0

    def failed(self) -> None:
        with self._lock:
            self._failures += 1
            self._probing_until = 0.0
            if self.open:
                self._again_at = self._clock() + self._pause_s
                self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
