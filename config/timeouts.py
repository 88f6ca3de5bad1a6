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

LEASE_CHECK_S = 0.25  # between two checks of leases by a worker, which notice cancellations
POLL_S = 0.5  # between two polls of the queue by a worker
REAP_S = 5.0  # between two passes of the reaper
BEAT_SILENT_S = 10.0  # without a pass of the housekeeper, after which every worker reaps by itself
CGROUP_KILL_S = 1.0  # beyond a run's wall-clock limit: sandboxd has killed the run's control group
CLIENT_SPARE_S = 30.0  # the worker's timeout for sandboxd beyond a run's wall-clock limit
REQUEUE_S = 5.0  # for requeueing stopped runs
SUPERVISOR_SPARE_S = 5.0
_ADVICE = "Set EXECUTION_LEASE_S, EXECUTION_TIMEOUT_S or EXECUTION_GRACE_S to another value."


class TimeoutsDisordered(Exception):
    """A timeout that must end before another would end after it."""


def lease_renewal_s(lease_s: float) -> float:
    return lease_s / 4


def lease_fence_s(lease_s: float) -> float:
    """After so long without a renewal the worker stops the run, and sandboxd ends it."""
    return lease_s * 2 / 3


@dataclass(frozen=True)
class TimeoutStep:
    name: str
    seconds: float


def run_timeouts() -> tuple[TimeoutStep, ...]:
    longest = float(settings.EXECUTION_TIMEOUT_S)
    return (
        TimeoutStep("a tool's own limit", longest),
        TimeoutStep("its processes are gone", longest + CGROUP_KILL_S),
        TimeoutStep("the worker stops waiting for sandboxd", longest + CLIENT_SPARE_S),
    )


def lease_timeouts() -> tuple[TimeoutStep, ...]:
    lease_s = float(settings.EXECUTION_LEASE_S)
    return (
        TimeoutStep("the worker checks its leases", LEASE_CHECK_S),
        TimeoutStep("the worker renews", lease_renewal_s(lease_s)),
        TimeoutStep("the worker or sandboxd ends the run", lease_fence_s(lease_s)),
        TimeoutStep("the lease expires", lease_s),
        TimeoutStep("the reaper settles it", lease_s + REAP_S),
        TimeoutStep("a worker settles it without housekeeper", lease_s + BEAT_SILENT_S + POLL_S),
    )


def stop_timeouts() -> tuple[TimeoutStep, ...]:
    grace_s = float(settings.EXECUTION_GRACE_S)
    return (
        TimeoutStep("runs are stopped and requeued", grace_s),
        TimeoutStep("the worker ends itself", grace_s + REQUEUE_S),
        TimeoutStep("the supervisor kills it", worker_grace_s()),
    )


def statement_timeouts() -> tuple[TimeoutStep, ...]:
    return (
        TimeoutStep("a statement stops waiting for a lock", float(settings.DATABASE_LOCK_S)),
        TimeoutStep("a silent connection is closed", float(settings.DATABASE_SILENT_S)),
        TimeoutStep("PostgreSQL ends an idle transaction", float(settings.DATABASE_IDLE_S)),
        TimeoutStep("PostgreSQL ends the statement", float(settings.DATABASE_STATEMENT_S)),
    )


def worker_grace_s() -> float:
    return float(settings.EXECUTION_GRACE_S) + REQUEUE_S + SUPERVISOR_SPARE_S


def order_flaws() -> Iterator[str]:
    """A sentence for each timeout that is not longer than the one before it."""
    for series in (run_timeouts(), lease_timeouts(), stop_timeouts(), statement_timeouts()):
        for lower, upper in pairwise(series):
            if upper.seconds <= lower.seconds:
                yield (
                    f"“{upper.name}” comes after {upper.seconds:g} s, but must come later than "
                    f"“{lower.name}” after {lower.seconds:g} s."
                )


def assert_order() -> None:
    """For processes that run no Django checks. Raises `TimeoutsDisordered` with the first flaw."""
    for flaw in order_flaws():
        raise TimeoutsDisordered(f"{flaw} {_ADVICE}")


@register
def check_timeouts(app_configs: object, **_: object) -> list[CheckMessage]:
    """The same for `manage.py check` and other callers of Django's checks."""
    return [Error(flaw, hint=_ADVICE, id="config.E001") for flaw in order_flaws()]
