"""Runs of chains: one step after the other, each a governed call; what was done can be undone.

A turn works out from the rows of its calls where the run is, and begins what comes next. The place
of a call is its step's id; `page/3` is the fourth item of a loop, `page#2` the second attempt, and
`undo:page` what compensates it. The boundary of the transaction: each call commits by itself; when
a step finally fails, or the run is cancelled with compensation, the steps that succeeded are
compensated in reverse order, and the end says what stays, what was undone, and what could not be.
"""

from typing import Any

from tools.definitions.chains import conditions, expressions
from tools.definitions.chains.chain_document import MOST_ITEMS, ChainStep
from tools.definitions.chains.expressions import MissingValue
from tools.definitions.results import Status
from tools.execution.composing import CannotGoOn, Composition
from tools.execution.composition import Waiting
from tools.execution.context import Result
from tools.execution.running import settle
from tools.workflows.call_attempts import AttemptFailure, Open, Succeeded
from tools.workflows.chain_run import ChainExecution, Skipped, StepState
from tools.workflows.chain_undoing import undo


def turn(view: Composition) -> Result | Waiting:
    run = ChainExecution(view)
    if view.cancelled or "ending" in view.memory:
        return _ended_early(run)
    if view.out_of_time:
        words = f"The chain was not through within {view.timeout_s:g} s."
        return _end(run, "TIMEOUT", words, status=Status.TIMEOUT)
    for step in run.chain.steps:
        try:
            state = _advance(run, step)
        except CannotGoOn as limit:
            return _end(run, limit.code, str(limit), step=step)
        if isinstance(state, Open):
            return Waiting(below=state.below, until=state.until)
        run.settle(step, state)
        if isinstance(state, AttemptFailure) and step.on_error != "continue":
            return _end(run, state.code, f"The step {step.id} failed: {state.message}", step=step)
    return _result(run)


def _advance(run: ChainExecution, step: ChainStep) -> StepState:
    """Where a step is, after what can be begun of it has been."""
    try:
        if step.when is not None and not conditions.evaluate_condition(step.when, run):
            return Skipped()
        if not step.loop:
            return run.call(step, step.id)
        items = expressions.resolve_value(step.for_each, run)
    except MissingValue as absence:
        return AttemptFailure(absence.code, f"{absence}.")
    if not isinstance(items, list) or len(items) > MOST_ITEMS:
        return AttemptFailure("NOT_A_LIST", f"for_each needs a list of at most {MOST_ITEMS} items.")
    return _loop(run, step, items)


def _loop(run: ChainExecution, step: ChainStep, items: list[Any]) -> StepState:
    """As many of its items at once as it says; a failed one ends the loop, or is left out."""
    states: list[StepState] = []
    for number, item in enumerate(items):
        opened = [state for state in states if isinstance(state, Open)]
        if len(opened) >= step.parallel:
            return Open.of(opened)
        state = run.call(step, f"{step.id}/{number}", item=item)
        states.append(state)
        if isinstance(state, AttemptFailure) and step.on_error != "continue":
            return state
    if opened := [state for state in states if isinstance(state, Open)]:
        return Open.of(opened, last=True)
    return Succeeded(tuple(f"{step.id}/{number}" for number in range(len(items))))


def _result(run: ChainExecution) -> Result | Waiting:
    """Settled here: if the output cannot be returned, there is something to undo."""
    try:
        output = expressions.resolve_value(run.chain.output, run)
    except MissingValue as absence:
        message = f"Every step is over, but the output cannot be made: {absence}."
        return _end(run, "OUTPUT_MISSING", message)
    found = Result(Status.SUCCESS, output=output)
    settle(run.view.performance.tool, found)
    if found.status != Status.SUCCESS:
        return _end(run, found.error_code, found.error_message, about=found.error_details)
    return found


def _ended_early(run: ChainExecution) -> Result | Waiting:
    """After a cancellation, or in the middle of undoing what was done."""
    ending = run.view.memory.get("ending")
    if ending is None:
        words = "Cancelled while it ran."
        return _end(run, "CANCELLED", words, status=Status.CANCELLED)
    return _undone(run, ending)


def _end(
    run: ChainExecution,
    code: str,
    message: str,
    *,
    step: ChainStep | None = None,
    status: Status = Status.FAILED,
    about: dict[str, Any] | None = None,
) -> Result | Waiting:
    """Write down how it ends before anything is undone: another worker may have to go on.

    Whether that is done says the step that ended it, or else the chain.
    """
    ending = {
        "code": code,
        "message": message,
        "status": status,
        "step": step.id if step else None,
        "about": about or {},
        "undoes": step.on_error == "compensate" if step else run.chain.compensates_when_cancelled,
    }
    run.view.memory["ending"] = ending
    run.view.remember()
    return _undone(run, ending)


def _undone(run: ChainExecution, ending: dict[str, Any]) -> Result | Waiting:
    run.stop_steps()
    if (waiting := run.steps_open()) is not None:
        return waiting
    if ending["undoes"] and (waiting := undo(run)) is not None:
        return waiting
    return Result(
        Status(ending["status"]),
        error_code=ending["code"],
        error_message=ending["message"],
        error_details=ending["about"] | {"step": ending["step"]} | run.boundary(),
    )
