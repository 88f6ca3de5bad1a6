"""The flow controller of plan-and-execute runs (specification S1, 4.3).

It takes the steps of a plan in their order, one at a time, for a session has one open call. Before
each it checks whether the tool may be used now, in the session's current state; every gate still
checks the call. Where the planner's confidence in a step is below its threshold, exactly this call
needs an approval.

A refusal, a rejected or expired confirmation and a failure are outcomes of a step: steps that
depend on it are skipped, and the planner makes another plan for the rest.
"""

from typing import Any

from django.db import transaction

from audit.canonical import commitment
from tools.agents.planning import planner
from tools.agents.planning.plan_language import AgentPlan, PlanStep
from tools.agents.planning.plan_outcomes import (
    ANSWER,
    PLANS,
    SETTLED,
    SKIPPED,
    STOPPED,
    SUCCEEDED,
    PlanCallRows,
)
from tools.agents.planning.planner import plan_rows
from tools.agents.runs import AgentRun, RunMustWait, RunOver
from tools.agents.steps import ACT, AgentAction
from tools.agents.usable_tools import ToolRefusal
from tools.definitions.chains import expressions
from tools.definitions.chains.expressions import MissingValue, ValueTooLarge
from tools.execution import outputs
from tools.models import Execution
from tools.workflows import call_attempts
from tools.workflows.call_attempts import AttemptOpen
from tools.workflows.composition import WaitCondition

MOST_PLANS = 2
MOST_ATTEMPTS = 3  # of a step that may be repeated
MOST_READ = 8 * 1024 * 1024  # bytes of outputs in one step's arguments
_CLOSED = "closed"  # in its memory: plans whose end is on record


def run_plan_turn(run: AgentRun) -> str:
    """The answer. Raises `RunMustWait` and `RunOver`."""
    while (plan := _current_plan(run)) is not None:
        for number, step in plan.numbered():
            _run_step(run, number, step)
        _close_plan(run, plan)
    return planner.ask_answer(run)


def close_plans(run: AgentRun) -> None:
    """Cancels open calls when the run ends before its plan does."""
    if not isinstance(run.rows, PlanCallRows):
        return
    memory = run.view.memory
    for plan in run.rows.plans:
        if plan.thought not in memory.get(_CLOSED, ()):
            run.view.cancel_open_calls()
            memory[SETTLED] = plan.next_number - 1
            memory.setdefault(STOPPED, [plan.thought, "RUN_ENDED", "the run ended sooner"])
            run.reload()
            _close_plan(run, plan)


def _current_plan(run: AgentRun) -> AgentPlan | None:
    """The plan to execute; None where the answer is next. Raises `RunMustWait`."""
    rows, memory = plan_rows(run), run.view.memory
    accepted = memory.get(PLANS, [])
    if len(rows.plans) < len(accepted):
        raise RunOver("PLAN_EXPIRED", "The plan cannot be read any more.")
    if opened := [plan for plan in rows.plans if plan.thought not in memory.get(_CLOSED, ())]:
        return opened[0]
    return planner.ask_plan(run) if _needs_another_plan(run) else None


def _needs_another_plan(run: AgentRun) -> bool:
    rows, memory = plan_rows(run), run.view.memory
    if ANSWER in memory or not rows.plans:
        return ANSWER not in memory
    last = [rows.outcomes[step.id].state for step in rows.plans[-1].steps]
    failed = any(word != SUCCEEDED for word in last)
    return failed and len(rows.plans) < MOST_PLANS and STOPPED not in memory


def _run_step(run: AgentRun, number: int, step: PlanStep) -> None:
    """Run a step to its end. Raises `RunMustWait`."""
    if number <= run.view.memory.get(SETTLED, 0):
        return
    while plan_rows(run).outcomes[step.id].state != SKIPPED:
        standing = _step_state(run, number)
        if isinstance(standing, AttemptOpen):
            raise RunMustWait(WaitCondition(standing.below, standing.until))
        if not isinstance(standing, str):
            break
        if standing == f"{ACT}{number}" and run.is_nearly_spent():
            _skip_rest(run, number)
        else:
            _begin_step(run, number, step, standing)
    run.view.memory[SETTLED] = number
    run.reload()


def _step_state(
    run: AgentRun, number: int
) -> call_attempts.AttemptSuccess | call_attempts.AttemptFailure | AttemptOpen | str:
    """A recorded step is not retried: it had its attempts when it was recorded."""
    most = MOST_ATTEMPTS if run.parameters.replays is None else 1
    return call_attempts.attempt_state(
        plan_rows(run).calls,
        f"{ACT}{number}",
        run.usable_tools().snapshot,
        most=lambda _: most,
        wait_s=lambda after: 2.0 ** (after - 1),
    )


def _begin_step(run: AgentRun, number: int, step: PlanStep, place: str) -> None:
    """Its call, where it may still be made. Raises `RunMustWait` as long as it is open."""
    try:
        resolved = expressions.resolve_value(step.arguments, _StepArguments(plan_rows(run)))
        arguments = run.delimiters.strip_from(resolved)
    except MissingValue as absence:
        refusal: ToolRefusal | None = ToolRefusal(absence.code, f"{absence}.")
    else:
        refusal = _refusal(run, step, arguments)
    if refusal is None:
        run.call_tool(
            number,
            AgentAction(step.tool, arguments),
            place=place,
            approval_reason=_approval_reason(run, step),
        )
        return
    run.view.record_absent_call(place, step.tool, refusal.code, refusal.message)
    run.view.save_memory()
    run.reload()


def _refusal(run: AgentRun, step: PlanStep, arguments: dict[str, Any]) -> ToolRefusal | None:
    """Does not request an approval again for a call that a person has rejected."""
    if commitment([step.tool, arguments]) in plan_rows(run).rejected:
        return ToolRefusal("REJECTED_BEFORE", "A person has refused exactly this call in this run.")
    return run.usable_tools().refusal_of(step.tool, run.state)


def _approval_reason(run: AgentRun, step: PlanStep) -> str:
    """The reason shown to the person who approves a step; empty where no approval is needed."""
    threshold = run.parameters.threshold_of(step.tool)
    if step.confidence >= threshold:
        return ""
    sure, wanted = _format_confidence(step.confidence), _format_confidence(threshold)
    about = f"confidence {sure}, threshold {wanted}"
    return f"The agent is not sure of this step of its plan ({step.id}): {about}."


def _format_confidence(number: float) -> str:
    return f"{number:.2f}" if round(number, 2) == number else f"{number:g}"


def _skip_rest(run: AgentRun, number: int) -> None:
    """Skip this step and all later ones."""
    run.view.memory[STOPPED] = [number, "NEARLY_SPENT", "what the run may spend is nearly spent"]
    run.view.save_memory()
    run.reload()


def _close_plan(run: AgentRun, plan: AgentPlan) -> None:
    """Audits the plan's end once."""
    closed = run.view.memory.setdefault(_CLOSED, [])
    if plan.thought not in closed:
        with transaction.atomic():
            planner.record_plan_end(run, plan, plan_rows(run))
            closed.append(plan.thought)
            run.view.save_memory()


class _StepArguments:
    """The outputs of steps that the arguments of one step may refer to, within a size limit."""

    input: dict[str, Any] = {}

    def __init__(self, rows: PlanCallRows) -> None:
        self._rows, self._left = rows, MOST_READ

    def output(self, step: str) -> Any:
        outcome = self._rows.outcomes[step]
        if outcome.state != SUCCEEDED or outcome.made is None or outcome.made.id is None:
            raise MissingValue(f"it is {outcome.state}")
        self._left -= outcome.made.output_bytes or 0
        if self._left < 0:
            raise ValueTooLarge(f"what the arguments refer to is more than {MOST_READ} bytes")
        row = Execution.objects.get(pk=outcome.made.id)
        if row.output_expired_at is not None:
            raise MissingValue("what it gave back has expired")
        return outputs.load_output(row)

    def item(self) -> Any:
        raise MissingValue("there is no item outside a loop")

    def outputs(self, text: str) -> dict[str, Any]:
        return {}
