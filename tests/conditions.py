"""Waiting for what must happen."""

import time
from collections.abc import Callable

from django.db import connection

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


def blocks_another_connection() -> bool:
    """True while another connection waits for a lock that this one holds. Reads `pg_locks`: within
    a transaction `pg_stat_activity` is a snapshot and misses connections opened later."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted"
            " AND pg_backend_pid() = ANY(pg_blocking_pids(pid)))"
        )
        waits: bool = cursor.fetchone()[0]
    return waits
