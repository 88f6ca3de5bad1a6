"""Sessions: workflows whose state, groups and history are on the server (ruling 5).

At most one call of a session is open, so only that call can change the state. A cache hit ends when
it is accepted; it locks the session's row only for that moment.
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
from tools.execution.call import Admission, Call, Performance, Result, read_facts
from tools.models import Execution, OpenExecution, Session, StateTransition
from tools.policy.availability import matches_state
from tools.policy.questions import EffectiveRequest

SESSION_CLOSED = "The session is closed. Open a new one with POST /api/v1/sessions."
SESSION_CHANGED = (
    "The session came into another state before the call began. Read it, then call again."
)


class SessionBusy(Conflict):
    """Another call of the session is open, or was faster."""

    code = "session_busy"


def enter_session(admission: Admission) -> None:
    """Applies the session's groups and state to the call.

    Raises `NotFound` if the session is not the caller's, `Conflict` if it is closed, busy, or
    differs from the groups or the state of the call.
    """
    caller, call, facts = admission.caller, admission.call, admission.facts
    session = facts.session
    if session is None:
        raise NotFound("There is no such session among yours.", code="session_not_found")
    _check_open(caller, session, subject=admission.resolved.name)
    _check_group_and_state(caller, session, call.group, call.state, tool=admission.resolved)
    if not admission.resolved.definition.composite and facts.open_execution is not None:
        raise SessionBusy("Another call of this session is not over yet.")
    admission.session = session
    admission.asked = EffectiveRequest.from_options(session.groups, session.state)


def session_request(
    caller: Caller, identifier: str, group: list[str] | None, state: str | None
) -> EffectiveRequest:
    """The groups and the state of a listing in a session. Raises as `enter`, but not if busy."""
    session = find_own_session(caller, identifier)
    _check_open(caller, session)
    _check_group_and_state(caller, session, group, state)
    return EffectiveRequest.from_options(session.groups, session.state)


def find_own_session(caller: Caller, identifier: str) -> Session:
    """The caller's session with this id. Raises `NotFound` for any other."""
    facts = read_facts(caller, session=identifier)
    if facts.session is None:
        raise NotFound("There is no such session among yours.", code="session_not_found")
    return facts.session


def find_open_execution(session_id: UUID) -> UUID | None:
    """The open call of a session. A composite call does not count, but its own calls do."""
    rows = OpenExecution.objects.filter(session=session_id)
    return rows.values_list("execution", flat=True).first()


def busy_refusal(caller: Caller, call: Call) -> Conflict:
    """The refusal of a call while another one is open. Records the refusal."""
    session = find_own_session(caller, call.session or "")
    other = find_open_execution(session.pk)
    _record_refusal(caller, session, SessionBusy.code, subject=call.tool_name)
    return SessionBusy(
        "Another call of this session is not over yet. Wait for it, or cancel it.",
        session=str(session.pk),
        open_execution=str(other) if other else None,
    )


def check_session(performance: Performance) -> None:
    """Checks at the claim that the session is still what the call was asked in, as it was read with
    the row. While a call is open no other moves its session; one that closes now closes after it.

    Its groups were checked against the grants by the gates, as the execution's groups.
    """
    execution = performance.execution
    if performance.result is not None or execution.session_id is None:
        return
    state, closed = execution.session_state, execution.session_closed
    if state is None:  # the row was read by itself, for an approval
        session = Session.objects.get(pk=execution.session_id)
        state, closed = session.state, session.closed_at is not None
    if closed:
        performance.result = _refusal("session_closed", SESSION_CLOSED)
    elif state != execution.state and not execution.composite:
        performance.result = _refusal("session_changed", SESSION_CHANGED)


def state_before(execution: Execution) -> str:
    """The state before a call; for a composite one in a session, the state after its calls."""
    if execution.composite and execution.session_id is not None:
        return Session.objects.values_list("state", flat=True).get(pk=execution.session_id)
    return execution.state


def move_state(performance: Performance, result: Result) -> None:
    """Changes the state after a success, in the transaction of the result (S1, 4.2)."""
    if result.status == Status.SUCCESS:
        _move_state(
            performance.execution, performance.tool, performance.snapshot, performance.actor
        )


def move_state_for_hit(admission: Admission, execution: Execution) -> None:
    """Changes the state after a cache hit, in the transaction that accepts the call.

    Raises `SessionBusy` if another call of the session is open or was faster.
    """
    if execution.session_id is not None:
        _lock_session(execution.session_id, execution.state)
    _move_state(execution, admission.resolved, admission.snapshot, actor_of(admission.caller))


def _check_open(caller: Caller, session: Session, *, subject: str = "") -> None:
    if session.closed_at is not None:
        _record_refusal(caller, session, "session_closed", subject=subject)
        raise Conflict(SESSION_CLOSED, code="session_closed", session=str(session.pk))


def _check_group_and_state(
    caller: Caller,
    session: Session,
    group: list[str] | None,
    state: str | None,
    *,
    tool: CatalogTool | None = None,
) -> None:
    """The group and the state that a client sends must be those of the session."""
    mismatches = []
    if group is not None and frozenset(group) != frozenset(session.groups):
        mismatches.append("group")
    if state is not None and state != session.state:
        mismatches.append("state")
    if not mismatches:
        return
    current = {"group": session.groups, "state": session.state}
    _record_mismatch(caller, session, mismatches, {"group": group, "state": state}, tool)
    raise Conflict(
        f"The request names another {' and another '.join(mismatches)} than its session has. "
        "Leave them out: inside a session they are the server's.",
        code="session_mismatch",
        session=str(session.pk),
        **current,
    )


def _record_mismatch(
    caller: Caller,
    session: Session,
    mismatches: list[str],
    sent: dict[str, object],
    tool: CatalogTool | None,
) -> None:
    """Records the refusal, since nothing else is written for such a request.

    A call of a tool that the session's state does not allow is counted as an invalid transition,
    as the gate would have done if the call had named no state.
    """
    for field in mismatches:
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
            "fields": mismatches,
            "named": sent,
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


def _lock_session(session_id: UUID, state: str) -> None:
    """Locks the session's row without waiting, since the other transaction may wait for us.

    Raises `SessionBusy`.
    """
    session = (
        Session.objects.select_for_update(no_key=True, skip_locked=True)
        .filter(pk=session_id, state=state, closed_at__isnull=True)
        .first()
    )
    if session is None or find_open_execution(session_id) is not None:
        raise SessionBusy("Another call of this session was faster. Read the session, then call.")


def _move_state(execution: Execution, tool: CatalogTool, snapshot: Snapshot, actor: Actor) -> None:
    """A tool whose state is the current one makes no transition."""
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
    counter = metrics.state_transitions.labels(tool.name, after)
    transaction.on_commit(counter.inc)


def _enter_state(session_id: UUID, before: str, after: str, snapshot: Snapshot) -> None:
    """Raises `LookupError` if the session has another state, which cannot happen."""
    rows = Session.objects.select_for_update(no_key=True).filter(pk=session_id, state=before)
    session = rows.first()
    if session is None:
        raise LookupError("the state of a session changed during its open call")
    Session.objects.filter(pk=session_id).update(state=after, entered_at=Now())
    spent_s = max(0.0, (timezone.now() - session.entered_at).total_seconds())
    histogram = metrics.workflow_duration.labels(state_label(before, snapshot))
    transaction.on_commit(lambda: histogram.observe(spent_s))
