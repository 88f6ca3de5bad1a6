"""One process of a service: it takes requests, answers them, and sends heartbeats.

It takes no more than it has threads for, and what it cannot take is left to the others of its
group. Once it is stopping it takes nothing, and finishes what it has.
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
from toolcrib_service.queue_protocol import GROUP, Malformed, Queue, Request, Response, shortened
from toolcrib_service.service import Announcer, DynamicToolService
from toolcrib_service.service_calls import Call, Loop, Over, responses

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
        self._looked_for_lost = 0.0
        self._readers = [
            threading.Thread(target=self._read, name=f"call-{at}", daemon=True)
            for at in range(concurrency)
        ]
        self._heart = threading.Thread(target=self._keep_beating, name="heart", daemon=True)

    def start(self) -> None:
        """Raises `redis.RedisError` where the broker cannot be used."""
        self._make_group()
        try:
            self._beat()
        except redis.exceptions.NoPermissionError:
            log.warning("Toolcrib has not loaded its scripts at the broker yet; it is waited for")
        for thread in (self._heart, *self._readers):
            thread.start()

    def stop(self, grace_s: float = 20.0) -> bool:
        """Take nothing more, end what is in hand. False when something had to be given up."""
        self._stopping.set()
        self._try(self._beat)
        deadline = time.monotonic() + grace_s
        for thread in self._readers:
            thread.join(max(0.0, deadline - time.monotonic()))
        for call in list(self._calls.values()):
            call.cancel()
        for thread in self._readers:
            thread.join(1.0)
        done = not any(thread.is_alive() for thread in self._readers)
        self._ended.set()
        self._heart.join()
        self._try(self._farewell)
        if done:
            self._loop.close()
            self._redis.close()
        return done

    # --- its life -------------------------------------------------------------------------------

    def _keep_beating(self) -> None:
        announced = time.monotonic()
        while not self._ended.wait(min(1.0, self.lease_s / 4)):
            self._try(self._beat)
            self._try(self._end_cancelled)
            if self._announcer and time.monotonic() - announced > self._announcer.every_s:
                announced = time.monotonic()
                self._try(self._announce)

    def _beat(self) -> None:
        queue, accepting = self.queue, not self._stopping.is_set()
        keys = (queue.accepting, queue.alive, queue.served)
        digest = self._announcer.digest if self._announcer else ""
        said = (self.name, round(self.lease_s * 1000), int(accepting), digest)
        scripts.run(self._redis, scripts.BEAT, keys, *said)

    def _announce(self) -> None:
        if self._announcer is not None:
            self._announcer.publish(self._redis)

    def _end_cancelled(self) -> None:
        """Cancelled ones, and those past their deadline."""
        held = list(self._calls.values())
        if not held:
            return
        marks = self._redis.mget([self.queue.cancel(call.request.id) for call in held])
        now = time.monotonic()
        for call, mark in zip(held, marks, strict=True):
            if mark is not None or now > call.until:
                call.cancel()

    def _farewell(self) -> None:
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

    def _try(self, deed: Any) -> None:
        """A broker that is away for a moment ends nothing here."""
        try:
            deed()
        except redis.RedisError as error:
            log.warning("the broker did not answer: %s", type(error).__name__)

    # --- its work -------------------------------------------------------------------------------

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
        if time.monotonic() - self._looked_for_lost > self.lease_s:
            self._looked_for_lost = time.monotonic()
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
            scripts.run(self._redis, scripts.GIVE_BACK, place, GROUP, entry, *flat)
            return
        try:
            request = Request.read(fields)
        except Malformed as error:
            log.warning("a request was dropped: %s", error)
            self._redis.xack(self.queue.requests, GROUP, entry)
            self._redis.xdel(self.queue.requests, entry)
            return
        keys = (self.queue.requests, self.queue.claim(request.id))
        said = (GROUP, entry, self.name, request.deadline_ms, MOST_S * 1000)
        left_ms = scripts.run(self._redis, scripts.TAKE, keys, *said)
        if left_ms > 0:
            self._perform(Call(request, left_ms / 1000))

    def _perform(self, call: Call) -> None:
        self._calls[call.request.id] = call
        try:
            self._answer(call)
        except Over:
            log.info("a call was given up: nobody waits for its answer")
        finally:
            del self._calls[call.request.id]

    def _answer(self, call: Call) -> None:
        for n, response in enumerate(responses(self.service, call, self._loop), 1):
            call.check()
            self._say(call, n, shortened(response))

    def _say(self, call: Call, n: int, response: Response) -> None:
        """Raises `Over` where the stream for answers is gone, and with it the caller."""
        place = self.queue.replies(call.request.id)
        if self._redis.xadd(place, response.fields(call.request, n), nomkstream=True) is None:
            raise Over
