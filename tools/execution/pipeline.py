"""The one road. Every door leads here: `admit` writes the row, `perform` runs it.

Who performs is not the performer's business: any process that wins the claim may.
"""

import logging
import os
import socket
import threading
import time
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from audit.actions import record
from audit.events import Event, Outcome
from config.logs import about_execution
from tools import metrics
from tools.definitions.callers import Caller
from tools.definitions.results import EventType, Status
from tools.errors import InvalidCall, NotFound, Refused
from tools.execution import bell, cache, events
from tools.execution.acceptance import ACCEPTANCE, accept
from tools.execution.admission import ADMISSION
from tools.execution.call import Call
from tools.execution.context import Admission, Performance, Result
from tools.execution.performance import CLAIM, RUN, claim, finish
from tools.execution.rows import write_row
from tools.models import Execution
from tools.policy import fallbacks, requests
from tools.policy.callers import actor_of
from tools.policy.decision import Asked
from tools.policy.licensing import tier_now

log = logging.getLogger(__name__)
__all__ = ["ACCEPTANCE", "ADMISSION", "CLAIM", "RUN", "admit", "perform"]


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
    except Refused as refusal:
        refusal.details |= fallbacks.offered(admission.question, refusal.code)
        _record_refusal(admission, refusal)
        _tell(admission)
        raise
    if execution.over:
        _tell(admission, execution)
    return execution


def perform(execution_id: UUID) -> list[UUID]:
    """Run an accepted execution, unless somebody else does or did.

    The executions that waited for its answer and can go on now.
    """
    with about_execution(str(execution_id)):
        performance = claim(execution_id, worker_name())
        if performance is not None:
            _run(performance)
            _tell_end(performance)
        bell.ring(execution_id)
        return cache.waiting_for(performance) if performance is not None else []


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


def _run(performance: Performance) -> None:
    try:
        for step in RUN:
            step(performance)
    except Exception:  # the worker's outermost edge: a fault of ours must still end the row
        log.exception("an execution met a fault of ours")
        performance.result = Result(
            Status.FAILED,
            error_code="INTERNAL_ERROR",
            error_message="Toolcrib could not finish this call. Its operators have a record of it.",
        )
        finish(performance)


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
    requests.note(
        admission.caller,
        admission.asked,
        admission.snapshot,
        kind="execute",
        session_id=execution.session_id,
        execution_id=execution.pk,
    )
    record(
        Event.TOOL_INVALID if invalid else Event.TOOL_DENY,
        by=actor_of(admission.caller),
        outcome=Outcome.DENIED,
        subject=admission.resolved.name,
        digest=admission.resolved.digest,
        reason=refusal.code,
        execution_id=execution.pk,
        payload={"parameters": admission.call.parameters},
        details={
            "gate": refusal.details.get("gate"),
            "requested_groups": admission.requested_groups,
            "session": admission.call.session,
            "granted_groups": sorted(admission.caller.granted_groups),
            "state": admission.asked.state,
            "license_tier": tier_now(admission.snapshot).name,
        },
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
        details={"requested_groups": admission.call.group},
    )
    metrics.denials.labels(absence.code).inc()
