"""`run_batch`: many calls that are requested together, in the order of their inputs.

The place of a call is the number of its input, from 0. A call that failed leaves the others alone,
unless the batch is to stop then.
"""

from typing import Any

from tools.definitions.batches import BatchInput, batch_inputs_with_references, parse_batch_inputs
from tools.definitions.results import Status
from tools.execution.composing import CannotGoOn, Composition, Made
from tools.execution.composition import Waiting
from tools.execution.context import Result

PARALLEL = "parallel"
MOST_PARALLEL = 50
MOST_OUTPUT = 1024 * 1024  # bytes of all outputs together that the batch's own output contains
_NEVER = {
    "CANCELLED": "Cancelled before it was made.",
    "SKIPPED": "A call before it failed, and the batch was to stop then; this one was never made.",
}


def turn(view: Composition) -> Result | Waiting:
    wanted = view.parameters
    try:
        inputs = parse_batch_inputs(wanted)
    except ValueError as flaw:
        raise CannotGoOn("INPUTS_WRONG", str(flaw)) from None
    most = _most_open(wanted)
    stop = wanted["stop_on_error"]
    for number, one in enumerate(batch_inputs_with_references(wanted, view.asked)):
        place = str(number)
        if place in view.made or view.unwanted(place):
            continue
        if view.open >= most or (stop and _failed(view)):  # it looks at all calls: only as needed
            break
        view.begin(place, *one, references=True)
    if view.open:
        _tell(view, len(inputs))
        return Waiting(below=view.open if _some_left(view, inputs, stop=stop) else 1)
    return _result(view, inputs, stopped=stop and _failed(view))


def entry(made: Made | None, given: BatchInput, number: int, *, why: str) -> dict[str, Any]:
    """One line of the results: what became of one input."""
    if made is None:
        return {
            "position": number,
            "tool_name": given.tool_name,
            "status": Status.CANCELLED,
            "execution_id": None,
            "error_code": why,
            "error_message": _NEVER[why],
        }
    return {
        "position": number,
        "tool_name": made.tool_name,
        "status": made.status,
        "execution_id": str(made.id) if made.id else None,
        "error_code": made.error_code or None,
        "error_message": made.error_message or None,
    }


def why_never(cancelled_places: list[str], place: str) -> str:
    """The reason for a call of a batch that is over and never made it."""
    return "CANCELLED" if place in cancelled_places else "SKIPPED"


def _most_open(wanted: dict[str, Any]) -> int:
    if wanted["mode"] != PARALLEL:
        return 1
    most = wanted["max_parallel"]
    return min(most, MOST_PARALLEL) if type(most) is int and most > 0 else 1


def _failed(view: Composition) -> bool:
    """Whether a call ended in another way than it should have; a cancelled one was not wanted."""
    return any(
        not one.open and one.status not in {Status.SUCCESS, Status.CANCELLED}
        for one in view.made.values()
    )


def _some_left(view: Composition, inputs: list[BatchInput], *, stop: bool) -> bool:
    """Whether there are calls that have not begun and may."""
    if stop and _failed(view):
        return False
    begun = view.made.keys() | set(view.execution.cancelled_places)
    return any(str(number) not in begun for number in range(len(inputs)))


def _tell(view: Composition, total: int) -> None:
    over = sum(not one.open for one in view.made.values())
    if view.memory.get("told") != over:
        view.memory["told"] = over
        view.tell(f"{over} of {total} calls are over; {view.open} are open.")


def _result(view: Composition, inputs: list[BatchInput], *, stopped: bool) -> Result:
    results = [
        entry(
            view.made.get(str(number)),
            given,
            number,
            why=why_never(view.execution.cancelled_places, str(number)),
        )
        for number, given in enumerate(inputs)
    ]
    counts = _counts(results)
    if stopped:
        return Result(
            Status.FAILED,
            error_code="BATCH_STOPPED",
            error_message=f"A call failed and the batch was to stop then. {counts['succeeded']} of"
            f" {len(inputs)} had succeeded; see error_details.results.",
            error_details={"results": results, **counts},
        )
    _put_in(view, results)
    return Result(Status.SUCCESS, output={"results": results, **counts})


def _counts(results: list[dict[str, Any]]) -> dict[str, int]:
    succeeded = sum(one["status"] == Status.SUCCESS for one in results)
    cancelled = sum(one["status"] == Status.CANCELLED for one in results)
    failed = len(results) - succeeded - cancelled
    return {"succeeded": succeeded, "failed": failed, "cancelled": cancelled}


def _put_in(view: Composition, results: list[dict[str, Any]]) -> None:
    """Each output, in order, as long as there is room; where there is none, a word of it."""
    succeeded = {str(one["position"]): one for one in results if one["status"] == Status.SUCCESS}
    outputs = view.outputs(succeeded, most_bytes=MOST_OUTPUT)
    for place, one in succeeded.items():
        there = place in outputs
        one.update({"output": outputs[place]} if there else {"output_left_out": True})
