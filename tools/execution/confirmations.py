"""Calls that await approval: a confirmation is requested when they are accepted, and spent when
they are claimed.

An approval is valid for one start of exactly the call that was shown. Every change of such a call
locks its execution first and its confirmation second, as the claim does.
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

MOST_AWAITING = 100  # of one account, so that no call is hidden among many others
DECIDE_PERMISSION = "tools.decide_confirmation"
_VOIDABLE = (ConfirmationStatus.PENDING, ConfirmationStatus.APPROVED)
_SELECT_OF_EXECUTION = "SELECT * FROM tools_confirmation WHERE execution_id = %s"
_UNFINISHED = (Status.RUNNING, Status.PENDING)


def batch_requirement(admission: Admission) -> tuple[ApprovalRequirement | None, dict[str, Any]]:
    """The approval requirement of a batch as a whole, and the tools that the approval covers."""
    try:
        inputs = parse_batch_inputs(admission.parameters)
    except ValueError:  # reported by the turn of the batch
        return admission.need, {}
    counts = Counter(one.tool_name for one in inputs)
    reasons: list[str] = []
    approvals, covers = 0, {}
    for name, count in counts.items():
        tool = admission.snapshot.tool(name)
        tool_requirement = _requirement_of_call(admission, tool) if tool else None
        if tool is None or tool_requirement is None:
            continue
        covers[name] = {"id": str(tool.id), "digest": tool.digest}
        times = "one call" if count == 1 else f"{count} calls"
        reasons += [f"{reason} ({times} of this batch.)" for reason in tool_requirement.reasons]
        approvals = max(approvals, tool_requirement.approvals)
    requirement = admission.need
    if not covers:
        return requirement, {}
    reasons = [*(requirement.reasons if requirement else ()), *reasons]
    approvals = max(approvals, requirement.approvals if requirement else 1)
    return ApprovalRequirement(tuple(reasons), approvals), covers


def is_covered_by_batch_approval(admission: Admission, need: ApprovalRequirement) -> bool:
    """Whether the approval of the batch covers this call. The claim checks it again."""
    call = admission.call
    if call.parent is None or call.require_confirmation:
        return False
    approval = find_batch_approval(
        parent_id=call.parent.id,
        place=call.parent.place,
        tool=admission.resolved,
        parameters=admission.parameters,
    )
    return approval is not None and approval.approvals_needed >= need.approvals


def find_batch_approval(
    *, parent_id: UUID | None, place: str, tool: CatalogTool, parameters: object
) -> Confirmation | None:
    """The approved confirmation of a batch that covers one of its calls, if there is one."""
    if parent_id is None:
        return None
    approval = (
        Confirmation.objects.select_related("execution__tool_version")
        .filter(
            execution=parent_id,
            status=ConfirmationStatus.APPROVED,
            execution__status__in=_UNFINISHED,
        )
        .first()
    )
    if approval is None or not _covers_tool(approval, tool):
        return None
    if approval.execution.started_at is None:
        return None
    return approval if _batch_input(approval.execution, place) == (tool.name, parameters) else None


def _requirement_of_call(admission: Admission, tool: CatalogTool) -> ApprovalRequirement | None:
    """None also for a call that a gate would refuse now: it needs no approval."""
    question = question_of(admission.caller, tool, admission.asked, admission.snapshot)
    try:
        gates.authorize(question)
    except Refused:
        return None
    return requirement_of(question, NO_OPTIONS)


def _covers_tool(approval: Confirmation, tool: CatalogTool) -> bool:
    shown = approval.covers.get(tool.name)
    return bool(shown == {"id": str(tool.id), "digest": tool.digest})


def _batch_input(batch: Execution, place: str) -> BatchInput | None:
    if batch.tool_version.definition["implementation"].get("entry_point") != RUN_BATCH:
        return None
    inputs = parse_batch_inputs(batch.parameters)
    if not place.isascii() or not place.isdigit() or int(place) >= len(inputs):
        return None
    return inputs[int(place)]


def request_approval(admission: Admission, need: ApprovalRequirement) -> None:
    """Creates the confirmation, and records it. Raises `TooManyHeld`."""
    execution, tool = admission.accepted, admission.resolved
    _check_awaiting_limit(execution)
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


def spend_approval(performance: Performance) -> None:
    """Spends the confirmation of a claimed call, or sets a refusal as its result.

    A call is refused if an approval is missing, was used before, or was given to something else.
    """
    execution = performance.execution
    if execution.parked_below is not None:  # it was spent at the first turn
        _check_unchanged(performance)
        return
    confirmation = _load_confirmation(execution.pk) if execution.held else None
    if performance.result is None:
        try:
            _check_approval(performance, confirmation)
        except Refused as refusal:
            performance.result = Result(
                Status.PERMISSION_DENIED, error_code=refusal.code, error_message=refusal.message
            )
    if confirmation is None:
        return
    if performance.result is not None:
        void_confirmation(confirmation, by=performance.actor, reason=performance.result.error_code)
    else:
        _record_spending(performance, confirmation)


def is_unchanged(confirmation: Confirmation, performance: Performance) -> bool:
    """Whether the stored call is the one that the confirmation is bound to."""
    current_hash = bound_hash(
        performance.execution,
        performance.tool,
        expires_at=confirmation.expires_at,
        approvals=confirmation.approvals_needed,
        covers=confirmation.covers,
    )
    return compare_digest(current_hash, confirmation.bound_hash)


def current_requirement(performance: Performance) -> ApprovalRequirement | None:
    """The requirement by the current rules, which may be stricter than at acceptance."""
    execution = performance.execution
    question = question_of(
        performance.caller,
        performance.tool,
        EffectiveRequest.from_options(execution.requested_groups, execution.state),
        performance.snapshot,
    )
    return requirement_of(question, StoredOptions.from_options(execution.options))


def deny_awaiting_call(execution_id: UUID, *, code: str, message: str) -> bool:
    """Ends a call that awaits approval. False if it does not await approval any more."""
    ended = Execution.objects.filter(pk=execution_id, status=Status.REQUIRES_CONFIRMATION).update(
        status=Status.PERMISSION_DENIED,
        completed_at=Now(),
        cost=0,
        error_code=code,
        error_message=message,
        idempotency_key=None,  # a refusal is not kept under its key
    )
    if ended:
        budgets.release(execution_id)
        metrics.denials.labels(code).inc()
    return ended == 1


def close_confirmation(confirmation: Confirmation, status: ConfirmationStatus) -> bool:
    """Sets a confirmation's final status. False if it has one already, or is spent."""
    now, before = timezone.now(), confirmation.status
    closed = Confirmation.objects.filter(
        pk=confirmation.pk, status=before, spent_at__isnull=True
    ).update(status=status, decided_at=now)
    if closed and before == ConfirmationStatus.PENDING:
        waited = now - confirmation.created_at
        metrics.confirmation_wait.labels(status).observe(waited.total_seconds())
    confirmation.status, confirmation.decided_at = status, now
    return closed == 1


def void_confirmation(confirmation: Confirmation, *, by: Actor, reason: str) -> None:
    """Closes the confirmation of a call that changed or ended: it cannot be approved any more."""
    if confirmation.status in _VOIDABLE and close_confirmation(
        confirmation, ConfirmationStatus.VOID
    ):
        record(
            Event.CONFIRM_VOID,
            by=by,
            outcome=Outcome.DENIED,
            subject=confirmation.execution.tool_name,
            reason=reason,
            execution_id=confirmation.execution_id,
            details={"confirmation": _evidence(confirmation)},
        )


def withdraw_confirmation(execution_id: UUID, *, by: Actor, reason: str = "cancelled") -> None:
    """Voids the confirmation of a call that ended before it began."""
    confirmation = _load_confirmation(execution_id)
    if confirmation is not None:
        void_confirmation(confirmation, by=by, reason=reason)


def count_approvals(confirmation: Confirmation) -> int:
    """The approvals by users who still have the permission; 0 after a rejection."""
    execution = confirmation.execution
    own = [pk for pk in (execution.user_id, execution.made_by_id) if pk]
    decisions = list(confirmation.decisions.exclude(user_id__in=own).select_related("user"))
    if not all(decision.approved for decision in decisions):
        return 0
    return sum(decision.user.has_perm(DECIDE_PERMISSION) for decision in decisions)


def load_confirmations(executions: Iterable[Execution]) -> dict[UUID, Confirmation]:
    """The confirmations by execution, each with the number of its `approvals`."""
    rows = Confirmation.objects.filter(execution__in=[row.pk for row in executions])
    counted = rows.annotate(approvals=Count("decisions", filter=Q(decisions__approved=True)))
    return {row.execution_id: row for row in counted}


def _load_confirmation(execution_id: UUID) -> Confirmation | None:
    """By a raw query, which Django does not have to compile."""
    return next(iter(Confirmation.objects.raw(_SELECT_OF_EXECUTION, [execution_id])), None)


def _check_awaiting_limit(execution: Execution) -> None:
    """Counts under a lock for each account, so that concurrent calls cannot exceed the limit."""
    take_lock(f"held:{execution.organization_id}:{execution.user_id}")
    waiting = Execution.objects.open(Status.REQUIRES_CONFIRMATION).filter(
        open__organization=execution.organization_id, open__user=execution.user_id
    )
    awaiting = waiting.count()
    if awaiting > MOST_AWAITING:  # with this call
        first = waiting.exclude(pk=execution.pk).aggregate(at=Min("confirmation__expires_at"))["at"]
        wait_s = math.ceil((first - timezone.now()).total_seconds()) if first else 60
        raise TooManyHeld(
            f"{MOST_AWAITING} calls of this caller wait for a person already. Cancel some, or wait "
            "until they are decided.",
            gate="confirmation",
            limit=MOST_AWAITING,
            used=awaiting - 1,
            resets_in_s=max(1, wait_s),
        )


def _check_approval(performance: Performance, confirmation: Confirmation | None) -> None:
    need = current_requirement(performance)
    if confirmation is None:
        if need is not None and not _spend_batch_approval(performance, need):
            raise _refusal("missing", "It needs a person's consent by now. Call it again.")
        return
    if confirmation.spent_at is not None:
        raise _refusal("spent", "A person's consent is good for one start, and it was used.")
    if confirmation.status == ConfirmationStatus.PENDING:
        raise _refusal("missing", "Nobody has agreed to this call.")
    if confirmation.status != ConfirmationStatus.APPROVED:
        raise _refusal(confirmation.status, "The request for consent ended without a yes.")
    if confirmation.decided_at is None or confirmation.decided_at > confirmation.expires_at:
        raise _refusal("expired", "The consent came too late.")
    if not is_unchanged(confirmation, performance):
        raise _refusal("changed", "What is stored is not what a person agreed to.")
    if count_approvals(confirmation) < max(
        confirmation.approvals_needed, need.approvals if need else 1
    ):
        raise _refusal("missing", "More people must agree to this call. Call it again.")
    if not _mark_spent(confirmation):
        raise _refusal("spent", "A person's consent is good for one start, and it was used.")


def _check_unchanged(performance: Performance) -> None:
    """A composite call continues only if it is still what was approved."""
    confirmation = (
        _load_confirmation(performance.execution.pk) if performance.execution.held else None
    )
    if (
        confirmation is None
        or performance.result is not None
        or is_unchanged(confirmation, performance)
    ):
        return
    refusal = _refusal("changed", "What is stored is not what a person agreed to.")
    performance.result = Result(
        Status.PERMISSION_DENIED, error_code=refusal.code, error_message=refusal.message
    )


def _spend_batch_approval(performance: Performance, need: ApprovalRequirement) -> bool:
    """Whether the approval of the batch covers this call. Its place ensures that it runs once."""
    execution = performance.execution
    approval = find_batch_approval(
        parent_id=execution.parent_id,
        place=execution.place,
        tool=performance.tool,
        parameters=execution.parameters,
    )
    if approval is None or count_approvals(approval) < max(
        approval.approvals_needed, need.approvals
    ):
        return False
    _record_spending(performance, approval)
    return True


def _mark_spent(confirmation: Confirmation) -> bool:
    unspent = Confirmation.objects.filter(
        pk=confirmation.pk, status=ConfirmationStatus.APPROVED, spent_at__isnull=True
    )
    return unspent.update(spent_at=Now()) == 1


def _record_spending(performance: Performance, confirmation: Confirmation) -> None:
    decisions = confirmation.decisions.filter(approved=True).select_related("user")
    record(
        Event.CONFIRM_SPEND,
        by=performance.actor,
        outcome=Outcome.CHANGED,
        subject=performance.execution.tool_name,
        digest=performance.tool.digest,
        execution_id=performance.execution.pk,
        details={
            "confirmation": _evidence(confirmation),
            "approved_by": [decision.user.username for decision in decisions],
        },
    )


def _evidence(confirmation: Confirmation) -> dict[str, object]:
    return {
        "id": str(confirmation.pk),
        "bound_hash": confirmation.bound_hash,
        "approvals_needed": confirmation.approvals_needed,
        "reasons": confirmation.reasons,
    }


def _refusal(reason: str, message: str) -> Refused:
    return Refused(message, code=f"confirmation_{reason}", gate="confirmation")
