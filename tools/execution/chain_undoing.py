"""Undoing what a run of a chain has done: the last step first, one call after the other.

What has no compensation stays. One that fails is told of, and the others are undone all the same.
"""

from tools.definitions.chains import values
from tools.definitions.chains.document import Step
from tools.definitions.chains.values import Unknown
from tools.execution.chain_run import Run
from tools.execution.composing import Made
from tools.execution.composition import Waiting
from tools.models.execution import UNDO


def undo(run: Run) -> Waiting | None:
    """None when there is nothing left to undo."""
    run.settle_for_undoing()
    for step, place, _made in run.done():
        if step.compensation is None:
            continue
        undoing = run.view.made.get(f"{UNDO}{place}") or _begin(run, step, place)
        if undoing is not None and undoing.open:
            return Waiting(below=1)
    return None


def _begin(run: Run, step: Step, place: str) -> Made | None:
    """None, and a word of it, where its parameters cannot be had."""
    assert step.compensation is not None
    try:
        if step.loop:
            run.at(run.items_of(step)[int(place.partition("/")[2])])
        parameters = values.resolved(step.compensation["parameters"], run)
    except (Unknown, IndexError) as absence:
        run.view.tell(f"{place} cannot be compensated: {absence}")
        return run.view.give_up(
            f"{UNDO}{place}", str(step.compensation["tool_name"]), "VALUE_MISSING", str(absence)
        )
    return run.view.begin(f"{UNDO}{place}", str(step.compensation["tool_name"]), parameters)
