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
from typing import Any

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from config.http import request_queue

log = logging.getLogger(__name__)
CHANNEL = "toolcrib:executions"
NEWS = "toolcrib:news"  # what pages show anew, and nobody waits for
GLANCE_S = 1.0
NEWS_S = 0.2


@lru_cache(maxsize=1)
def connection() -> redis.Redis:
    return _client(socket_timeout=5, health_check_interval=25)


@lru_cache(maxsize=1)
def _quick() -> redis.Redis:
    """For what must not wait for a Redis that hangs. One retry: a kept connection may be dead."""
    once = Retry(NoBackoff(), 1)
    return _client(socket_timeout=0.5, socket_connect_timeout=0.5, retry=once)


def _client(**options: Any) -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, **options)


class _Pause:
    """After a word that failed nobody tries for a moment: a hung Redis would hold up every call."""

    def __init__(self) -> None:
        self._until = 0.0

    def begin(self) -> None:
        self._until = time.monotonic() + GLANCE_S

    def __bool__(self) -> bool:
        return time.monotonic() < self._until


pause = _Pause()  # of hints to workers as well


def ring(execution_id: object) -> None:
    """Say that an execution is over, or must be looked at. Call it after the commit."""
    _publish(CHANNEL, execution_id)


def announce(execution_id: object) -> None:
    """Say that an execution is new or has begun: open pages look again, waiters sleep on. It is
    said within `NEWS_S`, together with others, and costs the call nothing."""
    _announcements.add(str(execution_id))


class _Announcements:
    """What pages are to be told, collected by a thread of this process."""

    def __init__(self) -> None:
        self._collected: set[str] = set()
        self._lock = threading.Lock()
        self._any = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, execution_id: str) -> None:
        with self._lock:
            self._collected.add(execution_id)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._publish, name="news", daemon=True)
                self._thread.start()
        self._any.set()

    def _publish(self) -> None:
        while self._any.wait():
            time.sleep(NEWS_S)
            with self._lock:
                self._any.clear()
                collected, self._collected = self._collected, set()
            _publish(NEWS, *collected)


_announcements = _Announcements()


def _publish(channel: str, *execution_ids: object) -> None:
    if pause:
        return
    try:
        with _quick().pipeline(transaction=False) as messages:
            for execution_id in execution_ids:
                messages.publish(channel, str(execution_id))
            messages.execute()
    except redis.RedisError as error:
        pause.begin()
        log.warning("nobody was woken: %s", type(error).__name__)


def answers() -> bool:
    """Whether Redis is there, within a second or so."""
    try:
        return bool(_quick().ping())
    except redis.RedisError:
        return False


class Listener:
    """One waiter for one execution. Registered before the call is made, it misses nothing."""

    def __init__(self) -> None:
        self._rung = threading.Event()
        self._watches_client = False

    def notify(self) -> None:
        self._rung.set()

    def wait(self, timeout_s: float) -> None:
        """Return when it rang, after `GLANCE_S`, or after `timeout_s`: the row is to be read. Also
        when the client of the request disconnects, of which `request_queue.disconnected` knows."""
        if not self._watches_client:
            self._watches_client = True
            request_queue.on_disconnect(self.notify)
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
        with _client(health_check_interval=25) as own:
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
