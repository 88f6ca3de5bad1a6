"""Reads the workspace for a page: the program of `read_file`, in the same sandbox and after the
gates that a call meets, without a call.

Nothing is counted or reserved, and no person is asked: a read that would wait for one is refused.
Each read is on record.
"""

import threading
import time
from typing import Any

from django.db import transaction

from audit.actions import record
from audit.events import Event, Outcome
from tools.accounts.callers import actor_of
from tools.authorization.facts import IN_TRANSACTION, question_of
from tools.catalog.signatures.version_signatures import ALTERED
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.results import Status
from tools.definitions.vocabulary import SIGNATURE_INVALID
from tools.errors import NotFound, Refused, ToolcribError
from tools.execution.call import Result
from tools.execution.claim import is_authentic
from tools.execution.run import run_without_row
from tools.limits import load_shedder
from tools.limits.answers import PEEKED
from tools.policy import gates, isolation_levels
from tools.policy.questions import CallTerms, EffectiveRequest, Gate, Question
from tools.runners.tool_runs import ToolRun

READ_TOOL = "read_file"
LONGEST_READ_S = 10.0  # a thread of the web server waits for it
SKIPPED_GATES = {
    Gate.NESTING: "A page reads, and no call.",
    Gate.FAN_OUT: "It makes no calls of its own.",
    Gate.LOAD: "`hold_room` refuses before any gate is asked.",
}


def find_reader(snapshot: Snapshot) -> CatalogTool:
    """Raises `NotFound`."""
    tool = snapshot.tool(READ_TOOL)
    if tool is None:
        raise NotFound(f"There is no tool {READ_TOOL} here to read with.", code="tool_not_found")
    return tool


def read_workspace(
    *, caller: Caller, parameters: dict[str, Any], asked: EffectiveRequest, snapshot: Snapshot
) -> Result:
    """Raises what a call would be refused with, and `Refused` for one that would be held."""
    tool = find_reader(snapshot)
    terms = CallTerms(limits=PEEKED, parameters=parameters)
    question = question_of(caller, tool, asked, snapshot, call=terms, facts=IN_TRANSACTION)
    try:
        with load_shedder.hold_room(caller):
            _admit(question)
            result = _run(question)
    except ToolcribError as refusal:
        _record(question, Outcome.DENIED, refusal.code)
        raise
    success = result.status == Status.SUCCESS
    _record(question, Outcome.SUCCESS if success else Outcome.FAILURE, result.error_code)
    return result


def _admit(question: Question) -> None:
    for verdict in gates.decide(question, gates.select(skip=SKIPPED_GATES)):
        if verdict.requirement is not None:
            raise Refused(
                "Reading waits for a person here, and a page makes no call that one could approve.",
                code="confirmation_needed",
                gate=Gate.CONFIRMATION.value,
            )
        if not verdict.passed:
            raise gates.refusal_of(verdict, question)
    if not is_authentic(question.tool, question.snapshot):
        raise Refused(question.tool.flaw or ALTERED, code=SIGNATURE_INVALID)


def _run(question: Question) -> Result:
    tool, by = question.tool, actor_of(question.caller)
    ends_at = time.monotonic() + LONGEST_READ_S
    run = ToolRun(
        organization=by.organization,
        definition=tool.definition,
        parameters=question.terms.parameters,
        timeout_s=min(tool.definition.timeout_s, LONGEST_READ_S),
        stop=threading.Event(),
        level=isolation_levels.effective_level(tool, question.snapshot),
        snapshot=question.snapshot,
        until=lambda: ends_at,
        caller=by.name,
        caller_kind=by.kind,
        caller_id=by.id,
    )
    return run_without_row(tool, run)[1]


@transaction.atomic
def _record(question: Question, outcome: Outcome, reason: str) -> None:
    record(
        Event.WORKSPACE_READ,
        by=actor_of(question.caller),
        outcome=outcome,
        subject=question.tool.name,
        digest=question.tool.digest,
        reason=reason,
        payload={"parameters": question.terms.parameters},
        sensitive=question.tool.definition.sensitive,
    )
