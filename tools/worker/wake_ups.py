"""Wake-ups: the threads of a worker sleep on a list in Redis until a call is dispatched.

One of them waits for Redis, the others for it: the one that is woken performs the call, and another
waits meanwhile, so that a process has one connection for it and no call is passed from thread to
thread. A process whose places are all taken leaves the wake-ups to other processes. A thread that
finishes takes the next wake-up by itself and, while there is a long backlog, the next call also
without one. Otherwise the poller makes good what was lost.
"""

import logging
import threading
from functools import cached_property
from typing import cast
from uuid import UUID

import redis
from django.conf import settings
from django.db import connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from config.database import CONNECTION_ERRORS, replace_dead_connections
from tools.execution import dispatch, events
from tools.execution.dispatch import WAKE_UPS, wake_workers
from tools.execution.perform import perform_next

log = logging.getLogger(__name__)
WAIT_S = 1  # of one command to Redis, and so how long a stopping process waits for it
_SPARE_S = 2  # after which a Redis that has not answered is away


def perform_dispatched(hinted: UUID | None) -> bool:
    """Perform the call that a dispatch named, or the next one. Whether one was performed.

    A dispatch that finds no database, or the process stopping, is dropped; its row stays queued.
    """
    if not dispatch.take_thread(wait=True):
        return False
    try:
        waiting = perform_next(hinted)
    except CONNECTION_ERRORS as error:
        log.warning("an execution was not begun: %s", type(error).__name__)
        replace_dead_connections()
        return False
    finally:
        dispatch.release_thread()
    wake_workers(waiting or [])
    return waiting is not None


class WakeUps:
    """The threads of this process that are woken. They end with what they perform once the process
    is to stop, or its main thread is over."""

    def __init__(self) -> None:
        self._waiting = threading.Lock()  # of the thread that waits for Redis

    def start(self) -> None:
        for _ in range(settings.WORKER_THREADS):
            threading.Thread(target=self._work, name="woken").start()

    def _work(self) -> None:
        busy = False
        while threading.main_thread().is_alive() and not dispatch.stopping.is_set():
            try:
                busy = self._perform_next(goes_on=busy and dispatch.line.goes_on)
            except Exception:  # the thread's outermost edge
                log.exception("a woken thread failed unexpectedly")
                busy = False
            finally:
                connection.close()

    def _perform_next(self, *, goes_on: bool) -> bool:
        """Whether a call was performed. To go on is to take one without a wake-up too."""
        hinted = self._next_wake_up(waits=not goes_on)
        if hinted is None:
            return goes_on and perform_dispatched(None)
        if dispatch.stopping.is_set():
            wake_workers([hinted])  # another process
            return False
        return perform_dispatched(hinted)

    def _next_wake_up(self, *, waits: bool) -> UUID | None:
        """None when there was none for a moment; at once unless it `waits`."""
        if not self._waiting.acquire(blocking=waits):
            return None  # another thread waits for one, so there is none
        try:
            if dispatch.stopping.is_set() or not dispatch.await_thread():
                return None
            found = self._pop(waits=waits)
        except redis.RedisError as error:
            log.warning("no wake-up is received: %s", type(error).__name__)
            dispatch.stopping.wait(events.RECHECK_S)
            return None
        finally:
            self._waiting.release()
        if found is None:
            return None
        dispatch.dispatched.beat()
        return UUID(found.decode("ascii"))

    def _pop(self, *, waits: bool) -> bytes | None:
        if not waits:
            return cast("bytes | None", self._redis.lpop(WAKE_UPS))
        found = cast("list[bytes] | None", self._redis.blpop([WAKE_UPS], timeout=WAIT_S))
        return found[1] if found else None

    @cached_property
    def _redis(self) -> redis.Redis:
        """Without retries: a wake-up that was lost on the way would not come again."""
        return redis.Redis.from_url(
            settings.REDIS_URL,
            socket_timeout=WAIT_S + _SPARE_S,
            socket_connect_timeout=_SPARE_S,
            retry=Retry(NoBackoff(), 0),
        )
