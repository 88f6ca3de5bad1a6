"""Runs `run_agent` in the execution pipeline: each turn reads the run's progress and starts the
next step."""

from collections.abc import Callable

from tools import metrics
from tools.agents import flow, react
from tools.agents.run_parameters import PLAN, REACT
from tools.agents.runs import AgentRun, RunMustWait, RunOver
from tools.definitions.implementations.tool_types import RUN_AGENT
from tools.definitions.results import Status
from tools.errors import ToolcribError
from tools.execution import composites
from tools.execution.composing import CannotGoOn, Composition
from tools.execution.composition import Kind, Waiting
from tools.execution.context import Result

PATTERNS: dict[str, Callable[[AgentRun], str]] = {REACT: react.turn, PLAN: flow.turn}


def turn(view: Composition) -> Result | Waiting:
    """Runs one turn. It is called at the run's end as well, so that the run's own session is
    closed."""
    run = AgentRun(view)
    run.enter()
    try:
        result = _result(run)
    except RunMustWait as wait:
        return wait.waiting
    run.leave()
    _count(run, result)
    return result


def _result(run: AgentRun) -> Result:
    """Raises `RunMustWait`."""
    try:
        _check_wanted(run.view)
        run.check_recording()
        return run.answered(PATTERNS[run.asked.pattern](run))
    except RunOver as end:
        return _ended(run, end)
    except CannotGoOn as limit:
        return _ended(run, RunOver(limit.code, str(limit)))
    except ToolcribError as refusal:  # about the run that it continues, which may have changed
        return _ended(run, RunOver(refusal.code, refusal.message))


def _ended(run: AgentRun, end: RunOver) -> Result:
    flow.close(run)
    return run.ended(end)


def _count(run: AgentRun, result: Result) -> None:
    pattern, spent = run.asked.pattern, run.spent
    metrics.agent_runs.labels(pattern, result.status).inc()
    metrics.agent_run_steps.labels(pattern).observe(len(run.rows.steps()))
    metrics.agent_tokens.labels("in").inc(spent.input_tokens)
    metrics.agent_tokens.labels("out").inc(spent.output_tokens)


def _check_wanted(view: Composition) -> None:
    """Raises `RunOver` where the run was cancelled or is out of time."""
    if view.cancelled:
        message = "Cancelled while it ran. What was open of its calls is cancelled too."
        raise RunOver("CANCELLED", message, Status.CANCELLED)
    if view.out_of_time:
        message = f"It had no answer within {view.timeout_s:g} s."
        raise RunOver("TIMEOUT", message, Status.TIMEOUT)


composites.add(RUN_AGENT, Kind(turn, sees_its_end=True))
