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
from tools.agents.call_rows import ACT
from tools.agents.planning import plan_records, planner
from tools.agents.planning.plan_language import AgentPlan, PlanStep
from tools.agents.planning.plan_outcomes import (
    ANSWER,
    PLANS,
    SETTLED,
    SKIPPED,
    STOPPED,
    SUCCEEDED,
    PlannedRows,
)
from tools.agents.planning.planner import rows_of
from tools.agents.runs import AgentRun, RunMustWait, RunOver
from tools.agents.steps import AgentAction
from tools.agents.usable_tools import Barred
from tools.definitions.chains import expressions
from tools.definitions.chains.expressions import MissingValue, ValueTooLarge
from tools.execution import outputs
from tools.execution.composition import Waiting
from tools.models import Execution
from tools.workflows import call_attempts
from tools.workflows.call_attempts import Open

MOST_PLANS = 2
MOST_ATTEMPTS = 3  # of a step that may be repeated
MOST_READ = 8 * 1024 * 1024  # bytes of outputs in one step's arguments
_CLOSED = "closed"  # in its memory: plans whose end is on record


def turn(run: AgentRun) -> str:
    """The answer. Raises `RunMustWait` and `RunOver`."""
    while (plan := _current(run)) is not None:
        for number, step in plan.numbered():
            _take(run, number, step)
        _close(run, plan)
    return planner.answer(run)


def close(run: AgentRun) -> None:
    """Cancels open calls when the run ends before its plan does."""
    if not isinstance(run.rows, PlannedRows):
        return
    memory = run.view.memory
    for plan in run.rows.plans:
        if plan.at not in memory.get(_CLOSED, ()):
            run.view.cancel_open()
            memory[SETTLED] = plan.next - 1
            memory.setdefault(STOPPED, [plan.at, "RUN_ENDED", "the run ended sooner"])
            run.look()
            _close(run, plan)


def _current(run: AgentRun) -> AgentPlan | None:
    """The plan to execute; None where the answer is next. Raises `RunMustWait`."""
    rows, memory = rows_of(run), run.view.memory
    accepted = memory.get(PLANS, [])
    if len(rows.plans) < len(accepted):
        raise RunOver("PLAN_EXPIRED", "The plan cannot be read any more.")
    if opened := [plan for plan in rows.plans if plan.at not in memory.get(_CLOSED, ())]:
        return opened[0]
    return planner.next_plan(run) if _one_more(run) else None


def _one_more(run: AgentRun) -> bool:
    rows, memory = rows_of(run), run.view.memory
    if ANSWER in memory or not rows.plans:
        return ANSWER not in memory
    last = [rows.outcomes[step.id].word for step in rows.plans[-1].steps]
    failed = any(word != SUCCEEDED for word in last)
    return failed and len(rows.plans) < MOST_PLANS and STOPPED not in memory


def _take(run: AgentRun, number: int, step: PlanStep) -> None:
    """Run a step to its end. Raises `RunMustWait`."""
    if number <= run.view.memory.get(SETTLED, 0):
        return
    while rows_of(run).outcomes[step.id].word != SKIPPED:
        standing = _standing(run, number)
        if isinstance(standing, Open):
            raise RunMustWait(Waiting(standing.below, standing.until))
        if not isinstance(standing, str):
            break
        if standing == f"{ACT}{number}" and run.nearly_spent():
            _stop(run, number)
        else:
            _begin(run, number, step, standing)
    run.view.memory[SETTLED] = number
    run.look()


def _standing(
    run: AgentRun, number: int
) -> call_attempts.Succeeded | call_attempts.AttemptFailure | Open | str:
    """A recorded step is not retried: it had its attempts when it was recorded."""
    most = MOST_ATTEMPTS if run.asked.replays is None else 1
    return call_attempts.standing(
        rows_of(run).calls,
        f"{ACT}{number}",
        run.ground().snapshot,
        most=lambda _: most,
        wait_s=lambda after: 2.0 ** (after - 1),
    )


def _begin(run: AgentRun, number: int, step: PlanStep, place: str) -> None:
    """Its call, where it may still be made. Raises `RunMustWait` as long as it is open."""
    try:
        resolved = expressions.resolve_value(step.arguments, _StepArguments(rows_of(run)))
        arguments = run.fence.unmarked(resolved)
    except MissingValue as absence:
        bar: Barred | None = Barred(absence.code, f"{absence}.")
    else:
        bar = _bar(run, step, arguments)
    if bar is None:
        run.act(number, AgentAction(step.tool, arguments), place=place, doubt=_doubt(run, step))
        return
    run.view.give_up(place, step.tool, bar.code, bar.message)
    run.view.remember()
    run.look()


def _bar(run: AgentRun, step: PlanStep, arguments: dict[str, Any]) -> Barred | None:
    """Does not request an approval again for a call that a person has rejected."""
    if commitment([step.tool, arguments]) in rows_of(run).rejected:
        return Barred("REJECTED_BEFORE", "A person has refused exactly this call in this run.")
    return run.ground().bar(step.tool, run.state)


def _doubt(run: AgentRun, step: PlanStep) -> str:
    """The reason shown to the person who approves a step; empty where no approval is needed."""
    threshold = run.asked.threshold_of(step.tool)
    if step.confidence >= threshold:
        return ""
    sure, wanted = _share(step.confidence), _share(threshold)
    about = f"confidence {sure}, threshold {wanted}"
    return f"The agent is not sure of this step of its plan ({step.id}): {about}."


def _share(number: float) -> str:
    return f"{number:.2f}" if round(number, 2) == number else f"{number:g}"


def _stop(run: AgentRun, number: int) -> None:
    """Skip this step and all later ones."""
    run.view.memory[STOPPED] = [number, "NEARLY_SPENT", "what the run may spend is nearly spent"]
    run.view.remember()
    run.look()


def _close(run: AgentRun, plan: AgentPlan) -> None:
    """Audits the plan's end once."""
    closed = run.view.memory.setdefault(_CLOSED, [])
    if plan.at not in closed:
        with transaction.atomic():
            plan_records.ended(run, plan, rows_of(run))
            closed.append(plan.at)
            run.view.remember()


class _StepArguments:
    """The outputs of steps that the arguments of one step may refer to, within a size limit."""

    input: dict[str, Any] = {}

    def __init__(self, rows: PlannedRows) -> None:
        self._rows, self._left = rows, MOST_READ

    def output(self, step: str) -> Any:
        outcome = self._rows.outcomes[step]
        if outcome.word != SUCCEEDED or outcome.made is None or outcome.made.id is None:
            raise MissingValue(f"it is {outcome.word}")
        self._left -= outcome.made.output_bytes or 0
        if self._left < 0:
            raise ValueTooLarge(f"what the arguments refer to is more than {MOST_READ} bytes")
        row = Execution.objects.get(pk=outcome.made.id)
        if row.output_expired_at is not None:
            raise MissingValue("what it gave back has expired")
        return outputs.whole(row)

    def item(self) -> Any:
        raise MissingValue("there is no item outside a loop")

    def outputs(self, text: str) -> dict[str, Any]:
        return {}
