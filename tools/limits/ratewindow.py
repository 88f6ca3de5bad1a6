"""The sliding window in Redis: one script, which is atomic and uses the server's clock.

Redis is trusted only when it is known to have counted for a whole window. It remembers since when
it has; that is reset when it is missing (its data went), when it lies ahead (its clock was set
back), and when the server does not know the script (it was started again: scripts do not survive
that, while the last second of its data may have been lost).
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha1

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from tools.models.ids import new_id

log = logging.getLogger(__name__)
SINCE = "toolcrib:rate:since"
WINDOW_S = 60
TIMEOUT_S = 0.25
PAUSE_S = 2.0  # how long a failed Redis is not tried again
ASK, NOTE = "ask", "note"
_SCRIPT = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local written = string.format('%.0f', now)
local window = 60000000
local since = tonumber(redis.call('GET', KEYS[2]) or '')
if not since or since > now or ARGV[4] == 'restarted' then
  redis.call('SET', KEYS[2], written)
  since = now
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - window))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. written, '+inf')
local asked = ARGV[3] == 'ask'
if asked and now - since < window then return {0, 0, 0, 0} end
local limit = tonumber(ARGV[1])
local used = redis.call('ZCARD', KEYS[1])
local passes = not asked or used < limit
if passes then
  redis.call('ZADD', KEYS[1], written, ARGV[2])
  redis.call('EXPIRE', KEYS[1], 61)
  used = used + 1
end
local at = math.max(used - limit, 0)
local leaves = redis.call('ZRANGE', KEYS[1], at, at, 'WITHSCORES')
return {1, passes and 1 or 0, used, tonumber(leaves[2]) + window - now}
"""
_SHA = sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class RateLimitDecision:
    """Whether a call passes. `used` counts it then; `leaves_in_s` is when the next may pass."""

    passes: bool
    used: int
    leaves_in_s: float
    ticket: bytes


def server() -> redis.Redis:
    """One attempt with a short timeout: PostgreSQL can count instead."""
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )


class RateWindow:
    """A process's client of the Redis that counts. `connect` is called once, at the first use."""

    def __init__(self, connect: Callable[[], redis.Redis] = server) -> None:
        self._connect = connect
        self._away_until = 0.0

    def ask(self, key: str, limit: int) -> RateLimitDecision | None:
        """None where Redis does not answer, or has not counted for long enough."""
        ticket = new_id().bytes
        found = self._try(lambda: self._run(key, limit, ticket, ASK))
        if found is None or not found[0]:
            return None
        _, passes, used, leaves_in_us = found
        return RateLimitDecision(bool(passes), used, leaves_in_us / 1e6, ticket)

    def note(self, key: str, limit: int) -> None:
        """Adds a call that PostgreSQL admitted, so that the count is complete once Redis is
        trusted."""
        self._try(lambda: self._run(key, limit, new_id().bytes, NOTE))

    def take_back(self, key: str, ticket: bytes) -> None:
        self._try(lambda: self._client.zrem(key, ticket))

    @cached_property
    def _client(self) -> redis.Redis:
        return self._connect()

    def _run(self, key: str, limit: int, ticket: bytes, act: str) -> list[int]:
        given = (2, key, SINCE, limit, ticket, act)
        try:
            return self._client.evalsha(_SHA, *given, "")
        except NoScriptError:
            return self._client.eval(_SCRIPT, *given, "restarted")

    def _try[Found](self, work: Callable[[], Found]) -> Found | None:
        if time.monotonic() < self._away_until:
            return None
        try:
            return work()
        except redis.RedisError as error:
            self._away_until = time.monotonic() + PAUSE_S
            log.warning("Redis does not count calls, PostgreSQL does: %s", type(error).__name__)
            return None
