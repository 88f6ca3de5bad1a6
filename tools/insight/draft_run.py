"""A test run of a definition that is not saved, through the same gates and in the same sandbox as a
saved tool, without an execution.

A run that would need an approval is refused. The audit record marks it as a draft, and has the
definition and the parameters.
"""

import threading
import time
from dataclasses import dataclass
from typing import Any

from django.db import transaction

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
from tools.execution.run import run_without_row
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

LONGEST_RUN_S = 20.0  # the user waits for it on a page
SKIPPED_GATES = {
    Gate.NESTING: "A person makes the run at a page: it is within no other call.",
    Gate.FAN_OUT: "A tool of type code makes no calls of its own.",
    Gate.GRANTED_GROUPS: "The groups of the request are those that the person was granted.",
}


@dataclass(frozen=True)
class DraftRun:
    """The end of a test run. Its stdout and stderr are for the author, and are not stored."""

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
    """Runs a draft of a `code` tool once. Raises the errors of saving it, and `Refused`."""
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
            return _perform_draft(draft, parameters, catalog, by)
    except Refused as refusal:
        _record(draft, by, Outcome.DENIED, parameters, {}, reason=refusal.code)
        raise


def _request_of(caller: Caller, draft: CatalogTool) -> EffectiveRequest:
    """All groups that the user was granted, in a state in which the tool is available."""
    states = draft.definition.states
    in_default_state = WILDCARD in states or DEFAULT_STATE in states
    state = DEFAULT_STATE if in_default_state else min(states, default=DEFAULT_STATE)
    return EffectiveRequest(frozenset(caller.granted_groups), state)


def _admit(question: Question) -> None:
    """Asks every gate that admission asks, in the same order."""
    if question.tool.definition.type != ToolType.CODE:
        raise Refused("Only tools of the type code are tested before they are saved.",
                      code="draft_not_code", gate="draft")  # fmt: skip
    last_stages = (Stage.ARGUMENTS, Stage.BUDGET, Stage.APPROVAL)
    _ask_gates(question, *(stage for stage in Stage if stage not in last_stages))
    try:
        strict_json.check(question.terms.parameters)
    except strict_json.BadJson as error:
        raise Malformed(f"The parameters cannot be used: {error}.") from None
    _ask_gates(question, *last_stages)


def _ask_gates(question: Question, *stages: Stage) -> None:
    for verdict in gates.decide(question, gates.select(*stages, skip=SKIPPED_GATES)):
        if not verdict.passed:
            raise _refusal_of(verdict, question)


def _refusal_of(verdict: Verdict, question: Question) -> Exception:
    """The refusal with the message for a draft, which cannot be approved."""
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


def _perform_draft(
    draft: CatalogTool, parameters: dict[str, Any], snapshot: Snapshot, by: Actor
) -> DraftRun:
    level = isolation_levels.effective_level(draft, snapshot)
    timeout_s = min(draft.definition.timeout_s, LONGEST_RUN_S)
    details = {"isolation": level, "timeout_s": timeout_s}
    _record(draft, by, Outcome.STARTED, parameters, details)
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
    began = time.perf_counter()
    outcome, result = run_without_row(draft, run)
    duration_ms = round((time.perf_counter() - began) * 1000, 3)
    _record_end(draft, by, result, details | {"duration_ms": duration_ms})
    return DraftRun(result, outcome.stdout, outcome.stderr, level, timeout_s, duration_ms)


def _record_end(draft: CatalogTool, by: Actor, result: Result, details: dict[str, Any]) -> None:
    success = result.status == Status.SUCCESS
    end = {"status": result.status, "resources": result.metrics, "network": result.network}
    _record(
        draft,
        by,
        Outcome.SUCCESS if success else Outcome.FAILURE,
        None,
        details | end,
        reason=result.error_code,
    )


@transaction.atomic
def _record(
    draft: CatalogTool,
    by: Actor,
    outcome: Outcome,
    parameters: dict[str, Any] | None,
    details: dict[str, Any],
    *,
    reason: str = "",
) -> None:
    """Written before the run, with the definition, which no version stores."""
    definition = draft.definition.raw
    payload = {"parameters": parameters, "definition": definition}
    record(
        Event.TOOL_DRAFT,
        by=by,
        outcome=outcome,
        subject=draft.name,
        digest=definition_digest(definition),
        reason=reason,
        payload=None if parameters is None else payload,
        sensitive=draft.definition.sensitive,
        details={"draft": True, **details},
    )
