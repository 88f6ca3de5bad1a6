"""Actions on batches for the entry points: read one with its calls, and cancel some of these."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
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
from tools.execution import actions, cancelling, hints, reading
from tools.execution.composing import Made, absent_calls, calls_in_order
from tools.models import Execution
from tools.workflows.batch import MOST_OUTPUT, entry, why_never


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One input of a batch. `execution` is None where there is none, or not yet, or the caller may
    not read it; then the other fields say what is known. Where it is `cut` there was no room for
    its output and its observation."""

    position: int
    given: BatchInput
    execution: Execution | None
    status: str
    execution_id: UUID | str | None = None
    error_code: str | None = None
    error_message: str | None = None
    cut: bool = False


def one_of(caller: Caller, identifier: UUID) -> Execution:
    """A batch the caller may read. Raises `NotFound` also for an execution of another tool."""
    rows = (
        reading.readable(caller)
        .shown()
        .filter(pk=identifier, tool_version__definition__implementation__entry_point=RUN_BATCH)
    )
    found = rows.first()
    if found is None:
        raise NotFound("There is no such batch among yours.", code="batch_not_found")
    return found


def lines_of(caller: Caller, batch: Execution) -> list[BatchRow]:
    """In the order of the inputs."""
    inputs = given_to(batch)
    calls = _calls_of(caller, batch)
    whole = _fill(batch, calls)
    known = _known(batch, calls, whole)
    return [_line(number, given, known) for number, given in enumerate(inputs)]


def lines_between(caller: Caller, batch: Execution, first: int, last: int) -> list[BatchRow]:
    """Those from one place to before another, without what went in and what came back."""
    inputs = given_to(batch)[first:last]
    places = [str(number) for number in range(first, first + len(inputs))]
    rows = reading.readable(caller).shown().filter(parent=batch.pk, place__in=places)
    calls = {call.place: call for call in rows.defer(*_LARGE)}
    known = _known(batch, calls, set(calls))
    return [_line(first + at, given, known) for at, given in enumerate(inputs)]


def given_to(batch: Execution) -> list[BatchInput]:
    """None where it was refused for what they were."""
    try:
        return batch_inputs_with_references(batch.parameters, batch.asked)
    except ValueError:
        return []


@dataclass(frozen=True, slots=True)
class _KnownCalls:
    """What became of the inputs, by their places. `whole` are those whose outputs are there."""

    calls: dict[str, Execution]
    absent: dict[str, Made]
    cancelled: list[str]
    whole: set[str]
    over: bool


def _known(batch: Execution, calls: dict[str, Execution], whole: set[str]) -> _KnownCalls:
    row = Execution.objects.only("memory", "cancelled_places").get(pk=batch.pk)
    absent = absent_calls(row.memory) | _unreadable(batch, calls)
    return _KnownCalls(calls, absent, row.cancelled_places, whole, batch.over)


def _line(number: int, given: BatchInput, known: _KnownCalls) -> BatchRow:
    place = str(number)
    if place in known.calls:
        call = known.calls[place]
        call.parameters_asked = given.parameters
        cut = call.status == Status.SUCCESS and place not in known.whole
        return BatchRow(number, given, call, call.status, call.pk, cut=cut)
    if place in known.absent or known.over or place in known.cancelled:
        why = why_never(known.cancelled, place)
        said = entry(known.absent.get(place), given, number, why=why)
        told = (said["status"], said["execution_id"], said["error_code"], said["error_message"])
        return BatchRow(number, given, None, *told)
    return BatchRow(number, given, None, "Pending")


_LARGE = ("parameters", "parameters_asked", "output", "observation")
# Characters and bytes that the answer would contain; an output outside its row is not counted.
_WEIGHT = Length("observation") + Case(
    When(output_digest="", then=Coalesce("output_bytes", Value(0))),
    default=Value(0),
    output_field=IntegerField(),
)


def _calls_of(caller: Caller, batch: Execution) -> dict[str, Execution]:
    """By place, without what may be large: those that the caller may read."""
    rows = reading.readable(caller).shown().filter(parent=batch.pk)
    return {call.place: call for call in rows.defer(*_LARGE)}


def _unreadable(batch: Execution, calls: dict[str, Execution]) -> dict[str, Made]:
    """What the batch itself reports of the others."""
    return {one.place: one for one in calls_in_order(batch.pk) if one.place not in calls}


def _fill(batch: Execution, calls: dict[str, Execution]) -> set[str]:
    """Outputs and observations, in order as long as there is room; the places that have theirs."""
    rows = Execution.objects.filter(parent=batch.pk, status=Status.SUCCESS)
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


def cancel(*, caller: Caller, batch: Execution, positions: Collection[int] | None) -> Execution:
    """Cancel all of it, or the calls named: queued calls never begin, running ones are stopped.

    Another caller's batch needs permission to change executions. Raises `Forbidden`, `Conflict`,
    `Malformed`.
    """
    check_may_cancel(caller, batch)
    if positions is None:
        return actions.cancel(caller=caller, execution=batch)
    places = _places(batch, positions)
    with transaction.atomic():
        _set_aside(caller, batch, places)
    calls = Execution.objects.filter(parent=batch.pk, place__in=places)
    for call_id in list(calls.values_list("pk", flat=True)):
        with suppress(Conflict):  # it was over sooner
            cancelling.stop(call_id, by=actor_of(caller))
    hints.tell([batch.pk])
    return one_of(caller, batch.pk)


def check_may_cancel(caller: Caller, batch: Execution) -> None:
    """Raises `Forbidden`."""
    if batch.user_id != caller.user_id:
        require(caller, "change_execution")


def _places(batch: Execution, positions: Collection[int]) -> set[str]:
    count = len(parse_batch_inputs(batch.parameters))
    if any(not 0 <= position < count for position in positions):
        raise Malformed(f"positions are whole numbers from 0 to {count - 1}.", field="positions")
    return {str(position) for position in positions}


def _set_aside(caller: Caller, batch: Execution, places: set[str]) -> None:
    row = Execution.objects.filter(pk=batch.pk)
    found = row.select_for_update(no_key=True).only("status", "cancelled_places").get()
    if found.over:
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
