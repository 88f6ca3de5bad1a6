"""What happened to an execution, as events that can be replayed and followed.

Who waits is notified over Redis. Of a call that ended at a worker the notification brings the
answer, sealed, so that it need not be read (docs/decisions/0030-answers-in-notifications.md).
"""

import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

import orjson
import redis
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from redis.backoff import NoBackoff
from redis.retry import Retry

from audit.actions import writing_evidence
from audit.inserts import InsertRow
from config.http import request_queue
from tools.definitions.results import EventType
from tools.models import Execution, ExecutionEvent

CHANNEL = "toolcrib:executions"
ANSWERS_CHANNEL = "toolcrib:answers"  # the id of an execution, and its sealed answer
MOST_ANSWER_BYTES = 16 * 1024  # each web process receives it
PAGES_CHANNEL = "toolcrib:news"  # what pages show again; no caller waits for it
RECHECK_S = 1.0
PAGES_DELAY_S = 0.2


@lru_cache(maxsize=1)
def redis_connection() -> redis.Redis:
    return _client(socket_timeout=5, health_check_interval=25)


@lru_cache(maxsize=1)
def impatient_connection() -> redis.Redis:
    """For what must not wait for a Redis that hangs. One retry: a kept connection may be dead."""
    once = Retry(NoBackoff(), 1)
    return _client(socket_timeout=0.5, socket_connect_timeout=0.5, retry=once)


def _client(**options: Any) -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, **options)


class _RedisPause:
    """After a failed message none is tried for a moment: a hung Redis would hold up every call."""

    def __init__(self) -> None:
        self._until = 0.0

    def begin(self) -> None:
        self._until = time.monotonic() + RECHECK_S

    def __bool__(self) -> bool:
        return time.monotonic() < self._until


redis_pause = _RedisPause()  # of dispatches to workers as well


def notify_waiters(execution_id: object, answer: bytes = b"") -> None:
    """Say that an execution is over, or must be looked at, with its `seal_answer` where there is
    one. Call it after the commit."""
    messages: list[Notification] = [(CHANNEL, str(execution_id))]
    if answer:
        messages.insert(0, (ANSWERS_CHANNEL, f"{execution_id} ".encode() + answer))
    _publish(messages)


def notify_pages(execution_id: object) -> None:
    """Say that an execution is new or has begun: open pages look again, waiters sleep on. It is
    said within `PAGES_DELAY_S`, together with others, and costs the call nothing."""
    _page_notifications.add(str(execution_id))


class _PageNotifications:
    """Notifications for pages, collected by a thread of this process."""

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
            time.sleep(PAGES_DELAY_S)
            with self._lock:
                self._any.clear()
                collected, self._collected = self._collected, set()
            _publish([(PAGES_CHANNEL, execution_id) for execution_id in collected])


_page_notifications = _PageNotifications()


type Notification = tuple[str, str | bytes]  # a channel, and what is published there


def _publish(messages: Sequence[Notification]) -> None:
    if redis_pause:
        return
    try:
        with impatient_connection().pipeline(transaction=False) as pipeline:
            for channel, data in messages:
                pipeline.publish(channel, data)
            pipeline.execute()
    except redis.RedisError as error:
        redis_pause.begin()
        log.warning("waiters were not notified: %s", type(error).__name__)


def redis_answers() -> bool:
    """Whether Redis is there, within a second or so."""
    try:
        return bool(impatient_connection().ping())
    except redis.RedisError:
        return False


# Columns of an answer that change after the acceptance of a call that makes none of its own.
_ANSWERED = (
    "status", "output", "observation", "error_code", "output_digest", "output_type",
    "error_message", "error_details", "started_at", "completed_at", "duration_ms", "output_bytes",
    "sandbox_id", "metrics", "warnings", "state_after", "cached", "cached_from", "cost",
)  # fmt: skip
_NONCE_BYTES = 12


def seal_answer(execution: Execution) -> bytes:
    """What the answer says of an execution whose end this process has just stored, for one who
    waits. Empty where it is to be read: it is large, or has a number that `orjson` does not take.
    """
    values = {name: getattr(execution, name) for name in _ANSWERED}
    try:
        text = orjson.dumps(values, default=_decimal_text)
    except TypeError:
        return b""
    if len(text) > MOST_ANSWER_BYTES:
        return b""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + _cipher(settings.SECRET_KEY).encrypt(nonce, text, execution.pk.bytes)


def apply_answer(sealed: bytes, execution: Execution) -> bool:
    """Give an execution, as it was accepted or read, what a worker has sealed of its end. False
    where that is not of this execution or another installation's: it is to be read."""
    nonce, body = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    try:
        text = _cipher(settings.SECRET_KEY).decrypt(nonce, body, execution.pk.bytes)
    except (InvalidTag, ValueError):
        return False
    values = orjson.loads(text)
    for name in ("started_at", "completed_at"):
        values[name] = datetime.fromisoformat(values[name]) if values[name] else None
    values["cost"] = Decimal(values["cost"])
    values["cached_from"] = UUID(values["cached_from"]) if values["cached_from"] else None
    for name in _ANSWERED:
        setattr(execution, name, values[name])
    return True


def _decimal_text(value: object) -> str:
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError


@lru_cache(maxsize=1)
def _cipher(secret: str) -> AESGCM:
    derivation = HKDF(SHA256(), 32, salt=None, info=b"toolcrib answer in a notification")
    return AESGCM(derivation.derive(secret.encode()))


class Listener:
    """One waiter for one execution. Registered before the call is made, it misses nothing."""

    def __init__(self) -> None:
        self.answer = b""  # sealed, where a notification brought it
        self._rung = threading.Event()
        self._watches_client = False

    def notify(self, answer: bytes = b"") -> None:
        self.answer = answer or self.answer
        self._rung.set()

    def wait(self, timeout_s: float) -> None:
        """Return when it rang, after `RECHECK_S`, or after `timeout_s`: the row is to be read. Also
        when the client of the request disconnects, of which `request_queue.disconnected` knows."""
        if not self._watches_client:
            self._watches_client = True
            request_queue.on_disconnect(self.notify)
        self._rung.wait(max(0.0, min(timeout_s, RECHECK_S)))
        self._rung.clear()


class _Listeners:
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
                log.warning("notifications are not received: %s", type(error).__name__)
                time.sleep(RECHECK_S)

    def _relay(self) -> None:
        with _client(health_check_interval=25) as own:
            pubsub = own.pubsub(ignore_subscribe_messages=True)
            pubsub.subscribe(CHANNEL, ANSWERS_CHANNEL)
            for message in pubsub.listen():
                execution_id, _, answer = message["data"].partition(b" ")
                self._wake(execution_id.decode("ascii", "replace"), answer)

    def _wake(self, key: str, answer: bytes) -> None:
        with self._lock:
            listeners = tuple(self._waiting.get(key, ()))
        for listener in listeners:
            listener.notify(answer)


listen = _Listeners().listening


HEARTBEAT_S = 15.0


def append_event(
    execution_id: UUID, kind: EventType, message: str = "", evidence: Sequence[InsertRow] = ()
) -> None:
    """Store the next event; call it in the transaction of what it is about. The first start and
    the end of an execution are derived from its row. Raises `Unwritable` where the evidence beside
    it cannot be written."""
    with writing_evidence() if evidence else nullcontext():
        ExecutionEvent.objects.append(execution_id, kind, message, evidence)


def store_events(execution_id: UUID) -> None:
    """Before its row stops to say what was derived of it, in the same transaction."""
    ExecutionEvent.objects.store(execution_id)


def follow_events(execution_id: UUID, after: int) -> Generator[ExecutionEvent | None]:
    """Events past number `after`, then live ones, until the execution is over or its reader has
    disconnected.

    Yields None every `HEARTBEAT_S` while nothing happens, so that a reader who left is noticed. No
    database connection is held while waiting.
    """
    with listen(execution_id) as listener:
        silent_s = 0.0
        while not request_queue.disconnected():
            execution = Execution.objects.only("status").get(pk=execution_id)
            fresh = ExecutionEvent.objects.of_execution(execution, after)
            connection.close()
            yield from fresh
            if execution.is_final:
                return
            after = fresh[-1].sequence if fresh else after
            silent_s = 0.0 if fresh else silent_s + RECHECK_S
            if silent_s >= HEARTBEAT_S:
                silent_s = 0.0
                yield None
            listener.wait(RECHECK_S)


log = logging.getLogger(__name__)
LONGEST_MESSAGE = 1_000  # characters of one event
MOST_EVENTS = 1_000  # of one run
PROGRESS_INTERVAL_S = 0.1


class ProgressWriter:
    """Called with text: writes the first at once, then one event every `PROGRESS_INTERVAL_S`."""

    def __init__(self, execution_id: UUID) -> None:
        self._execution_id = execution_id
        self._waiting = ""
        self._written, self._last = 0, -PROGRESS_INTERVAL_S

    def __call__(self, words: str) -> None:
        if self._written >= MOST_EVENTS:
            self._waiting = ""
            return
        room = LONGEST_MESSAGE * MOST_EVENTS - len(self._waiting)
        self._waiting += words.replace("\x00", "\ufffd")[: max(0, room)]
        if (
            time.monotonic() - self._last >= PROGRESS_INTERVAL_S
            or len(self._waiting) >= LONGEST_MESSAGE
        ):
            self.flush()

    def flush(self) -> None:
        """Write what waits. A word that cannot be written never fails the run."""
        while self._waiting and self._written < MOST_EVENTS:
            words, self._waiting = self._waiting[:LONGEST_MESSAGE], self._waiting[LONGEST_MESSAGE:]
            self._written += 1
            self._last = time.monotonic()
            try:
                with transaction.atomic():
                    append_event(self._execution_id, EventType.IN_PROGRESS, _encodable(words))
                notify_waiters(self._execution_id)
            except DatabaseError:
                log.warning("progress of %s could not be written", self._execution_id)
            finally:
                if not connection.in_atomic_block:
                    connection.close()


def _encodable(words: str) -> str:
    return words.encode("utf-8", "replace").decode("utf-8")
