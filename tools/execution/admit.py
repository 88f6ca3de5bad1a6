"""Admission: may this call be made? Every step does one thing or raises.

Read `ADMISSION` from left to right: it is the first half of the pipeline (specification S3, 3;
ruling 9), and `ACCEPTANCE` goes on from there. The steps walk `gates.GATES` by its stages, and read
in between what the next stage needs. Nothing is written here but the count of the rate limit, and
the record of a refusal.
"""

import time
from collections.abc import Callable

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
from tools.definitions.results import Status
from tools.definitions.values import strict_json
from tools.errors import InvalidCall, Malformed, NotFound, Refused, Shed
from tools.execution import outputs, sessions
from tools.execution.accept import accept, ask_gates, build_row, write_rows
from tools.execution.call import Admission, Call, CallFacts, read_facts
from tools.execution.finish import transitions_of
from tools.licensing.license_coverage import license_warnings
from tools.limits import load_shedder
from tools.models import Execution
from tools.policy.gates import Stage


def resolve(admission: Admission) -> None:
    admission.tool = admission.snapshot.tool(admission.call.tool_name)
    if admission.tool is None:
        raise NotFound(
            f"There is no tool {admission.call.tool_name[:128]!r}. GET /api/v1/tools lists yours.",
            code="tool_not_found",
        )


def arrive(admission: Admission) -> None:
    """Load is shed before anything is asked of the database."""
    ask_gates(admission, Stage.ARRIVAL)


def enter_session(admission: Admission) -> None:
    """Inside a session the server's groups and state are asked about (ruling 5)."""
    if admission.call.session is not None:
        sessions.enter_session(admission)


def authorize(admission: Admission) -> None:
    """Groups and state, as specification S1 has them; never more than was granted."""
    request_records.count_request(admission.asked, admission.snapshot)
    ask_gates(admission, Stage.REQUEST, Stage.ACCESS)
    admission.warnings += license_warnings(admission.snapshot)


def limit_rate(admission: Admission) -> None:
    ask_gates(admission, Stage.RATE)


def check_json(admission: Admission) -> None:
    """Parameters that came by another way than our JSON parser meet the same bounds."""
    try:
        strict_json.check(admission.call.parameters)
    except strict_json.BadJson as error:
        raise Malformed(f"The parameters cannot be used: {error}.") from None


def validate_arguments(admission: Admission) -> None:
    ask_gates(admission, Stage.ARGUMENTS)


Step = Callable[[Admission], None]
ADMISSION: tuple[Step, ...] = (
    resolve,
    arrive,
    enter_session,
    authorize,
    limit_rate,
    check_json,
    outputs.resolve_references,
    validate_arguments,
)


def admit(caller: Caller, call: Call) -> Execution:
    """Ask every gate; the row of the accepted call. Raises `Refused` once the refusal is on record.

    Raises `NotFound` for a tool that is not there, and `Malformed` for what cannot be a call.
    """
    return admit_waiting(caller, call, 0.0, read_facts(caller, session=call.session)).accepted


def admit_waiting(caller: Caller, call: Call, wait_s: float, facts: CallFacts) -> Admission:
    """The same for a caller who waits so long, with the facts that were read. Where this process
    is to perform the call, the admission has its performance, and the place that is to be closed
    after it."""
    admission = Admission(caller, call, facts, wait_s=wait_s)
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
        _log_request(admission)
        raise
    finally:
        load_shedder.LOAD_SHEDDER.leave(
            admission.limits.arrival, written=admission.execution is not None
        )
    if execution.is_final:
        _log_request(admission, execution)
    return admission


def _log_request(admission: Admission, execution: Execution | None = None) -> None:
    """The line of a call that was over as soon as it was asked for."""
    duration_ms = (time.perf_counter() - admission.began) * 1000
    request_records.log_request(
        admission.caller,
        admission.asked,
        admission.snapshot,
        duration_ms=duration_ms,
        transitions=transitions_of(execution) if execution else (),
    )


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
