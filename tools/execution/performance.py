"""Performance: a claimed execution is run and its result recorded.

Read `PERFORMANCE` from left to right and you have read the second half of the road. The steps share
a `Performance`; the first that decides the result sets it, and `finish` always writes it down.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import timedelta
from decimal import Decimal
from functools import partial
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from audit.actions import record, writing_evidence
from audit.events import Event
from audit.events import Outcome as Evidence
from audit.inserts import InsertRow
from config.logs import request_id
from tools import metrics
from tools.accounts.callers import caller_of_execution
from tools.authorization import pins
from tools.authorization.facts import ClaimFacts, authorize_call, question_of
from tools.authorization.known_names import group_label
from tools.catalog.registry import catalog_tool
from tools.catalog.signatures.version_signatures import ALTERED
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.results import EventType, Status
from tools.definitions.vocabulary import SIGNATURE_INVALID, Delivery
from tools.errors import Malformed, Refused
from tools.execution import (
    bell,
    cache,
    cancelling,
    composites,
    composition,
    confirmations,
    events,
    outputs,
    references,
    sessions,
)
from tools.execution.capacity import NoPlace, Seat
from tools.execution.chain_boundary import COMMITTED, end_of
from tools.execution.context import Performance, Result
from tools.execution.evidence import is_authentic, start_evidence
from tools.execution.outputs import Parcel
from tools.execution.returning import EFFECT, record_late
from tools.execution.running import run, settle_output
from tools.execution.transforms import observation_of
from tools.limits import budgets
from tools.models import Execution
from tools.models.execution_queryset import EFFECT_POSSIBLE, Ending
from tools.policy import gates
from tools.policy.gates import Stage
from tools.policy.questions import EffectiveRequest, Gate

SKIPPED = {
    Gate.NESTING: "The depth of a call does not change after it was accepted.",
    Gate.LOAD: "The call has waited for its turn already.",
    Gate.FAN_OUT: "The call is among those that are counted.",
    Gate.RATE: "The call was counted when it was accepted.",
    Gate.ARGUMENTS: "Parameters and version are those that were accepted: see `_same_version`.",
    Gate.BUDGET: "What the call may use was reserved when it was accepted.",
    Gate.CONFIRMATION: "`confirmations.spend` asks it, with the approval that was given.",
}


def ask_again(performance: Performance) -> None:
    """Every gate once more, at the moment of use: what was allowed may have been revoked."""
    execution = performance.execution
    try:
        _ask_gates(performance, performance.tool, Stage.ARRIVAL)
        cancelling.check_parent(execution)
        tool = _same_version(performance)
        later = [stage for stage in Stage if stage != Stage.ARRIVAL]
        _ask_gates(performance, tool, *later)
    except (Refused, Malformed) as refusal:
        performance.result = Result(
            Status.PERMISSION_DENIED, error_code=refusal.code, error_message=refusal.message
        )


def _ask_gates(performance: Performance, tool: CatalogTool, *stages: Stage) -> None:
    execution = performance.execution
    question = question_of(
        performance.caller,
        tool,
        EffectiveRequest.from_options(execution.requested_groups, execution.state),
        performance.snapshot,
        at_entry_point=execution.options.get("at_its_door") is True,
        facts=ClaimFacts(execution),
    )
    authorize_call(question, gates.select(*stages, skip=SKIPPED))


def _same_version(performance: Performance) -> CatalogTool:
    """What runs is the version that was admitted; one that was replaced meanwhile does not run."""
    execution = performance.execution
    tool = performance.snapshot.tool(execution.tool_name)
    if tool is not None and execution.parked_below is not None and tool.id == performance.tool.id:
        return tool  # what has begun goes on as it was, as long as the tool may be called
    if tool is None or tool.version_id != execution.tool_version_id:
        raise Refused(
            "The tool was changed or removed before the call began. Call it again.",
            code="tool_changed",
            gate="version",
        )
    return tool


def check_signature(performance: Performance) -> None:
    """Once more where it runs: what this process remembers is held against its signature."""
    tool = performance.tool
    if performance.result is None and not is_authentic(tool, performance.snapshot):
        performance.result = Result(
            Status.PERMISSION_DENIED,
            error_code=SIGNATURE_INVALID,
            error_message=tool.flaw or ALTERED,
        )


def record_start(performance: Performance) -> None:
    """No record, no run: this stands in the claim's transaction."""
    execution = performance.execution
    if performance.result is not None or execution.parked_below is not None:
        return
    evidence = start_evidence(performance)
    events.append(execution.pk, EventType.STARTED, evidence=evidence)


def compose(performance: Performance) -> None:
    """One turn of a composite call; `finish` writes its end, if it has come."""
    if performance.definition.composite:
        composition.take_turn(performance, composites.kind_of(performance.definition))


def finish(performance: Performance) -> None:
    """The result, its event and its END record, together and only for the holder of the fence."""
    if performance.returned:
        return
    if performance.result is None:
        raise LookupError("no step decided the result")
    _write_down(performance, performance.result)


def _write_down(performance: Performance, result: Result) -> None:
    _own_up(performance, result)
    _tell_boundary(performance, result)
    if _ended(performance, result):
        return
    with transaction.atomic():
        if _seen_once_more(performance, result):
            return
        record_late(performance, result.status, network=result.network)
        if result.status == Status.SUCCESS:  # it may be ours still, and cancelled meanwhile
            performance.result = _discarded(performance)
            _ended(performance, performance.result)


def _ended(performance: Performance, result: Result) -> bool:
    """False when the fence was lost, or the success of a cancelled call came too late.

    The end and its evidence are one statement; most calls need no other, and so no transaction.
    """
    execution, success = performance.execution, result.status == Status.SUCCESS
    parcel = (result.parcel or outputs.packed(result.output)) if success else outputs.NOTHING
    ending = _ending(performance, result, parcel)
    evidence = _end_evidence(performance, result, parcel)
    alone = not parcel.content and not _settles_more(performance)
    with nullcontext() if alone else transaction.atomic():
        with writing_evidence():
            at = Execution.objects.finish(execution.pk, execution.fence, ending, evidence)
        if at is None:
            return False
        outputs.put_away(execution.organization_id, parcel)
        for step in SETTLEMENT:
            step(performance, result)
    ending.apply(execution, at)
    _count_end(performance, result)
    return True


def _settles_more(performance: Performance) -> bool:
    """Whether a step of `SETTLEMENT` may change a row."""
    moves = performance.definition.raw["state"] is not None
    return performance.execution.reserved or moves or bool(performance.leads)


def _own_up(performance: Performance, result: Result) -> None:
    """However this attempt ended: an earlier one may have had its effect, and nobody saw it."""
    if performance.execution.effect_possible and result.status != Status.SUCCESS:
        result.error_details = result.error_details | EFFECT_POSSIBLE
        if EFFECT not in result.error_message:
            result.error_message = f"{result.error_message} {EFFECT}".lstrip()


def _seen_once_more(performance: Performance, result: Result) -> bool:
    """Of a composite call that can undo what it did: in a turn, for it was cancelled meanwhile."""
    if not performance.definition.composite:
        return False
    return composition.sees_its_end(performance, composites.kind_of(performance.definition), result)


def _tell_boundary(performance: Performance, result: Result) -> None:
    """Of a chain that no turn of its own ends: it was refused midway, or met a fault of ours."""
    if result.status != Status.SUCCESS and COMMITTED not in result.error_details:
        told = end_of(performance.execution, performance.definition.raw)
        result.error_details = result.error_details | told


def _discarded(performance: Performance) -> Result:
    """Of a call that succeeded after it was cancelled: what it gave back reaches nobody."""
    pure = performance.definition.raw["delivery"] == Delivery.PURE
    return Result(
        Status.CANCELLED,
        error_code="CANCELLED",
        error_message="The call was cancelled while it ran; its result came too late.",
        error_details={} if pure else dict(EFFECT_POSSIBLE),
        metrics=performance.result.metrics if performance.result else {},
    )


def settle_budget(performance: Performance, result: Result) -> None:
    """A run that succeeded or may have had its effect is paid for; one that was refused is not."""
    if not performance.execution.reserved:
        return
    if _refused(performance, result):
        budgets.release(performance.execution.pk)
    else:
        budgets.settle(performance.execution.pk, spent=_spent(performance, result))


def _refused(performance: Performance, result: Result) -> bool:
    """Before anything of it could have had an effect."""
    refused = result.status == Status.PERMISSION_DENIED
    return refused and not performance.execution.effect_possible


def _spent(performance: Performance, result: Result) -> Decimal:
    return performance.execution.cost if result.cost is None else result.cost


def _ending(performance: Performance, result: Result, parcel: Parcel) -> Ending:
    return Ending(
        status=result.status,
        output=parcel.output,
        output_digest=parcel.digest,
        output_type=parcel.type,
        observation=_observation(performance, result),
        error_code=result.error_code,
        error_message=result.error_message,
        error_details=result.error_details,
        duration_ms=_duration_ms(performance),
        output_bytes=parcel.size,
        sandbox_id=result.sandbox_id,
        metrics=result.metrics | {"queue_ms": _queue_ms(performance.execution)},
        cost=Decimal(0) if _refused(performance, result) else _spent(performance, result),
        cached_from=result.cached_from,
        state_after=_state_after(performance, result),
        memory=performance.execution.memory,  # of calls that its last turn could not make, too
        warnings=result.warnings,
    )


def _duration_ms(performance: Performance) -> float:
    """Of a composite call since its first turn, with all that it waited for."""
    started = performance.execution.started_at
    if performance.execution.composite and started is not None:
        return round((timezone.now() - started).total_seconds() * 1000, 3)
    return round((time.perf_counter() - performance.began) * 1000, 3)


def _observation(performance: Performance, result: Result) -> str:
    if result.status != Status.SUCCESS:
        return ""
    if result.observation is not None:  # of an answer that was given before
        return result.observation
    definition, execution = performance.definition, performance.execution
    return observation_of(result.output, definition, execution.pk, result.upstream_text)


def _state_after(performance: Performance, result: Result) -> str:
    """Only success moves the state (Tool groups specification, 4.2)."""
    state = sessions.state_before(performance.execution)
    if result.status != Status.SUCCESS:
        return state
    return performance.definition.raw["state"] or state


def _end_evidence(performance: Performance, result: Result, parcel: Parcel) -> list[InsertRow]:
    rows: list[InsertRow] = []
    execution = performance.execution
    refused = result.status == Status.PERMISSION_DENIED
    success = result.status == Status.SUCCESS
    record(
        Event.TOOL_DENY if refused else Event.TOOL_END,
        by=performance.actor,
        outcome=Evidence.DENIED if refused else Evidence.SUCCESS if success else Evidence.FAILURE,
        subject=execution.tool_name,
        digest=performance.tool.digest,
        reason=result.error_code,
        execution_id=execution.pk,
        payload={"output": result.output} if success and not result.parcel else None,
        sensitive=performance.definition.sensitive,
        details={
            "status": result.status,
            **({"cached_from": str(result.cached_from)} if result.cached_from else {}),
            "output_bytes": parcel.size,
            **({"output_digest": parcel.digest} if parcel.digest else {}),
            "cost": str(_spent(performance, result)),
            "session": str(execution.session_id) if execution.session_id else None,
            "state_before": execution.state,
            "state_after": _state_after(performance, result),
            "fence": execution.fence,
            **({} if success else _effect(result)),
            "resources": result.metrics,
            **({"network": result.network} if result.network else {}),
        },
        into=rows,
    )
    return rows


def _count_end(performance: Performance, result: Result) -> None:
    execution = performance.execution
    metrics.executions.labels(execution.tool_name, result.status).inc()
    metrics.execution_seconds.labels(execution.tool_name).observe(
        time.perf_counter() - performance.began
    )
    for group in _group_labels(performance):
        metrics.group_executions.labels(group, result.status).inc()
        metrics.group_seconds.labels(group).observe(time.perf_counter() - performance.began)
    metrics.queue_seconds.observe(_queue_ms(execution) / 1000)


def _effect(result: Result) -> dict[str, bool]:
    return EFFECT_POSSIBLE if result.error_details.get("effect_possible") else {}


def _group_labels(performance: Performance) -> set[str]:
    asked = EffectiveRequest.from_options(
        performance.execution.requested_groups, performance.execution.state
    )
    return {group_label(name, performance.snapshot) for name in asked.groups}


def _queue_ms(execution: Execution) -> float:
    # What comes on in turns is queued anew after each; it waited for a worker before the first.
    queued = execution.created_at if execution.composite else execution.queued_at
    started = execution.started_at or queued
    return round((started - queued).total_seconds() * 1000, 3)


def _admitted(execution: Execution, snapshot: Snapshot) -> CatalogTool:
    """The version that was admitted: the catalog's, or, when that was replaced, its own row."""
    tool = snapshot.tool(execution.tool_name)
    if tool is not None and tool.version_id == execution.tool_version_id:
        return tool
    version = execution.tool_version
    return catalog_tool(version.tool, version, snapshot.organization, snapshot.keys)


def claim(
    execution_id: UUID,
    worker: str,
    younger_than: timedelta | None = None,
    seat: Seat | None = None,
) -> Performance | None:
    """Take the execution, ask every gate again and record the start, in one transaction.

    It may have ended there: it was refused now, or its answer is in the cache; it has its result
    then. None when another worker has it, or when it is over. Also while another execution works
    its answer out, or its organization has no seat: the claim is undone then, and the row waits on.
    """
    with suppress(cache.Parked, NoPlace), transaction.atomic():
        return _claimed(execution_id, worker, younger_than, seat)
    return None


def _claimed(
    execution_id: UUID, worker: str, younger_than: timedelta | None, seat: Seat | None
) -> Performance | None:
    execution = Execution.objects.claim(
        execution_id,
        worker=worker,
        lease_s=settings.EXECUTION_LEASE_S,
        younger_than=younger_than,
        full=seat.full if seat else (),
    )
    if execution is None:
        return None
    if seat:
        seat.take(execution.organization_id)
    request_id.set(execution.request_id)
    caller = caller_of_execution(execution)
    snapshot = pins.snapshot_for(caller, execution.session_id)
    tool = _admitted(execution, snapshot)
    performance = Performance(execution, tool, caller, snapshot, worker)
    for step in CLAIM:
        step(performance)
    if performance.result is not None:
        finish(performance)
    said = bell.announce if performance.result is None else bell.ring
    transaction.on_commit(partial(said, execution_id))
    return performance


Step = Callable[[Performance], None]
CLAIM: tuple[Step, ...] = (
    ask_again,
    sessions.ask_again,
    references.ask_again,
    check_signature,
    confirmations.spend,
    cache.at_claim,
    record_start,
)
RUN: tuple[Step, ...] = (compose, run, settle_output, finish)
PERFORMANCE: tuple[Step, ...] = CLAIM + RUN
Settling = Callable[[Performance, Result], None]
# In the transaction that writes the result, for the holder of the fence alone.
SETTLEMENT: tuple[Settling, ...] = (settle_budget, sessions.move, cache.keep)
