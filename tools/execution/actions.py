"""What the doors call: ask for an execution, wait for it, cancel it."""

import time
from uuid import UUID

from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now

from audit.actions import record
from audit.events import Event, Outcome
from config.http import request_queue
from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import require
from tools.definitions.callers import Caller
from tools.definitions.results import OPEN, REFUSED, Status
from tools.errors import AuditHalted, Conflict, Mismatch, NotFound, Refused
from tools.execution import bell, cancelling, sessions
from tools.execution.call import Call
from tools.execution.entrance import admit_waiting
from tools.execution.hints import tell
from tools.execution.pipeline import perform_here
from tools.execution.reading import readable
from tools.models import Execution
from tools.models.execution import Resolution

ONE_OPEN_PER_SESSION = "execution_one_open_per_session"
_LATE_REFUSALS = {AuditHalted.code: AuditHalted}  # answered as at the door; all others as usual
WAITED_FOR = (Status.PENDING, Status.RUNNING)  # for a person nobody holds a connection open


def execute(*, caller: Caller, call: Call, wait_s: float) -> Execution:
    """The execution of a call, over or not; waits at most `wait_s` for its end.

    The same idempotency key and body give the same execution. Raises what `admit` raises, and
    `Mismatch` when the key was used for another body.
    """
    deadline = time.monotonic() + wait_s
    with bell.listening(call.id) as listener:
        execution = _earlier(caller, call) or _request(caller, call, wait_s)
        if execution.pk == call.id:
            return _at_its_end(execution, listener, deadline)
    with bell.listening(execution.pk) as listener:
        return _at_its_end(execution, listener, deadline)


def refusal_of(execution: Execution) -> Refused | None:
    """What answers a call that was refused when it was claimed, where the gates are asked again."""
    if execution.status not in REFUSED:
        return None
    refused = _LATE_REFUSALS.get(execution.error_code, Refused)
    return refused(
        execution.error_message,
        code=execution.error_code,
        status=execution.status,
        execution_id=str(execution.pk),
        **execution.error_details,
    )


def cancel(*, caller: Caller, execution: Execution) -> Execution:
    """End it: at once when nothing has begun, else by telling its worker. Safe to repeat.

    Another's execution only by who made it in their name, or may change executions.
    Raises `Forbidden`, `Conflict`.
    """
    if caller.user_id not in (execution.user_id, execution.made_by_id):
        require(caller, "change_execution")
    return cancelling.stop(execution.pk, by=actor_of(caller))


@transaction.atomic
def resolve(*, caller: Caller, execution: Execution, outcome: Resolution, reason: str) -> Execution:
    """A person's word on an effect whose outcome nobody knew (ruling 16). It is said once.

    What the call cost stays with the caller either way: it was tried. Raises `Forbidden`, and
    `Conflict` where the outcome is known or somebody has said it.
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


def one_of(caller: Caller, identifier: UUID) -> Execution:
    """One execution the caller may read. Raises `NotFound` also when it is another's."""
    found = readable(caller).shown().filter(pk=identifier).first()
    if found is None:
        raise NotFound("There is no such execution among yours.", code="execution_not_found")
    return found


def wait_for(execution: Execution, wait_s: float) -> Execution:
    """The execution once it is over, though a person is to decide about it; or as it is then."""
    deadline = time.monotonic() + wait_s
    with bell.listening(execution.pk) as listener:
        execution = Execution.objects.answer(execution.pk)  # it may have ended before we listened
        return _at_its_end(execution, listener, deadline, tuple(OPEN))


def _at_its_end(
    execution: Execution,
    listener: bell.Listener,
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
        execution = Execution.objects.answer(execution.pk)
    execution.rate = rate
    return execution


def _request(caller: Caller, call: Call, wait_s: float) -> Execution:
    try:
        admission = admit_waiting(caller, call, wait_s)
    except (IntegrityError, sessions.Overtaken) as error:
        # Two requests with one key at the same moment: the other one's row stands.
        earlier = _earlier(caller, call)
        if earlier is not None:
            return earlier
        if isinstance(error, sessions.Overtaken) or ONE_OPEN_PER_SESSION in str(error):
            raise sessions.busy(caller, call) from None
        raise
    execution = admission.accepted
    if admission.performance is not None and admission.place is not None:
        with admission.place:
            freed = perform_here(admission.performance)
        if freed:
            tell(freed)
    elif execution.status == Status.PENDING:
        hint(execution)
    return execution


def hint(execution: Execution) -> None:
    """Tell a worker. One that cannot be told is not missed: workers look by themselves."""
    tell([execution.pk])


def _good_for(caller: Caller, call: Call) -> bool:
    """A token that is not for the tool finds no earlier call of it; the gates will say so."""
    return call.at_its_door or caller.token_tools is None or call.tool_name in caller.token_tools


def _earlier(caller: Caller, call: Call) -> Execution | None:
    if call.idempotency_key is None or not _good_for(caller, call):
        return None
    found = (
        Execution.objects.shown()
        .filter(
            organization_id=caller.organization_id,
            user_id=caller.user_id,
            idempotency_key=call.idempotency_key,
        )
        .first()
    )
    if found is not None and found.fingerprint != call.fingerprint:
        raise Mismatch(
            "This idempotency key was used for another request. Use a new key for a new request."
        )
    return found
