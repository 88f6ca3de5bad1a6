"""Runs `run_agent` in the execution pipeline: each turn reads the run's progress and starts the
next step.

ReAct: think, act, observe, until there is an answer (specification S1, 4.3). A refusal, an unknown
tool, a failure and a reply that cannot be used are observations, and the loop continues. The last
turn asks for the best possible answer. Runs by a plan are `planning.flow_controller`.
"""

from collections.abc import Callable
from functools import partial
from itertools import count

from tools import metrics
from tools.agents.planning import flow_controller
from tools.agents.prompts import Prompt, PromptForm, PromptTooLong, build_prompt
from tools.agents.run_parameters import PLAN, REACT
from tools.agents.runs import AgentRun, RunMustWait, RunOver
from tools.definitions.implementations.tool_types import RUN_AGENT
from tools.definitions.results import Status
from tools.errors import ToolcribError
from tools.execution.call import Result
from tools.workflows.composition import CompositeKind, WaitCondition, register_kind
from tools.workflows.nested_calls import Composition, CompositionFailed


def run_react_turn(run: AgentRun) -> str:
    """The answer. Raises `RunMustWait` and `RunOver`."""
    for number in count(1):
        last = run.is_last(number)
        move = run.ask_model(number, partial(_react_prompt, run, number, last=last))
        if move.answer is not None:
            return move.answer
        if last:
            raise RunOver("NO_ANSWER", "It gave no answer when it was asked for the best it has.")
        if move.action is not None:
            run.call_tool(number, move.action)
    raise AssertionError("a run ends with an answer, or with `RunOver`")


def _react_prompt(run: AgentRun, number: int, *, last: bool) -> Prompt:
    form = PromptForm(run.toolbox(), run.delimiters, run.native, last)
    try:
        return build_prompt(
            run.parameters.question, run.past_steps, run.rows.steps()[: number - 1], form
        )
    except PromptTooLong as limit:
        raise RunOver("PROMPT_TOO_LONG", str(limit)) from None


PATTERNS: dict[str, Callable[[AgentRun], str]] = {
    REACT: run_react_turn,
    PLAN: flow_controller.run_plan_turn,
}


def run_agent_turn(view: Composition) -> Result | WaitCondition:
    """Runs one turn. It is called at the run's end as well, so that the run's own session is
    closed."""
    run = AgentRun(view)
    run.open_session()
    try:
        result = _turn_result(run)
    except RunMustWait as wait:
        return wait.waiting
    run.close_session()
    _count_metrics(run, result)
    return result


def _turn_result(run: AgentRun) -> Result:
    """Raises `RunMustWait`."""
    try:
        _check_not_ended(run.view)
        run.check_recording()
        return run.success_result(PATTERNS[run.parameters.pattern](run))
    except RunOver as end:
        return _end_result(run, end)
    except CompositionFailed as limit:
        return _end_result(run, RunOver(limit.code, str(limit)))
    except ToolcribError as refusal:  # about the run that it continues, which may have changed
        return _end_result(run, RunOver(refusal.code, refusal.message))


def _end_result(run: AgentRun, end: RunOver) -> Result:
    flow_controller.close_plans(run)
    return run.failure_result(end)


def _count_metrics(run: AgentRun, result: Result) -> None:
    pattern, spent = run.parameters.pattern, run.spent
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


register_kind(RUN_AGENT, CompositeKind(run_agent_turn, handles_end=True))
