"""Waiting for what must happen, with a deadline."""

import time
from collections.abc import Callable


def until[Found](look: Callable[[], Found], within_s: float = 20) -> Found:
    """The first true thing `look` gives. Fails when there is none in time."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found
