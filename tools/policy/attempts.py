"""Guessing passwords is slow, and guessing the codes of a second factor is slower. Failures are
counted three ways, and each has a bound of its own:

- of a name from one address, strictly;
- from one address, whatever the names: somebody tries a list of them;
- of a name, from wherever: somebody has many addresses. Where its owner got in within the last
  thirty days this bound does not hold, so that nobody locks a person out of where they work.

At a bound every further try is refused for a while, a right password too, and each while is twice
as long as the last. Names that exist and names that do not are counted alike. A success forgets the
failures of its name and address, and no others: who guesses may well have one account of their own.
Passwords and second factors are counted apart, so that a right password forgives no wrong code.

Counted in Redis, so that all processes count together, and by its clock. Where Redis does not
answer, nobody logs in with a password for that moment: the bounds are never lifted.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import redis
from django.conf import settings

from audit.actions import Actor, record, redactor_of
from audit.events import Event, Outcome
from config.logs import request_id
from tools.definitions.callers import CallerKind
from tools.errors import ToolcribError, Unauthenticated, Unavailable
from tools.models import Organization, User

UNKNOWN = "An unknown name"
FIRST_WHILE_S = 60
REMEMBERED_S = 24 * 3600  # how long a bound that was reached makes the next while longer
FAMILIAR_S = 30 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Bound:
    """`most` failures within `window_s`; a while is never longer than `longest_s`."""

    most: int
    window_s: int
    longest_s: int

    @property
    def given(self) -> tuple[int, int, int]:
        return self.most, self.window_s, self.longest_s


STRICT = Bound(most=10, window_s=300, longest_s=3600)
OF_ADDRESS = Bound(most=100, window_s=900, longest_s=900)
OF_NAME = Bound(most=100, window_s=900, longest_s=900)
BOUNDS = (STRICT, OF_ADDRESS, OF_NAME)


@dataclass(frozen=True, slots=True)
class Guess:
    """What is tried. Three codes of a million are good at a time, so of them fewer are looked at:
    from everywhere together some 120 a day at most, once the last bound is reached again and
    again."""

    event: Event
    prefix: str = ""
    bounds: tuple[Bound, Bound, Bound] = BOUNDS

    @property
    def given(self) -> list[int]:
        return [part for one in self.bounds for part in one.given]


PASSWORD = Guess(Event.LOGIN_FAILED)
SECOND_FACTOR = Guess(
    Event.SECOND_FACTOR_FAILED,
    "second:",
    (Bound(5, 300, 4 * 3600), OF_ADDRESS, Bound(20, 900, 4 * 3600)),
)
# A try is counted before its password is checked, so that tries at once do not all pass. Answers
# {which bound refuses, milliseconds left, whether it is the first it refuses}, or {0, the bounds
# that this very try has reached}.
_TAKE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local familiar = redis.call('EXISTS', KEYS[4]) == 1
for at = 1, 3 do
  local till = tonumber(redis.call('HGET', KEYS[at], 'until') or '0')
  if now < till and not (at == 3 and familiar) then
    return {at, till - now, redis.call('HSETNX', KEYS[at], 'told', 1)}
  end
end
local reached = 0
for at = 1, 3 do
  local most, window = tonumber(ARGV[at * 3 - 2]), tonumber(ARGV[at * 3 - 1]) * 1000
  local began = tonumber(redis.call('HGET', KEYS[at], 'began') or '0')
  if now - began >= window or began > now then
    redis.call('HSET', KEYS[at], 'began', now, 'failures', 0)
  end
  if redis.call('HINCRBY', KEYS[at], 'failures', 1) >= most then
    local times = redis.call('HINCRBY', KEYS[at], 'times', 1)
    local while_s = math.min(tonumber(ARGV[10]) * 2 ^ math.min(times - 1, 20), ARGV[at * 3])
    redis.call('HSET', KEYS[at], 'until', now + while_s * 1000, 'failures', 0)
    redis.call('HDEL', KEYS[at], 'told')
    reached = reached + 2 ^ (at - 1)
  end
  redis.call('EXPIRE', KEYS[at], ARGV[11])
end
return {0, reached}
"""
# The try was no failure: what it counted, and what that led to, is taken back.
_GIVE_BACK = """
redis.call('DEL', KEYS[1])
local reached = tonumber(ARGV[10])
for at = 2, 3 do
  if math.floor(reached / 2 ^ (at - 1)) % 2 == 1 then
    redis.call('HINCRBY', KEYS[at], 'times', -1)
    redis.call('HSET', KEYS[at], 'until', 0, 'failures', ARGV[at * 3 - 2] - 1)
  elseif tonumber(redis.call('HGET', KEYS[at], 'failures') or '0') > 0 then
    redis.call('HINCRBY', KEYS[at], 'failures', -1)
  end
end
redis.call('SET', KEYS[4], 1, 'EX', ARGV[11])
"""


class TooManyAttempts(ToolcribError):
    code, http_status = "too_many_attempts", 429


class Attempt:
    def __init__(self) -> None:
        self.good = False

    def succeeded(self) -> None:
        self.good = True


@contextmanager
def guarded(*, username: str, source_ip: str, what: Guess = PASSWORD) -> Iterator[Attempt]:
    """Around one check of a password or a code. Raises `TooManyAttempts` instead of checking it."""
    keys, bounds = keys_of(username, source_ip, what.prefix), what.given
    refused, *said = _ask(_TAKE, keys, [*bounds, FIRST_WHILE_S, REMEMBERED_S])
    if refused:
        left_ms, first = said
        if first:  # refusals of one while are on record once
            _record_failure(what, username, source_ip, "too_many_attempts")
        raise _refusal(what.bounds[refused - 1], left_ms)
    attempt = Attempt()
    try:
        yield attempt
    except Unauthenticated as refusal:
        _record_failure(what, username, source_ip, refusal.code)
        raise
    if attempt.good:
        _ask(_GIVE_BACK, keys, [*bounds, said[0], FAMILIAR_S])
    else:
        _record_failure(what, username, source_ip, "login_failed")


def keys_of(username: str, source_ip: str, prefix: str = "") -> list[str]:
    """Of the bounds, and of the mark that a name's owner is familiar at an address."""
    name = username.casefold()
    pair = _digest(f"{name}\n{source_ip}")
    parts = (f"pair:{pair}", f"address:{_digest(source_ip)}", f"name:{_digest(name)}")
    return [f"toolcrib:attempts:{prefix}{part}" for part in (*parts, f"familiar:{pair}")]


def _refusal(bound: Bound, left_ms: int) -> TooManyAttempts:
    left_s = max(1, -(-left_ms // 1000))
    return TooManyAttempts(
        f"Too many attempts. Try again in {left_s} seconds.",
        limit=bound.most,
        used=bound.most,
        resets_in_s=left_s,
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _ask(script: str, keys: list[str], given: list[int]) -> list[int]:
    try:
        return _script(script)(keys, given) or []
    except redis.RedisError:
        raise Unavailable("Logging in is not possible right now. Try again in a moment.") from None


@lru_cache(maxsize=2)
def _script(text: str) -> Callable[..., list[int]]:
    return _connection().register_script(text)


@lru_cache(maxsize=1)
def _connection() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, health_check_interval=25)


def _record_failure(what: Guess, username: str, source_ip: str, reason: str) -> None:
    """In the log of whoever was meant; an unknown name in the first organization's, and only by a
    mark: it may be a password that was typed into the wrong field."""
    user = User.objects.select_related("organization").filter(username=username[:150]).first()
    organization = user.organization if user else Organization.objects.earliest("created_at")
    actor = Actor(
        CallerKind.PERSON,
        user.username if user else UNKNOWN,
        organization.slug,
        source_ip=source_ip,
        request_id=request_id.get(),
    )
    typed = {} if user else {"typed": redactor_of(organization.slug).mark(username)}
    record(what.event, by=actor, outcome=Outcome.DENIED, reason=reason, details=typed)
