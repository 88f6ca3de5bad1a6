"""Throttles guessing of passwords and of second-factor codes (lockout). Failures are counted three
ways:

- of a name from one address, strictly: beyond `PAIR_LIMIT` that name is locked out there, also with
  the right password, and each lockout is twice as long as the last;
- from one address, whatever the names: an attacker tries a list of them. Many people may share the
  address, so beyond the bound it is slowed down, never blocked;
- of a name, from any address: an attacker has many addresses. It is slowed down as well.

None of the three applies to a password at an address where its owner logged in within the last
thirty days: an attacker cannot lock a person out of where they work. Guesses there are checked one
a second. Codes of a second factor keep the first two bounds there, because only a client that knows
the password gets there.

Names that exist and names that do not are counted alike. A success forgets the failures of its name
and address, and no others: an attacker may have an account of their own. Passwords and second
factors are counted apart, so that a right password forgives no wrong code. Checking a password
costs a processor some tenths of a second, so few are checked at once, with slots reserved for
familiar addresses.

Counted in Redis, so that all processes count together, and by its clock. While Redis does not
answer, password login is refused: the bounds are never lifted. Counters expire soon after they stop
mattering, so that guesses from many addresses do not fill the memory; an address of a successful
login is forgotten only for newer ones of the same name. (django-axes locks out a right password at
a familiar address too, and counts a failure only after the check.)
"""

import hashlib
import ipaddress
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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

UNKNOWN_NAME = "An unknown name"
_NO_ANSWER = "Logging in is not possible right now. Try again in a moment."
FIRST_LOCKOUT_S = 60
FAMILIAR_S = 30 * 24 * 3600
FAMILIAR_PLACES = 50  # of one name, the newest
FAMILIAR_GAP_MS = 1000  # between two guesses there
# In one process: checks from one address, of users unfamiliar at their address, and of all users.
CHECKS_OF_ADDRESS, CHECKS_OF_UNFAMILIAR, CHECKS = 2, 6, 8


@dataclass(frozen=True, slots=True)
class LockoutLimit:
    """`most` failures within `window_s`, then a lockout of `first_s`, twice as long each time,
    never longer than `longest_s`; and again after `again` failures more."""

    most: int
    window_s: int
    longest_s: int
    first_s: int = FIRST_LOCKOUT_S
    again: int = 0  # as many as `most`

    @property
    def script_arguments(self) -> tuple[int, ...]:
        return self.most, self.window_s, self.longest_s, self.first_s, self.again or self.most


def slowdown_limit(most: int) -> LockoutLimit:
    """A bound beyond which each further failure delays the next check by a moment."""
    return LockoutLimit(most, window_s=900, longest_s=8, first_s=1, again=1)


PAIR_LIMIT = LockoutLimit(most=10, window_s=300, longest_s=3600)
ADDRESS_LIMIT = slowdown_limit(100)
NAME_LIMIT = slowdown_limit(100)
LIMITS = (PAIR_LIMIT, ADDRESS_LIMIT, NAME_LIMIT)


@dataclass(frozen=True, slots=True)
class GuessedSecret:
    """What is guessed. Three codes of a million are valid at a time, so fewer of them are checked:
    from all addresses together some 120 a day at most, once the last bound is reached
    repeatedly."""

    event: Event
    prefix: str = ""
    bounds: tuple[LockoutLimit, LockoutLimit, LockoutLimit] = LIMITS
    familiar_gap_ms: int = FAMILIAR_GAP_MS  # 0: familiar places spare the last bound alone

    @property
    def script_arguments(self) -> list[int]:
        return [
            *(part for one in self.bounds for part in one.script_arguments),
            self.familiar_gap_ms,
        ]


PASSWORD = GuessedSecret(Event.LOGIN_FAILED)
SECOND_FACTOR = GuessedSecret(
    Event.SECOND_FACTOR_FAILED,
    "second:",
    (LockoutLimit(5, 300, 4 * 3600), ADDRESS_LIMIT, LockoutLimit(20, 900, 4 * 3600)),
    familiar_gap_ms=0,
)
# A try is counted before its password is checked, so that tries at once do not all pass. Answers
# {which bound refuses, milliseconds left, whether to put it on record}, or {0, the bounds that this
# very try has reached}. The fourth bound is that of a familiar place.
_COUNT_SCRIPT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local gap = tonumber(ARGV[16])
local since = tonumber(redis.call('ZSCORE', KEYS[4], ARGV[17]) or '0')
local familiar = since > 0 and now - since < ARGV[18] * 1000
if familiar and gap > 0 then
  local till = tonumber(redis.call('HGET', KEYS[1], 'next') or '0')
  if now < till and till - now <= gap then
    return {4, till - now, redis.call('HSETNX', KEYS[1], 'told', now)}
  end
  redis.call('HSET', KEYS[1], 'next', now + gap)
else
  for at = 1, 3 do
    local till = tonumber(redis.call('HGET', KEYS[at], 'until') or '0')
    if now < till and not (at == 3 and familiar) then
      return {at, till - now, redis.call('HSETNX', KEYS[at], 'told', now)}
    end
  end
end
local reached = 0
for at = 1, 3 do
  local key, first = KEYS[at], at * 5 - 4
  local most, window = tonumber(ARGV[first]), tonumber(ARGV[first + 1]) * 1000
  local keep_s = ARGV[first + 1]
  local began = tonumber(redis.call('HGET', key, 'began') or '0')
  if now - began >= window or began > now then
    redis.call('HSET', key, 'began', now, 'failures', 0)
  end
  if redis.call('HINCRBY', key, 'failures', 1) >= most then
    local times = redis.call('HINCRBY', key, 'times', 1)
    local while_s = math.min(ARGV[first + 3] * 2 ^ math.min(times - 1, 20), ARGV[first + 2])
    redis.call('HSET', key, 'until', now + while_s * 1000, 'began', now,
               'failures', most - ARGV[first + 4])
    if now - tonumber(redis.call('HGET', key, 'told') or '0') >= 60000 then
      redis.call('HDEL', key, 'told')
    end
    keep_s = math.max(keep_s, while_s * 2)
    reached = reached + 2 ^ (at - 1)
  end
  redis.call('EXPIRE', key, math.max(keep_s, redis.call('TTL', key)))
end
return {0, reached}
"""
# The attempt was no failure: its count, and the lockouts that it caused, are undone.
_SUCCESS_SCRIPT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('DEL', KEYS[1])
local reached = tonumber(ARGV[19])
for at = 2, 3 do
  if math.floor(reached / 2 ^ (at - 1)) % 2 == 1 then
    redis.call('HINCRBY', KEYS[at], 'times', -1)
    redis.call('HSET', KEYS[at], 'until', 0, 'failures', ARGV[at * 5 - 4] - 1)
  elseif tonumber(redis.call('HGET', KEYS[at], 'failures') or '0') > 0 then
    redis.call('HINCRBY', KEYS[at], 'failures', -1)
  end
end
redis.call('ZADD', KEYS[4], now, ARGV[17])
redis.call('ZREMRANGEBYRANK', KEYS[4], 0, -1 - ARGV[20])
redis.call('EXPIRE', KEYS[4], ARGV[18])
"""


class TooManyAttempts(ToolcribError):
    code, http_status = "too_many_attempts", 429


class LoginAttempt:
    def __init__(self) -> None:
        self.good = False

    def succeeded(self) -> None:
        self.good = True


class PasswordChecks:
    """The passwords that this process checks now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: Counter[str] = Counter()
        self._strangers, self._all = 0, 0

    @contextmanager
    def place(self, address: str, *, familiar: bool) -> Iterator[None]:
        """Raises `TooManyAttempts` where the address has too many checks running, `Unavailable`
        where the process has."""
        self._take(address, familiar)
        try:
            yield
        finally:
            with self._lock:
                self._all -= 1
                if not familiar:
                    self._strangers -= 1
                    self._of[address] -= 1
                    if not self._of[address]:
                        del self._of[address]

    def _take(self, address: str, familiar: bool) -> None:
        with self._lock:
            if not familiar and self._of[address] >= CHECKS_OF_ADDRESS:
                raise _refusal(CHECKS_OF_ADDRESS, 1000)
            if self._all >= CHECKS or (not familiar and self._strangers >= CHECKS_OF_UNFAMILIAR):
                raise Unavailable("Many people log in right now. Try again in a moment.")
            self._all += 1
            if not familiar:
                self._strangers += 1
                self._of[address] += 1


checks = PasswordChecks()


@contextmanager
def limit_attempts(
    *, username: str, source_ip: str, what: GuessedSecret = PASSWORD
) -> Iterator[LoginAttempt]:
    """Around one check of a password or a code. Raises `TooManyAttempts`, or `Unavailable`, without
    the check."""
    place = network_of(source_ip)
    keys = counter_keys(username, source_ip, what.prefix)
    given: list[int | str] = [*what.script_arguments, _digest(place), FAMILIAR_S]
    with checks.place(place, familiar=_is_familiar(keys[3], place)):
        refused, *said = _run_script(_COUNT_SCRIPT, keys, given)
        if refused:
            left_ms, first = said
            if first:  # refusals during one lockout are recorded once
                _record_failure(what, username, source_ip, "too_many_attempts")
            raise _refusal(what.bounds[refused - 1].most if refused < 4 else 1, left_ms)
        attempt = LoginAttempt()
        try:
            yield attempt
        except Unauthenticated as refusal:
            _record_failure(what, username, source_ip, refusal.code)
            raise
    if attempt.good:
        _run_script(_SUCCESS_SCRIPT, keys, [*given, said[0], FAMILIAR_PLACES])
    else:
        _record_failure(what, username, source_ip, "login_failed")


def counter_keys(username: str, source_ip: str, prefix: str = "") -> list[str]:
    """Of the bounds, and of the places where a name's owner is familiar."""
    name, place = username.casefold(), network_of(source_ip)
    pair, name = _digest(f"{name}\n{place}"), _digest(name)
    parts = (f"pair:{pair}", f"address:{_digest(place)}", f"name:{name}", f"places:{name}")
    return [f"toolcrib:attempts:{prefix}{part}" for part in parts]


def network_of(source_ip: str) -> str:
    """The address, or the /64 network of IPv6, since one customer has more addresses than can be
    counted."""
    try:
        address = ipaddress.ip_address(source_ip)
    except ValueError:
        return source_ip
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address) >> 64 << 64, 64)))


def _is_familiar(key: str, place: str) -> bool:
    try:
        return _connection().zscore(key, _digest(place)) is not None
    except redis.RedisError:
        raise Unavailable(_NO_ANSWER) from None


def _refusal(most: int, left_ms: int) -> TooManyAttempts:
    left_s = max(1, -(-left_ms // 1000))
    return TooManyAttempts(
        f"Too many attempts. Try again in {left_s} second{'s' if left_s > 1 else ''}.",
        limit=most,
        used=most,
        resets_in_s=left_s,
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _run_script(script: str, keys: list[str], given: Sequence[int | str]) -> list[int]:
    try:
        return _script(script)(keys, given) or []
    except redis.RedisError:
        raise Unavailable(_NO_ANSWER) from None


@lru_cache(maxsize=2)
def _script(text: str) -> Callable[..., list[int]]:
    return _connection().register_script(text)


@lru_cache(maxsize=1)
def _connection() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, health_check_interval=25)


def _record_failure(what: GuessedSecret, username: str, source_ip: str, reason: str) -> None:
    """Recorded in the audit log of the user's organization. An unknown name is recorded in the
    first organization's, as a keyed hash: it may be a password that was typed into the wrong
    field."""
    user = User.objects.select_related("organization").filter(username=username[:150]).first()
    organization = user.organization if user else Organization.objects.earliest("created_at")
    actor = Actor(
        CallerKind.PERSON,
        user.username if user else UNKNOWN_NAME,
        organization.slug,
        source_ip=source_ip,
        request_id=request_id.get(),
    )
    typed = {} if user else {"typed": redactor_of(organization.slug).mark(username)}
    record(what.event, by=actor, outcome=Outcome.DENIED, reason=reason, details=typed)
