"""One process of a service: it takes requests, answers them, and sends heartbeats.

It takes one request per thread; other processes of its group take the rest. A stopping process
takes no request, and finishes its calls.
"""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

import redis

from toolcrib_service import scripts
from toolcrib_service.queue_protocol import (
    GROUP,
    Malformed,
    Queue,
    Request,
    Response,
    shorten_error,
)
from toolcrib_service.service import Announcer, DynamicToolService
from toolcrib_service.service_calls import Call, CallAbandoned, Loop, answer_responses

log = logging.getLogger(__name__)
LEASE_S = 10.0
MOST_S = 86_400  # no call is longer, regardless of its request
_BLOCK_MS = 500  # how long a stop may wait for a thread that reads
_PAUSE_S = 1.0  # before a broker that failed is asked again


class Worker:
    def __init__(
        self,
        service: DynamicToolService,
        url: str,
        *,
        organization: str = "default",
        concurrency: int = 4,
        lease_s: float = LEASE_S,
        announcer: Announcer | None = None,
    ) -> None:
        self.service, self.organization = service, organization
        self.queue = Queue(organization, service.requests_name())
        self.name = f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"
        self.lease_s, self._announcer = lease_s, announcer
        self._redis: Any = redis.Redis.from_url(
            url, protocol=2, decode_responses=True, encoding_errors="replace", socket_timeout=10
        )
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._calls: dict[str, Call] = {}
        self._loop = Loop()
        self._last_reclaim = 0.0
        self._readers = [
            threading.Thread(target=self._read, name=f"call-{at}", daemon=True)
            for at in range(concurrency)
        ]
        self._heartbeat = threading.Thread(target=self._run_heartbeat, name="heart", daemon=True)

    def start(self) -> None:
        """Raises `redis.RedisError` where the broker cannot be used."""
        self._make_group()
        try:
            self._send_heartbeat()
        except redis.exceptions.NoPermissionError:
            log.warning(
                "Toolcrib has not loaded its scripts at the broker yet; the worker waits for them"
            )
        for thread in (self._heartbeat, *self._readers):
            thread.start()

    def stop(self, grace_s: float = 20.0) -> bool:
        """Takes no more requests and waits for running calls. False where one was abandoned."""
        self._stopping.set()
        self._try(self._send_heartbeat)
        deadline = time.monotonic() + grace_s
        for thread in self._readers:
            thread.join(max(0.0, deadline - time.monotonic()))
        for call in list(self._calls.values()):
            call.cancel()
        for thread in self._readers:
            thread.join(1.0)
        done = not any(thread.is_alive() for thread in self._readers)
        self._ended.set()
        self._heartbeat.join()
        self._try(self._deregister)
        if done:
            self._loop.close()
            self._redis.close()
        return done

    # --- heartbeat ------------------------------------------------------------------------------

    def _run_heartbeat(self) -> None:
        announced = time.monotonic()
        while not self._ended.wait(min(1.0, self.lease_s / 4)):
            self._try(self._send_heartbeat)
            self._try(self._cancel_calls)
            if self._announcer and time.monotonic() - announced > self._announcer.every_s:
                announced = time.monotonic()
                self._try(self._announce)

    def _send_heartbeat(self) -> None:
        queue, accepting = self.queue, not self._stopping.is_set()
        keys = (queue.accepting, queue.alive, queue.served)
        digest = self._announcer.digest if self._announcer else ""
        arguments = (self.name, round(self.lease_s * 1000), int(accepting), digest)
        scripts.run_script(self._redis, scripts.HEARTBEAT, keys, *arguments)

    def _announce(self) -> None:
        if self._announcer is not None:
            self._announcer.publish(self._redis)

    def _cancel_calls(self) -> None:
        """Ends calls that their caller cancelled, and calls past their deadline."""
        held = list(self._calls.values())
        if not held:
            return
        marks = self._redis.mget([self.queue.cancel(call.request.id) for call in held])
        now = time.monotonic()
        for call, mark in zip(held, marks, strict=True):
            if mark is not None or now > call.until:
                call.cancel()

    def _deregister(self) -> None:
        for key in (self.queue.accepting, self.queue.alive):
            self._redis.zrem(key, self.name)
        if not self._redis.xpending_range(
            self.queue.requests, GROUP, "-", "+", 1, consumername=self.name
        ):
            self._redis.xgroup_delconsumer(self.queue.requests, GROUP, self.name)

    def _make_group(self) -> None:
        try:
            self._redis.xgroup_create(self.queue.requests, GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
        if self._announcer:
            self._announce()

    def _try(self, action: Any) -> None:
        """Logs a broker that does not answer; the worker continues."""
        try:
            action()
        except redis.RedisError as error:
            log.warning("the broker did not answer: %s", type(error).__name__)

    # --- requests -------------------------------------------------------------------------------

    def _read(self) -> None:
        while not self._stopping.is_set():
            try:
                found = self._next()
                if found is not None:
                    self._take(*found)
            except redis.RedisError as error:
                log.warning("the broker did not answer: %s", type(error).__name__)
                self._stopping.wait(_PAUSE_S)
                if "NOGROUP" in str(error):
                    self._try(self._make_group)

    def _next(self) -> tuple[str, Mapping[str, str]] | None:
        """A new request, or one whose process died between reading and taking it."""
        if time.monotonic() - self._last_reclaim > self.lease_s:
            self._last_reclaim = time.monotonic()
            idle_ms = round(self.lease_s * 1000)
            lost = self._redis.xautoclaim(
                self.queue.requests, GROUP, self.name, min_idle_time=idle_ms, count=1
            )[1]
            if lost:
                return lost[0]
        found = self._redis.xreadgroup(
            GROUP, self.name, {self.queue.requests: ">"}, count=1, block=_BLOCK_MS
        )
        return found[0][1][0] if found else None

    def _take(self, entry: str, fields: Mapping[str, str]) -> None:
        if self._stopping.is_set():
            flat = [word for pair in fields.items() for word in pair]
            place = (self.queue.requests,)
            scripts.run_script(self._redis, scripts.REQUEUE, place, GROUP, entry, *flat)
            return
        try:
            request = Request.read(fields)
        except Malformed as error:
            log.warning("a request was dropped: %s", error)
            self._redis.xack(self.queue.requests, GROUP, entry)
            self._redis.xdel(self.queue.requests, entry)
            return
        keys = (self.queue.requests, self.queue.claim(request.id))
        arguments = (GROUP, entry, self.name, request.deadline_ms, MOST_S * 1000)
        left_ms = scripts.run_script(self._redis, scripts.TAKE, keys, *arguments)
        if left_ms > 0:
            self._perform(Call(request, left_ms / 1000))

    def _perform(self, call: Call) -> None:
        self._calls[call.request.id] = call
        try:
            self._answer(call)
        except CallAbandoned:
            log.info("a call was abandoned: its caller no longer waits")
        finally:
            del self._calls[call.request.id]

    def _answer(self, call: Call) -> None:
        for n, response in enumerate(answer_responses(self.service, call, self._loop), 1):
            call.check()
            self._send_response(call, n, shorten_error(response))

    def _send_response(self, call: Call, n: int, response: Response) -> None:
        """Raises `CallAbandoned` where the stream for answers, and so the caller, is gone."""
        place = self.queue.replies(call.request.id)
        if self._redis.xadd(place, response.fields(call.request, n), nomkstream=True) is None:
            raise CallAbandoned
