"""Decisions of people on calls awaiting approval: in the browser, or over REST with a browser
session. Requests that people do not decide are reminded of at two thirds of their time, and expire.

No token can decide (ruling 18), and no person can decide about their own call. Every gate is asked
again before an approval counts, and once more when the call starts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from hmac import compare_digest
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Prefetch, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools import metrics
from tools.accounts.callers import actor_of, caller_of_execution
from tools.accounts.user_permissions import may, require
from tools.authorization import pins
from tools.definitions.callers import Caller, CallerKind
from tools.definitions.results import EventType, Status
from tools.definitions.tool import ToolDefinition
from tools.errors import Conflict, Forbidden, Malformed, NotFound, Refused, ToolcribError
from tools.execution import confirmations, events, sessions
from tools.execution.answer import wake_worker
from tools.execution.call import Performance
from tools.execution.claim import ask_again, check_signature
from tools.models import (
    Confirmation,
    ConfirmationDecision,
    ConfirmationStatus,
    Execution,
    Token,
    User,
)

EXPIRY_BATCH = 200
EXPIRED_MESSAGE = (
    "Nobody decided in time whether this call may run. Call again, or ask an administrator."
)
MOST_AT_ONCE = 100
LONGEST_REASON = 1000
PERMISSION = confirmations.DECIDE_PERMISSION.removeprefix("tools.")
_CLOSED_MESSAGES = {
    ConfirmationStatus.EXPIRED: "confirmation_expired",
    ConfirmationStatus.VOID: "confirmation_void",
}


@dataclass(frozen=True, slots=True)
class Word:
    """One person's yes or no to exactly what `bound_hash` stands for."""

    id: UUID
    bound_hash: str
    approve: bool
    reason: str = ""
    displayed_s: float | None = None  # how long it had been shown, where a page knows


@dataclass(frozen=True, slots=True)
class Decided:
    """The result of one decision of many."""

    id: UUID
    confirmation: Confirmation | None
    refusal: ToolcribError | None


def decide(*, caller: Caller, word: Word) -> Confirmation:
    """Record one person's decision; returns the confirmation.

    Raises `Forbidden`, `NotFound`, and `Conflict` when nothing is left to decide, when the hash
    differs, or when a gate refuses the call meanwhile: then the call has ended.
    """
    _check_person(caller)
    if len(word.reason) > LONGEST_REASON:
        raise Malformed(f"A reason has at most {LONGEST_REASON} characters.", field="reason")
    with transaction.atomic():
        confirmation = _lock_confirmation(caller, word.id)
        refusal = _decide(caller, confirmation, word)
    execution = confirmation.execution
    if execution.status == Status.PENDING:
        wake_worker(execution)
    events.notify_waiters(execution.pk)
    if refusal is not None:
        raise refusal
    return one_of(caller, word.id)


def decide_many(*, caller: Caller, words: Iterable[Word]) -> list[Decided]:
    """Each by itself, in their order: a refused decision does not affect the others."""
    _check_person(caller)
    return [_decide_one(caller, word) for word in words]


def readable(caller: Caller) -> QuerySet[Confirmation]:
    """What the caller may see, with all that is shown of it. Raises `Forbidden`."""
    if not may(caller, PERMISSION) and not may(caller, "view_confirmation"):
        raise Forbidden(
            f"Held calls are shown to people with the permission {PERMISSION}.",
            code="not_permitted",
        )
    words = ConfirmationDecision.objects.select_related("user")
    return (
        Confirmation.objects.filter(organization_id=caller.organization_id)
        .select_related(
            "execution__agent",
            "execution__user",
            "execution__made_by",
            "execution__tool_version__tool",
        )
        .prefetch_related(Prefetch("decisions", words))
    )


def pending(caller: Caller) -> QuerySet[Confirmation]:
    """Confirmations that wait for a decision; overdue ones are left out."""
    return readable(caller).filter(status=ConfirmationStatus.PENDING, expires_at__gt=Now())


def one_of(caller: Caller, identifier: UUID) -> Confirmation:
    found = readable(caller).filter(pk=identifier).first()
    if found is None:
        raise _not_found()
    return found


def obstacle(caller: Caller, confirmation: Confirmation) -> Forbidden | None:
    """Why this person may not decide about this call, or None."""
    execution = confirmation.execution
    if caller.user_id in (execution.user_id, execution.made_by_id):
        return Forbidden("This is your own call: somebody else must decide.", code="own_call")
    if issued_its_token(caller, execution) and not caller.is_superuser:
        # A superuser could make themselves a second account; barring them would be for show.
        return Forbidden(
            "You issued the token of this call: somebody else must decide.", code="own_token"
        )
    return None


def issued_its_token(caller: Caller, execution: Execution) -> bool:
    """The issuer of a token has seen it, and could be calling with it."""
    if execution.token_id is None:
        return False
    return Token.objects.filter(pk=execution.token_id, issuer=caller.user_id).exists()


def expire_overdue() -> None:
    """Expire confirmations that were not decided in time, and remind of those about to expire."""
    pending = Confirmation.objects.filter(status=ConfirmationStatus.PENDING)
    overdue = pending.filter(expires_at__lte=Now()).order_by("expires_at")
    for row in overdue.values("pk", "execution_id")[:EXPIRY_BATCH]:
        if _expire_one(row["pk"], row["execution_id"]):
            events.notify_waiters(row["execution_id"])
    soon = Now() + timedelta(minutes=settings.CONFIRMATION_MINUTES) / 3
    silent = pending.filter(reminded_at__isnull=True, expires_at__lte=soon)
    for confirmation in silent.select_related("execution", "organization")[:EXPIRY_BATCH]:
        _record_reminder(confirmation)


def expire(confirmation: Confirmation) -> None:
    """Call it with execution and confirmation locked, in a transaction."""
    if not confirmations.close_confirmation(confirmation, ConfirmationStatus.EXPIRED):
        return
    confirmations.deny_awaiting_call(
        confirmation.execution_id, code="confirmation_expired", message=EXPIRED_MESSAGE
    )
    _record_by_system(Event.CONFIRM_EXPIRE, confirmation, Outcome.DENIED)


@transaction.atomic
def _expire_one(pk: UUID, execution_id: UUID) -> bool:
    """False when another process has locked the row, or has handled it already."""
    rows = Execution.objects.select_for_update(skip_locked=True, of=("self",))
    if rows.filter(pk=execution_id).first() is None:
        return False
    confirmation = (
        Confirmation.objects.select_for_update(of=("self",))
        .select_related("execution", "organization")
        .filter(pk=pk, status=ConfirmationStatus.PENDING)
        .first()
    )
    if confirmation is not None:
        expire(confirmation)
    return confirmation is not None


@transaction.atomic
def _record_reminder(confirmation: Confirmation) -> None:
    unsaid = Confirmation.objects.filter(
        pk=confirmation.pk, status=ConfirmationStatus.PENDING, reminded_at__isnull=True
    )
    if unsaid.update(reminded_at=Now()):
        metrics.confirmation_reminders.inc()
        _record_by_system(Event.CONFIRM_REMIND, confirmation, Outcome.CHANGED)


def _record_by_system(event: Event, confirmation: Confirmation, outcome: Outcome) -> None:
    record(
        event,
        by=Actor(CallerKind.SYSTEM, "confirmations", confirmation.organization.slug),
        outcome=outcome,
        subject=confirmation.execution.tool_name,
        execution_id=confirmation.execution_id,
        details={"confirmation": str(confirmation.pk), "reasons": confirmation.reasons},
    )


def _check_person(caller: Caller) -> None:
    if caller.kind != CallerKind.PERSON or caller.token_id is not None:
        raise Forbidden(
            "Only a person who is logged in decides about held calls; no token can.",
            code="session_required",
        )
    require(caller, PERMISSION)


def _decide_one(caller: Caller, word: Word) -> Decided:
    try:
        return Decided(word.id, decide(caller=caller, word=word), None)
    except ToolcribError as refusal:
        return Decided(word.id, None, refusal)


def _lock_confirmation(caller: Caller, identifier: UUID) -> Confirmation:
    """The confirmation with its execution, both locked: the execution first, as everywhere."""
    here = Confirmation.objects.filter(organization_id=caller.organization_id, pk=identifier)
    execution_id = here.values_list("execution_id", flat=True).first()
    if execution_id is None:
        raise _not_found()
    execution = Execution.objects.select_for_update(of=("self",)).get(pk=execution_id)
    confirmation = here.select_related("organization").select_for_update(of=("self",)).get()
    confirmation.execution = execution
    return confirmation


def _decide(caller: Caller, confirmation: Confirmation, word: Word) -> ToolcribError | None:
    """Returns, rather than raises, a refusal that came with a change: the change must be kept."""
    _check_open(confirmation)
    if confirmation.expires_at <= timezone.now():
        expire(confirmation)
        return Conflict(EXPIRED_MESSAGE, code="confirmation_expired")
    _check_word(caller, confirmation, word)
    if not word.approve:
        _reject(caller, confirmation, word)
        return None
    if (stale := _find_change(confirmation)) is not None:
        _void(caller, confirmation, stale)
        return Conflict(
            f"The call cannot run as it was asked for, and has ended: {stale.message}",
            code="confirmation_void",
            reason=stale.code,
        )
    _approve(caller, confirmation, word)
    return None


def _check_open(confirmation: Confirmation) -> None:
    if confirmation.status != ConfirmationStatus.PENDING:
        raise Conflict(
            f"This was decided already: it is {confirmation.status}.",
            code=_CLOSED_MESSAGES.get(
                ConfirmationStatus(confirmation.status), "confirmation_decided"
            ),
        )
    if confirmation.execution.status != Status.REQUIRES_CONFIRMATION:
        raise Conflict("The call does not wait for a person any more.", code="confirmation_decided")


def _check_word(caller: Caller, confirmation: Confirmation, word: Word) -> None:
    if (hindrance := obstacle(caller, confirmation)) is not None:
        raise hindrance
    if not compare_digest(
        word.bound_hash.encode("utf-8", "replace"), confirmation.bound_hash.encode()
    ):
        raise Conflict(
            "This is not what you were shown: bound_hash is another one. Read it again.",
            code="confirmation_changed",
        )
    if confirmation.decisions.filter(user_id=caller.user_id).exists():
        raise Conflict(
            "You have said yes already; another person must agree too.", code="already_decided"
        )


def _find_change(confirmation: Confirmation) -> Refused | None:
    """Checks every gate again: returns the current refusal of the call, or None."""
    execution = confirmation.execution
    caller = caller_of_execution(execution)
    snapshot = pins.snapshot_for(caller, execution.session_id)
    tool = snapshot.tool(execution.tool_name)
    if tool is None or tool.version_id != execution.tool_version_id:
        return Refused("The tool was changed or removed.", code="tool_changed")
    performance = Performance(execution, tool, caller, snapshot, worker="")
    for step in (ask_again, sessions.check_session, check_signature):
        step(performance)
    if (result := performance.result) is not None:
        return Refused(result.error_message, code=result.error_code)
    need = confirmations.current_requirement(performance)
    if need is not None and need.approvals > confirmation.approvals_needed:
        return Refused("By now two people must agree to it.", code="confirmation_short")
    if not confirmations.is_unchanged(confirmation, performance):
        return Refused("What is stored is not what was asked.", code="confirmation_changed")
    return None


def _void(caller: Caller, confirmation: Confirmation, stale: Refused) -> None:
    confirmations.void_confirmation(confirmation, by=actor_of(caller), reason=stale.code)
    confirmations.deny_awaiting_call(
        confirmation.execution_id, code=stale.code, message=stale.message
    )


def _reject(caller: Caller, confirmation: Confirmation, word: Word) -> None:
    said = f"A person refused this call: {word.reason}" if word.reason else "A person refused it."
    _write(caller, confirmation, word)
    confirmations.close_confirmation(confirmation, ConfirmationStatus.REJECTED)
    confirmations.deny_awaiting_call(
        confirmation.execution_id, code="confirmation_rejected", message=said
    )
    _record(Event.CONFIRM_REJECT, caller, confirmation, word)


def _approve(caller: Caller, confirmation: Confirmation, word: Word) -> None:
    _write(caller, confirmation, word)
    agreed = confirmations.count_approvals(confirmation)
    if agreed < confirmation.approvals_needed:
        message = "One person agreed; the call waits for another."
    else:
        message = "People agreed to the call." if agreed > 1 else "A person agreed to the call."
        confirmations.close_confirmation(confirmation, ConfirmationStatus.APPROVED)
        confirmation.execution.status = Status.PENDING
        # By the clock that says for how long it has waited: the database's.
        Execution.objects.filter(pk=confirmation.execution_id).update(
            status=Status.PENDING, queued_at=Now()
        )
    events.append_event(confirmation.execution_id, EventType.IN_PROGRESS, message)
    _record(Event.CONFIRM_APPROVE, caller, confirmation, word)


def _write(caller: Caller, confirmation: Confirmation, word: Word) -> None:
    ConfirmationDecision.objects.create(
        confirmation=confirmation,
        user=User.objects.get(pk=caller.user_id),
        approved=word.approve,
        reason=word.reason,
    )


def _record(event: Event, caller: Caller, confirmation: Confirmation, word: Word) -> None:
    execution = confirmation.execution
    waited = timezone.now() - confirmation.created_at
    details: dict[str, Any] = {
        "confirmation": str(confirmation.pk),
        "decision": "approved" if word.approve else "rejected",
        "policy_version": confirmation.organization.revision,
        "session": str(execution.session_id) if execution.session_id else None,
        "bound_hash": confirmation.bound_hash,
        "reasons": confirmation.reasons,
        "approvals_needed": confirmation.approvals_needed,
        "reason": word.reason,
        "waited_ms": waited // timedelta(milliseconds=1),
        "displayed_s": word.displayed_s,
        **execution.references,
        "issued_its_token": issued_its_token(caller, execution),
    }
    record(
        event,
        by=actor_of(caller),
        outcome=Outcome.CHANGED if word.approve else Outcome.DENIED,
        subject=execution.tool_name,
        digest=execution.tool_version.digest,
        execution_id=execution.pk,
        payload={"parameters": execution.asked},
        sensitive=ToolDefinition(execution.tool_version.definition).sensitive,
        details=details,
    )


def _not_found() -> NotFound:
    return NotFound("There is no such confirmation.", code="confirmation_not_found")
