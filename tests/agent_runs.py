"""Requests of agents without a model: the rows are written as the pipeline
leaves them."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone

from tests import factories
from tools.agents import agent_requests
from tools.agents.agent_requests import AgentRunRequest
from tools.definitions.callers import Caller
from tools.definitions.implementations.tool_types import ASK_MODEL
from tools.definitions.results import Status
from tools.execution.admit import admit
from tools.models import Agent, Execution


def request_agent_run(
    caller: Caller, question: str = "What is there to read?", **given: Any
) -> Execution:
    """An unclaimed request. Fields that `AgentRunRequest` does not have are parameters."""
    fields = {
        name: given.pop(name) for name in [*given] if name in AgentRunRequest.__dataclass_fields__
    }
    wanted = AgentRunRequest({"question": question, **given}, **fields)
    return admit(caller, agent_requests.build_call(caller, wanted))


def request_run_by_agent(
    agent: Agent, question: str = "What is there to read?", **given: Any
) -> Execution:
    return request_agent_run(factories.caller(agent), question, **given)


def claim_agent_run(run: Execution) -> Execution:
    """As a worker has it in its hands."""
    return factories.claimed(run)


def thought(
    run: Execution,
    number: int,
    thought: str = "",
    action: tuple[str, dict[str, Any]] | None = None,
    **said: Any,
) -> Execution:
    """The model's turn of a step: an action, an `answer` or a `flaw`."""
    named = {"name": action[0], "arguments": action[1]} if action else None
    usual = {"text": thought, "thought": thought, "answer": None, "flaw": None, "model": "stub"}
    output = usual | {"action": named, "input_tokens": 900, "output_tokens": 60} | said
    return _call(
        run,
        f"think/{number}",
        ASK_MODEL,
        output=output,
        cost=Decimal("0.0012"),
        metrics={"input_tokens": 900, "output_tokens": 60},
    )


def acted(
    run: Execution, number: int, name: str, arguments: dict[str, Any], **fields: Any
) -> Execution:
    """The call that a step led to; it succeeded, with what it `observed`."""
    seen = fields.pop("observed", "Done.")
    return _call(run, f"act/{number}", name, parameters=arguments, observation=seen, **fields)


def answered(run: Execution, answer: str) -> Execution:
    """Its last turn, and its end."""
    number = Execution.objects.filter(parent=run, place__startswith="think/").count() + 1
    thought(run, number, "I know enough.", answer=answer)
    report = {"session": None, "state": "undefined", "iterations": number, "cost": "0"}
    return end_agent_run(
        run, output={"answer": answer, "tokens": {"input": 1, "output": 1}} | report
    )


def end_agent_run(run: Execution, status: Status = Status.SUCCESS, **fields: Any) -> Execution:
    """After it has begun."""
    now = timezone.now()
    Execution.objects.filter(pk=run.pk).update(
        status=status,
        completed_at=now,
        duration_ms=4_000.0,
        lease_until=None,
        **fields,
    )
    return Execution.objects.get(pk=run.pk)


def finished(agent: Agent, question: str = "What is there to read?", **given: Any) -> Execution:
    """With one step and an answer."""
    run = claim_agent_run(request_run_by_agent(agent, question, **given))
    thought(run, 1, "I look first.", ("echo", {"text": "x"}))
    acted(run, 1, "echo", {"text": "x"}, observed='{"echo": {"text": "x"}}')
    return answered(run, "There is x.")


def _call(run: Execution, place: str, name: str, **fields: Any) -> Execution:
    now = timezone.now()
    open_ = fields.get("status") in {Status.PENDING, Status.REQUIRES_CONFIRMATION}
    usual: dict[str, Any] = {
        "organization": run.organization,
        "user": run.user,
        "agent": run.agent,
        "parent": run,
        "place": place,
        "depth": run.depth + 1,
        "tool_name": name,
        "tool_version": run.tool_version,
        "parameters": {},
        "state": run.state,
        "timeout_s": 30.0,
        "status": Status.SUCCESS,
        "started_at": None if open_ else now,
        "completed_at": None if open_ else now + timedelta(milliseconds=340),
    }
    return Execution.objects.create(**usual | fields)
