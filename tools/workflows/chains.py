"""Runs of chains: one step after the other, each a governed call; what was done can be undone.

A turn works out from the rows of its calls where the run is, and begins what comes next. The place
of a call is its step's id; `page/3` is the fourth item of a loop, `page#2` the second attempt, and
`undo:page` what compensates it. The boundary of the transaction: each call commits by itself; when
a step finally fails, or the run is cancelled with compensation, the steps that succeeded are
compensated in reverse order, and the end says what stays, what was undone, and what could not be.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from tools.definitions.callers import Caller
from tools.definitions.chains import conditions, expressions
from tools.definitions.chains.chain_document import MOST_ATTEMPTS, MOST_ITEMS, Chain, ChainStep
from tools.definitions.chains.expressions import MissingValue, ValueTooLarge
from tools.definitions.results import Status
from tools.definitions.vocabulary import ToolType
from tools.errors import NotFound
from tools.execution.call import Result
from tools.execution.outputs import readable_executions
from tools.execution.run import apply_definition
from tools.models import Execution
from tools.models.execution_queryset import UNDO
from tools.workflows import call_attempts
from tools.workflows.call_attempts import AttemptFailure, AttemptOpen, AttemptSuccess
from tools.workflows.chain_boundary import (
    build_boundary,
    completed_calls,
    item_number,
    last_attempt,
    step_calls,
)
from tools.workflows.composition import CompositeKind, WaitCondition, register_kind
from tools.workflows.nested_calls import (
    Composition,
    CompositionFailed,
    NestedCall,
    absent_calls,
    calls_in_order,
)

MOST_READ = 32 * 1024 * 1024  # bytes of outputs, which a turn holds in memory
_EXPIRED = "what it gave back has expired"


@dataclass(frozen=True, slots=True)
class Skipped:
    """Its condition did not hold."""


type StepEnd = AttemptSuccess | AttemptFailure | Skipped
type StepState = StepEnd | AttemptOpen
_STATE_NAMES = {AttemptSuccess: "succeeded", AttemptFailure: "failed", Skipped: "skipped"}


class ChainExecution:
    """The state of one chain run, from its rows. It is the scope of values and conditions, too."""

    def __init__(self, view: Composition) -> None:
        self.view = view
        self.chain: Chain = view.definition.chain
        self._states: dict[str, StepEnd] = {}
        self._outputs: dict[str, Any] = {}
        self._item: Any = None
        self._in_loop = False
        self._compensated = ("", "")  # the step being compensated, and the place of its call

    # --- the scope of values and conditions ---
    @property
    def input(self) -> dict[str, Any]:
        return self.view.parameters

    def output(self, step: str) -> Any:
        if step == self._compensated[0]:
            return self._output_at(self._compensated[1])
        state = self._states.get(step)
        if not isinstance(state, AttemptSuccess):
            raise MissingValue(f"it {self.state(step)}" if state else "it has not run")
        if step not in self._outputs:
            self._outputs[step] = self._output(step, state)
        return self._outputs[step]

    def outputs(self, text: str) -> dict[str, Any]:
        found = {}
        for step, state in self._states.items():
            if step in text and isinstance(state, AttemptSuccess):
                found[step] = {"output": self.output(step)}
        return found

    def item(self) -> Any:
        if not self._in_loop:
            raise MissingValue("there is no item outside a loop")
        return self._item

    def state(self, step: str) -> str:
        return _STATE_NAMES[type(self._states[step])]

    # --- the state of steps ---
    def set_state(self, step: ChainStep, state: StepEnd) -> None:
        self._states[step.id] = state

    def enter_compensation(self, step: ChainStep, place: str) -> None:
        """From here on, values are those for the compensation of one call of a step: with its item,
        if it has one, and its own output instead of the list. Raises `MissingValue`.
        """
        self._compensated, self._in_loop = (step.id, place), step.loop
        self._item = self._item_at(step, item_number(place)) if step.loop else None

    def call(self, step: ChainStep, place: str, *, item: Any = None) -> StepState:
        """The last attempt of one call, made if it can be."""
        self._item, self._in_loop = item, step.loop
        state = self.attempt_state(step, place)
        return self._begin(step, state) if isinstance(state, str) else state

    def attempt_state(self, step: ChainStep, place: str) -> StepState | str:
        """The state of one call, or the place of the attempt that must be made now."""
        snapshot = self.view.performance.snapshot
        most = partial(_max_attempts, step)
        return call_attempts.attempt_state(
            self.view.calls, place, snapshot, most=most, wait_s=step.wait_s
        )

    def stop_steps(self) -> None:
        """Open steps are abandoned; compensations go on."""
        self.view.cancel_open_calls(
            [place for place in self.view.calls if not _is_compensation(place)]
        )

    def steps_open(self) -> WaitCondition | None:
        """While steps run it is not known what must be compensated."""
        opened = [
            one for one in self.view.calls.values() if one.open and not _is_compensation(one.place)
        ]
        return WaitCondition(below=1) if opened else None

    def done(self) -> Iterator[tuple[ChainStep, str, NestedCall]]:
        """Successful steps, the last first: each with the place of its call without the attempt."""
        return completed_calls(self.chain, self.view.calls)

    def boundary(self) -> dict[str, Any]:
        """What stays done, what was undone, what could not be, and what is unknown."""
        return build_boundary(self.chain, self.view.calls)

    def restore_states(self) -> None:
        """Let compensations refer to outputs of steps: of a loop, those of its items, each at its
        place, `null` for one that failed."""
        for step in self.chain.steps:
            calls = step_calls(step.id, self.view.calls)
            if step.loop and calls:
                most = max(map(item_number, calls))
                places = [f"{step.id}/{number}" for number in range(most + 1)]
            else:
                places = [place for place, made in calls.items() if made.succeeded]
            if places:
                self._states[step.id] = AttemptSuccess(tuple(places))

    def _item_at(self, step: ChainStep, number: int) -> Any:
        found = expressions.resolve_value(step.for_each, self)
        if not isinstance(found, list) or number >= len(found):
            raise MissingValue("the list of its items is another one now")
        return found[number]

    def _begin(self, step: ChainStep, place: str) -> StepState:
        try:
            parameters = expressions.resolve_value(step.parameters, self)
        except MissingValue as absence:
            return AttemptFailure(absence.code, f"{absence}.")
        made = self.view.begin_call(place, step.tool_name, parameters, timeout_s=step.timeout_s)
        if made.open:
            return AttemptOpen()
        base = place.partition("#")[0]
        if made.succeeded:  # the answer was known already
            return AttemptSuccess((base,))
        return self.call(step, base, item=self._item)

    def _output_at(self, place: str) -> Any:
        made = last_attempt(self.view.calls, place)[1]
        found = self.view.load_outputs([made.place]) if made else {}
        if not found:
            raise MissingValue(_EXPIRED)
        return next(iter(found.values()))

    def _output(self, step: str, state: AttemptSuccess) -> Any:
        if self._bytes_until(step) > MOST_READ:
            limit = f"it and the steps before it gave back more than {MOST_READ} bytes"
            raise ValueTooLarge(f"it cannot be read: {limit}")
        succeeded = self._succeeded(state)
        outputs = self.view.load_outputs(succeeded.values())
        if len(outputs) < len(succeeded):
            raise MissingValue(_EXPIRED)
        if state.places == (step,):
            return outputs[succeeded[step]]
        return [outputs.get(succeeded.get(place, "")) for place in state.places]

    def _bytes_until(self, step: str) -> int:
        """The size of all outputs up to that of a finished step: the same in each later turn."""
        total = 0
        for one in self.chain.steps:
            state = self._states.get(one.id)
            if isinstance(state, AttemptSuccess):
                places = self._succeeded(state).values()
                total += sum(self.view.calls[place].output_bytes or 0 for place in places)
            if one.id == step:
                break
        return total

    def _succeeded(self, state: AttemptSuccess) -> dict[str, str]:
        """By place, the place of its successful attempt: an item of a loop may have failed."""
        attempts = {place: last_attempt(self.view.calls, place)[1] for place in state.places}
        return {place: one.place for place, one in attempts.items() if one and one.succeeded}


def _max_attempts(step: ChainStep, made: NestedCall) -> int:
    """A compensation is retried after a temporary refusal, regardless of the step's own limit."""
    briefly = made.error_code in call_attempts.TEMPORARY_REFUSALS and _is_compensation(made.place)
    return MOST_ATTEMPTS if briefly else step.attempts


def _is_compensation(place: str) -> bool:
    return place.startswith(UNDO)


def run_chain_turn(view: Composition) -> Result | WaitCondition:
    run = ChainExecution(view)
    if view.cancelled or "ending" in view.memory:
        return _end_early(run)
    if view.out_of_time:
        message = f"The chain was not through within {view.timeout_s:g} s."
        return _begin_end(run, "TIMEOUT", message, status=Status.TIMEOUT)
    for step in run.chain.steps:
        try:
            state = _advance_step(run, step)
        except CompositionFailed as limit:
            return _begin_end(run, limit.code, str(limit), step=step)
        if isinstance(state, AttemptOpen):
            return WaitCondition(below=state.below, until=state.until)
        run.set_state(step, state)
        if isinstance(state, AttemptFailure) and step.on_error != "continue":
            return _begin_end(
                run, state.code, f"The step {step.id} failed: {state.message}", step=step
            )
    return _chain_result(run)


def _advance_step(run: ChainExecution, step: ChainStep) -> StepState:
    """The state of a step, after its calls that can begin have begun."""
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
    return _advance_loop(run, step, items)


def _advance_loop(run: ChainExecution, step: ChainStep, items: list[Any]) -> StepState:
    """At most `parallel` items run at once; a failed one ends the loop, or is left out."""
    states: list[StepState] = []
    for number, item in enumerate(items):
        opened = [state for state in states if isinstance(state, AttemptOpen)]
        if len(opened) >= step.parallel:
            return AttemptOpen.of_loop(opened)
        state = run.call(step, f"{step.id}/{number}", item=item)
        states.append(state)
        if isinstance(state, AttemptFailure) and step.on_error != "continue":
            return state
    if opened := [state for state in states if isinstance(state, AttemptOpen)]:
        return AttemptOpen.of_loop(opened, last=True)
    return AttemptSuccess(tuple(f"{step.id}/{number}" for number in range(len(items))))


def _chain_result(run: ChainExecution) -> Result | WaitCondition:
    """Settled here: if the output cannot be returned, there is something to undo."""
    try:
        output = expressions.resolve_value(run.chain.output, run)
    except MissingValue as absence:
        message = f"Every step is over, but the output cannot be made: {absence}."
        return _begin_end(run, "OUTPUT_MISSING", message)
    found = Result(Status.SUCCESS, output=output)
    apply_definition(run.view.performance.tool, found)
    if found.status != Status.SUCCESS:
        return _begin_end(run, found.error_code, found.error_message, about=found.error_details)
    return found


def _end_early(run: ChainExecution) -> Result | WaitCondition:
    """After a cancellation, or during compensation."""
    ending = run.view.memory.get("ending")
    if ending is None:
        message = "Cancelled while it ran."
        return _begin_end(run, "CANCELLED", message, status=Status.CANCELLED)
    return _end_after_compensation(run, ending)


def _begin_end(
    run: ChainExecution,
    code: str,
    message: str,
    *,
    step: ChainStep | None = None,
    status: Status = Status.FAILED,
    about: dict[str, Any] | None = None,
) -> Result | WaitCondition:
    """Store how the run ends before anything is compensated: another worker may have to continue.

    The step that ended the run, or else the chain, says whether steps are compensated.
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
    run.view.save_memory()
    return _end_after_compensation(run, ending)


def _end_after_compensation(run: ChainExecution, ending: dict[str, Any]) -> Result | WaitCondition:
    run.stop_steps()
    if (waiting := run.steps_open()) is not None:
        return waiting
    if ending["undoes"] and (waiting := compensate(run)) is not None:
        return waiting
    return Result(
        Status(ending["status"]),
        error_code=ending["code"],
        error_message=ending["message"],
        error_details=ending["about"] | {"step": ending["step"]} | run.boundary(),
    )


def compensate(run: ChainExecution) -> WaitCondition | None:
    """Undo the last step first, one call after the other; None when nothing is left to undo.

    A step without compensation stays. A compensation that fails is reported, and the others still
    run.
    """
    run.restore_states()
    for step, place, _made in run.done():
        if step.compensation_step is None:
            continue
        state = _compensate_call(run, step, step.compensation_step, place)
        if isinstance(state, AttemptOpen):
            return WaitCondition(below=state.below, until=state.until)
    return None


def _compensate_call(
    run: ChainExecution, step: ChainStep, undoing: ChainStep, place: str
) -> StepState:
    """The state of the compensation of one call of a step; its call is made if it can be."""
    state = run.attempt_state(undoing, f"{UNDO}{place}")
    if not isinstance(state, str):
        return state
    try:
        run.enter_compensation(step, place)
        parameters = expressions.resolve_value(undoing.parameters, run)
    except MissingValue as absence:
        run.view.report_progress(f"{place} cannot be compensated: {absence}")
        run.view.record_absent_call(state, undoing.tool_name, "VALUE_MISSING", str(absence))
    else:
        run.view.begin_call(state, undoing.tool_name, parameters, timeout_s=undoing.timeout_s)
    return _compensate_call(run, step, undoing, place)


def find_chain_run(caller: Caller, identifier: UUID) -> Execution:
    """A run the caller may read. Raises `NotFound` also for an execution of another tool."""
    found = (
        readable_executions(caller)
        .shown()
        .filter(pk=identifier, tool_version__definition__type=ToolType.CHAIN)
        .first()
    )
    if found is None:
        raise NotFound("There is no such run among yours.", code="run_not_found")
    return found


def calls_of_run(run: Execution) -> list[NestedCall]:
    """In the order in which they were made; what could not be made comes last."""
    memory = Execution.objects.values_list("memory", flat=True).get(pk=run.pk)
    return [*calls_in_order(run.pk), *absent_calls(memory).values()]


register_kind(ToolType.CHAIN, CompositeKind(run_chain_turn, handles_end=True))
