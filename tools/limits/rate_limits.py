"""Rate limits of tool calls per agent and minute: a sliding window, exact under concurrency.

Redis counts, in one call. PostgreSQL counts while Redis is unavailable or not trusted, and it
decides: calls that Redis admitted are checked against it in the transaction that writes the call's
row. So the limit holds also when Redis loses its data, and when only some processes reach Redis.
`NO_HITS` stands in the statement that accepts the call; `confirm` is asked where there were hits.

Redis is trusted only when it is known to have counted for a whole window. It remembers since when
it has; that is reset when it is missing (its data went), when it lies ahead (its clock was set
back), and when the server does not know the script (it was started again: scripts do not survive
that, while the last second of its data may have been lost).
"""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from hashlib import sha1
from typing import Any
from uuid import UUID

import redis
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from audit.inserts import fetch_one, insert_row
from audit.partitions import first_id
from tools import metrics
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.results import Rate
from tools.errors import RateLimited
from tools.models import RateHit
from tools.models.advisory_locks import take_lock
from tools.models.ids import new_id
from tools.models.pipeline_sql import COUNT_PASSED, COUNT_RATE, HAS_HITS
from tools.policy.questions import Gate, Verdict, passed, refused

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


REDIS, POSTGRES = "redis", "postgres"
_DRAFT_NAME = "a draft"  # no tool's name has a space
# Two locks, always in this order. Rows that Redis let pass share the first, so that they do not
# wait for each other; a process that counts here and writes hits holds it exclusively.
_CONFIRMATION_SEED = 1
_DELETE_OLD_HITS = "DELETE FROM tools_ratehit WHERE at < statement_timestamp() - interval '120 s'"


@dataclass(frozen=True, slots=True)
class RateLimitDecision:
    """Whether a call passes. `used` counts it then; `leaves_in_s` is when the next may pass."""

    passes: bool
    used: int
    leaves_in_s: float
    ticket: bytes


def connect_redis() -> redis.Redis:
    """One attempt with a short timeout: PostgreSQL can count instead."""
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )


class RateWindow:
    """A process's client of the Redis that counts. `connect` is called once, at the first use."""

    def __init__(self, connect: Callable[[], redis.Redis] = connect_redis) -> None:
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
            log.warning(
                "Redis is not available, so PostgreSQL counts calls: %s", type(error).__name__
            )
            return None


window = RateWindow()


@dataclass(frozen=True, slots=True)
class _CallerLimit:
    """Whose calls of what are counted, and how many may pass."""

    caller: Caller
    tool: CatalogTool
    limit: int

    @property
    def key(self) -> str:
        """Per account: an agent with many tokens has one limit."""
        caller = self.caller
        return f"toolcrib:rate:{caller.organization_id}:{caller.user_id}:{self.tool.id}"

    @property
    def values(self) -> dict[str, Any]:
        return {
            "user": self.caller.user_id,
            "organization": self.caller.organization_id,
            "tool": self.tool.name,
            "limit": self.limit,
            "since": _least_id(),
        }

    def rate(self, used: int, leaves_in_s: float, counted_by: str, ticket: bytes = b"") -> Rate:
        return Rate(self.limit, used, max(1, math.ceil(leaves_in_s)), counted_by, ticket)

    def refusal(self, used: int, leaves_in_s: float) -> RateLimited:
        wait_s = max(1, math.ceil(leaves_in_s))
        return RateLimited(
            f"{self.caller.name} may call the tool {self.tool.name} {self.limit} times a minute, "
            f"and did. Try again in {wait_s} s.",
            gate=Gate.RATE.value,
            limit=self.limit,
            used=used,
            resets_in_s=wait_s,
        )


def count(caller: Caller, tool: CatalogTool, snapshot: Snapshot) -> Rate | None:
    """Count one call; None where the tool has no limit. Raises `RateLimited`, uncounted."""
    limit = tool.definition.raw["rate_limit_per_minute"]
    if limit is None:
        return None
    bound = _CallerLimit(caller, tool, limit)
    answer = window.ask(bound.key, limit)
    if answer is None:
        return _count_in_postgres(bound)
    metrics.rate_decisions.labels(REDIS).inc()
    if not answer.passes:
        raise bound.refusal(answer.used, answer.leaves_in_s)
    return bound.rate(answer.used, answer.leaves_in_s, REDIS, answer.ticket)


def count_read(caller: Caller) -> Rate | None:
    """Count one request that reads, of a token or of a person's browser. Raises `RateLimited`.

    None without a limit, and while Redis does not answer: reads are not counted in PostgreSQL."""
    limit = settings.READS_PER_MINUTE
    holder = caller.token_id or caller.user_id
    answer = window.ask(f"toolcrib:rate:read:{holder}", limit) if limit else None
    if answer is None:
        return None
    resets_in_s = max(1, math.ceil(answer.leaves_in_s))
    if not answer.passes:
        raise RateLimited(
            f"{caller.name} may read {limit} times a minute, and did. "
            f"Try again in {resets_in_s} s.",
            gate=Gate.RATE.value, limit=limit, used=answer.used, resets_in_s=resets_in_s,
        )  # fmt: skip
    return Rate(limit, answer.used, resets_in_s, REDIS)


def _least_id() -> UUID:
    """Of calls within the window, so that earlier months are not looked into: a day is for clocks
    that differ."""
    return first_id(timezone.now() - timedelta(days=1))


def count_drafts(caller: Caller, limit: int) -> None:
    """Count one test run of an unsaved tool, under any name. Raises `RateLimited`, uncounted.
    PostgreSQL alone counts: there are few."""
    with transaction.atomic():
        values: dict[str, Any] = {
            "user": caller.user_id,
            "organization": caller.organization_id,
            "tool": _DRAFT_NAME,
            "limit": limit,
            "since": _least_id(),
        }
        take_lock(f"toolcrib:rate:{caller.user_id}:{_DRAFT_NAME}")
        with connection.cursor() as cursor:
            cursor.execute(COUNT_PASSED.text, values)
            used, age_s = cursor.fetchone()
        if used >= limit:
            wait_s = max(1, math.ceil(WINDOW_S - (age_s or 0)))
            raise RateLimited(
                f"{caller.name} may run {limit} drafts a minute, and did. Try again in {wait_s} s.",
                gate=Gate.RATE.value, limit=limit, used=used, resets_in_s=wait_s,
            )  # fmt: skip
        insert_row(
            RateHit,
            {
                "user_id": caller.user_id,
                "organization_id": caller.organization_id,
                "tool_name": _DRAFT_NAME,
            },
        )


def lock_parameters(caller: Caller, tool: CatalogTool) -> dict[str, Any]:
    """Of `NO_HITS`: whose hits of what, and the lock under which they are counted."""
    return {
        "rate_lock": f"toolcrib:rate:{caller.organization_id}:{caller.user_id}:{tool.name}",
        "rated_user": caller.user_id,
        "rated_place": caller.organization_id,
        "rated_tool": tool.name,  # as rows have it
    }


def confirm(rate: Rate | None, *, caller: Caller, tool: CatalogTool) -> Rate | None:
    """Check a call that Redis admitted against PostgreSQL's count. Raises `RateLimited`.

    Call it in the transaction that writes the row, before it takes any other lock.
    """
    if rate is None or rate.counted_by != REDIS:
        return rate
    bound = _CallerLimit(caller, tool, rate.limit)
    if fetch_one(HAS_HITS.text, lock_parameters(bound.caller, bound.tool)) == (False,):
        return rate
    take_lock(lock_parameters(caller, tool)["rate_lock"], seed=_CONFIRMATION_SEED)
    used, leaves_in_s = _count_passed(bound)
    if used >= bound.limit:
        window.take_back(bound.key, rate.ticket)
        raise bound.refusal(used, leaves_in_s)
    return replace(rate, used=used + 1)


def peek(caller: Caller, tool: CatalogTool) -> Verdict:
    """The gate's current verdict, without counting."""
    limit = tool.definition.raw["rate_limit_per_minute"]
    if limit is None:
        return passed(Gate.RATE)
    bound = _CallerLimit(caller, tool, limit)
    used, leaves_in_s = _count_passed(bound)
    if used >= limit:
        return refused(Gate.RATE, bound.refusal(used, leaves_in_s))
    return Verdict(Gate.RATE, True, reason=f"{used} of {limit} calls a minute are used.")


def delete_old_hits() -> None:
    """Delete hits that are older than every window."""
    with connection.cursor() as cursor:
        cursor.execute(_DELETE_OLD_HITS)


def _count_in_postgres(bound: _CallerLimit) -> Rate:
    """Under a lock that ends with its one statement, which counts the call where it passes."""
    metrics.rate_decisions.labels(POSTGRES).inc()
    found = fetch_one(
        COUNT_RATE.text, lock_parameters(bound.caller, bound.tool) | {"limit": bound.limit}
    )
    used, age_s = found or (0, None)
    leaves_in_s = WINDOW_S - (age_s or 0)
    if used >= bound.limit:
        raise bound.refusal(used, leaves_in_s)
    window.note(bound.key, bound.limit)
    return bound.rate(used + 1, leaves_in_s, POSTGRES)


def _count_passed(bound: _CallerLimit) -> tuple[int, float]:
    """How many calls passed within the window, and in how many seconds the next may pass.

    A statement of its own, so that it sees what was committed while the lock was waited for.
    """
    with connection.cursor() as cursor:
        cursor.execute(COUNT_PASSED.text, bound.values)
        used, age_s = cursor.fetchone()
    return used, WINDOW_S - (age_s or 0)
