"""The run itself: handed to its runner, stopped or lost.

A run that was lost goes back to the queue where its delivery allows that (ruling 16).
"""

import json
import logging
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import connection

from config import timeouts
from sandbox.client import Until
from sandbox.egress.rules.egress_policy import Code, EgressAttempt
from sandbox.errors import NEVER_RAN, ErrorCode
from sandbox.spec import ResourceUsage, RunOutcome, SandboxResult
from tools import metrics
from tools.catalog.snapshot import CatalogTool
from tools.definitions.results import Status
from tools.definitions.tool import ToolDefinition
from tools.definitions.transforms import CannotSelect, Transform
from tools.definitions.values import strict_json
from tools.definitions.vocabulary import ToolType
from tools.execution import events, leases, outputs, requeue
from tools.execution.call import Performance, Result
from tools.models.execution_queryset import EFFECT_POSSIBLE
from tools.runners.tool_runs import ToolRun, UpstreamResult, discard_text
from tools.runners.tool_types import RUNNERS

log = logging.getLogger(__name__)
_STATUS = {
    RunOutcome.SUCCESS: Status.SUCCESS,
    RunOutcome.FAILED: Status.FAILED,
    RunOutcome.TIMEOUT: Status.TIMEOUT,
    RunOutcome.CANCELLED: Status.CANCELLED,
    RunOutcome.SANDBOX_ERROR: Status.SANDBOX_ERROR,
}
_MOST_ATTEMPTS = 50  # of a run's requests are written down; all are counted
_OUR_CODES = frozenset(ErrorCode)
_REFUSALS = frozenset(Code)
_MESSAGES: dict[str, str] = {
    ErrorCode.ISOLATION_UNAVAILABLE: "This installation cannot give the isolation the tool needs. "
    "An administrator finds the reason with manage.py sandbox_doctor.",
    ErrorCode.EGRESS_UNAVAILABLE: "The network could not be made ready for the tool; it was not "
    "run. Its operators have a record of it.",
}


def result_of(outcome: SandboxResult) -> Result:
    usage = outcome.usage
    upstream = outcome if isinstance(outcome, UpstreamResult) else UpstreamResult(outcome.outcome)
    return Result(
        _STATUS[outcome.outcome],
        output=outcome.output,
        error_code=_encodable(outcome.error_code)[:60],
        error_message=_message(outcome),
        error_details=dict(upstream.details),
        upstream_text=upstream.observation,
        warnings=[*upstream.warnings],
        sandbox_id=outcome.sandbox_id,
        network=network_evidence(outcome),
        cost=upstream.cost,
        metrics={**usage_metrics(usage), **upstream.counts},
    )


def usage_metrics(usage: ResourceUsage) -> dict[str, Any]:
    """As an execution's metrics have it."""
    return {
        "peak_memory_bytes": usage.peak_memory_bytes,
        "cpu_time_ms": round(usage.cpu_time_ms, 3),
        "filesystem_operations": usage.filesystem_operations,
        "network_requests": usage.network_requests,
        "sandbox_start_ms": round(usage.sandbox_start_ms, 3),
    }


def network_evidence(outcome: SandboxResult) -> list[dict[str, Any]]:
    """What the run asked of the egress broker, as evidence keeps it; refused requests too."""
    return [_attempt_evidence(one) for one in outcome.network[:_MOST_ATTEMPTS]]


def _attempt_evidence(attempt: EgressAttempt) -> dict[str, Any]:
    return {
        "door": _encodable(attempt.door)[:20],
        "method": _encodable(attempt.method)[:20],
        "host": _encodable(attempt.host)[:255],
        "port": attempt.port,
        "address": _encodable(attempt.address)[:45],
        "code": _encodable(attempt.code)[:40],
        "status": attempt.status,
        "bytes_sent": attempt.bytes_sent,
        "bytes": attempt.bytes_sent + attempt.bytes_received,
    }


def count_outcome(outcome: SandboxResult) -> None:
    """Labels are words of our own; a tool's own error code is counted under `tool`."""
    code = outcome.error_code or "OK"
    ours = code == "OK" or code in _OUR_CODES
    metrics.sandbox_ends.labels(code if ours else "tool").inc()
    for attempt in outcome.network:
        word = attempt.code if attempt.code in _REFUSALS else "other"
        metrics.egress_attempts.labels(word.lower() if attempt.code else "allowed").inc()
    beyond = (outcome.usage.network_requests or 0) - len(outcome.network)
    if beyond > 0:
        metrics.egress_attempts.labels("not_described").inc(beyond)


def _message(outcome: SandboxResult) -> str:
    """What a tool says of its error is for the caller; what sandboxd says is for operators."""
    if outcome.outcome == RunOutcome.SANDBOX_ERROR:
        log.error("the sandbox failed: %s %s", outcome.error_code, outcome.error_message)
        usual = "The sandbox could not run the tool. Its operators have a record of it."
        return _MESSAGES.get(outcome.error_code or "", usual)
    return _encodable(outcome.error_message)


def _encodable(text: str | None) -> str:
    """Without what the database or a reader could not take: NUL and lone surrogates."""
    return (text or "").replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


_UNKNOWN = "The call was stopped midway; whether its effect happened is not known."
_TOO_OFTEN = "The call was lost {} times. Call again, or ask an administrator."
_OUTPUT_INVALID = "OUTPUT_INVALID"
_ANSWER = "answer"  # in `error_details`: what an upstream gave, and could not be used
_MOST_ANSWER = 4_000  # characters of it
_UPSTREAM = frozenset({ToolType.MCP, ToolType.HTTP})
# Ends that the tool did not choose: it had come to its own end, or somewhere on the way to it.
_NOT_ITS_OWN_WORD = frozenset(
    {
        _OUTPUT_INVALID,
        ErrorCode.OUTPUT_LIMIT,
        ErrorCode.INVALID_RESULT,
        ErrorCode.EXITED,
        ErrorCode.CPU_LIMIT,
        ErrorCode.MEMORY_LIMIT,
        ErrorCode.PROCESS_LIMIT,
        ErrorCode.DISK_LIMIT,
        ErrorCode.QUOTA_LIMIT,
        ErrorCode.OPERATIONS_LIMIT,
    }
)


def run(performance: Performance) -> None:
    """Hand the run to its runner. No transaction and no database connection is held meanwhile."""
    execution, runner = performance.execution, RUNNERS[performance.definition.type]
    if performance.definition.composite:
        return  # it has had its turn
    connection.close()
    with leases.hold_lease(execution.pk, execution.fence, since=performance.claimed_at) as lease:
        tell = events.ProgressWriter(execution.pk)
        outcome = runner.run(
            _tool_run(performance, lease.stop, lambda: _stop_deadline(lease), tell)
        )
        tell.flush()
    count_outcome(outcome)
    if outcome.error_code == ErrorCode.LOST:
        _give_back(performance, outcome, requeue.SANDBOX_LOST)
    elif outcome.outcome == RunOutcome.CANCELLED and not lease.cancelled:  # it was not requested
        _give_back(performance, outcome, lease.reason or requeue.LEASE_LOST)
    else:
        performance.result = _stopped_result(performance, outcome) or result_of(outcome)


def _tool_run(
    performance: Performance,
    stop: threading.Event,
    until: Until | None = None,
    tell: Callable[[str], None] = discard_text,
) -> ToolRun:
    execution = performance.execution
    return ToolRun(
        organization=performance.caller.organization,
        definition=performance.definition,
        parameters=execution.parameters,
        timeout_s=execution.timeout_s,
        stop=stop,
        level=performance.level,
        snapshot=performance.snapshot,
        until=until,
        execution_id=execution.pk,
        attempt=execution.attempt,
        caller=performance.actor.name,
        caller_kind=performance.actor.kind,
        caller_id=performance.actor.id,
        tell=tell,
    )


def _stop_deadline(lease: leases.Lease) -> float:
    """When nothing of the run may be left, if the lease is not renewed again: before it expires."""
    return lease.renewed_at + timeouts.lease_fence_s(settings.EXECUTION_LEASE_S)


def _give_back(performance: Performance, outcome: SandboxResult, reason: str) -> None:
    """The run is gone and how far it came is unknown: the call is queued again where allowed."""
    begun, counts = outcome.error_code not in NEVER_RAN, reason != requeue.HANDED_BACK
    if requeue.give_back(performance, reason=reason, counts=counts, begun=begun):
        return
    delivery = performance.definition.raw["delivery"]
    if begun and delivery not in requeue.REPEATABLE:
        code, message = "OUTCOME_UNKNOWN", _UNKNOWN
    else:
        code, message = "WORKER_LOST", _TOO_OFTEN.format(performance.execution.attempt)
    performance.result = Result(
        Status.FAILED,
        error_code=code,
        error_message=message,
        error_details=requeue.effect_of(performance.execution, delivery, begun=begun),
        network=network_evidence(outcome),
    )


def _stopped_result(performance: Performance, outcome: SandboxResult) -> Result | None:
    """The result of a run that was stopped; it says so where an effect may have come first."""
    if outcome.outcome not in {RunOutcome.CANCELLED, RunOutcome.TIMEOUT}:
        return None
    result = result_of(outcome)
    if outcome.error_code in NEVER_RAN:
        result.error_code = requeue.CANCELLED
        result.cost = None if performance.execution.effect_possible else Decimal(0)
    elif performance.definition.raw["delivery"] in requeue.OUTSIDE:
        _mention_effect(result)
    return result


def run_without_row(tool: CatalogTool, run: ToolRun) -> tuple[SandboxResult, Result]:
    """A run that no execution stands for, with what its definition makes of the output."""
    if not connection.in_atomic_block:
        connection.close()  # a waiting thread must not hold a connection
    outcome = RUNNERS[tool.definition.type].run(run)
    count_outcome(outcome)
    result = result_of(outcome)
    if result.status == Status.SUCCESS:
        apply_definition(tool, result)
    return outcome, result


def apply_output_rules(performance: Performance) -> None:
    """What the tool's definition makes of its output, and of an end that the tool did not choose:
    where its effect may have come first, that is said. Of a composite call its calls say so.
    """
    result, definition = performance.result, performance.definition
    if result is None:
        return
    if result.status == Status.SUCCESS and not result.settled:
        apply_definition(performance.tool, result)
    outside = definition.raw["delivery"] in requeue.OUTSIDE and not definition.composite
    if outside and (result.error_code in _NOT_ITS_OWN_WORD or _ANSWER in result.error_details):
        _mention_effect(result)


def _mention_effect(result: Result) -> None:
    result.error_details = result.error_details | EFFECT_POSSIBLE
    result.error_message = f"{result.error_message.rstrip('.')}. {requeue.EFFECT}"


def apply_definition(tool: CatalogTool, result: Result) -> None:
    """What becomes of an output, once, also of a success that is not the performance's yet.

    Invalid output is never returned, not even next to the error (ruling 10). It is looked
    at first, for a transformation must not meet what JSON cannot hold. The schema is of what is
    selected; what is redacted may fit it no more, and is right so.
    """
    transform, result.settled = tool.definition.transform, True
    try:
        strict_json.check(result.output)
        if _too_large(tool.definition, result.output):
            most = tool.definition.max_output_bytes
            _reject(result, f"It gave back more than {most} bytes.", ErrorCode.OUTPUT_LIMIT)
            return
        result.output = transform.select(result.output)
    except (strict_json.BadJson, CannotSelect) as error:
        _reject(result, f"The tool returned something that cannot be passed on: {error}.")
        return
    _validate(tool, result)
    if result.status == Status.SUCCESS:
        _redact(result, transform)


def _too_large(definition: ToolDefinition, output: object) -> bool:
    """Of a composite call: any other was held to the limit by its runner."""
    return definition.composite and outputs.size_of(output) > definition.max_output_bytes


def _redact(result: Result, transform: Transform) -> None:
    """What cannot be redacted is not given at all."""
    try:
        result.output = transform.redact(result.output)
    except CannotSelect as error:
        _reject(result, f"The tool returned something that cannot be redacted: {error}.")


def _validate(tool: CatalogTool, result: Result) -> None:
    validator = tool.output_validator
    flaws = validator.flaws(result.output) if validator else []
    if flaws:
        answer = _answer_of(tool.definition, result.output)
        _reject(result, "The tool returned something its output schema does not allow.")
        result.error_details = {"places": sorted({flaw.place for flaw in flaws}), **answer}


def _answer_of(definition: ToolDefinition, output: object) -> dict[str, str]:
    """What the upstream sent, as a text: the call was made, and may be one that must not be made
    again. It is no output (ruling 10): nothing can refer to it, no model reads it, no cache keeps
    it. It is left out where the definition redacts or selects."""
    if definition.type not in _UPSTREAM or definition.transform.narrows:
        return {}
    text = json.dumps(output, ensure_ascii=False)
    return {_ANSWER: text if len(text) <= _MOST_ANSWER else f"{text[:_MOST_ANSWER]}…"}


def _reject(result: Result, message: str, code: str = _OUTPUT_INVALID) -> None:
    result.status, result.output = Status.FAILED, None
    result.error_code, result.error_message = code, message
