"""Requests to the product's own agents: start a run, report its steps, follow its events.

Events (thought, action, observation, answer, end) are derived from the rows in their order, so that
a client that lost the connection resumes after the last number it has.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from config.http import request_queue
from tools.agents import recordings
from tools.agents.planning.plan_outcomes import load_rows
from tools.agents.recordings import find_run
from tools.agents.run_parameters import MOST_QUESTION, REACT
from tools.agents.steps import AgentCallRows, AgentStep, Spending
from tools.definitions.callers import Caller
from tools.definitions.implementations.tool_types import RUN_AGENT
from tools.definitions.results import Status
from tools.errors import Malformed
from tools.execution.call import Call
from tools.execution.events import HEARTBEAT_S, RECHECK_S, listen
from tools.execution.outputs import readable_executions
from tools.models import Execution, Session
from tools.models.execution_queryset import ExecutionQuerySet


@dataclass(frozen=True, slots=True)
class AgentRunReport:
    """A run and its progress. `answer` is None until there is one."""

    run: Execution
    pattern: str
    question: str
    steps: tuple[AgentStep, ...]
    spent: Spending
    session: str | None
    state: str
    answer: str | None
    plan: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AgentRunRequest:
    """A parsed request to an agent. `parameters` are those of `run_agent`; for a run that continues
    or replays another one, a missing parameter has the value of that run."""

    parameters: dict[str, Any]
    group: list[str] | None = None
    state: str | None = None
    session: str | None = None
    timeout_s: float | None = None
    idempotency_key: str | None = None


def build_call(caller: Caller, wanted: AgentRunRequest) -> Call:
    """Validates the request. Raises `Malformed`, and `NotFound` or `Forbidden` for a run that may
    not be continued."""
    given = {name: one for name, one in wanted.parameters.items() if one is not None}
    _check_model(given)
    group, state = wanted.group, wanted.state
    if (earlier := _find_earlier_run(caller, given)) is not None:
        given["question"] = given.get("question") or _question(earlier)
        if wanted.session is None:
            group = earlier.requested_groups if group is None else group
            state = _initial_state(earlier, given) if state is None else state
    if not given.get("question"):
        raise Malformed("A request of an agent has a question.", field="question")
    return Call(
        tool_name=RUN_AGENT,
        parameters=given,
        group=group,
        state=state,
        session=wanted.session,
        timeout_s=wanted.timeout_s,
        idempotency_key=wanted.idempotency_key,
        at_its_door=True,
        plain=True,
    )


def available_models() -> list[str]:
    """The patterns that may be requested by name."""
    return sorted({settings.LLM_MODEL, *settings.LLM_PRICES} - {""})


def load_report(caller: Caller, run: Execution) -> AgentRunReport:
    """With those of its calls that the caller may read."""
    row = Execution.objects.only("memory", "parameters", "session", "state").get(pk=run.pk)
    rows = load_rows(row, readable_executions(caller))
    session = str(row.session_id) if row.session_id else row.memory.get("session")
    given, output = row.parameters, run.output if isinstance(run.output, dict) else {}
    return AgentRunReport(
        run,
        str(given.get("pattern", REACT)),
        _question(row),
        tuple(rows.steps()),
        rows.spent,
        session,
        _current_state(row, rows, session),
        str(output["answer"]) if run.status == Status.SUCCESS and "answer" in output else None,
        rows.plan_document(),
    )


def recent_runs(caller: Caller) -> ExecutionQuerySet:
    """The caller's runs of agents that no other call made, the newest first."""
    return (
        recordings.readable_runs(caller)
        .filter(composite=True, parent__isnull=True)
        .order_by("-created_at", "-pk")
    )


def _check_model(given: dict[str, Any]) -> None:
    name = given.get("model")
    if name and name not in available_models():
        known = ", ".join(available_models()) or "none"
        raise Malformed(
            f"No agent may ask the model {name[:60]}; it may ask: {known}.", field="model"
        )


def _find_earlier_run(caller: Caller, given: dict[str, Any]) -> Execution | None:
    """The run that it continues or replays. Raises where the caller may not."""
    named = [name for name in ("continues", "replays") if given.get(name)]
    if not named:
        return None
    if len(named) > 1:
        raise Malformed("A request continues a run or replays it, not both.", field="replays")
    identifier = _parse_run_id(named[0], str(given[named[0]]))
    run = recordings.find_continuable_run(caller, identifier)
    recordings.check_rights(caller, run, recordings.load_steps(run))
    return run


def _parse_run_id(field: str, given: str) -> UUID:
    try:
        return UUID(given)
    except ValueError:
        raise Malformed(f"{field} is the id of a request of an agent.", field=field) from None


def _initial_state(earlier: Execution, given: dict[str, Any]) -> str:
    """A replay starts in the state where that run started, a continuation in the state where it
    ended."""
    if given.get("replays"):
        return str(earlier.state)
    session = earlier.session_id or Execution.objects.values_list("memory", flat=True).get(
        pk=earlier.pk
    ).get("session")
    found = session and Session.objects.filter(pk=session).values_list("state", flat=True).first()
    return str(found or earlier.state)


def _current_state(row: Execution, rows: AgentCallRows, session: str | None) -> str:
    if session is None:
        return rows.state_after(str(row.state))
    found = Session.objects.filter(pk=session).values_list("state", flat=True).first()
    return str(found or row.state)


def _question(run: Execution) -> str:
    return str(run.parameters.get("question", ""))[:MOST_QUESTION]


class AgentEventKind(StrEnum):
    THOUGHT = "thought"
    ACTION = "action"
    OBSERVATION = "observation"
    ANSWER = "answer"
    END = "end"


@dataclass(frozen=True, slots=True)
class StepEvent:
    """`number` counts from 1 within the run."""

    number: int
    kind: AgentEventKind
    data: dict[str, Any]


def follow_run(caller: Caller, run_id: UUID, after: int) -> Generator[StepEvent | None]:
    """Events past number `after`, then live ones, until the run is over or its reader has
    disconnected.

    Yields None every `HEARTBEAT_S` while nothing happens. No database connection is held while
    waiting. Raises `NotFound` for a run that the caller may not read, also when it may no more.
    """
    with listen(run_id) as listener:
        silent_s = 0.0
        while not request_queue.disconnected():
            report = load_report(caller, find_run(caller, run_id))
            connection.close()
            new_events = [event for event in run_events(report) if event.number > after]
            yield from new_events
            if report.run.is_final:
                return
            after = new_events[-1].number if new_events else after
            silent_s = 0.0 if new_events else silent_s + RECHECK_S
            if silent_s >= HEARTBEAT_S:
                silent_s = 0.0
                yield None
            listener.wait(RECHECK_S)


def run_events(report: AgentRunReport) -> list[StepEvent]:
    events = [event for step in report.steps for event in _step_events(step)]
    if report.answer is not None:
        events.append((AgentEventKind.ANSWER, {"text": report.answer}))
    if report.run.is_final:
        events.append((AgentEventKind.END, _end_document(report)))
    return [StepEvent(number, *one) for number, one in enumerate(events, 1)]


def spending_document(spent: Spending) -> dict[str, Any]:
    return {
        "tokens": {"input": spent.input_tokens, "output": spent.output_tokens},
        "cost": f"{spent.cost.normalize():f}",
        "duration_ms": round(spent.duration_ms, 1),
    }


def _step_events(step: AgentStep) -> Iterator[tuple[AgentEventKind, dict[str, Any]]]:
    at, move = {"step": step.number}, step.move
    said = {"text": move.thought, "warnings": list(move.warnings)}
    yield AgentEventKind.THOUGHT, at | said | spending_document(step.thinking)
    if move.action is None and step.observation is None:
        return
    if move.action is not None:
        if step.status == "":  # it has not begun
            return
        action = {"action": move.action.name, "arguments": move.action.arguments}
        yield AgentEventKind.ACTION, at | action | _execution_id(step)
    if step.observation is not None:
        seen = {"text": step.observation, "status": step.status}
        yield (
            AgentEventKind.OBSERVATION,
            at | seen | _execution_id(step) | spending_document(step.acting),
        )


def _execution_id(step: AgentStep) -> dict[str, Any]:
    return {"execution_id": str(step.execution_id) if step.execution_id else None}


def _end_document(report: AgentRunReport) -> dict[str, Any]:
    run = report.run
    failed = run.status != Status.SUCCESS
    return {
        "status": str(run.status),
        "error_code": run.error_code or None if failed else None,
        "error_message": run.error_message or None if failed else None,
        "state": report.state,
        **spending_document(report.spent),
    }
