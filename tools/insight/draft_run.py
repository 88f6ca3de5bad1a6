"""A test run of a definition that is not saved: behind the same gates and the same wall as the tool
that it would be, with no row of its own.

A run that would need a person's consent, or that something else holds back, is refused. That it was
a draft stands in its evidence, with all that was run.
"""

import threading
import time
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from audit.actions import Actor, record
from audit.events import Event, Outcome
from sandbox.spec import IsolationLevel
from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import require
from tools.authorization.facts import IN_TRANSACTION, question_of
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.catalog.tool_proposals import propose_tool
from tools.definitions.callers import Caller
from tools.definitions.results import Status
from tools.definitions.texts.names import WILDCARD
from tools.definitions.tool import definition_digest
from tools.definitions.values import strict_json
from tools.definitions.vocabulary import ToolType
from tools.errors import InvalidCall, Malformed, Refused
from tools.execution.call import Result
from tools.execution.run import apply_definition, count_outcome, result_of
from tools.limits import load_shedder
from tools.limits.answers import DRAFT
from tools.models import Organization, Tool
from tools.policy import gates, isolation_levels
from tools.policy.gates import Stage
from tools.policy.questions import (
    DEFAULT_STATE,
    CallTerms,
    EffectiveRequest,
    Gate,
    Question,
    Verdict,
)
from tools.runners.tool_runs import ToolRun
from tools.runners.tool_types import RUNNERS

LONGEST_S = 20.0  # a page waits for it
SKIPPED = {
    Gate.NESTING: "A person makes the run at a page: it is within no other call.",
    Gate.FAN_OUT: "A tool of type code makes no calls of its own.",
    Gate.GRANTED_GROUPS: "The groups of the request are those that the person was granted.",
}


@dataclass(frozen=True)
class DraftRun:
    """How a test run ended. What it wrote is for who wrote it, and is not kept."""

    result: Result
    stdout: str
    stderr: str
    level: IsolationLevel
    timeout_s: float
    duration_ms: float


def run_draft(
    *,
    caller: Caller,
    organization: Organization,
    tool: Tool | None,
    definition: dict[str, Any],
    parameters: dict[str, Any],
    snapshot: Snapshot,
) -> DraftRun:
    """Run a draft of a `code` tool once. Raises what saving it would raise, and `Refused`."""
    require(caller, "change_tool" if tool else "add_tool")
    by = actor_of(caller)
    draft, catalog = propose_tool(
        organization=organization, tool=tool, definition=definition, snapshot=snapshot, by=by
    )
    terms = CallTerms(limits=DRAFT, parameters=parameters)
    question = question_of(
        caller, draft, _request_of(caller, draft), catalog, call=terms, facts=IN_TRANSACTION
    )
    try:
        with load_shedder.hold_room(caller):
            _admit(question)
            return _performed(draft, parameters, catalog, by)
    except Refused as refusal:
        _record(draft, by, Outcome.DENIED, parameters, {}, reason=refusal.code)
        raise


def _request_of(caller: Caller, draft: CatalogTool) -> EffectiveRequest:
    """All that the person was granted, in a state in which the tool is offered."""
    states = draft.definition.states
    open_at_once = WILDCARD in states or DEFAULT_STATE in states
    state = DEFAULT_STATE if open_at_once else min(states, default=DEFAULT_STATE)
    return EffectiveRequest(frozenset(caller.granted_groups), state)


def _admit(question: Question) -> None:
    """Asks every gate that admission asks, in the same order."""
    if question.tool.definition.type != ToolType.CODE:
        raise Refused("Only tools of the type code are tested before they are saved.",
                      code="draft_not_code", gate="draft")  # fmt: skip
    later = (Stage.ARGUMENTS, Stage.BUDGET, Stage.APPROVAL)
    _ask_gates(question, *(stage for stage in Stage if stage not in later))
    try:
        strict_json.check(question.terms.parameters)
    except strict_json.BadJson as error:
        raise Malformed(f"The parameters cannot be used: {error}.") from None
    _ask_gates(question, *later)


def _ask_gates(question: Question, *stages: Stage) -> None:
    for verdict in gates.decide(question, gates.select(*stages, skip=SKIPPED)):
        if not verdict.passed:
            raise _refusal_of(verdict, question)


def _refusal_of(verdict: Verdict, question: Question) -> Exception:
    """In the words for a draft, which no person is asked about."""
    refusal = gates.refusal_of(verdict, question)
    if verdict.requirement is not None:
        return Refused(
            "A call of this tool waits until a person agreed, and nobody is asked about a draft."
            " Save it and call it.",
            code="draft_needs_confirmation",
            gate=Gate.CONFIRMATION.value,
        )
    if verdict.gate == Gate.ARGUMENTS and isinstance(refusal, InvalidCall):
        text = "The parameters do not fit the draft; see details.errors."
        return InvalidCall(text, **refusal.details)
    return refusal


def _performed(
    draft: CatalogTool, parameters: dict[str, Any], snapshot: Snapshot, by: Actor
) -> DraftRun:
    level = isolation_levels.effective_level(draft, snapshot)
    timeout_s = min(draft.definition.timeout_s, LONGEST_S)
    about = {"isolation": level, "timeout_s": timeout_s}
    _record(draft, by, Outcome.STARTED, parameters, about)
    run = ToolRun(
        organization=by.organization,
        definition=draft.definition,
        parameters=parameters,
        timeout_s=timeout_s,
        stop=threading.Event(),
        level=level,
        snapshot=snapshot,
        caller=by.name,
        caller_kind=by.kind,
        caller_id=by.id,
    )
    if not connection.in_atomic_block:
        connection.close()  # a thread that waits holds no connection
    began = time.perf_counter()
    outcome = RUNNERS[ToolType.CODE].run(run)
    duration_ms = round((time.perf_counter() - began) * 1000, 3)
    count_outcome(outcome)
    result = result_of(outcome)
    if result.status == Status.SUCCESS:
        apply_definition(draft, result)
    _record_end(draft, by, result, about | {"duration_ms": duration_ms})
    return DraftRun(result, outcome.stdout, outcome.stderr, level, timeout_s, duration_ms)


def _record_end(draft: CatalogTool, by: Actor, result: Result, about: dict[str, Any]) -> None:
    success = result.status == Status.SUCCESS
    more = {"status": result.status, "resources": result.metrics, "network": result.network}
    _record(
        draft,
        by,
        Outcome.SUCCESS if success else Outcome.FAILURE,
        None,
        about | more,
        reason=result.error_code,
    )


@transaction.atomic
def _record(
    draft: CatalogTool,
    by: Actor,
    outcome: Outcome,
    parameters: dict[str, Any] | None,
    about: dict[str, Any],
    *,
    reason: str = "",
) -> None:
    """No record, no run. What was run stands in it whole, for no version keeps it."""
    definition = draft.definition.raw
    evidence = {"parameters": parameters, "definition": definition}
    record(
        Event.TOOL_DRAFT,
        by=by,
        outcome=outcome,
        subject=draft.name,
        digest=definition_digest(definition),
        reason=reason,
        payload=None if parameters is None else evidence,
        sensitive=draft.definition.sensitive,
        details={"draft": True, **about},
    )
