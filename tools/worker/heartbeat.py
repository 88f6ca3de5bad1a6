"""Worker heartbeats: each worker reports that it takes executions; reports are cached briefly.

A worker whose poller has not queried the database recently does not report, though it lives.
"""

import logging
import threading
import time
from typing import Any

import redis
from celery.signals import worker_ready, worker_shutting_down

from tools.execution import bell, capacity
from tools.execution.pipeline import worker_name

log = logging.getLogger(__name__)
KEYS = "toolcrib:worker:"
BEAT_S = 2.0
KEPT_S = 7
STALE_S = 10.0  # after which a poller counts as hung
_stopping = threading.Event()


def workers_alive() -> int:
    """How many workers have said within `KEPT_S` seconds that they take executions."""
    try:
        return sum(1 for _ in bell.connection().scan_iter(match=f"{KEYS}*", count=100))
    except redis.RedisError:
        return 0


@worker_ready.connect
def _begin(**_: Any) -> None:
    _stopping.clear()
    threading.Thread(target=_beat, name="heartbeat", daemon=True).start()


@worker_shutting_down.connect
def _end(**_: Any) -> None:
    _stopping.set()


def _beat() -> None:
    key = f"{KEYS}{worker_name().rpartition(':')[0]}"
    while not _stopping.is_set():
        try:
            if capacity.polled.age_s < STALE_S:
                bell.connection().set(key, int(time.time()), ex=KEPT_S)
        except redis.RedisError as error:
            log.warning("no heartbeat was kept: %s", type(error).__name__)
        _stopping.wait(BEAT_S)
    try:
        bell.connection().delete(key)
    except redis.RedisError as error:
        log.warning("the last heartbeat stays a moment: %s", type(error).__name__)
