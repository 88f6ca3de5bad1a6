"""Waiting for what must happen."""

import time
from collections.abc import Callable

# No run that is in order comes near it, on a machine however busy: it says what did not happen
# before pytest's own timeout ends the test.
LIMIT_S = 100


def until[Found](look: Callable[[], Found], limit_s: float = LIMIT_S) -> Found:
    """The first true thing `look` gives. Only benchmarks have another limit."""
    deadline = time.monotonic() + limit_s
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found
