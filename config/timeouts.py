"""Timeouts: which one must end before which, asserted when a process starts.

There are four series; each timeout leaves the shorter one time to take effect. A *run* goes from
the tool's own limit to the timeout of its callers, a *lease* from the renewal by its worker to the
reaper: a run must be dead before its lease expires, and must not be retried sooner. A *stop* goes
up to the supervisor's kill, a *statement* to the database's TCP timeout.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

LOOK_S = 0.25  # between two checks of a worker on its leases: how soon a cancellation is seen
POLL_S = 0.5  # between two polls of the queue by a worker
REAP_S = 5.0  # between two passes of the reaper
BEAT_SILENT_S = 10.0  # then every worker reaps by itself
CGROUP_KILL_S = 1.0  # beyond the wall limit: sandboxd has killed the run's control group
CLIENT_SPARE_S = 30.0  # the worker's timeout for sandboxd beyond the wall limit
LAST_WORDS_S = 5.0  # for stopped runs to be requeued
SUPERVISOR_SPARE_S = 5.0
_HINT = "Set EXECUTION_LEASE_S, EXECUTION_TIMEOUT_S or EXECUTION_GRACE_S to another value."


class Disordered(Exception):
    """A timeout that must end before another would end after it."""


def renew_s(lease_s: float) -> float:
    return lease_s / 4


def fence_s(lease_s: float) -> float:
    """A worker that could not renew for so long stops the run; sandboxd waits no longer either."""
    return lease_s * 2 / 3


@dataclass(frozen=True)
class Rung:
    name: str
    seconds: float


def of_a_run() -> tuple[Rung, ...]:
    longest = float(settings.EXECUTION_TIMEOUT_S)
    return (
        Rung("a tool's own limit", longest),
        Rung("its processes are gone", longest + CGROUP_KILL_S),
        Rung("the worker gives sandboxd up", longest + CLIENT_SPARE_S),
    )


def of_a_lease() -> tuple[Rung, ...]:
    lease_s = float(settings.EXECUTION_LEASE_S)
    return (
        Rung("the worker looks", LOOK_S),
        Rung("the worker renews", renew_s(lease_s)),
        Rung("the worker or sandboxd ends the run", fence_s(lease_s)),
        Rung("the lease is over", lease_s),
        Rung("the reaper settles it", lease_s + REAP_S),
        Rung("a worker settles it in beat's place", lease_s + BEAT_SILENT_S + POLL_S),
    )


def of_a_stop() -> tuple[Rung, ...]:
    grace_s = float(settings.EXECUTION_GRACE_S)
    return (
        Rung("runs are stopped and handed back", grace_s),
        Rung("the worker ends itself", grace_s + LAST_WORDS_S),
        Rung("the supervisor kills it", worker_grace_s()),
    )


def of_a_statement() -> tuple[Rung, ...]:
    return (
        Rung("whoever waits for a lock gives up", float(settings.DATABASE_LOCK_S)),
        Rung("a silent connection is given up", float(settings.DATABASE_SILENT_S)),
        Rung("PostgreSQL ends a transaction in which nothing happens", settings.DATABASE_IDLE_S),
        Rung("PostgreSQL ends the statement", float(settings.DATABASE_STATEMENT_S)),
    )


def worker_grace_s() -> float:
    return float(settings.EXECUTION_GRACE_S) + LAST_WORDS_S + SUPERVISOR_SPARE_S


def flaws() -> Iterator[str]:
    """A sentence for each timeout that is not longer than the one before it."""
    for ladder in (of_a_run(), of_a_lease(), of_a_stop(), of_a_statement()):
        for lower, upper in pairwise(ladder):
            if upper.seconds <= lower.seconds:
                yield (
                    f"“{upper.name}” comes after {upper.seconds:g} s, but must come later than "
                    f"“{lower.name}” after {lower.seconds:g} s."
                )


def assert_order() -> None:
    """Where no checks are run: raises `Disordered` with the first flaw."""
    for flaw in flaws():
        raise Disordered(f"{flaw} {_HINT}")


@register
def check(app_configs: object, **_: object) -> list[CheckMessage]:
    """For `manage.py check`, and other callers of Django's checks."""
    return [Error(flaw, hint=_HINT, id="config.E001") for flaw in flaws()]
