"""Workflows whose state, groups and history are the server's (ruling 5).

At most one call of a session is not over, so a state moves under one call alone: into what that
call was asked in, or not at all. A hit in the cache is over as soon as it is accepted; it takes the
session's row for the moment it needs.
"""

from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools import metrics
from tools.accounts.callers import actor_of
from tools.authorization.known_names import state_label
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.results import Status
from tools.errors import Conflict, NotFound
from tools.execution.call import Admission, Call, Performance, Result
from tools.models import Execution, OpenExecution, Session, StateTransition
from tools.policy.availability import matches_state
from tools.policy.questions import EffectiveRequest

CLOSED = "The session is closed. Open a new one with POST /api/v1/sessions."
CHANGED = "The session came into another state before the call began. Read it, then call again."


class Overtaken(Conflict):
    """Another call of the session is not over, or was faster."""

    code = "session_busy"


def enter(admission: Admission) -> None:
    """From here on the session's groups and state are asked about, whatever the call names.

    Raises `NotFound` for what is not the caller's, `Conflict` when the session is closed, is busy,
    or is not as the call says.
    """
    caller, call = admission.caller, admission.call
    session = find_own_session(caller, call.session or "")
    _check_open(caller, session, subject=admission.resolved.name)
    _check_agreement(caller, session, call.group, call.state, tool=admission.resolved)
    if not admission.resolved.definition.composite and open_execution(session.pk) is not None:
        raise Overtaken("Another call of this session is not over yet.")
    admission.session = session
    admission.asked = EffectiveRequest.from_options(session.groups, session.state)


def asked_in(
    caller: Caller, identifier: str, group: list[str] | None, state: str | None
) -> EffectiveRequest:
    """What a listing in a session asks for. Raises as `enter` does, save that it may be busy."""
    session = find_own_session(caller, identifier)
    _check_open(caller, session)
    _check_agreement(caller, session, group, state)
    return EffectiveRequest.from_options(session.groups, session.state)


def find_own_session(caller: Caller, identifier: str) -> Session:
    """The caller's session of that name. Raises `NotFound` also for another's."""
    session_id = _identifier(identifier)
    found = (
        session_id
        and Session.objects.filter(
            pk=session_id, organization_id=caller.organization_id, user_id=caller.user_id
        ).first()
    )
    if not found:
        raise NotFound("There is no such session among yours.", code="session_not_found")
    return found


def open_execution(session_id: UUID) -> UUID | None:
    """The one call of a session that is not over; composite ones leave it to their own calls."""
    found = OpenExecution.objects.filter(session=session_id)
    return found.values_list("execution", flat=True).first()


def busy(caller: Caller, call: Call) -> Conflict:
    """The answer to a call that came while another was not over; on record when it is made."""
    session = find_own_session(caller, call.session or "")
    other = open_execution(session.pk)
    _record_refusal(caller, session, Overtaken.code, subject=call.tool_name)
    return Overtaken(
        "Another call of this session is not over yet. Wait for it, or cancel it.",
        session=str(session.pk),
        open_execution=str(other) if other else None,
    )


def ask_again(performance: Performance) -> None:
    """At the claim, with the session's row held: is it still what the call was asked in?

    Its groups have been held against the grants with the other gates: they are the execution's.
    """
    execution = performance.execution
    if performance.result is not None or execution.session_id is None:
        return
    session = Session.objects.select_for_update(no_key=True).get(pk=execution.session_id)
    if session.closed_at is not None:
        performance.result = _refusal("session_closed", CLOSED)
    elif session.state != execution.state and not execution.composite:
        performance.result = _refusal("session_changed", CHANGED)


def state_before(execution: Execution) -> str:
    """What a call found; of a composite one in a session, where its own calls have led."""
    if execution.composite and execution.session_id is not None:
        return Session.objects.values_list("state", flat=True).get(pk=execution.session_id)
    return execution.state


def move(performance: Performance, result: Result) -> None:
    """Only success moves the state, in the transaction that writes the result (S1, 4.2)."""
    if result.status == Status.SUCCESS:
        _move(performance.execution, performance.tool, performance.snapshot, performance.actor)


def move_for_hit(admission: Admission, execution: Execution) -> None:
    """The same for an answer that was known, in the transaction that accepts the call.

    Raises `Overtaken` when another call of the session is not over or was faster.
    """
    if execution.session_id is not None:
        _take(execution.session_id, execution.state)
    _move(execution, admission.resolved, admission.snapshot, actor_of(admission.caller))


def _identifier(text: str) -> UUID | None:
    """None for anything but the canonical form: Python's own reader takes more."""
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found if str(found) == text.lower() else None


def _check_open(caller: Caller, session: Session, *, subject: str = "") -> None:
    if session.closed_at is not None:
        _record_refusal(caller, session, "session_closed", subject=subject)
        raise Conflict(CLOSED, code="session_closed", session=str(session.pk))


def _check_agreement(
    caller: Caller,
    session: Session,
    group: list[str] | None,
    state: str | None,
    *,
    tool: CatalogTool | None = None,
) -> None:
    """What a client names must be what the server has; absent is not named."""
    wrong = []
    if group is not None and frozenset(group) != frozenset(session.groups):
        wrong.append("group")
    if state is not None and state != session.state:
        wrong.append("state")
    if not wrong:
        return
    there = {"group": session.groups, "state": session.state}
    _record_mismatch(caller, session, wrong, {"group": group, "state": state}, tool)
    raise Conflict(
        f"The request names another {' and another '.join(wrong)} than its session has. "
        "Leave them out: inside a session they are the server's.",
        code="session_mismatch",
        session=str(session.pk),
        **there,
    )


def _record_mismatch(
    caller: Caller,
    session: Session,
    wrong: list[str],
    named: dict[str, object],
    tool: CatalogTool | None,
) -> None:
    """On record by itself, for nothing else is written of such a request.

    A call of a tool that the true state does not allow is counted as what it is, whichever state
    it named: had it named none, the gate would have counted it.
    """
    for field in wrong:
        metrics.session_mismatches.labels(field).inc()
    metrics.denials.labels("session_mismatch").inc()
    if tool is not None and not matches_state(tool.definition.states, session.state):
        metrics.invalid_transitions.labels(tool.name).inc()
    record(
        Event.SESSION_MISMATCH,
        by=actor_of(caller),
        outcome=Outcome.DENIED,
        subject=str(session.pk),
        reason="session_mismatch",
        details={
            "tool": tool.name if tool else None,
            "fields": wrong,
            "named": named,
            "session": {"group": session.groups, "state": session.state},
        },
    )


def _record_refusal(caller: Caller, session: Session, code: str, *, subject: str) -> None:
    metrics.denials.labels(code).inc()
    record(
        Event.TOOL_DENY if subject else Event.LIST_DENY,
        by=actor_of(caller),
        outcome=Outcome.DENIED,
        subject=subject,
        reason=code,
        details={"session": str(session.pk)},
    )


def _refusal(code: str, message: str) -> Result:
    return Result(Status.PERMISSION_DENIED, error_code=code, error_message=message)


def _take(session_id: UUID, state: str) -> None:
    """Hold the session's row, or raise: it is not waited for, since its holder may wait for us."""
    held = (
        Session.objects.select_for_update(no_key=True, skip_locked=True)
        .filter(pk=session_id, state=state, closed_at__isnull=True)
        .first()
    )
    if held is None or open_execution(session_id) is not None:
        raise Overtaken("Another call of this session was faster. Read the session, then call.")


def _move(execution: Execution, tool: CatalogTool, snapshot: Snapshot, actor: Actor) -> None:
    """A tool that leads where the workflow is already leaves no transition: nothing was entered."""
    before, after = state_before(execution), tool.definition.raw["state"]
    if after is None or after == before:
        return
    if execution.session_id is not None:
        _enter_state(execution.session_id, before, after, snapshot)
    StateTransition.objects.create(
        organization_id=execution.organization_id,
        session_id=execution.session_id,
        execution=execution,
        tool_name=tool.name,
        from_state=before,
        to_state=after,
    )
    record(
        Event.STATE_TRANSITION,
        by=actor,
        outcome=Outcome.CHANGED,
        subject=tool.name,
        digest=tool.digest,
        execution_id=execution.pk,
        details={
            "session": str(execution.session_id) if execution.session_id else None,
            "from": before,
            "to": after,
        },
    )
    counted = metrics.state_transitions.labels(tool.name, after)
    transaction.on_commit(counted.inc)


def _enter_state(session_id: UUID, before: str, after: str, snapshot: Snapshot) -> None:
    """Raises `LookupError` when the session is not where the execution saw it: that cannot be."""
    session = Session.objects.select_for_update(no_key=True).filter(pk=session_id, state=before)
    left = session.first()
    if left is None:
        raise LookupError("a session was moved under a call that was not over")
    Session.objects.filter(pk=session_id).update(state=after, entered_at=Now())
    spent_s = max(0.0, (timezone.now() - left.entered_at).total_seconds())
    counted = metrics.workflow_duration.labels(state_label(before, snapshot))
    transaction.on_commit(lambda: counted.observe(spent_s))
