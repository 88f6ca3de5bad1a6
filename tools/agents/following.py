"""Streams an agent run as events: thought, action, observation, answer, and how it ended.

Events are derived from the rows in their order, so that a client that lost the connection resumes
after the last number it has.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db import connection

from config.http import request_queue
from tools.agents.agent_requests import AgentRunReport, one_of, report_of
from tools.agents.call_rows import Spent
from tools.agents.steps import AgentStep
from tools.definitions.callers import Caller
from tools.definitions.results import Status
from tools.execution import bell
from tools.execution.events import HEARTBEAT_S


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


def follow(caller: Caller, run_id: UUID, after: int) -> Generator[StepEvent | None]:
    """Events past number `after`, then live ones, until the run is over or its reader has
    disconnected.

    Yields None every `HEARTBEAT_S` while nothing happens. No database connection is held while
    waiting. Raises `NotFound` for a run that the caller may not read, also when it may no more.
    """
    with bell.listening(run_id) as listener:
        silent_s = 0.0
        while not request_queue.disconnected():
            report = report_of(caller, one_of(caller, run_id))
            connection.close()
            fresh = [one for one in events_of(report) if one.number > after]
            yield from fresh
            if report.run.over:
                return
            after = fresh[-1].number if fresh else after
            silent_s = 0.0 if fresh else silent_s + bell.GLANCE_S
            if silent_s >= HEARTBEAT_S:
                silent_s = 0.0
                yield None
            listener.wait(bell.GLANCE_S)


def events_of(report: AgentRunReport) -> list[StepEvent]:
    told = [one for step in report.steps for one in _of_step(step)]
    if report.answer is not None:
        told.append((AgentEventKind.ANSWER, {"text": report.answer}))
    if report.run.over:
        told.append((AgentEventKind.END, _end(report)))
    return [StepEvent(number, *one) for number, one in enumerate(told, 1)]


def spent_shape(spent: Spent) -> dict[str, Any]:
    return {
        "tokens": {"input": spent.input_tokens, "output": spent.output_tokens},
        "cost": f"{spent.cost.normalize():f}",
        "duration_ms": round(spent.duration_ms, 1),
    }


def _of_step(step: AgentStep) -> Iterator[tuple[AgentEventKind, dict[str, Any]]]:
    at, move = {"step": step.number}, step.move
    said = {"text": move.thought, "warnings": list(move.warnings)}
    yield AgentEventKind.THOUGHT, at | said | spent_shape(step.thinking)
    if move.action is None and step.observation is None:
        return
    if move.action is not None:
        if step.status == "":  # it has not begun
            return
        action = {"action": move.action.name, "arguments": move.action.arguments}
        yield AgentEventKind.ACTION, at | action | _execution(step)
    if step.observation is not None:
        seen = {"text": step.observation, "status": step.status}
        yield AgentEventKind.OBSERVATION, at | seen | _execution(step) | spent_shape(step.acting)


def _execution(step: AgentStep) -> dict[str, Any]:
    return {"execution_id": str(step.execution_id) if step.execution_id else None}


def _end(report: AgentRunReport) -> dict[str, Any]:
    run = report.run
    failed = run.status != Status.SUCCESS
    return {
        "status": str(run.status),
        "error_code": run.error_code or None if failed else None,
        "error_message": run.error_message or None if failed else None,
        "state": report.state,
        **spent_shape(report.spent),
    }
