"""Calls that leave a worker's hands before they are over: back to the queue, where that is allowed.

What is `pure` or `idempotent` may be begun again; an `external` effect may not, once it may have
happened (ruling 16). A call that had not begun may always. Each way back is one conditional update
by the fence, its event and its audit record, in one transaction.
"""

import logging
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.definitions.callers import CallerKind
from tools.definitions.results import EventType, Status
from tools.definitions.vocabulary import Delivery
from tools.execution import cache, call, confirmations, events
from tools.execution.call import Performance
from tools.limits import budgets
from tools.models import Confirmation, Execution
from tools.models.execution_queryset import AT_ONCE, EFFECT_POSSIBLE, ExecutionQuerySet

log = logging.getLogger(__name__)
MOST_ATTEMPTS = 3
REPEATABLE = frozenset({Delivery.PURE, Delivery.IDEMPOTENT})
OUTSIDE = frozenset({Delivery.EXTERNAL, Delivery.IDEMPOTENT})  # effects that outlive their run
EFFECT = "Its effect may have happened before that."
HANDED_BACK = "handed_back"  # its worker had to stop
SANDBOX_LOST = "sandbox_lost"  # its run was lost, and how far it came is unknown
LEASE_LOST = "lease_lost"  # its worker could not say in time that it is alive
REQUEUED = "requeued"  # its worker said nothing any more
CANCELLED = "CANCELLED"  # it was requested
_SENTENCES = {
    HANDED_BACK: "The worker was told to stop and handed back the call; another one takes it.",
    LEASE_LOST: "The worker could not renew its lease and gave the call up; it is run again.",
    REQUEUED: "The worker fell silent; the call is run again.",
    SANDBOX_LOST: "The sandbox was lost during the call; it is run again.",
}
_USUAL = "The call was given back and is run again."


def give_back(
    performance: Performance, *, reason: str, counts: bool = True, begun: bool = True
) -> bool:
    """True when the row is in this worker's hands no more: nothing else of it may be written then.

    It waits again; or its cancellation was requested, and it ended so. False when its effect may
    have happened and must not be repeated, or when its attempts are used up: the caller ends it.
    An attempt that does not count leaves the call as many as it had. Raises what the database
    raises; the row is as it was then, and the reaper's once its lease is over.
    """
    execution = performance.execution
    delivery = performance.definition.raw["delivery"]
    if not may_repeat(execution, delivery, counts=counts, begun=begun):
        return False
    with transaction.atomic():
        row = Execution.objects.held(execution.pk, execution.fence)
        effect = effect_of(execution, delivery, begun=begun)
        word = put_back(row, execution, reason=reason, counts=counts, begun=begun, effect=effect)
        if word:
            details = effect if word == CANCELLED else {}
            record_lost(execution, "worker", reason=word, why=reason, begun=begun, **details)
        else:
            record_late(performance, Status.CANCELLED)
    performance.returned = True
    events.notify_waiters(execution.pk)
    return True


def may_repeat(execution: Execution, delivery: str, *, counts: bool, begun: bool) -> bool:
    """Whether another attempt is allowed, and left."""
    left = not counts or execution.attempt < MOST_ATTEMPTS
    return left and (delivery in REPEATABLE or not begun)


def effect_of(execution: Execution, delivery: str, *, begun: bool) -> dict[str, bool]:
    """For `error_details`: what this attempt, or one before it, may have done outside.

    A row that waits again remembers it, for however it ends: cancelled, expired, refused.
    """
    possible = execution.effect_possible or (begun and delivery in OUTSIDE)
    return dict(EFFECT_POSSIBLE) if possible else {}


def end_waiting(
    execution: Execution, *, status: Status, code: str, message: str, **more: Any
) -> None:
    """End a call that no worker has, in the transaction that locked its row.

    What may have had its effect in an earlier attempt says so, and costs what that may have cost.
    """
    ran = execution.effect_possible
    said = f"{message} {EFFECT}" if ran else message
    ended: dict[str, Any] = {"status": status, "completed_at": Now(), "error_code": code}
    ended |= {"error_message": said} | ({} if ran else {"cost": 0})
    Execution.objects.filter(pk=execution.pk).update(**ended | more)
    _settle_budget(execution, ran=ran)


def again_if_begun(execution: Execution) -> str:
    """For sentences of a call that may have been begun before."""
    return " again" if execution.fence else ""


def put_back(
    row: ExecutionQuerySet,
    execution: Execution,
    *,
    reason: str,
    counts: bool,
    begun: bool,
    effect: dict[str, bool],
) -> str:
    """Inside a transaction: the reason for evidence, or nothing when the row was gone already.

    A call whose cancellation was requested does not begin again, it ends; a composite one has
    begun, whatever became of a turn, and its next turn decides about its end.
    """
    waits: dict[str, Any] = {"status": Status.PENDING, "queued_at": Now(), "worker": ""}
    waits |= {"error_details": effect, "wake_at": None}
    waits |= {"lease_until": None, "hints": 0, "hinted_at": None}
    if execution.composite:  # it goes on as what it began as, and sees to what it has begun
        waits |= {"parked_below": AT_ONCE, "attempt": execution.attempt + counts}
        row_that_may = row
    else:
        attempt = execution.attempt if counts else max(0, execution.attempt - 1)
        waits |= {"parked_below": None, "attempt": attempt, "started_at": None}
        row_that_may = row.filter(cancel_requested_at__isnull=True)
    events.store_events(execution.pk)
    if row_that_may.update(**waits):
        if not execution.composite:
            # The consent was to this very call, which is to begin once more.
            Confirmation.objects.filter(execution=execution.pk).update(spent_at=None)
        cache.release_lead(execution.pk)
        events.append_event(execution.pk, EventType.WARNING, _SENTENCES.get(reason, _USUAL))
        return reason
    return _cancelled(row, execution, begun=begun, effect=effect)


def _cancelled(
    row: ExecutionQuerySet, execution: Execution, *, begun: bool, effect: dict[str, bool]
) -> str:
    message = "Cancelled while it ran." if begun else "Cancelled before it began."
    said, ran = f"{message} {EFFECT}" if effect else message, begun or bool(effect)
    ended: dict[str, Any] = {"status": Status.CANCELLED, "completed_at": Now(), "lease_until": None}
    ended |= {"error_code": CANCELLED, "error_message": said, "error_details": effect}
    if not row.update(**ended | ({} if ran else {"cost": 0})):
        return ""
    _settle_budget(execution, ran=ran)
    cache.release_lead(execution.pk)
    return CANCELLED


def _settle_budget(execution: Execution, *, ran: bool) -> None:
    if ran:
        budgets.settle(execution.pk, spent=execution.cost)
    else:
        budgets.release(execution.pk)


def record_lost(execution: Execution, by: str, *, reason: str, **details: object) -> None:
    """What a worker lost or gave up, and what became of it."""
    record(
        Event.TOOL_LOST,
        by=Actor(CallerKind.SYSTEM, by, execution.organization.slug),
        outcome=Outcome.FAILURE,
        subject=execution.tool_name,
        digest=execution.tool_version.digest,
        reason=reason,
        execution_id=execution.pk,
        details={
            "attempt": execution.attempt,
            "fence": execution.fence,
            "worker": execution.worker,
            **details,
        },
    )


def record_late(
    performance: Performance, status: Status, network: Sequence[object] | None = None
) -> None:
    """An end that came after the execution was taken away. It changes nothing."""
    execution = performance.execution
    log.warning("the end of a call came after it was taken away")
    record(
        Event.TOOL_LATE,
        by=performance.actor,
        outcome=Outcome.FAILURE,
        subject=execution.tool_name,
        digest=performance.tool.digest,
        execution_id=execution.pk,
        details={
            "status": status,
            "fence": execution.fence,
            **({"network": network} if network else {}),
        },
    )


MOST_FAILED_CLAIMS = 3
POISONED = "POISONED"


@transaction.atomic
def count_failed_claim(execution_id: UUID, fault: Exception) -> None:
    """Write down that a claim met `fault`; the third time it is the call's end.

    The fault stands in evidence by its class alone: its text may hold secrets. Where
    no evidence can be written nothing is counted either, and the call waits until it can.
    """
    rows = Execution.objects.select_for_update(of=("self",), no_key=True)
    execution = rows.filter(pk=execution_id, status=Status.PENDING).first()
    if execution is None:
        return
    stumbles = execution.stumbles + 1
    word = POISONED if stumbles >= MOST_FAILED_CLAIMS else "stumbled"
    Execution.objects.filter(pk=execution_id).update(stumbles=stumbles)
    if word == POISONED:
        _end_poisoned(execution)
        transaction.on_commit(lambda: events.notify_waiters(execution_id))
    details = execution.error_details if word == POISONED else {}
    record_lost(
        execution,
        "worker",
        reason=word,
        fault=type(fault).__name__[:80],
        stumbles=stumbles,
        **details,
    )


def _end_poisoned(execution: Execution) -> None:
    message = (
        f"Toolcrib failed {MOST_FAILED_CLAIMS} times to begin this call{again_if_begun(execution)}"
        f" and has set it aside{'' if execution.fence else '; nothing of it ran'}."
        " Its operators have a record of it."
    )
    boundary = call.composer().boundary(execution, execution.tool_version.definition)
    details = execution.error_details | boundary
    end_waiting(
        execution, status=Status.FAILED, code=POISONED, message=message, error_details=details
    )
    cache.release_lead(execution.pk)
    system = Actor(CallerKind.SYSTEM, "worker", execution.organization.slug)
    confirmations.withdraw_confirmation(execution.pk, by=system)
