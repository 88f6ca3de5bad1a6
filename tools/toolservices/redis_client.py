"""Calls a tool service: one request, one stream of answers created for it, one result.

Certain results differ from uncertain ones: a request that no process took is withdrawn, and never
began; one whose process fell silent is lost, and the tool's `delivery` decides.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import redis
from redis._parsers import _RESP2Parser
from redis._parsers.socket import SocketBuffer

from toolcrib_service.queue_protocol import KEPT_MS, MAX_REQUEST, Queue, Request
from toolcrib_service.scripts import NOW
from tools.toolservices.answer_stream import (
    INVALID,
    AnswerAssembly,
    NotBegun,
    TimedOut,
    ToolServiceCallCancelled,
    ToolServiceCallFailed,
    ToolServiceCallLost,
)

# KEYS requests, accepting, replies; ARGV timeout in ms, id, token, envelope, most that may wait.
# Returns a word for the result, then the first id of the replies and the id of the request.
SEND = (
    NOW
    + """
if redis.call('ZCOUNT', KEYS[2], whole(now), '+inf') == 0 then return {'nobody'} end
redis.call('XTRIM', KEYS[1], 'MINID', '~', whole(now - 7200000))
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[5]) then return {'full'} end
local first = redis.call('XADD', KEYS[3], '*', 'opened', '1')
redis.call('PEXPIRE', KEYS[3], whole(tonumber(ARGV[1]) + 60000))
local entry = redis.call('XADD', KEYS[1], '*', 'id', ARGV[2], 'token', ARGV[3],
  'deadline_ms', whole(now + tonumber(ARGV[1])), 'body', ARGV[4])
return {'sent', first, entry}
"""
)
# KEYS replies, claim, alive, accepting. Whether the replies are still there, who has the request,
# whether that process lives, and how many take requests.
STATE = (
    NOW
    + """
local holder = redis.call('GETRANGE', KEYS[2], 0, 500)
local till = holder ~= '' and redis.call('ZSCORE', KEYS[3], holder)
local lives = till and tonumber(till) > now
return {redis.call('EXISTS', KEYS[1]), holder, lives and 1 or 0,
  redis.call('ZCOUNT', KEYS[4], whole(now), '+inf')}
"""
)
# KEYS requests, claim; ARGV entry, our mark, ms it is kept. 1 where no process will ever take it.
WITHDRAW = """
if redis.call('SET', KEYS[2], ARGV[2], 'NX', 'PX', ARGV[3]) then
  if ARGV[1] ~= '' then redis.call('XDEL', KEYS[1], ARGV[1]) end
  return 1
end
return redis.call('GET', KEYS[2]) == ARGV[2] and 1 or 0
"""
# KEYS requests, accepting, served; ARGV digest of an announcement.
QUEUE_STATUS = (
    NOW
    + """
local last = redis.call('ZRANGE', KEYS[2], 0, 0, 'REV', 'WITHSCORES')
return {redis.call('XLEN', KEYS[1]),
  redis.call('ZCOUNT', KEYS[2], whole(now), '+inf'), last[2] or '0', whole(now),
  redis.call('ZSCORE', KEYS[3], ARGV[1]) or '0'}
"""
)
MOST_BYTES = 16 * 1024 * 1024
_VALUE_OVERHEAD = 64  # memory of a value beside its bytes
UNAVAILABLE, BUSY = "SERVICE_UNAVAILABLE", "SERVICE_BUSY"
_WITHDRAWN = "withdrawn"
_BLOCK_MS = 250  # how long a cancelled call may wait to be seen
_READ_COUNT = 10  # so many answers of maximum length are less than is read at once
LONGEST_LEASE_S = 3_600.0
_PATIENCE_S = 5.0  # for a service that restarts while a request waits
_NO_PROCESS = "No process of the tool service takes requests. Nothing was begun; try again later."
__all__ = [
    "ToolServiceCallFailed",
    "ToolServiceClient",
    "ToolServiceQueueStatus",
    "ToolServiceRequest",
]


class ReplyTooLong(Exception):
    """The connection is closed; the requested answer is too long."""


class _BoundedBuffer(SocketBuffer):
    room = MOST_BYTES

    def read(self, length: int, *args: Any, **options: Any) -> bytes:
        self.room -= length + _VALUE_OVERHEAD
        if self.room < 0:
            raise ReplyTooLong
        return bytes(super().read(length, *args, **options))

    def purge(self) -> None:
        """After each answer that was read to its end."""
        self.room = MOST_BYTES
        super().purge()


class BoundedParser(_RESP2Parser):
    def on_connect(self, connection: Any) -> None:
        super().on_connect(connection)  # type: ignore[no-untyped-call]
        self._buffer = _BoundedBuffer(
            connection._sock, self.socket_read_size, connection.socket_timeout
        )


@dataclass(frozen=True, slots=True)
class ToolServiceRequest:
    """A request to a service: its arguments, its target, and the limits of time and size."""

    queue: Queue
    user: str
    config: dict[str, Any]
    arguments: dict[str, Any]
    timeout_s: float
    most_bytes: int


@dataclass(frozen=True, slots=True)
class ToolServiceQueueStatus:
    """The broker's state of a queue. No lease is longer than `LONGEST_LEASE_S`; one below 0 has
    expired."""

    waiting: int
    processes: int
    lease_s: float  # how much longer a process is assumed to take requests
    served_s: float  # how much longer some process is assumed to hold the announcement's lease


class ToolServiceClient:
    """Thread-safe; a call keeps one connection while it waits."""

    def __init__(self, url: str, *, most_waiting: int = 10_000) -> None:
        self._most_waiting = most_waiting
        self._redis: Any = redis.Redis.from_url(
            url, protocol=2, decode_responses=True, encoding_errors="replace",
            socket_timeout=10, socket_connect_timeout=2, parser_class=BoundedParser,
        )  # fmt: skip

    def call(
        self,
        request: ToolServiceRequest,
        *,
        stop: threading.Event,
        until: Callable[[], float] | None,
        tell: Callable[[str], None],
    ) -> str:
        """The whole answer. Raises `NotAnswered`."""
        sent = self._send(request)
        assembly = AnswerAssembly(
            sent.id, sent.token, most_bytes=request.most_bytes, tell=tell
        )  # fmt: skip
        with self._cancel_unfinished(sent, assembly):
            for check in self._read_answers(sent, assembly):
                now = time.monotonic()
                if stop.is_set() or (until is not None and now > until()):
                    raise ToolServiceCallCancelled(begun=not self._withdraw(sent))
                if now > sent.until:
                    raise self._timeout_error(sent)
                check()
        return assembly.text

    def queue_status(self, queue: Queue, digest: str = "") -> ToolServiceQueueStatus:
        """`digest` is of an announcement. Raises `redis.RedisError`."""
        [found] = self.queue_statuses([queue], digest)
        return found

    def queue_statuses(
        self, queues: Sequence[Queue], digest: str = ""
    ) -> list[ToolServiceQueueStatus]:
        """Of each queue, in one round trip. Raises `redis.RedisError`."""
        if not queues:
            return []
        with self._redis.pipeline(transaction=False) as pipeline:
            for queue in queues:
                keys = (queue.requests, queue.accepting, queue.served)
                pipeline.eval(QUEUE_STATUS, len(keys), *keys, digest)
            return [_queue_status(*found) for found in pipeline.execute()]

    def close(self) -> None:
        self._redis.close()

    # --- the request ----------------------------------------------------------------------------

    def _send(self, request: ToolServiceRequest) -> "_SentRequest":
        call, token = uuid4().hex, secrets.token_urlsafe(24)
        body = Request(call, token, 0, request.user, request.config, request.arguments).envelope()
        if len(body) > MAX_REQUEST:
            raise NotBegun("SERVICE_REQUEST_TOO_LARGE", "The arguments are too large to be sent.")
        sent = _SentRequest(request.queue, call, token, time.monotonic() + request.timeout_s)
        try:
            self._redis.ping()
        except redis.RedisError:
            raise NotBegun(UNAVAILABLE, "The broker of tool services does not answer.") from None
        queue = request.queue
        keys = (queue.requests, queue.accepting, queue.replies(call))
        arguments = (round(request.timeout_s * 1000), call, token, body, self._most_waiting)
        try:
            word, *ids = self._redis.eval(SEND, len(keys), *keys, *arguments)
        except redis.RedisError:
            self._handle_send_error(sent)
        if word == "nobody":
            raise NotBegun(UNAVAILABLE, _NO_PROCESS)
        if word == "full":
            raise NotBegun(BUSY, "Too many requests wait for the tool service; try again later.")
        sent.last, sent.entry = ids
        return sent

    def _handle_send_error(self, sent: "_SentRequest") -> None:
        """Withdraws a request that may have been sent, so that no process takes it."""
        if not self._withdraw(sent):
            raise ToolServiceCallLost(
                "The connection to the broker broke while the request was sent."
            ) from None
        raise NotBegun(UNAVAILABLE, "The broker of tool services did not take the request.")

    def _withdraw(self, sent: "_SentRequest") -> bool:
        """True when it is certain that no process has the request, or ever will."""
        keys = (sent.queue.requests, sent.queue.claim(sent.id))
        left_ms = max(0, round((sent.until - time.monotonic()) * 1000)) + KEPT_MS
        try:
            done = self._redis.eval(WITHDRAW, len(keys), *keys, sent.entry, _WITHDRAWN, left_ms)
        except redis.RedisError:
            return False
        return bool(done)

    def _timeout_error(self, sent: "_SentRequest") -> Exception:
        if self._withdraw(sent):
            return NotBegun(BUSY, "No process of the tool service took the request in time.")
        return TimedOut("The tool service did not come to an end in time.")

    # --- the answer -----------------------------------------------------------------------------

    def _read_answers(
        self, sent: "_SentRequest", assembly: AnswerAssembly
    ) -> Iterator[Callable[[], None]]:
        """Yields a check after each read: none where answers came."""
        while not assembly.done:
            try:
                entries = self._read(sent)
                for entry, fields in entries:
                    sent.last = entry
                    assembly.take(fields)
            except ReplyTooLong:
                raise ToolServiceCallFailed(
                    INVALID, "The service answered more at once than is read."
                ) from None
            except redis.RedisError:
                time.sleep(_BLOCK_MS / 1000)
                yield _no_check
                continue
            if not assembly.done:
                yield _no_check if entries else lambda: self._check_process(sent)

    def _read(self, sent: "_SentRequest") -> list[tuple[str, dict[str, str]]]:
        place = {sent.queue.replies(sent.id): sent.last}
        found = self._redis.xread(place, count=_READ_COUNT, block=_BLOCK_MS)
        return found[0][1] if found else []

    def _check_process(self, sent: "_SentRequest") -> None:
        """Checks, when no answer came for a moment, that a process that could send one is alive."""
        queue = sent.queue
        keys = (queue.replies(sent.id), queue.claim(sent.id), queue.alive, queue.accepting)
        try:
            kept, holder, lives, accepting = self._redis.eval(STATE, len(keys), *keys)
        except redis.RedisError:
            return
        if not kept:
            raise self._lost_error(sent)
        if holder:
            sent.missed_checks = 0 if lives else sent.missed_checks + 1
            if sent.missed_checks > 1:  # its earlier answers are read by now
                raise ToolServiceCallLost(
                    "The process of the tool service that had the call fell silent."
                )
        elif accepting:
            sent.unserved_since = 0.0
        else:
            self._wait_for_process(sent)

    def _wait_for_process(self, sent: "_SentRequest") -> None:
        sent.unserved_since = sent.unserved_since or time.monotonic()
        alone = time.monotonic() - sent.unserved_since > _PATIENCE_S
        if alone and self._withdraw(sent):
            raise NotBegun(UNAVAILABLE, _NO_PROCESS)

    def _lost_error(self, sent: "_SentRequest") -> Exception:
        if self._withdraw(sent):
            return NotBegun(UNAVAILABLE, "The broker lost the request before anybody took it.")
        return ToolServiceCallLost("The broker lost the answers of the tool service.")

    @contextmanager
    def _cancel_unfinished(self, sent: "_SentRequest", assembly: AnswerAssembly) -> Iterator[None]:
        """Deletes the stream, and notifies a process that still works on the call that it is
        over."""
        try:
            yield
        finally:
            try:
                self._redis.delete(sent.queue.replies(sent.id))
                if not assembly.done:
                    self._redis.set(sent.queue.cancel(sent.id), "1", px=KEPT_MS)
            except redis.RedisError:
                pass  # both expire, and the service's own clock ends the call


@dataclass(slots=True)
class _SentRequest:
    queue: Queue
    id: str
    token: str
    until: float
    last: str = "0"
    entry: str = ""
    missed_checks: int = 0
    unserved_since: float = 0.0


def _queue_status(
    waiting: int, processes: int, accepting: str, now: str, served: str
) -> ToolServiceQueueStatus:
    lease_s, served_s = (_left_s(till, now) for till in (accepting, served))
    return ToolServiceQueueStatus(waiting, processes, lease_s, served_s)


def _left_s(till: str, now: str) -> float:
    """Services write these times: any number, and infinity too."""
    return min(LONGEST_LEASE_S, max(-LONGEST_LEASE_S, (float(till) - float(now)) / 1000))


def _no_check() -> None:
    """The check after a read with answers: none."""
