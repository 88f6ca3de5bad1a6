"""Batches (`run_batch`): many calls that are requested together, in the order of their inputs; and
actions on batches: read one with its calls, and cancel some of these.

The place of a call is the number of its input, from 0. A call that failed does not affect the
others, unless the batch is to stop then.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Case, IntegerField, Value, When
from django.db.models.functions import Coalesce, Length

from audit.actions import record
from audit.events import Event, Outcome
from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import require
from tools.definitions.batches import BatchInput, batch_inputs_with_references, parse_batch_inputs
from tools.definitions.callers import Caller
from tools.definitions.implementations.tool_types import RUN_BATCH
from tools.definitions.results import Status
from tools.errors import Conflict, Malformed, NotFound
from tools.execution import answer, dispatch
from tools.execution.call import Result
from tools.execution.outputs import readable_executions
from tools.models import Execution
from tools.workflows.composition import CompositeKind, WaitCondition, register_kind
from tools.workflows.nested_calls import (
    Composition,
    CompositionFailed,
    NestedCall,
    absent_calls,
    calls_in_order,
)

PARALLEL = "parallel"
MOST_PARALLEL = 50
MOST_OUTPUT = 1024 * 1024  # bytes of all outputs together that the batch's own output contains
_LARGE = ("parameters", "parameters_asked", "output", "observation")
# Characters and bytes that the answer would contain; an output outside its row is not counted.
_WEIGHT = Length("observation") + Case(
    When(output_digest="", then=Coalesce("output_bytes", Value(0))),
    default=Value(0),
    output_field=IntegerField(),
)
_NOT_MADE = {
    "CANCELLED": "Cancelled before it was made.",
    "SKIPPED": "A call before it failed, and the batch was to stop then; this one was never made.",
}


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One input of a batch. `execution` is None if there is none, or not yet, or the caller may not
    read it; then the other fields say what is known. `cut` says that there was no room for its
    output and its observation."""

    position: int
    given: BatchInput
    execution: Execution | None
    status: str
    execution_id: UUID | str | None = None
    error_code: str | None = None
    error_message: str | None = None
    cut: bool = False


@dataclass(frozen=True, slots=True)
class _KnownCalls:
    """The calls of a batch by place. `whole` are the places whose outputs are loaded."""

    calls: dict[str, Execution]
    absent: dict[str, NestedCall]
    cancelled: list[str]
    whole: set[str]
    over: bool


def run_batch_turn(view: Composition) -> Result | WaitCondition:
    wanted = view.parameters
    try:
        inputs = parse_batch_inputs(wanted)
    except ValueError as flaw:
        raise CompositionFailed("INPUTS_WRONG", str(flaw)) from None
    most = _max_open(wanted)
    stop = wanted["stop_on_error"]
    for number, one in enumerate(batch_inputs_with_references(wanted, view.raw_parameters)):
        place = str(number)
        if place in view.calls or view.is_unwanted(place):
            continue
        if view.open_count >= most or (
            stop and _any_failed(view)
        ):  # it looks at all calls: only as needed
            break
        view.begin_call(place, *one, references=True)
    if view.open_count:
        _report_progress(view, len(inputs))
        return WaitCondition(below=view.open_count if _any_left(view, inputs, stop=stop) else 1)
    return _result(view, inputs, stopped=stop and _any_failed(view))


def result_entry(
    made: NestedCall | None, given: BatchInput, number: int, *, reason: str
) -> dict[str, Any]:
    """One entry of the results: what became of one input."""
    if made is None:
        return {
            "position": number,
            "tool_name": given.tool_name,
            "status": Status.CANCELLED,
            "execution_id": None,
            "error_code": reason,
            "error_message": _NOT_MADE[reason],
        }
    return {
        "position": number,
        "tool_name": made.tool_name,
        "status": made.status,
        "execution_id": str(made.id) if made.id else None,
        "error_code": made.error_code or None,
        "error_message": made.error_message or None,
    }


def reason_not_made(cancelled_places: list[str], place: str) -> str:
    """The reason for a call of a batch that is over and never made it."""
    return "CANCELLED" if place in cancelled_places else "SKIPPED"


def _max_open(wanted: dict[str, Any]) -> int:
    if wanted["mode"] != PARALLEL:
        return 1
    most = wanted["max_parallel"]
    return min(most, MOST_PARALLEL) if type(most) is int and most > 0 else 1


def _any_failed(view: Composition) -> bool:
    """Whether a call ended without success; a cancelled one does not count."""
    return any(
        not one.open and one.status not in {Status.SUCCESS, Status.CANCELLED}
        for one in view.calls.values()
    )


def _any_left(view: Composition, inputs: list[BatchInput], *, stop: bool) -> bool:
    """Whether there are calls that have not begun and may begin."""
    if stop and _any_failed(view):
        return False
    begun = view.calls.keys() | set(view.execution.cancelled_places)
    return any(str(number) not in begun for number in range(len(inputs)))


def _report_progress(view: Composition, total: int) -> None:
    over = sum(not one.open for one in view.calls.values())
    if view.memory.get("told") != over:
        view.memory["told"] = over
        view.report_progress(f"{over} of {total} calls are over; {view.open_count} are open.")


def _result(view: Composition, inputs: list[BatchInput], *, stopped: bool) -> Result:
    results = [
        result_entry(
            view.calls.get(str(number)),
            given,
            number,
            reason=reason_not_made(view.execution.cancelled_places, str(number)),
        )
        for number, given in enumerate(inputs)
    ]
    counts = _count_results(results)
    if stopped:
        return Result(
            Status.FAILED,
            error_code="BATCH_STOPPED",
            error_message=f"A call failed and the batch was to stop then. {counts['succeeded']} of"
            f" {len(inputs)} had succeeded; see error_details.results.",
            error_details={"results": results, **counts},
        )
    _add_outputs(view, results)
    return Result(Status.SUCCESS, output={"results": results, **counts})


def _count_results(results: list[dict[str, Any]]) -> dict[str, int]:
    succeeded = sum(one["status"] == Status.SUCCESS for one in results)
    cancelled = sum(one["status"] == Status.CANCELLED for one in results)
    failed = len(results) - succeeded - cancelled
    return {"succeeded": succeeded, "failed": failed, "cancelled": cancelled}


def _add_outputs(view: Composition, results: list[dict[str, Any]]) -> None:
    """Each output, in order, as long as there is room; without room, a flag instead."""
    succeeded = {str(one["position"]): one for one in results if one["status"] == Status.SUCCESS}
    outputs = view.load_outputs(succeeded, most_bytes=MOST_OUTPUT)
    for place, entry in succeeded.items():
        output = {"output": outputs[place]} if place in outputs else {"output_left_out": True}
        entry.update(output)


def find_batch(caller: Caller, identifier: UUID) -> Execution:
    """A batch the caller may read. Raises `NotFound` also for an execution of another tool."""
    rows = (
        readable_executions(caller)
        .shown()
        .filter(pk=identifier, tool_version__definition__implementation__entry_point=RUN_BATCH)
    )
    found = rows.first()
    if found is None:
        raise NotFound("There is no such batch among yours.", code="batch_not_found")
    return found


def batch_rows(caller: Caller, batch: Execution) -> list[BatchRow]:
    """In the order of the inputs."""
    inputs = batch_inputs(batch)
    calls = _readable_calls(caller, batch)
    whole = _load_outputs(batch, calls)
    known = _known_calls(batch, calls, whole)
    return [_batch_row(number, given, known) for number, given in enumerate(inputs)]


def batch_rows_between(caller: Caller, batch: Execution, first: int, last: int) -> list[BatchRow]:
    """Those from one place to before another, without parameters and outputs."""
    inputs = batch_inputs(batch)[first:last]
    places = [str(number) for number in range(first, first + len(inputs))]
    rows = readable_executions(caller).shown().children_of(batch.pk).filter(place__in=places)
    calls = {call.place: call for call in rows.defer(*_LARGE)}
    known = _known_calls(batch, calls, set(calls))
    return [_batch_row(first + at, given, known) for at, given in enumerate(inputs)]


def batch_inputs(batch: Execution) -> list[BatchInput]:
    """Empty for a batch that was refused for invalid inputs."""
    try:
        return batch_inputs_with_references(batch.parameters, batch.asked)
    except ValueError:
        return []


def cancel_batch(
    *, caller: Caller, batch: Execution, positions: Collection[int] | None
) -> Execution:
    """Cancel the batch, or some calls: queued calls never begin, running ones are stopped.

    Another caller's batch needs permission to change executions. Raises `Forbidden`, `Conflict`,
    `Malformed`.
    """
    check_may_cancel(caller, batch)
    if positions is None:
        return answer.cancel(caller=caller, execution=batch)
    places = _parse_positions(batch, positions)
    with transaction.atomic():
        _mark_cancelled(caller, batch, places)
    calls = Execution.objects.children_of(batch.pk).filter(place__in=places)
    for call_id in list(calls.values_list("pk", flat=True)):
        with suppress(Conflict):  # it has ended meanwhile
            answer.cancel_execution(call_id, by=actor_of(caller))
    dispatch.wake_workers([batch.pk])
    return find_batch(caller, batch.pk)


def check_may_cancel(caller: Caller, batch: Execution) -> None:
    """Raises `Forbidden`."""
    if batch.user_id != caller.user_id:
        require(caller, "change_execution")


def _known_calls(batch: Execution, calls: dict[str, Execution], whole: set[str]) -> _KnownCalls:
    row = Execution.objects.only("memory", "cancelled_places").get(pk=batch.pk)
    absent = absent_calls(row.memory) | _unreadable_calls(batch, calls)
    return _KnownCalls(calls, absent, row.cancelled_places, whole, batch.is_final)


def _batch_row(number: int, given: BatchInput, known: _KnownCalls) -> BatchRow:
    place = str(number)
    if place in known.calls:
        call = known.calls[place]
        call.parameters_asked = given.parameters
        cut = call.status == Status.SUCCESS and place not in known.whole
        return BatchRow(number, given, call, call.status, call.pk, cut=cut)
    if place in known.absent or known.over or place in known.cancelled:
        reason = reason_not_made(known.cancelled, place)
        entry = result_entry(known.absent.get(place), given, number, reason=reason)
        names = ("status", "execution_id", "error_code", "error_message")
        return BatchRow(number, given, None, *(entry[name] for name in names))
    return BatchRow(number, given, None, "Pending")


def _readable_calls(caller: Caller, batch: Execution) -> dict[str, Execution]:
    """Calls that the caller may read, by place, without their large columns."""
    rows = readable_executions(caller).shown().children_of(batch.pk)
    return {call.place: call for call in rows.defer(*_LARGE)}


def _unreadable_calls(batch: Execution, calls: dict[str, Execution]) -> dict[str, NestedCall]:
    """What the batch itself reports of calls that the caller may not read."""
    return {one.place: one for one in calls_in_order(batch.pk) if one.place not in calls}


def _load_outputs(batch: Execution, calls: dict[str, Execution]) -> set[str]:
    """Outputs and observations, in order as long as there is room; the places that have them."""
    rows = Execution.objects.children_of(batch.pk).filter(status=Status.SUCCESS)
    weights = dict(rows.annotate(weight=_WEIGHT).values_list("place", "weight"))
    room, places = MOST_OUTPUT, []
    for place, call in sorted(calls.items(), key=lambda one: int(one[0])):
        call.output, call.observation = None, ""
        room -= weights.get(place, 0)
        if call.status == Status.SUCCESS and room >= 0:
            places.append(place)
    found = rows.filter(place__in=places).values_list("place", "output", "observation")
    for place, output, observation in found:
        calls[place].output, calls[place].observation = output, observation
    return set(places)


def _parse_positions(batch: Execution, positions: Collection[int]) -> set[str]:
    count = len(parse_batch_inputs(batch.parameters))
    if any(not 0 <= position < count for position in positions):
        raise Malformed(f"positions are whole numbers from 0 to {count - 1}.", field="positions")
    return {str(position) for position in positions}


def _mark_cancelled(caller: Caller, batch: Execution, places: set[str]) -> None:
    row = Execution.objects.filter(pk=batch.pk)
    found = row.select_for_update(no_key=True).only("status", "cancelled_places").get()
    if found.is_final:
        raise Conflict("The batch is over already.", code="batch_over")
    row.update(cancelled_places=sorted({*found.cancelled_places, *places}, key=int))
    record(
        Event.TOOL_CANCEL,
        by=actor_of(caller),
        outcome=Outcome.CHANGED,
        subject=batch.tool_name,
        execution_id=batch.pk,
        details={"places": sorted(places, key=int)},
    )


register_kind(RUN_BATCH, CompositeKind(run_batch_turn))
