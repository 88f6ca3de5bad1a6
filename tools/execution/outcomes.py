"""From what sandboxd says of a run to what its row and its evidence will say."""

import logging
from typing import Any

from sandbox.egress.rules.egress_policy import Code, EgressAttempt
from sandbox.errors import ErrorCode
from sandbox.spec import ResourceUsage, RunOutcome, SandboxResult
from tools import metrics
from tools.definitions.results import Status
from tools.execution.context import Result
from tools.runners.tool_runs import UpstreamResult

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
        error_code=_plain(outcome.error_code)[:60],
        error_message=_message(outcome),
        error_details=dict(upstream.details),
        upstream_text=upstream.observation,
        warnings=[*upstream.warnings],
        sandbox_id=outcome.sandbox_id,
        network=network(outcome),
        cost=upstream.cost,
        metrics={**spent(usage), **upstream.counts},
    )


def spent(usage: ResourceUsage) -> dict[str, Any]:
    """As an execution's metrics have it."""
    return {
        "peak_memory_bytes": usage.peak_memory_bytes,
        "cpu_time_ms": round(usage.cpu_time_ms, 3),
        "filesystem_operations": usage.filesystem_operations,
        "network_requests": usage.network_requests,
        "sandbox_start_ms": round(usage.sandbox_start_ms, 3),
    }


def network(outcome: SandboxResult) -> list[dict[str, Any]]:
    """What the run asked of the egress broker, as evidence keeps it; refused requests too."""
    return [_attempt(one) for one in outcome.network[:_MOST_ATTEMPTS]]


def _attempt(attempt: EgressAttempt) -> dict[str, Any]:
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


def count(outcome: SandboxResult) -> None:
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
    return _plain(outcome.error_message)


def _plain(text: str | None) -> str:
    """Without what the database or a reader could not take: NUL and lone surrogates."""
    return (text or "").replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
