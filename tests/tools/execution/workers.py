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
WHERE application_name = 'toolcrib-worker' AND xact_start IS NOT NULL
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
    """Meanwhile the crib's own worker claims nothing, and waiting calls do not expire."""
    pid = _worker_of(crib)
    until(lambda: _stops_without_locks(pid))
    try:
        with override_settings(QUEUE_AGE_S=3600):
            yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _stops_without_locks(pid: int) -> bool:
    """Stop the process. If it has a transaction open, whose locks it would keep, let it continue
    and return False."""
    os.kill(pid, signal.SIGSTOP)
    idle = False
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")  # cached within a transaction
            cursor.execute(_IN_A_TRANSACTION)
            idle = cursor.fetchone() == (0,)
    finally:
        if not idle:
            os.kill(pid, signal.SIGCONT)
    return idle


def _worker_of(crib: Crib) -> int:
    task = Path(f"/proc/{crib.supervisor}/task/{crib.supervisor}/children")
    for pid in map(int, task.read_text().split()):
        if b"\0celery\0-A\0config\0worker\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise LookupError("the crib has no worker at this moment")
