"""What the doors call: ask for an execution, wait for it, cancel it."""

import time
from contextlib import suppress
from uuid import UUID

from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Coalesce, Now

from audit.actions import Actor, record
from audit.events import Event, Outcome
from config.http import request_queue
from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import require
from tools.definitions.callers import Caller, CallerKind
from tools.definitions.results import FINAL, OPEN, REFUSED, Status
from tools.errors import (
    AuditHalted,
    Conflict,
    InvalidCall,
    Mismatch,
    NotFound,
    QuotaExceeded,
    RateLimited,
    Refused,
    TooManyHeld,
)
from tools.execution import confirmations, dispatch, events, sessions
from tools.execution.admit import admit_waiting
from tools.execution.call import Call, CallFacts, read_facts
from tools.execution.dispatch import wake_workers
from tools.execution.outputs import readable_executions
from tools.execution.perform import perform_here
from tools.execution.requeue import CANCELLED, again_if_begun, end_waiting
from tools.models import Agent, Execution
from tools.models.execution import Resolution
from tools.models.execution_queryset import UNDO, ExecutionQuerySet

_UNSTARTED = (Status.PENDING, Status.REQUIRES_CONFIRMATION)
_CANCELLATION_COLUMNS = (
    "status", "fence", "cost", "error_details", "tool_name", "parent_id", "place", "composite",
    "parked_below", "cancel_requested_at",
)  # fmt: skip


def cancel_execution(execution_id: UUID, *, by: Actor) -> Execution:
    """Cancels an execution: at once before it started, else by a request to its worker.

    Safe to repeat. The caller has checked the permission. Raises `Conflict` if the execution ended
    otherwise.
    """
    with transaction.atomic():
        row = Execution.objects.filter(pk=execution_id)
        # The lock precedes the check, since the execution may just be requeued.
        execution = row.select_for_update(no_key=True).only(*_CANCELLATION_COLUMNS).get()
        if execution.status in FINAL:
            return _already_ended(execution)
        if execution.status in _UNSTARTED and not execution.parked:
            message = f"Cancelled before it began{again_if_begun(execution)}."
            end_waiting(execution, status=Status.CANCELLED, code=CANCELLED, message=message)
            confirmations.withdraw_confirmation(execution_id, by=by)
        else:  # its worker sees it; a second request keeps the time of the first
            row.update(cancel_requested_at=Coalesce("cancel_requested_at", Now()))
        record(
            Event.TOOL_CANCEL,
            by=by,
            outcome=Outcome.CHANGED,
            subject=execution.tool_name,
            execution_id=execution_id,
            details={**execution.error_details, **execution.parentage},
        )
    events.notify_waiters(execution_id)
    if execution.composite and execution.cancel_requested_at is None:
        _cancel_nested(execution_id, by)
    if execution.parked:  # its next turn is the last one
        dispatch.wake_workers([execution_id])
    return Execution.objects.answer(execution_id)


def _cancel_nested(execution_id: UUID, by: Actor) -> None:
    """Cancels the open calls of a composite call, except compensations."""
    open_calls = Execution.objects.filter(open__parent=execution_id)
    unwanted = open_calls.exclude(place__startswith=UNDO)
    for call_id in list(unwanted.values_list("pk", flat=True)):
        with suppress(Conflict):  # it has ended meanwhile
            cancel_execution(call_id, by=by)


def _already_ended(execution: Execution) -> Execution:
    if execution.status != Status.CANCELLED:
        raise Conflict("The execution is over already.", code="execution_over")
    return Execution.objects.answer(execution.pk)


def cancel_orphans() -> int:
    """Cancels the open calls of ended composite calls. Returns how many. Safe to repeat."""
    orphans = Execution.objects.filter(
        open__parent__isnull=False, parent__status__in=FINAL, cancel_requested_at__isnull=True
    ).values_list("pk", "organization__slug")
    for execution_id, slug in list(orphans):
        with suppress(Conflict):  # it has ended meanwhile
            cancel_execution(execution_id, by=Actor(CallerKind.SYSTEM, "reaper", slug))
    return len(orphans)


MOST_CANCELLED_AT_ONCE = 1_000


def open_calls_of_agent(agent: Agent) -> ExecutionQuerySet:
    """The open calls of an agent, without nested ones, which their composite call cancels."""
    return Execution.objects.filter(
        open__user=agent.service_account_id, open__organization=agent.organization_id, parent=None
    )


def cancel_agent_calls(*, caller: Caller, agent: Agent) -> int:
    """Cancels the open calls of an agent. Returns how many. Raises `Forbidden`."""
    require(caller, "change_execution")
    cancelled = 0
    for identifier in list(
        open_calls_of_agent(agent).values_list("pk", flat=True)[:MOST_CANCELLED_AT_ONCE]
    ):
        with suppress(Conflict):  # it has ended meanwhile
            cancel_execution(identifier, by=actor_of(caller))
            cancelled += 1
    return cancelled


ONE_OPEN_PER_SESSION = "execution_one_open_per_session"
# Codes that are answered with a status of their own; the row has the code alone.
_REFUSALS = {
    one.code: one for one in (AuditHalted, InvalidCall, QuotaExceeded, RateLimited, TooManyHeld)
}
WAITED_FOR = (Status.PENDING, Status.RUNNING)  # no connection waits for a person


def execute(*, caller: Caller, call: Call, wait_s: float) -> Execution:
    """The execution of a call, over or not; waits at most `wait_s` for its end.

    The same idempotency key and body give the same execution. Raises what `admit` raises, and
    `Mismatch` when the key was used for another body.
    """
    deadline = time.monotonic() + wait_s
    with events.listen(call.id) as listener:
        facts = _read_facts(caller, call)
        execution = _earlier_execution(call, facts) or _admit_and_start(caller, call, wait_s, facts)
        if execution.pk == call.id:
            return _at_its_end(execution, listener, deadline)
    with events.listen(execution.pk) as listener:
        return _at_its_end(execution, listener, deadline)


def refusal_of(execution: Execution) -> Refused | None:
    """What answers a call that was refused, at the door or when it was claimed, where the gates
    are asked again."""
    if execution.status not in REFUSED:
        return None
    refused = _REFUSALS.get(execution.error_code, Refused)
    return refused(
        execution.error_message,
        code=execution.error_code,
        status=execution.status,
        execution_id=str(execution.pk),
        **execution.error_details,
    )


def cancel(*, caller: Caller, execution: Execution) -> Execution:
    """Cancels an execution as `cancel_execution` does. Safe to repeat.

    An execution of another caller requires that the user impersonated it, or may change executions.
    Raises `Forbidden`, `Conflict`.
    """
    if caller.user_id not in (execution.user_id, execution.made_by_id):
        require(caller, "change_execution")
    return cancel_execution(execution.pk, by=actor_of(caller))


@transaction.atomic
def resolve(*, caller: Caller, execution: Execution, outcome: Resolution, reason: str) -> Execution:
    """A person resolves an effect whose outcome was unknown (ruling 16), once.

    What the call cost stays with the caller either way: it was tried. Raises `Forbidden`, and
    `Conflict` where the outcome is known or was resolved before.
    """
    require(caller, "change_execution")
    resolved = (
        Execution.objects.unresolved()
        .filter(pk=execution.pk)
        .update(
            resolved_as=outcome,
            resolved_at=Now(),
            resolved_by=caller.name,
            resolution_reason=reason,
        )
    )
    if not resolved:
        raise Conflict(
            "Only an execution whose effect may have happened unseen is resolved, and only once.",
            code="nothing_to_resolve",
        )
    record(
        Event.TOOL_RESOLVE,
        by=actor_of(caller),
        outcome=Outcome.CHANGED,
        subject=execution.tool_name,
        reason=outcome,
        execution_id=execution.pk,
        details={"before": "unknown", "after": outcome, "reason": reason},
    )
    return Execution.objects.answer(execution.pk)


def find_execution(caller: Caller, identifier: UUID) -> Execution:
    """One execution the caller may read. Raises `NotFound` also when it is another's."""
    found = readable_executions(caller).shown().filter(pk=identifier).first()
    if found is None:
        raise NotFound("There is no such execution among yours.", code="execution_not_found")
    return found


def wait_for(execution: Execution, wait_s: float) -> Execution:
    """The execution once it is over, though a person is to decide about it; or as it is then."""
    deadline = time.monotonic() + wait_s
    with events.listen(execution.pk) as listener:
        execution = Execution.objects.answer(execution.pk)  # it may have ended before we listened
        return _at_its_end(execution, listener, deadline, tuple(OPEN))


def _at_its_end(
    execution: Execution,
    listener: events.Listener,
    deadline: float,
    waited_for: tuple[Status, ...] = WAITED_FOR,
) -> Execution:
    """The execution once it is over, or as it is at the deadline, or when the client of the request
    disconnects: the answer has no reader, and another may wait in its place."""
    rate = execution.rate
    while (
        execution.status in waited_for
        and time.monotonic() < deadline
        and not request_queue.disconnected()
    ):
        connection.close()  # a thread that waits holds no connection
        listener.wait(deadline - time.monotonic())
        if not (listener.answer and events.apply_answer(listener.answer, execution)):
            execution = Execution.objects.answer(execution.pk)
    execution.rate = rate
    return execution


def _admit_and_start(caller: Caller, call: Call, wait_s: float, facts: CallFacts) -> Execution:
    try:
        admission = admit_waiting(caller, call, wait_s, facts)
    except (IntegrityError, sessions.SessionBusy) as error:
        # Two requests with one key at the same moment: the other one's row stands.
        earlier = _earlier_execution(call, _read_facts(caller, call))
        if earlier is not None:
            return earlier
        if isinstance(error, sessions.SessionBusy) or ONE_OPEN_PER_SESSION in str(error):
            raise sessions.busy_refusal(caller, call) from None
        raise
    execution = admission.accepted
    if admission.performance is not None and admission.place is not None:
        with admission.place:
            freed = perform_here(admission.performance)
        if freed:
            wake_workers(freed)
    elif execution.status == Status.PENDING:
        wake_worker(execution)
    return execution


def wake_worker(execution: Execution) -> None:
    """Wake a worker; where that fails, the poller of a worker finds the row."""
    wake_workers([execution.pk])


def _covers_tool(caller: Caller, call: Call) -> bool:
    """A token that is not for the tool finds no earlier call of it; the gates will say so."""
    return call.at_its_door or caller.token_tools is None or call.tool_name in caller.token_tools


def _read_facts(caller: Caller, call: Call) -> CallFacts:
    key = call.idempotency_key if _covers_tool(caller, call) else None
    return read_facts(caller, key=key, session=call.session)


def _earlier_execution(call: Call, facts: CallFacts) -> Execution | None:
    """The execution that has the call's idempotency key. Raises `Mismatch`."""
    if facts.earlier is None:
        return None
    found = Execution.objects.shown().filter(pk=facts.earlier).first()
    if found is not None and found.fingerprint != call.fingerprint:
        raise Mismatch(
            "This idempotency key was used for another request. Use a new key for a new request."
        )
    return found
