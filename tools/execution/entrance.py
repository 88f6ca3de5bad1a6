"""The entrance of the road: `admit` asks every gate and writes the row of a call.

Doors come in by `pipeline`; a composite call that makes calls of its own comes here as well.
"""

import time

from django.db import transaction
from django.utils import timezone

from audit.actions import record
from audit.events import Event, Outcome
from audit.inserts import InsertRow
from tools import metrics
from tools.accounts.callers import actor_of
from tools.authorization import request_records
from tools.authorization.listings import describe_alternatives
from tools.catalog.tiers import tier_now
from tools.definitions.callers import Caller
from tools.definitions.results import EventType, Status
from tools.errors import InvalidCall, NotFound, Refused, Shed
from tools.execution import events
from tools.execution.acceptance import accept
from tools.execution.admission import ADMISSION
from tools.execution.call import Call
from tools.execution.context import Admission
from tools.execution.rows import build_row, write_rows
from tools.limits import load_shedder
from tools.models import Execution


def admit(caller: Caller, call: Call) -> Execution:
    """Ask every gate; the row of the accepted call. Raises `Refused` once the refusal is on record.

    Raises `NotFound` for a tool that is not there, and `Malformed` for what cannot be a call.
    """
    return admit_waiting(caller, call, 0.0).accepted


def admit_waiting(caller: Caller, call: Call, wait_s: float) -> Admission:
    """The same of a caller who waits so long. Where this process is to perform the call, the
    admission has its performance, and the place that is to be closed after it."""
    admission = Admission(caller, call, wait_s=wait_s)
    try:
        for step in ADMISSION:
            step(admission)
        execution = accept(admission)
    except NotFound as absence:
        _record_absence(admission, absence)
        raise
    except Shed as refusal:
        load_shedder.LOAD_SHEDDER.count_rejection(caller, admission.resolved.name, refusal)
        raise
    except Refused as refusal:
        refusal.details |= describe_alternatives(admission.question, refusal.code)
        _record_refusal(admission, refusal)
        _tell(admission)
        raise
    finally:
        load_shedder.LOAD_SHEDDER.leave(
            admission.limits.arrival, written=admission.execution is not None
        )
    if execution.is_final:
        _tell(admission, execution)
    return admission


def _tell(admission: Admission, execution: Execution | None = None) -> None:
    """The line of a call that was over as soon as it was asked for."""
    duration_ms = (time.perf_counter() - admission.began) * 1000
    request_records.log_request(
        admission.caller,
        admission.asked,
        admission.snapshot,
        duration_ms=duration_ms,
        transitions=transitions_of(execution) if execution else (),
    )


def transitions_of(execution: Execution) -> list[dict[str, str]]:
    """For the line of a call that was over."""
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


def _record_refusal(admission: Admission, refusal: Refused) -> None:
    """The refused call as a row and as evidence, by one statement."""
    invalid = isinstance(refusal, InvalidCall)
    belonging: list[InsertRow] = []
    execution = build_row(
        admission,
        Status(refusal.status),
        completed_at=timezone.now(),
        error_code=refusal.code,
        error_message=refusal.message,
        error_details=refusal.details,
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
        sensitive=admission.resolved.definition.sensitive,
        details={
            "gate": refusal.details.get("gate"),
            "requested_groups": admission.requested_groups,
            "session": admission.call.session,
            "granted_groups": sorted(admission.caller.granted_groups),
            "state": admission.asked.state,
            **execution.parentage,
            **execution.retried,
            "license_tier": tier_now(admission.snapshot).name,
        },
        into=belonging,
    )
    belonging += [
        events.first_of(execution.pk, EventType.FAILED, refusal.message),
        # After the evidence, as in `accept`: both may wait for who writes the first of their kind.
        request_records.build_record(
            admission.caller,
            admission.asked,
            admission.snapshot,
            kind="execute",
            session_id=execution.session_id,
            execution_id=execution.pk,
        ),
    ]
    write_rows(execution, *belonging)
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
