"""Guessing passwords is slow: a name from one address gets ten tries in five minutes.

Counted in Redis, so that all processes count together. Where Redis does not answer, nobody logs in
with a password for that moment: the bound is never lifted.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import redis
from django.conf import settings

from audit.actions import Actor, record, redactor_of
from audit.events import Event, Outcome
from config.logs import request_id
from tools.definitions.callers import CallerKind
from tools.errors import ToolcribError, Unauthenticated, Unavailable
from tools.models import Organization, User

MOST = 10
WINDOW_S = 300
UNKNOWN = "An unknown name"
_AUDITED = MOST + 1  # refusals beyond the bound are counted, not recorded one by one


class TooManyAttempts(ToolcribError):
    code, http_status = "too_many_attempts", 429


class Attempt:
    def __init__(self) -> None:
        self.good = False

    def succeeded(self) -> None:
        self.good = True


@contextmanager
def guarded(*, username: str, source_ip: str) -> Iterator[Attempt]:
    """Around one check of a password. Raises `TooManyAttempts` instead of checking it."""
    key = _key(username, source_ip)
    try:
        count = int(_connection().incr(key))
        left_s = int(_connection().ttl(key))
        if left_s < 0:
            _connection().expire(key, WINDOW_S)
            left_s = WINDOW_S
    except redis.RedisError:
        raise Unavailable("Logging in is not possible right now. Try again in a moment.") from None
    if count > MOST:
        if count == _AUDITED:
            _record_failure(username, source_ip, "too_many_attempts")
        raise TooManyAttempts(
            f"Too many attempts. Try again in {left_s} seconds.",
            limit=MOST,
            used=count - 1,
            resets_in_s=max(1, left_s),
        )
    attempt = Attempt()
    try:
        yield attempt
    except Unauthenticated as refusal:
        _record_failure(username, source_ip, refusal.code)
        raise
    if attempt.good:
        _connection().delete(key)
    else:
        _record_failure(username, source_ip, "login_failed")


def _key(username: str, source_ip: str) -> str:
    digest = hashlib.sha256(f"{username.casefold()}\n{source_ip}".encode()).hexdigest()
    return f"toolcrib:attempts:{digest[:32]}"


@lru_cache(maxsize=1)
def _connection() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, health_check_interval=25)


def _record_failure(username: str, source_ip: str, reason: str) -> None:
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
    record(Event.LOGIN_FAILED, by=actor, outcome=Outcome.DENIED, reason=reason, details=typed)
