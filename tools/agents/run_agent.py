"""Runs `run_agent` in the execution pipeline: each turn reads the run's progress and starts the
next step."""

from collections.abc import Callable
from functools import partial
from itertools import count

from tools import metrics
from tools.agents.planning import flow_controller
from tools.agents.prompts import Prompt, PromptForm, PromptTooLong, build_prompt
from tools.agents.run_parameters import PLAN, REACT
from tools.agents.runs import AgentRun, RunMustWait, RunOver
from tools.definitions.implementations.builtin import RUN_AGENT
from tools.definitions.results import Status
from tools.errors import ToolcribError
from tools.execution import composites
from tools.execution.composing import CannotGoOn, Composition
from tools.execution.composition import Kind, Waiting
from tools.execution.context import Result


def run_react_turn(run: AgentRun) -> str:
    """The answer. Raises `NotYet` and `RunOver`."""
    for number in count(1):
        last = run.is_last(number)
        move = run.think(number, partial(_react_prompt, run, number, last=last))
        if move.answer is not None:
            return move.answer
        if last:
            raise RunOver("NO_ANSWER", "It gave no answer when it was asked for the best it has.")
        if move.action is not None:
            run.act(number, move.action)
    raise AssertionError("a run ends with an answer, or with `RunOver`")


def _react_prompt(run: AgentRun, number: int, *, last: bool) -> Prompt:
    form = PromptForm(run.toolbox(), run.fence, run.native, last)
    try:
        return build_prompt(run.asked.question, run.past, run.rows.steps()[: number - 1], form)
    except PromptTooLong as limit:
        raise RunOver("PROMPT_TOO_LONG", str(limit)) from None


PATTERNS: dict[str, Callable[[AgentRun], str]] = {
    REACT: run_react_turn,
    PLAN: flow_controller.run_plan_turn,
}


def run_agent_turn(view: Composition) -> Result | Waiting:
    """Runs one turn. It is called at the run's end as well, so that the run's own session is
    closed."""
    run = AgentRun(view)
    run.enter()
    try:
        result = _turn_result(run)
    except RunMustWait as wait:
        return wait.waiting
    run.leave()
    _count_metrics(run, result)
    return result


def _turn_result(run: AgentRun) -> Result:
    """Raises `RunMustWait`."""
    try:
        _check_not_ended(run.view)
        run.check_recording()
        return run.answered(PATTERNS[run.asked.pattern](run))
    except RunOver as end:
        return _end_result(run, end)
    except CannotGoOn as limit:
        return _end_result(run, RunOver(limit.code, str(limit)))
    except ToolcribError as refusal:  # about the run that it continues, which may have changed
        return _end_result(run, RunOver(refusal.code, refusal.message))


def _end_result(run: AgentRun, end: RunOver) -> Result:
    flow_controller.close_plans(run)
    return run.ended(end)


def _count_metrics(run: AgentRun, result: Result) -> None:
    pattern, spent = run.asked.pattern, run.spent
    metrics.agent_runs.labels(pattern, result.status).inc()
    metrics.agent_run_steps.labels(pattern).observe(len(run.rows.steps()))
    metrics.agent_tokens.labels("in").inc(spent.input_tokens)
    metrics.agent_tokens.labels("out").inc(spent.output_tokens)


def _check_not_ended(view: Composition) -> None:
    """Raises `RunOver` where the run was cancelled or is out of time."""
    if view.cancelled:
        message = "Cancelled while it ran. What was open of its calls is cancelled too."
        raise RunOver("CANCELLED", message, Status.CANCELLED)
    if view.out_of_time:
        message = f"It had no answer within {view.timeout_s:g} s."
        raise RunOver("TIMEOUT", message, Status.TIMEOUT)


composites.add(RUN_AGENT, Kind(run_agent_turn, sees_its_end=True))
