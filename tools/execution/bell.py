"""Whoever waits for an execution is woken through Redis; the database says what happened.

One thread per process listens for all waiters. A ring that is lost costs a waiter a moment, never
a result: it looks at the row again after `GLANCE_S` anyway.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import redis
from django.conf import settings

log = logging.getLogger(__name__)
CHANNEL = "toolcrib:executions"
GLANCE_S = 1.0


@lru_cache(maxsize=1)
def connection() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=5, health_check_interval=25)


def ring(execution_id: object) -> None:
    """Say that an execution is over, or must be looked at. Call it after the commit."""
    try:
        connection().publish(CHANNEL, str(execution_id))
    except redis.RedisError as error:
        log.warning("nobody was woken: %s", type(error).__name__)


class Listener:
    """One waiter for one execution. Registered before the call is made, it misses nothing."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def notify(self) -> None:
        self._rung.set()

    def wait(self, timeout_s: float) -> None:
        """Return when it rang, after `GLANCE_S`, or after `timeout_s`: the row is to be read."""
        self._rung.wait(max(0.0, min(timeout_s, GLANCE_S)))
        self._rung.clear()


class _Switchboard:
    def __init__(self) -> None:
        self._waiting: dict[str, set[Listener]] = defaultdict(set)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def listening(self, execution_id: object) -> Iterator[Listener]:
        key, listener = str(execution_id), Listener()
        with self._lock:
            self._waiting[key].add(listener)
            self._start()
        try:
            yield listener
        finally:
            with self._lock:
                self._waiting[key].discard(listener)
                if not self._waiting[key]:
                    del self._waiting[key]

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._listen, name="bell", daemon=True)
            self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                self._relay()
            except redis.RedisError as error:
                log.warning("the bell is silent: %s", type(error).__name__)
                time.sleep(GLANCE_S)

    def _relay(self) -> None:
        with redis.Redis.from_url(settings.REDIS_URL, health_check_interval=25) as own:
            pubsub = own.pubsub(ignore_subscribe_messages=True)
            pubsub.subscribe(CHANNEL)
            for message in pubsub.listen():
                self._wake(message["data"].decode("ascii", "replace"))

    def _wake(self, key: str) -> None:
        with self._lock:
            listeners = tuple(self._waiting.get(key, ()))
        for listener in listeners:
            listener.notify()


listening = _Switchboard().listening
