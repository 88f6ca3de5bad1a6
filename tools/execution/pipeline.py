"""The one road. Every door leads here: `admit` writes the row, `perform` runs it.

Who performs is not the performer's business: any process that wins the claim may.
"""

import logging
import os
import socket
import threading
import time
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from audit.actions import record
from audit.events import Event, Outcome
from audit.models import AuditRecord
from config import ladder
from config.database import GONE, replace_dead_connections
from config.logs import about_execution
from tools import metrics
from tools.definitions.callers import Caller
from tools.definitions.results import FINAL, EventType, Status
from tools.definitions.vocabulary import Delivery
from tools.errors import InvalidCall, NotFound, Refused, Shed
from tools.execution import bell, cache, events, stumbling
from tools.execution.acceptance import ACCEPTANCE, accept
from tools.execution.admission import ADMISSION
from tools.execution.call import Call
from tools.execution.claiming import Turn, freed_by, turns
from tools.execution.context import Admission, Performance, Result
from tools.execution.performance import CLAIM, RUN, claim, finish
from tools.execution.returning import LEASE_LOST, effect_of, give_back
from tools.execution.rows import write_row
from tools.models import Execution
from tools.policy import fallbacks, pressure, requests
from tools.policy.callers import actor_of
from tools.policy.decision import Asked
from tools.policy.licensing import tier_now

log = logging.getLogger(__name__)
_AGAIN_S = 0.3  # between two tries to write a result
__all__ = ["ACCEPTANCE", "ADMISSION", "CLAIM", "RUN", "admit", "perform", "perform_next"]


def admit(caller: Caller, call: Call) -> Execution:
    """Ask every gate; the row of the accepted call. Raises `Refused` once the refusal is on record.

    Raises `NotFound` for a tool that is not there, and `Malformed` for what cannot be a call.
    """
    admission = Admission(caller, call)
    try:
        for step in ADMISSION:
            step(admission)
        execution = accept(admission)
    except NotFound as absence:
        _record_absence(admission, absence)
        raise
    except Shed as refusal:
        pressure.HERE.turn_away(caller, admission.resolved.name, refusal)
        raise
    except Refused as refusal:
        refusal.details |= fallbacks.offered(admission.question, refusal.code)
        _record_refusal(admission, refusal)
        _tell(admission)
        raise
    finally:
        pressure.HERE.leave(admission.arrival, written=admission.execution is not None)
    if execution.over:
        _tell(admission, execution)
    return execution


def perform(execution_id: UUID) -> list[UUID]:
    """Run an accepted execution, unless somebody else does or did.

    The executions that waited for its answer, or for its room, and can go on now.
    """
    performance = _attempt(Turn(execution_id))
    return _freed(performance) if performance else []


def perform_next(hinted: UUID) -> list[UUID]:
    """Run the execution a hint named or, where there is a backlog, the one whose turn it is.

    Who can go on now, as with `perform`.
    """
    attempts = (_attempt(turn) for turn in turns(hinted))
    performance = next(filter(None, attempts), None)
    return _freed(performance) if performance else []


def _attempt(turn: Turn) -> Performance | None:
    """What became of it, where we had it in hand."""
    with about_execution(str(turn.execution_id)):
        performance = _claim(turn)
        if performance is not None and _perform(performance):
            _tell_end(performance)
            bell.ring(turn.execution_id)
        return performance


def _freed(performance: Performance) -> list[UUID]:
    return [*cache.waiting_for(performance), *freed_by(performance.execution)]


def _claim(turn: Turn) -> Performance | None:
    """Raises what says that the database is away; any other fault is counted, and not for ever."""
    asked_at = time.monotonic()
    try:
        performance = claim(turn.execution_id, worker_name(), turn.younger_than)
    except GONE:
        raise
    except Exception as fault:  # the worker's outermost edge
        log.exception("an execution could not be begun")
        stumbling.count(turn.execution_id, fault)
        return None
    if performance is not None:
        performance.claimed_at = asked_at
    return performance


def _tell(admission: Admission, execution: Execution | None = None) -> None:
    """The line of a call that was over as soon as it was asked for."""
    duration_ms = (time.perf_counter() - admission.began) * 1000
    requests.tell(
        admission.caller,
        admission.asked,
        admission.snapshot,
        duration_ms=duration_ms,
        transitions=_transitions(execution) if execution else (),
    )


def _tell_end(performance: Performance) -> None:
    execution, result = performance.execution, performance.result
    asked = Asked.of(execution.requested_groups, execution.state)
    if result is not None and result.status == Status.SUCCESS:
        execution.state_after = performance.definition.raw["state"] or execution.state
    requests.tell(
        performance.caller,
        asked,
        performance.snapshot,
        duration_ms=(time.perf_counter() - performance.began) * 1000,
        transitions=_transitions(execution),
    )


def _transitions(execution: Execution) -> list[dict[str, str]]:
    if execution.state_after in ("", execution.state):
        return []
    return [
        {
            "tool": execution.tool_name,
            "from": execution.state,
            "to": execution.state_after,
            "timestamp": timezone.now().isoformat(),
        }
    ]


def worker_name() -> str:
    return f"{socket.gethostname()[:60]}:{os.getpid()}:{threading.get_ident() % 100_000}"


def _perform(performance: Performance) -> bool:
    """True when its end was written; not when it was given back, or is the reaper's."""
    if _too_late(performance):
        return False
    try:
        for step in RUN:
            if not performance.returned:
                step(performance)
    except GONE as error:
        log.warning("the database went away: %s", type(error).__name__)
        return _in_hand(performance) and _finish_later(performance)
    except Exception:  # the worker's outermost edge: a fault of ours must still end the row
        log.exception("an execution met a fault of ours")
        performance.result = _fault(performance)
        finish(performance)
    return not performance.returned


def _in_hand(performance: Performance) -> bool:
    """Whether a result is known that outlives its transaction; a transactional one does not."""
    transactional = performance.definition.raw["delivery"] == Delivery.TRANSACTIONAL
    return performance.result is not None and not performance.returned and not transactional


def _too_late(performance: Performance) -> bool:
    """A claim that took so long that a run could not live on its lease is given back unbegun."""
    if time.monotonic() - performance.claimed_at < ladder.fence_s(settings.EXECUTION_LEASE_S):
        return False
    return give_back(performance, reason=LEASE_LOST, begun=False)


def _fault(performance: Performance) -> Result:
    delivery = performance.definition.raw["delivery"]
    return Result(
        Status.FAILED,
        error_code="INTERNAL_ERROR",
        error_message="Toolcrib could not finish this call. Its operators have a record of it.",
        error_details=effect_of(performance.execution, delivery, begun=True),
    )


def _finish_later(performance: Performance) -> bool:
    """A result in hand outlives its database's absence, as long as its lease may be good.

    The commit that failed may have arrived: it is looked for before anything is written again.
    """
    until = time.monotonic() + settings.EXECUTION_LEASE_S
    while time.monotonic() < until:
        time.sleep(_AGAIN_S)
        try:
            replace_dead_connections()
            if not _ended_already(performance):
                finish(performance)
        except GONE as error:
            log.warning("the result is kept in hand: %s", type(error).__name__)
        else:
            return True
    return False


def _ended_already(performance: Performance) -> bool:
    execution = performance.execution
    ours = Execution.objects.filter(
        pk=execution.pk, fence=execution.fence, worker=performance.worker
    )
    ended = AuditRecord.objects.filter(execution_id=execution.pk, code=Event.TOOL_END)
    return ours.filter(status__in=FINAL).exists() and ended.exists()


@transaction.atomic
def _record_refusal(admission: Admission, refusal: Refused) -> None:
    """The refused call as a row and as evidence, in a transaction of their own."""
    invalid = isinstance(refusal, InvalidCall)
    execution = write_row(
        admission,
        Status(refusal.status),
        completed_at=timezone.now(),
        error_code=refusal.code,
        error_message=refusal.message,
        error_details=refusal.details,
    )
    events.append(execution.pk, EventType.FAILED, refusal.message)
    record(
        Event.TOOL_INVALID if invalid else Event.TOOL_DENY,
        by=actor_of(admission.caller),
        outcome=Outcome.DENIED,
        subject=admission.resolved.name,
        digest=admission.resolved.digest,
        reason=refusal.code,
        execution_id=execution.pk,
        payload={"parameters": admission.call.parameters},
        sensitive=admission.resolved.definition.sensitive,
        details={
            "gate": refusal.details.get("gate"),
            "requested_groups": admission.requested_groups,
            "session": admission.call.session,
            "granted_groups": sorted(admission.caller.granted_groups),
            "state": admission.asked.state,
            "license_tier": tier_now(admission.snapshot).name,
        },
    )
    # After the evidence, as in `accept`: both may wait for who writes the first of their kind.
    requests.note(
        admission.caller,
        admission.asked,
        admission.snapshot,
        kind="execute",
        session_id=execution.session_id,
        execution_id=execution.pk,
    )
    metrics.denials.labels(refusal.code).inc()
    if refusal.code == "tool_not_in_state":
        metrics.invalid_transitions.labels(admission.resolved.name).inc()
    refusal.details |= {"status": refusal.status, "execution_id": str(execution.pk)}


@transaction.atomic
def _record_absence(admission: Admission, absence: NotFound) -> None:
    record(
        Event.TOOL_DENY,
        by=actor_of(admission.caller),
        outcome=Outcome.DENIED,
        subject=admission.call.tool_name,
        reason=absence.code,
        payload={"parameters": admission.call.parameters},
        details={
            "requested_groups": admission.call.group,
            "granted_groups": sorted(admission.caller.granted_groups),
            "state": admission.call.state,
        },
    )
    metrics.denials.labels(absence.code).inc()
