"""The reaper: settle executions whose lease expired, and those that no worker has begun.

What may be retried is, up to `MOST_ATTEMPTS` times, and is then set aside; for an external effect
it is unknown whether it happened, and the row says so (ruling 16). Lost dispatches are repeated,
each time after a longer pause; a call that waited too long to begin is dropped.

A pass is begun by the housekeeper, or by a worker where that is silent: Redis remembers its last
pass, and without Redis beat's messages do not arrive either. Several at once share the work: each
call is a transaction of its own, and the process that locked its row handles it.
"""

import logging
import time
from typing import Any
from uuid import UUID

import redis
from django.db import connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from audit.events import Event
from audit.models import AuditRecord
from config import timeouts
from tools.definitions.results import Status
from tools.definitions.vocabulary import Delivery
from tools.execution import answer, cache, dispatch, events
from tools.execution.requeue import (
    CANCELLED,
    EFFECT,
    REPEATABLE,
    REQUEUED,
    effect_of,
    may_repeat,
    put_back,
    record_lost,
)
from tools.limits import budgets
from tools.models import Execution
from tools.workflows.chain_boundary import boundary_details

log = logging.getLogger(__name__)
BATCH = 100
# After a longer wait for a lock, the call is left to the next pass. A process that was stopped in
# the middle of one (SIGSTOP) loses its transaction: callers may wait for the allowance that it
# locked.
_LOCK_TIMEOUTS = (
    "SELECT set_config('lock_timeout', '2s', true),"
    " set_config('idle_in_transaction_session_timeout', '10s', true)"
)


HOUSEKEEPER_KEY = "toolcrib:reaped"  # expires `BEAT_SILENT_S` after the housekeeper's last pass


class _PassClock:
    """When the last pass began, of those that this process knows of."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.last


_pass_clock = _PassClock()


def announce_pass() -> None:
    """Say to all processes that the housekeeper begins one."""
    lasts_ms = round(timeouts.BEAT_SILENT_S * 1000)
    try:
        events.impatient_connection().set(HOUSEKEEPER_KEY, "", px=lasts_ms)
    except redis.RedisError as error:
        log.warning("workers do not hear of this pass: %s", type(error).__name__)


def announced_s() -> float | None:
    """Seconds since the housekeeper's last pass. None if it is more than `BEAT_SILENT_S` ago, or
    where Redis does not answer."""
    try:
        left_ms = events.impatient_connection().pttl(HOUSEKEEPER_KEY)
    except redis.RedisError:
        return None
    return timeouts.BEAT_SILENT_S - left_ms / 1000 if left_ms > 0 else None


def is_silent(*, redis_answers: bool) -> bool:
    """Whether no pass has begun for `BEAT_SILENT_S`, neither here nor by the housekeeper."""
    if _pass_clock.age_s <= timeouts.BEAT_SILENT_S:
        return False
    ago_s = announced_s() if redis_answers else None
    if ago_s is None:
        return True
    _pass_clock.last = time.monotonic() - ago_s
    return False


def reap() -> list[UUID]:
    """Settle abandoned executions; the ids of executions to dispatch again."""
    _pass_clock.last = time.monotonic()
    # At most as many as workers run, and no locks yet. Those that cannot be settled are skipped.
    abandoned = Execution.objects.abandoned().order_by("lease_until")
    for execution_id in list(abandoned.values_list("pk", flat=True)):
        with dispatch.passed_by("an abandoned execution was not settled"):
            _settle_one(execution_id)
    dispatch.drop_expired()
    with dispatch.passed_by("calls of an ended one were not stopped"):
        answer.cancel_orphans()
    return Execution.objects.hint_again(BATCH)


@transaction.atomic
def _settle_one(execution_id: UUID) -> None:
    execution = _lock_abandoned(execution_id)
    if execution is not None:
        _settle(execution)
        transaction.on_commit(lambda: events.notify_waiters(execution_id))


def _lock_abandoned(execution_id: UUID) -> Execution | None:
    """None when another process handles it, or it is no longer abandoned."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK_TIMEOUTS)
    found = Execution.objects.abandoned().select_related("tool_version", "organization")
    locked = found.select_for_update(of=("self",), skip_locked=True, no_key=True)
    return locked.filter(pk=execution_id).first()


def _settle(execution: Execution) -> None:
    """Requeue or end an execution whose row is locked and still abandoned."""
    delivery = _delivery(execution.tool_version.definition)
    effect = effect_of(execution, delivery, begun=True)
    if may_repeat(execution, delivery, counts=True, begun=True):
        row = Execution.objects.held(execution.pk, execution.fence)
        reason = put_back(row, execution, reason=REQUEUED, counts=True, begun=True, effect=effect)
        record_lost(execution, "reaper", reason=reason, **(effect if reason == CANCELLED else {}))
    elif delivery in REPEATABLE:
        _set_aside(execution, effect)
    else:
        message = "The worker was lost during the call; whether its effect happened is not known."
        _end(execution, "OUTCOME_UNKNOWN", message, effect)


def _delivery(definition: object) -> str:
    """A row that cannot be read, since it was changed outside Toolcrib, is not repeated."""
    delivery = definition.get("delivery") if isinstance(definition, dict) else None
    return delivery if isinstance(delivery, str) else Delivery.EXTERNAL


def _set_aside(execution: Execution, effect: dict[str, bool]) -> None:
    """Possibly a poison execution: the worker that took it was lost."""
    attempts = _attempts(execution)
    workers = len({attempt["worker"] for attempt in attempts})
    message = (
        f"Set aside after {execution.attempt} attempts: {workers}"
        f" {'worker was' if workers == 1 else 'different workers were'} lost while running it, the"
        f" last one before {timezone.now():%Y-%m-%d %H:%M:%S} UTC. Ask an administrator before you"
        " call again."
    )
    if effect:
        message = f"{message} {EFFECT}"
    _end(execution, "WORKER_LOST", message, effect, attempts=attempts)


def _attempts(execution: Execution) -> list[dict[str, str]]:
    """How each attempt was lost, from the audit records, the present one last."""
    earlier = AuditRecord.objects.filter(execution_id=execution.pk, code=Event.TOOL_LOST)
    lost = [
        {"worker": str(attempt.details.get("worker", "")), "reason": attempt.reason}
        for attempt in earlier.order_by("occurred_at", "id")
    ]
    return [*lost, {"worker": execution.worker, "reason": "lease_over"}]


def _end(
    execution: Execution, code: str, message: str, effect: dict[str, bool], **details: Any
) -> None:
    Execution.objects.held(execution.pk, execution.fence).update(
        status=Status.FAILED,
        lease_until=None,
        completed_at=Now(),
        error_code=code,
        error_message=message,
        error_details=effect | boundary_details(execution, execution.tool_version.definition),
    )
    budgets.settle(execution.pk, spent=execution.cost)  # its effect may have happened
    cache.release_lead(execution.pk)
    record_lost(execution, "reaper", reason=code, **effect, **details)
