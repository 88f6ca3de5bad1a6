"""Compensation of a chain run: undo the last step first, one call after the other.

A step without compensation stays. A compensation that fails is reported, and the others still run.
"""

from tools.definitions.chains import expressions
from tools.definitions.chains.chain_document import ChainStep
from tools.definitions.chains.expressions import MissingValue
from tools.execution.composition import Waiting
from tools.models.execution_queryset import UNDO
from tools.workflows.call_attempts import Open
from tools.workflows.chain_run import ChainExecution, StepState


def undo(run: ChainExecution) -> Waiting | None:
    """None when there is nothing left to undo."""
    run.settle_for_undoing()
    for step, place, _made in run.done():
        if step.compensation_step is None:
            continue
        state = _undone(run, step, step.compensation_step, place)
        if isinstance(state, Open):
            return Waiting(below=state.below, until=state.until)
    return None


def _undone(run: ChainExecution, step: ChainStep, undoing: ChainStep, place: str) -> StepState:
    """How far what undoes one call of a step has come; it is made if it can be."""
    standing = run.standing(undoing, f"{UNDO}{place}")
    if not isinstance(standing, str):
        return standing
    try:
        run.at_undoing(step, place)
        parameters = expressions.resolve_value(undoing.parameters, run)
    except MissingValue as absence:
        run.view.tell(f"{place} cannot be compensated: {absence}")
        run.view.give_up(standing, undoing.tool_name, "VALUE_MISSING", str(absence))
    else:
        run.view.begin(standing, undoing.tool_name, parameters, timeout_s=undoing.timeout_s)
    return _undone(run, step, undoing, place)
