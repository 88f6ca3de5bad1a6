"""Helpers of tests for rate limits. The Redis that counts calls is shared with other tests."""

import threading
import time
from collections import Counter
from uuid import uuid4

import redis
from django.conf import settings
from django.db import connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests import factories
from tools.errors import RateLimited
from tools.execution.admit import admit
from tools.limits.rate_limits import SINCE, RateWindow
from tools.models import Execution, RateHit

LONG_AGO_S = 120


def server() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL)


def nowhere() -> redis.Redis:
    """A client of an unreachable Redis, without retries like the limiter's own client."""
    return redis.Redis(unix_socket_path="/nowhere/redis.sock", retry=Retry(NoBackoff(), 0))


def trust() -> None:
    """Make Redis trusted, as if it had been counting for two minutes."""
    RateWindow().ask(f"toolcrib:rate:{uuid4()}", 1)  # loads the script
    server().set(SINCE, int((time.time() - LONG_AGO_S) * 1e6))


def keys(organization) -> list[bytes]:
    return server().keys(f"toolcrib:rate:{organization.pk}:*")


def lose(organization) -> None:
    """What the limiter loses by a flush, for this organization only."""
    server().delete(SINCE, *keys(organization))


def counted(organization) -> int:
    """The calls that Redis counts for all agents and tools of the organization."""
    client = server()
    return sum(client.zcard(key) for key in keys(organization))


def limited(organization, limit, name="echo", **fields):
    return factories.tool(organization, name, rate_limit_per_minute=limit, **fields)


def passed_by(organization) -> dict[str, int]:
    """Accepted calls by the store that counted them."""
    rows = Execution.objects.filter(organization=organization).exclude(status="PermissionDenied")
    return dict(Counter(rows.values_list("rated_by", flat=True)))


def hits(organization) -> int:
    return RateHit.objects.filter(organization=organization).count()


def ask_at_once(caller, number, *, name="echo", after=lambda passed: None) -> list[str]:
    """One thread for each call, with its own connection; returns the outcome of each.

    `after` is called by each call that passes, with the number of those that passed so far.
    """
    outcomes: list[str] = []
    start = threading.Barrier(number)

    def ask() -> None:
        start.wait()
        try:
            admit(caller, factories.call(name, {"text": "x"}))
            outcomes.append("passed")
            after(outcomes.count("passed"))
        except RateLimited as refusal:
            outcomes.append(refusal.code)
        finally:
            connection.close()

    connection.close()  # the pool's connections are for the threads
    threads = [threading.Thread(target=ask) for _ in range(number)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return outcomes
