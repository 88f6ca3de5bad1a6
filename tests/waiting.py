"""Waiting for what must happen."""

import time
from collections.abc import Callable

# No run that is in order comes near it, on a machine however busy: it says what did not happen
# before pytest's own timeout ends the test.
LIMIT_S = 100


def until[Found](look: Callable[[], Found]) -> Found:
    """The first true thing `look` gives."""
    deadline = time.monotonic() + LIMIT_S
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found
