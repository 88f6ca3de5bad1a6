"""Calls that wait for a person: held when they are accepted, spent when they are claimed.

A yes is good for one start of exactly what was shown. A change of a held call locks its
execution first and its confirmation second, as the claim does.
"""

import math
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from hmac import compare_digest
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Count, Min, Q
from django.db.models.functions import Now
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools import metrics
from tools.accounts.callers import actor_of
from tools.authorization.facts import question_of
from tools.catalog.snapshot import CatalogTool
from tools.definitions.batches import BatchInput, parse_batch_inputs
from tools.definitions.implementations.tool_types import RUN_BATCH
from tools.definitions.results import EventType, Status
from tools.errors import Refused, TooManyHeld
from tools.execution import events
from tools.execution.call import Admission, Performance, Result
from tools.limits import budgets
from tools.models import Confirmation, ConfirmationStatus, Execution
from tools.models.advisory_locks import take_lock
from tools.policy import gates
from tools.policy.approval_requirements import ApprovalRequirement, bound_hash, requirement_of
from tools.policy.questions import NO_OPTIONS, EffectiveRequest, StoredOptions


def asked_for(admission: Admission) -> tuple[ApprovalRequirement | None, dict[str, Any]]:
    """What people are asked about a batch as a whole, and the tools that their yes is good for."""
    try:
        inputs = parse_batch_inputs(admission.parameters)
    except ValueError:  # its own turn will say so
        return admission.need, {}
    counted = Counter(one.tool_name for one in inputs)
    reasons: list[str] = []
    approvals, covers = 0, {}
    for name, count in counted.items():
        tool = admission.snapshot.tool(name)
        need = _need_of(admission, tool) if tool else None
        if tool is None or need is None:
            continue
        covers[name] = {"id": str(tool.id), "digest": tool.digest}
        times = "one call" if count == 1 else f"{count} calls"
        reasons += [f"{reason} ({times} of this batch.)" for reason in need.reasons]
        approvals = max(approvals, need.approvals)
    own = admission.need
    if not covers:
        return own, {}
    reasons = [*(own.reasons if own else ()), *reasons]
    return ApprovalRequirement(tuple(reasons), max(approvals, own.approvals if own else 1)), covers


def is_approved_for_batch(admission: Admission, need: ApprovalRequirement) -> bool:
    """Whether people have agreed to the batch with this call in it. The claim looks once more."""
    call = admission.call
    if call.parent is None or call.require_confirmation:
        return False
    shared = of_call(
        parent_id=call.parent.id,
        place=call.parent.place,
        tool=admission.resolved,
        parameters=admission.parameters,
    )
    return shared is not None and shared.approvals_needed >= need.approvals


def of_call(
    *, parent_id: UUID | None, place: str, tool: CatalogTool, parameters: object
) -> Confirmation | None:
    """The consent to a batch that one of its calls may begin on; None where there is none."""
    if parent_id is None:
        return None
    shared = (
        Confirmation.objects.select_related("execution__tool_version")
        .filter(
            execution=parent_id, status=ConfirmationStatus.APPROVED, execution__status__in=_ALIVE
        )
        .first()
    )
    if shared is None or not _covers(shared, tool):
        return None
    if shared.execution.started_at is None:
        return None
    return shared if _input(shared.execution, place) == (tool.name, parameters) else None


_ALIVE = (Status.RUNNING, Status.PENDING)


def _need_of(admission: Admission, tool: CatalogTool) -> ApprovalRequirement | None:
    """None for a call that would be refused as things stand: no approver is asked about it."""
    question = question_of(admission.caller, tool, admission.asked, admission.snapshot)
    try:
        gates.authorize(question)
    except Refused:
        return None
    return requirement_of(question, NO_OPTIONS)


def _covers(shared: Confirmation, tool: CatalogTool) -> bool:
    shown = shared.covers.get(tool.name)
    return bool(shown == {"id": str(tool.id), "digest": tool.digest})


def _input(batch: Execution, place: str) -> BatchInput | None:
    if batch.tool_version.definition["implementation"].get("entry_point") != RUN_BATCH:
        return None
    inputs = parse_batch_inputs(batch.parameters)
    if not place.isascii() or not place.isdigit() or int(place) >= len(inputs):
        return None
    return inputs[int(place)]


MOST_HELD = 100  # of one account, so that no call is hidden among many others
PERMISSION = "tools.decide_confirmation"
_OPEN = (ConfirmationStatus.PENDING, ConfirmationStatus.APPROVED)
_OF_EXECUTION = "SELECT * FROM tools_confirmation WHERE execution_id = %s"


def hold(admission: Admission, need: ApprovalRequirement) -> None:
    """Write down what a person is asked. Raises `TooManyHeld`."""
    execution, tool = admission.accepted, admission.resolved
    _check_room(execution)
    expires_at = timezone.now() + timedelta(minutes=settings.CONFIRMATION_MINUTES)
    confirmation = Confirmation.objects.create(
        organization_id=execution.organization_id,
        execution_id=execution.pk,
        reasons=list(need.reasons),
        approvals_needed=need.approvals,
        expires_at=expires_at,
        covers=admission.covers,
        bound_hash=bound_hash(
            execution,
            tool,
            expires_at=expires_at,
            approvals=need.approvals,
            covers=admission.covers,
        ),
    )
    people = "a person agrees" if need.approvals == 1 else "two people agree"
    events.append_event(execution.pk, EventType.WARNING, f"The call waits until {people}.")
    record(
        Event.TOOL_HELD,
        by=actor_of(admission.caller),
        outcome=Outcome.CHANGED,
        subject=execution.tool_name,
        digest=tool.digest,
        execution_id=execution.pk,
        payload={"parameters": execution.asked},
        sensitive=tool.definition.sensitive,
        details={
            "confirmation": _evidence(confirmation),
            "granted_groups": sorted(admission.caller.granted_groups),
            "requested_groups": execution.requested_groups,
            "state": execution.state,
            "expires_at": expires_at.isoformat(),
            **execution.parentage,
            **execution.references,
        },
    )


def spend(performance: Performance) -> None:
    """Nothing runs on a consent that is missing, short, used up, or was given to something else."""
    execution = performance.execution
    if execution.parked_below is not None:  # it was spent when this one began
        _check_unchanged(performance)
        return
    confirmation = _confirmation_of(execution.pk) if execution.held else None
    if performance.result is None:
        try:
            _check(performance, confirmation)
        except Refused as refusal:
            performance.result = Result(
                Status.PERMISSION_DENIED, error_code=refusal.code, error_message=refusal.message
            )
    if confirmation is None:
        return
    if performance.result is not None:
        void(confirmation, by=performance.actor, reason=performance.result.error_code)
    else:
        _record_spending(performance, confirmation)


def matches(confirmation: Confirmation, performance: Performance) -> bool:
    """Whether what is stored now is still what the confirmation was asked about."""
    found = bound_hash(
        performance.execution,
        performance.tool,
        expires_at=confirmation.expires_at,
        approvals=confirmation.approvals_needed,
        covers=confirmation.covers,
    )
    return compare_digest(found, confirmation.bound_hash)


def needed_now(performance: Performance) -> ApprovalRequirement | None:
    """A rule may have been added, or the tool marked critical, since the call was accepted."""
    execution = performance.execution
    question = question_of(
        performance.caller,
        performance.tool,
        EffectiveRequest.from_options(execution.requested_groups, execution.state),
        performance.snapshot,
    )
    return requirement_of(question, StoredOptions.from_options(execution.options))


def end(execution_id: UUID, *, code: str, message: str) -> bool:
    """A held call that will not run. False when it is held no more."""
    ended = Execution.objects.filter(pk=execution_id, status=Status.REQUIRES_CONFIRMATION).update(
        status=Status.PERMISSION_DENIED,
        completed_at=Now(),
        cost=0,
        error_code=code,
        error_message=message,
        idempotency_key=None,  # a refusal is not kept under its key
    )
    if ended:
        events.append_event(execution_id, EventType.FAILED, message)
        budgets.release(execution_id)
        metrics.denials.labels(code).inc()
    return ended == 1


def close(confirmation: Confirmation, status: ConfirmationStatus) -> bool:
    """Write a confirmation's last word. False when there was one already, or it is spent."""
    now, before = timezone.now(), confirmation.status
    closed = Confirmation.objects.filter(
        pk=confirmation.pk, status=before, spent_at__isnull=True
    ).update(status=status, decided_at=now)
    if closed and before == ConfirmationStatus.PENDING:
        waited = now - confirmation.created_at
        metrics.confirmation_wait.labels(status).observe(waited.total_seconds())
    confirmation.status, confirmation.decided_at = status, now
    return closed == 1


def void(confirmation: Confirmation, *, by: Actor, reason: str) -> None:
    """What it was bound to has changed: it cannot be approved any more."""
    if confirmation.status in _OPEN and close(confirmation, ConfirmationStatus.VOID):
        record(
            Event.CONFIRM_VOID,
            by=by,
            outcome=Outcome.DENIED,
            subject=confirmation.execution.tool_name,
            reason=reason,
            execution_id=confirmation.execution_id,
            details={"confirmation": _evidence(confirmation)},
        )


def withdraw(execution_id: UUID, *, by: Actor, reason: str = "cancelled") -> None:
    """The call ended before it began."""
    confirmation = _confirmation_of(execution_id)
    if confirmation is not None:
        void(confirmation, by=by, reason=reason)


def agreed(confirmation: Confirmation) -> int:
    """How many people said yes who may still say it; none when anybody said no."""
    execution = confirmation.execution
    own = [pk for pk in (execution.user_id, execution.made_by_id) if pk]
    words = confirmation.decisions.exclude(user_id__in=own)
    found = list(words.select_related("user"))
    if not all(word.approved for word in found):
        return 0
    return sum(word.user.has_perm(PERMISSION) for word in found)


def of_executions(executions: Iterable[Execution]) -> dict[UUID, Confirmation]:
    """By execution, each with the number of its `approvals`; those without one are left out."""
    rows = Confirmation.objects.filter(execution__in=[row.pk for row in executions])
    counted = rows.annotate(approvals=Count("decisions", filter=Q(decisions__approved=True)))
    return {row.execution_id: row for row in counted}


def _confirmation_of(execution_id: UUID) -> Confirmation | None:
    """Nothing is compiled for it."""
    return next(iter(Confirmation.objects.raw(_OF_EXECUTION, [execution_id])), None)


def _check_room(execution: Execution) -> None:
    """Counted one after the other for each account, so many at once stay exact."""
    take_lock(f"held:{execution.organization_id}:{execution.user_id}")
    waiting = Execution.objects.open(Status.REQUIRES_CONFIRMATION).filter(
        open__organization=execution.organization_id, open__user=execution.user_id
    )
    held = waiting.count()
    if held > MOST_HELD:  # this one is among them
        first = waiting.exclude(pk=execution.pk).aggregate(at=Min("confirmation__expires_at"))["at"]
        wait_s = math.ceil((first - timezone.now()).total_seconds()) if first else 60
        raise TooManyHeld(
            f"{MOST_HELD} calls of this caller wait for a person already. Cancel some, or wait "
            "until they are decided.",
            gate="confirmation",
            limit=MOST_HELD,
            used=held - 1,
            resets_in_s=max(1, wait_s),
        )


def _check(performance: Performance, confirmation: Confirmation | None) -> None:
    need = needed_now(performance)
    if confirmation is None:
        if need is not None and not _spend_shared(performance, need):
            raise _refused("missing", "It needs a person's consent by now. Call it again.")
        return
    if confirmation.spent_at is not None:
        raise _refused("spent", "A person's consent is good for one start, and it was used.")
    if confirmation.status == ConfirmationStatus.PENDING:
        raise _refused("missing", "Nobody has agreed to this call.")
    if confirmation.status != ConfirmationStatus.APPROVED:
        raise _refused(confirmation.status, "The request for consent ended without a yes.")
    if confirmation.decided_at is None or confirmation.decided_at > confirmation.expires_at:
        raise _refused("expired", "The consent came too late.")
    if not matches(confirmation, performance):
        raise _refused("changed", "What is stored is not what a person agreed to.")
    if agreed(confirmation) < max(confirmation.approvals_needed, need.approvals if need else 1):
        raise _refused("missing", "More people must agree to this call. Call it again.")
    if not _mark_spent(confirmation):
        raise _refused("spent", "A person's consent is good for one start, and it was used.")


def _check_unchanged(performance: Performance) -> None:
    """A composite call goes on as what a person agreed to, or not at all."""
    confirmation = (
        _confirmation_of(performance.execution.pk) if performance.execution.held else None
    )
    if confirmation is None or performance.result is not None or matches(confirmation, performance):
        return
    refusal = _refused("changed", "What is stored is not what a person agreed to.")
    performance.result = Result(
        Status.PERMISSION_DENIED, error_code=refusal.code, error_message=refusal.message
    )


def _spend_shared(performance: Performance, need: ApprovalRequirement) -> bool:
    """Whether people agreed to the batch with this call in it: its place keeps it single."""
    execution = performance.execution
    shared = of_call(
        parent_id=execution.parent_id,
        place=execution.place,
        tool=performance.tool,
        parameters=execution.parameters,
    )
    if shared is None or agreed(shared) < max(shared.approvals_needed, need.approvals):
        return False
    _record_spending(performance, shared)
    return True


def _mark_spent(confirmation: Confirmation) -> bool:
    unspent = Confirmation.objects.filter(
        pk=confirmation.pk, status=ConfirmationStatus.APPROVED, spent_at__isnull=True
    )
    return unspent.update(spent_at=Now()) == 1


def _record_spending(performance: Performance, confirmation: Confirmation) -> None:
    words = confirmation.decisions.filter(approved=True).select_related("user")
    record(
        Event.CONFIRM_SPEND,
        by=performance.actor,
        outcome=Outcome.CHANGED,
        subject=performance.execution.tool_name,
        digest=performance.tool.digest,
        execution_id=performance.execution.pk,
        details={
            "confirmation": _evidence(confirmation),
            "approved_by": [word.user.username for word in words],
        },
    )


def _evidence(confirmation: Confirmation) -> dict[str, object]:
    return {
        "id": str(confirmation.pk),
        "bound_hash": confirmation.bound_hash,
        "approvals_needed": confirmation.approvals_needed,
        "reasons": confirmation.reasons,
    }


def _refused(what: str, message: str) -> Refused:
    return Refused(message, code=f"confirmation_{what}", gate="confirmation")
