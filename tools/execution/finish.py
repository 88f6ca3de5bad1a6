"""The end of an execution: its result, its END record and its event, for the holder of the fence.

`finish` writes whatever decided the result, by one statement; `SETTLEMENT` is what else changes
with it, in the same transaction.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.utils import timezone

from audit.actions import record, writing_evidence
from audit.events import Event, Outcome
from audit.inserts import InsertRow
from tools import metrics
from tools.authorization.known_names import group_label
from tools.definitions.results import Status
from tools.definitions.vocabulary import Delivery
from tools.execution import cache, call, outputs, sessions
from tools.execution.call import PackedOutput, Performance, Result
from tools.execution.outputs import observation_of
from tools.execution.requeue import EFFECT, record_late
from tools.limits import budgets
from tools.models import Execution
from tools.models.execution_queryset import EFFECT_POSSIBLE, Ending
from tools.models.pipeline_sql import REACHED, SETTLE_PARTS
from tools.policy.questions import EffectiveRequest


def finish(performance: Performance) -> None:
    """The result, its event and its END record, together and only for the holder of the fence."""
    performance.ended = False
    if performance.returned:
        return
    if performance.result is None:
        raise LookupError("no step decided the result")
    _write_end(performance, performance.result)


def _write_end(performance: Performance, result: Result) -> None:
    _mention_earlier_effect(performance, result)
    _add_boundary(performance, result)
    if _finished(performance, result):
        return
    with transaction.atomic():
        if _takes_another_turn(performance, result):
            return
        record_late(performance, result.status, network=result.network)
        if result.status == Status.SUCCESS:  # it may be ours still, and cancelled meanwhile
            performance.result = _discarded_result(performance)
            _finished(performance, performance.result)


def _finished(performance: Performance, result: Result) -> bool:
    """False when the fence was lost, or the success of a cancelled call came too late.

    The end, what it costs and its evidence are one statement; most calls need no other, and so no
    transaction.
    """
    execution, success = performance.execution, result.status == Status.SUCCESS
    packed = outputs.NO_OUTPUT
    if success:
        packed = result.packed_output or outputs.pack_output(result.output)
    ending = _ending(performance, result, packed)
    evidence = _end_evidence(performance, result, packed)
    alone = not packed.content and not _settles_more(performance)
    with nullcontext() if alone else transaction.atomic():
        with writing_evidence():
            ended = Execution.objects.finish(
                execution.pk,
                execution.fence,
                ending,
                evidence,
                started=performance.started,
                **_settlement(performance, result),
            )
        if ended is None:
            return False
        outputs.store_output(execution.organization_id, packed)
        for step in SETTLEMENT:
            step(performance, result)
    ending.apply(execution, ended[0])
    performance.ended = True
    if execution.reserved:
        budgets.record_alerts((ended[1], ended[2]))
    _count_end(performance, result)
    return True


def _settlement(performance: Performance, result: Result) -> dict[str, Any]:
    """What the statement adds where a call reserved something: a run that succeeded or may have had
    its effect is paid for; one that was refused is not."""
    if not performance.execution.reserved:
        return {}
    spent = None if _was_refused(performance, result) else _final_cost(performance, result)
    return {
        "settlement": SETTLE_PARTS,
        "reached": REACHED,
        "parameters": budgets.settled_parameters(spent),
    }


def _settles_more(performance: Performance) -> bool:
    """Whether a step of `SETTLEMENT` may change a row."""
    return performance.definition.raw["state"] is not None or bool(performance.leads)


def _mention_earlier_effect(performance: Performance, result: Result) -> None:
    """However this attempt ended: an earlier one may have had its effect unseen."""
    if performance.execution.effect_possible and result.status != Status.SUCCESS:
        result.error_details = result.error_details | EFFECT_POSSIBLE
        if EFFECT not in result.error_message:
            result.error_message = f"{result.error_message} {EFFECT}".lstrip()


def _takes_another_turn(performance: Performance, result: Result) -> bool:
    """Of a composite call that can undo what it did: in a turn, for it was cancelled meanwhile."""
    if not performance.definition.composite:
        return False
    return call.composer().sees_its_end(performance, result)


def _add_boundary(performance: Performance, result: Result) -> None:
    """Of a chain that no turn of its own ends: it was refused midway, or met a fault of ours."""
    if result.status != Status.SUCCESS and call.COMMITTED not in result.error_details:
        boundary = call.composer().boundary(performance.execution, performance.definition.raw)
        result.error_details = result.error_details | boundary


def _discarded_result(performance: Performance) -> Result:
    """Of a call that succeeded after it was cancelled: its output is not given to anyone."""
    pure = performance.definition.raw["delivery"] == Delivery.PURE
    return Result(
        Status.CANCELLED,
        error_code="CANCELLED",
        error_message="The call was cancelled while it ran; its result came too late.",
        error_details={} if pure else dict(EFFECT_POSSIBLE),
        metrics=performance.result.metrics if performance.result else {},
    )


def _was_refused(performance: Performance, result: Result) -> bool:
    """Before anything of it could have had an effect."""
    refused = result.status == Status.PERMISSION_DENIED
    return refused and not performance.execution.effect_possible


def _final_cost(performance: Performance, result: Result) -> Decimal:
    return performance.execution.cost if result.cost is None else result.cost


def _ending(performance: Performance, result: Result, packed: PackedOutput) -> Ending:
    return Ending(
        status=result.status,
        output=packed.output,
        output_digest=packed.digest,
        output_type=packed.type,
        observation=_observation(performance, result),
        error_code=result.error_code,
        error_message=result.error_message,
        error_details=result.error_details,
        duration_ms=_duration_ms(performance),
        output_bytes=packed.size,
        sandbox_id=result.sandbox_id,
        metrics=result.metrics | {"queue_ms": _queue_ms(performance.execution)},
        cost=Decimal(0) if _was_refused(performance, result) else _final_cost(performance, result),
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


def _end_evidence(
    performance: Performance, result: Result, packed: PackedOutput
) -> list[InsertRow]:
    rows: list[InsertRow] = []
    execution = performance.execution
    refused = result.status == Status.PERMISSION_DENIED
    success = result.status == Status.SUCCESS
    record(
        Event.TOOL_DENY if refused else Event.TOOL_END,
        by=performance.actor,
        outcome=Outcome.DENIED if refused else Outcome.SUCCESS if success else Outcome.FAILURE,
        subject=execution.tool_name,
        digest=performance.tool.digest,
        reason=result.error_code,
        execution_id=execution.pk,
        payload={"output": result.output} if success and not result.packed_output else None,
        sensitive=performance.definition.sensitive,
        details={
            "status": result.status,
            **({"cached_from": str(result.cached_from)} if result.cached_from else {}),
            "output_bytes": packed.size,
            **({"output_digest": packed.digest} if packed.digest else {}),
            "cost": str(_final_cost(performance, result)),
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
    # What comes on in turns is queued again after each; it waited for a worker before the first.
    queued = execution.created_at if execution.composite else execution.queued_at
    started = execution.started_at or queued
    return round((started - queued).total_seconds() * 1000, 3)


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


Settling = Callable[[Performance, Result], None]
# In the transaction that writes the result, for the holder of the fence alone.
SETTLEMENT: tuple[Settling, ...] = (sessions.move_state, cache.store_answer)
