"""A separate worker process for a test, beside the crib's. Its Redis is unreachable, so it
polls."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import connection
from django.db.models.functions import Now
from django.test import override_settings

from tests.conditions import until
from tests.crib import CHECKOUT, Crib, free_port
from tools.models import Execution

Process = subprocess.Popen[bytes]
_IN_A_TRANSACTION = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name IN ('toolcrib-worker', 'toolcrib-housekeeper')
    AND xact_start IS NOT NULL
"""


@contextmanager
def worker(crib: Crib, **environment: str) -> Iterator[Process]:
    """Polls from the start. It is killed at the end if it still runs."""
    dead = f"redis://127.0.0.1:{free_port()}/0"
    words = ["-A", "config", "worker", "--pool", "threads", "--concurrency", "4"]
    own = {"TOOLCRIB_DATA": str(crib.data), "REDIS_URL": dead, "WORKER_THREADS": "4"}
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", *words, "--without-gossip", "--without-mingle"],
        cwd=CHECKOUT,
        env=os.environ | own | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def taken_by(crib: Crib, process: Process, make: Callable[[], Execution]) -> Execution:
    """A call that this worker has claimed."""
    with stopped(crib):
        execution = make()
        row = Execution.objects.filter(pk=execution.pk, worker__contains=f":{process.pid}:")
        return until(row.first)


def killed(process: Process) -> None:
    """Kill the process and expire the leases of its calls, so that no test waits for them."""
    process.kill()
    process.wait()
    held = Execution.objects.filter(status="Running", worker__contains=f":{process.pid}:")
    held.update(lease_until=Now())


@contextmanager
def stopped(crib: Crib) -> Iterator[None]:
    """Meanwhile the crib's own worker claims nothing, its housekeeper is idle, and waiting calls do
    not expire."""
    pids = [celery_process(crib, queue) for queue in ("executions", "housekeeping")]
    until(lambda: _stop_without_locks(pids))
    try:
        with override_settings(QUEUE_AGE_S=3600):
            yield
    finally:
        _continue(pids)


def _stop_without_locks(pids: list[int]) -> bool:
    """Stop the processes. If one has a transaction open, whose locks it would keep, let them
    continue and return False."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    idle = False
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")  # cached within a transaction
            cursor.execute(_IN_A_TRANSACTION)
            idle = cursor.fetchone() == (0,)
    finally:
        if not idle:
            _continue(pids)
    return idle


def _continue(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def celery_process(crib: Crib, queue: str) -> int:
    """The id of the crib's process that consumes the queue."""
    task = Path(f"/proc/{crib.supervisor}/task/{crib.supervisor}/children")
    for pid in map(int, task.read_text().split()):
        if f"\0--queues\0{queue}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise LookupError(f"the crib has no process for {queue} at this moment")
