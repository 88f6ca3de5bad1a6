"""The state of each step of a chain's run, derived from its calls."""

from collections import defaultdict
from collections.abc import Iterator

from tools.definitions.chains.chain_document import Chain
from tools.definitions.results import OPEN, Status
from tools.definitions.vocabulary import ToolType
from tools.execution.composing import absent_calls
from tools.models import Execution
from tools.models.execution_queryset import UNDO
from tools.ui.chains.chain_drawing import ChainDrawing, StepStatus, draw, inputs_of

_ENDED = {
    Status.PERMISSION_DENIED: "refused",
    Status.CANCELLED: "cancelled",
    Status.TIMEOUT: "out of time",
}


def drawn_run(execution: Execution) -> ChainDrawing | None:
    """None for an execution that is not a run of a chain."""
    definition = execution.tool_version.definition if execution.tool_version else {}
    if definition.get("type") != ToolType.CHAIN:
        return None
    chain = Chain(definition["implementation"]["chain"])
    return draw(chain, inputs_of(definition), dict(_standings(chain, execution)))


def _standings(chain: Chain, execution: Execution) -> Iterator[tuple[str, StepStatus]]:
    calls = _calls(execution)
    begun = [at for at, step in enumerate(chain.steps) if step.id in calls]
    reached = max(begun, default=-1)
    for at, step in enumerate(chain.steps):
        if step.id in calls:
            yield step.id, _standing(calls[step.id], loop=step.loop)
        elif at < reached or execution.status == Status.SUCCESS:
            yield step.id, StepStatus("", "skipped")
        elif execution.over:
            yield step.id, StepStatus("", "not reached")


def _calls(execution: Execution) -> dict[str, dict[str, Status]]:
    """By step: the status of the last attempt of each of its calls and their compensations."""
    rows = Execution.objects.filter(parent=execution.pk).order_by("created_at", "pk")
    made = [(place, Status(status)) for place, status in rows.values_list("place", "status")]
    made += [(one.place, one.status) for one in absent_calls(execution.memory).values()]
    found: dict[str, dict[str, Status]] = defaultdict(dict)
    for place, status in made:
        base = place.partition("#")[0]
        found[base.removeprefix(UNDO).partition("/")[0]][base] = status
    return dict(found)


def _standing(calls: dict[str, Status], *, loop: bool) -> StepStatus:
    own = [status for place, status in calls.items() if not place.startswith(UNDO)]
    undone = [status for place, status in calls.items() if place.startswith(UNDO)]
    standing = _of(own, loop=loop)
    if not undone:
        return standing
    if all(status == Status.SUCCESS for status in undone):
        return StepStatus("Cancelled", f"{standing.words}, undone")
    word = "being undone" if any(status in OPEN for status in undone) else "not undone"
    return StepStatus("Failed", f"{standing.words}, {word}")


def _of(own: list[Status], *, loop: bool) -> StepStatus:
    done = own.count(Status.SUCCESS)
    failed = [status for status in own if status not in OPEN and status != Status.SUCCESS]
    if Status.REQUIRES_CONFIRMATION in own:
        return StepStatus("RequiresConfirmation", "waits for a person")
    if any(status in OPEN for status in own):
        return StepStatus("Running", f"running, {done} done" if loop else "running")
    if not failed:
        return StepStatus("Success", f"{done} done" if loop else "done")
    word = _ENDED.get(failed[0], "failed")
    return StepStatus(str(failed[0]), f"{len(failed)} of {len(own)} {word}" if loop else word)
