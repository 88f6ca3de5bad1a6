"""Performance: a claimed execution is run and its result recorded.

Read `PERFORMANCE` from left to right and you have read the second half of the road. The steps share
a `Performance`; the first that decides the result sets it, and `finish` always writes it down.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from audit.actions import record
from audit.events import Event
from audit.events import Outcome as Evidence
from config.logs import request_id
from sandbox.egress.denials import Code
from sandbox.egress.policy import Attempt
from sandbox.errors import ErrorCode
from sandbox.spec import Outcome, SandboxResult
from tools import metrics
from tools.catalog import versions
from tools.catalog.registry import CatalogTool, Snapshot, catalog_tool, registry
from tools.definitions import strict_json
from tools.definitions.results import EventType, Status
from tools.errors import Malformed, Refused
from tools.execution import cache, confirmations, events, leases, sessions
from tools.execution.context import Performance, Result
from tools.execution.transforms import observation_of, size_of
from tools.models import Execution
from tools.models.execution import Ending
from tools.policy import authorization, budgets
from tools.policy.callers import caller_of_execution
from tools.policy.decision import Asked, Question
from tools.policy.labels import group_label
from tools.runners.base import Run
from tools.runners.registry import RUNNERS

log = logging.getLogger(__name__)
_STATUS = {
    Outcome.SUCCESS: Status.SUCCESS,
    Outcome.FAILED: Status.FAILED,
    Outcome.TIMEOUT: Status.TIMEOUT,
    Outcome.CANCELLED: Status.CANCELLED,
    Outcome.SANDBOX_ERROR: Status.SANDBOX_ERROR,
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


def ask_again(performance: Performance) -> None:
    """Every gate once more, at the moment of use: what was allowed may have been revoked."""
    execution, caller = performance.execution, performance.caller
    snapshot = performance.snapshot
    try:
        authorization.check_standing(caller)
        tool = _same_version(performance)
        asked = Asked.of(execution.requested_groups, execution.state)
        authorization.check_groups(caller, asked, snapshot)
        authorization.authorize(Question(caller, tool, asked, snapshot))
    except (Refused, Malformed) as refusal:
        performance.result = Result(
            Status.PERMISSION_DENIED, error_code=refusal.code, error_message=refusal.message
        )


def _same_version(performance: Performance) -> CatalogTool:
    """What runs is the version that was admitted; one that was replaced meanwhile does not run."""
    tool = performance.snapshot.tool(performance.execution.tool_name)
    if tool is None or tool.version_id != performance.execution.tool_version_id:
        raise Refused(
            "The tool was changed or removed before the call began. Call it again.",
            code="tool_changed",
            gate="version",
        )
    return tool


def check_signature(performance: Performance) -> None:
    tool = performance.tool
    if performance.result is None and not versions.authentic(
        organization=performance.caller.organization,
        name=performance.execution.tool_name,
        number=tool.number,
        label=tool.version,
        definition=tool.definition,
        version_digest=tool.digest,
        origin=tool.origin,
        signature=tool.signature,
        key_id=tool.key_id,
    ):
        performance.result = Result(
            Status.PERMISSION_DENIED,
            error_code="signature_invalid",
            error_message="The tool's stored definition is not the one that was signed.",
        )


def record_start(performance: Performance) -> None:
    """No record, no run: this stands in the claim's transaction."""
    execution = performance.execution
    if performance.result is not None:
        return
    events.append(execution.pk, EventType.STARTED)
    record(
        Event.TOOL_START,
        by=performance.actor,
        outcome=Evidence.STARTED,
        subject=execution.tool_name,
        digest=performance.tool.digest,
        execution_id=execution.pk,
        payload={"parameters": execution.parameters},
        details={
            "session": str(execution.session_id) if execution.session_id else None,
            "requested_groups": execution.requested_groups,
            "state": execution.state,
            "version": performance.tool.version,
            "isolation": performance.level,
            "sandbox_profile": performance.definition.sandbox_profile,
            "attempt": execution.attempt,
            "fence": execution.fence,
            "worker": performance.worker,
        },
    )


def run(performance: Performance) -> None:
    """Hand the run to its runner. No transaction and no database connection is held meanwhile."""
    execution = performance.execution
    connection.close()
    with leases.held(execution.pk, execution.fence) as lease:
        job = Run(
            organization=performance.caller.organization,
            definition=performance.definition,
            parameters=execution.parameters,
            timeout_s=execution.timeout_s,
            stop=lease.stop,
            level=performance.level,
            snapshot=performance.snapshot,
        )
        outcome = RUNNERS[performance.definition.type](job)
    _count(outcome)
    if outcome.outcome == Outcome.CANCELLED and not lease.cancelled:
        performance.result = _given_up(outcome)  # nobody asked: the lease could not be kept
    else:
        performance.result = _result_of(outcome)


def _given_up(outcome: SandboxResult) -> Result:
    return Result(
        Status.FAILED,
        error_code="OUTCOME_UNKNOWN",
        error_message="The call was stopped midway; whether its effect happened is not known.",
        network=_network(outcome),
    )


def _result_of(outcome: SandboxResult) -> Result:
    usage = outcome.usage
    return Result(
        _STATUS[outcome.outcome],
        output=outcome.output,
        error_code=_plain(outcome.error_code)[:60],
        error_message=_message(outcome),
        sandbox_id=outcome.sandbox_id,
        network=_network(outcome),
        metrics={
            "peak_memory_bytes": usage.peak_memory_bytes,
            "cpu_time_ms": round(usage.cpu_time_ms, 3),
            "filesystem_operations": usage.filesystem_operations,
            "network_requests": usage.network_requests,
            "sandbox_start_ms": round(usage.sandbox_start_ms, 3),
        },
    )


def _network(outcome: SandboxResult) -> list[dict[str, Any]]:
    """What the run asked of the egress broker, as evidence keeps it; refused requests too."""
    return [_attempt(one) for one in outcome.network[:_MOST_ATTEMPTS]]


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "door": _plain(attempt.door)[:20],
        "method": _plain(attempt.method)[:20],
        "host": _plain(attempt.host)[:255],
        "port": attempt.port,
        "address": _plain(attempt.address)[:45],
        "code": _plain(attempt.code)[:40],
        "status": attempt.status,
        "bytes_sent": attempt.bytes_sent,
        "bytes": attempt.bytes_sent + attempt.bytes_received,
    }


def _count(outcome: SandboxResult) -> None:
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
    if outcome.outcome == Outcome.SANDBOX_ERROR:
        log.error("the sandbox failed: %s %s", outcome.error_code, outcome.error_message)
        usual = "The sandbox could not run the tool. Its operators have a record of it."
        return _MESSAGES.get(outcome.error_code or "", usual)
    return _plain(outcome.error_message)


def _plain(text: str | None) -> str:
    """Without what the database or a reader could not take: NUL and lone surrogates."""
    return (text or "").replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def validate_output(performance: Performance) -> None:
    """Invalid output is never returned, not even next to the error (ruling 10)."""
    result, validator = performance.result, performance.tool.output_validator
    if result is None or result.status != Status.SUCCESS:
        return
    try:
        strict_json.check(result.output)
    except strict_json.BadJson as error:
        _reject(result, f"The tool returned something that cannot be passed on: {error}.")
        return
    flaws = validator.flaws(result.output) if validator else []
    if flaws:
        _reject(result, "The tool returned something its output schema does not allow.")
        result.error_details = {"places": sorted({flaw.place for flaw in flaws})}


def _reject(result: Result, message: str) -> None:
    result.status, result.output = Status.FAILED, None
    result.error_code, result.error_message = "OUTPUT_INVALID", message


def finish(performance: Performance) -> None:
    """The result, its event and its END record, together and only for the holder of the fence."""
    execution, result = performance.execution, performance.result
    if result is None:
        raise LookupError("no step decided the result")
    shown = result.status == Status.SUCCESS
    size = size_of(result.output) if shown else None
    with transaction.atomic():
        held = Execution.objects.finish(
            execution.pk, execution.fence, _ending(performance, result, size)
        )
        if held:
            for step in SETTLEMENT:
                step(performance, result)
            _record_end(performance, result, size)
        else:
            _record_late(performance, result)


def settle_budget(performance: Performance, result: Result) -> None:
    """A run that succeeded or may have had its effect is paid for; one that was refused is not."""
    if not performance.execution.reserved:
        return
    if result.status == Status.PERMISSION_DENIED:
        budgets.release(performance.execution.pk)
    else:
        budgets.settle(performance.execution.pk, spent=_spent(performance, result))


def _spent(performance: Performance, result: Result) -> Decimal:
    return performance.execution.cost if result.cost is None else result.cost


def _ending(performance: Performance, result: Result, size: int | None) -> Ending:
    shown = result.status == Status.SUCCESS
    refused = result.status == Status.PERMISSION_DENIED
    return Ending(
        status=result.status,
        output=result.output if shown else None,
        observation=observation_of(result.output) if shown else "",
        error_code=result.error_code,
        error_message=result.error_message,
        error_details=result.error_details,
        duration_ms=round((time.perf_counter() - performance.began) * 1000, 3),
        output_bytes=size,
        sandbox_id=result.sandbox_id,
        metrics=result.metrics | {"queue_ms": _queue_ms(performance.execution)},
        cost=Decimal(0) if refused else _spent(performance, result),
        cached_from=result.cached_from,
        state_after=_state_after(performance, result),
    )


def _state_after(performance: Performance, result: Result) -> str:
    """Only success moves the state (Tool groups specification, 4.2)."""
    state = performance.execution.state
    if result.status != Status.SUCCESS:
        return state
    return performance.definition.raw["state"] or state


def _record_end(performance: Performance, result: Result, size: int | None) -> None:
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
        payload={"output": result.output} if success else None,
        details={
            "status": result.status,
            **({"cached_from": str(result.cached_from)} if result.cached_from else {}),
            "output_bytes": size,
            "fence": execution.fence,
            "resources": result.metrics,
            **({"network": result.network} if result.network else {}),
        },
    )
    metrics.executions.labels(execution.tool_name, result.status).inc()
    metrics.execution_seconds.labels(execution.tool_name).observe(
        time.perf_counter() - performance.began
    )
    for group in _group_labels(performance):
        metrics.group_executions.labels(group, result.status).inc()
        metrics.group_seconds.labels(group).observe(time.perf_counter() - performance.began)
    metrics.queue_seconds.observe(_queue_ms(execution) / 1000)


def _group_labels(performance: Performance) -> set[str]:
    asked = Asked.of(performance.execution.requested_groups, performance.execution.state)
    return {group_label(name, performance.snapshot) for name in asked.groups}


def _record_late(performance: Performance, result: Result) -> None:
    execution = performance.execution
    log.warning("a result came after the execution was taken away")
    record(
        Event.TOOL_LATE,
        by=performance.actor,
        outcome=Evidence.FAILURE,
        subject=execution.tool_name,
        digest=performance.tool.digest,
        execution_id=execution.pk,
        details={
            "status": result.status,
            "fence": execution.fence,
            **({"network": result.network} if result.network else {}),
        },
    )


def _queue_ms(execution: Execution) -> float:
    started = execution.started_at or execution.queued_at
    return round((started - execution.queued_at).total_seconds() * 1000, 3)


def _admitted(execution: Execution, snapshot: Snapshot) -> CatalogTool:
    """The version that was admitted: the catalog's, or, when that was replaced, its own row."""
    tool = snapshot.tool(execution.tool_name)
    if tool is not None and tool.version_id == execution.tool_version_id:
        return tool
    return catalog_tool(execution.tool_version.tool, execution.tool_version)


def claim(execution_id: UUID, worker: str) -> Performance | None:
    """Take the execution, ask every gate again and record the start, in one transaction.

    None when another worker has it, or when it is over: refused now, for instance. Also while
    another execution works its answer out: the claim is undone then, and the row waits on.
    """
    with suppress(cache.Parked), transaction.atomic():
        return _claimed(execution_id, worker)
    return None


def _claimed(execution_id: UUID, worker: str) -> Performance | None:
    execution = Execution.objects.claim(
        execution_id, worker=worker, lease_s=settings.EXECUTION_LEASE_S
    )
    if execution is None:
        return None
    request_id.set(execution.request_id)
    caller = caller_of_execution(execution)
    snapshot = registry.snapshot(caller.organization_id, caller.revision)
    tool = _admitted(execution, snapshot)
    performance = Performance(execution, tool, caller, snapshot, worker)
    for step in CLAIM:
        step(performance)
    if performance.result is not None:
        finish(performance)
    return performance if performance.result is None else None


Step = Callable[[Performance], None]
CLAIM: tuple[Step, ...] = (
    ask_again,
    sessions.ask_again,
    check_signature,
    confirmations.spend,
    cache.at_claim,
    record_start,
)
RUN: tuple[Step, ...] = (run, validate_output, finish)
PERFORMANCE: tuple[Step, ...] = CLAIM + RUN
Settling = Callable[[Performance, Result], None]
# In the transaction that writes the result, for the holder of the fence alone.
SETTLEMENT: tuple[Settling, ...] = (settle_budget, sessions.move, cache.keep)
