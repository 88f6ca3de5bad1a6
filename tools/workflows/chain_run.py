"""The state of one chain run, from its rows: which steps are over, and their outputs."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tools.definitions.chains import expressions
from tools.definitions.chains.chain_document import MOST_ATTEMPTS, Chain, ChainStep
from tools.definitions.chains.expressions import MissingValue, ValueTooLarge
from tools.execution.chain_boundary import boundary, calls_of, done, last_attempt, number_of
from tools.execution.composing import Composition, Made
from tools.execution.composition import Waiting
from tools.models.execution_queryset import UNDO
from tools.workflows import call_attempts
from tools.workflows.call_attempts import AttemptFailure, Open, Succeeded

MOST_READ = 32 * 1024 * 1024  # bytes of outputs, which a turn holds in memory
_EXPIRED = "what it gave back has expired"


@dataclass(frozen=True, slots=True)
class Skipped:
    """Its condition did not hold."""


type Over = Succeeded | AttemptFailure | Skipped
type StepState = Over | Open
_WORDS = {Succeeded: "succeeded", AttemptFailure: "failed", Skipped: "skipped"}


class ChainExecution:
    """The scope of its values and conditions, too."""

    def __init__(self, view: Composition) -> None:
        self.view = view
        self.chain: Chain = view.definition.chain
        self._states: dict[str, Over] = {}
        self._outputs: dict[str, Any] = {}
        self._item: Any = None
        self._in_loop = False
        self._undone = ("", "")  # the step that is being undone, and the place of its call

    # --- what values and conditions ask ---
    @property
    def input(self) -> dict[str, Any]:
        return self.view.parameters

    def output(self, step: str) -> Any:
        if step == self._undone[0]:
            return self._output_at(self._undone[1])
        state = self._states.get(step)
        if not isinstance(state, Succeeded):
            raise MissingValue(f"it {self.state(step)}" if state else "it has not run")
        if step not in self._outputs:
            self._outputs[step] = self._output(step, state)
        return self._outputs[step]

    def outputs(self, text: str) -> dict[str, Any]:
        found = {}
        for step, state in self._states.items():
            if step in text and isinstance(state, Succeeded):
                found[step] = {"output": self.output(step)}
        return found

    def item(self) -> Any:
        if not self._in_loop:
            raise MissingValue("there is no item outside a loop")
        return self._item

    def state(self, step: str) -> str:
        return _WORDS[type(self._states[step])]

    # --- what the turn asks ---
    def settle(self, step: ChainStep, state: Over) -> None:
        self._states[step.id] = state

    def at_undoing(self, step: ChainStep, place: str) -> None:
        """Values are asked for what undoes one call of a step from here on: with its item, where
        it has one, and its own output instead of the list. Raises `MissingValue`.
        """
        self._undone, self._in_loop = (step.id, place), step.loop
        self._item = self._item_at(step, number_of(place)) if step.loop else None

    def call(self, step: ChainStep, place: str, *, item: Any = None) -> StepState:
        """The last attempt of one call, made if it can be."""
        self._item, self._in_loop = item, step.loop
        standing = self.standing(step, place)
        return self._begin(step, standing) if isinstance(standing, str) else standing

    def standing(self, step: ChainStep, place: str) -> StepState | str:
        """Of one call; or the place of the attempt that is to be made of it now."""
        snapshot = self.view.performance.snapshot
        most = partial(_most_attempts, step)
        return call_attempts.standing(
            self.view.made, place, snapshot, most=most, wait_s=step.wait_s
        )

    def stop_steps(self) -> None:
        """Open steps are abandoned; compensations go on."""
        self.view.cancel_open([place for place in self.view.made if not _undoes(place)])

    def steps_open(self) -> Waiting | None:
        """While steps run it is not known what there is to undo."""
        opened = [one for one in self.view.made.values() if one.open and not _undoes(one.place)]
        return Waiting(below=1) if opened else None

    def done(self) -> Iterator[tuple[ChainStep, str, Made]]:
        """What succeeded, the last first: each with the place of its call, without the attempt."""
        return done(self.chain, self.view.made)

    def boundary(self) -> dict[str, Any]:
        """What stays done, what was undone, what could not be, and what is unknown."""
        return boundary(self.chain, self.view.made)

    def settle_for_undoing(self) -> None:
        """So that what undoes may use what the steps gave back: of a loop what its items did, each
        at its place, `null` where one failed."""
        for step in self.chain.steps:
            calls = calls_of(step.id, self.view.made)
            if step.loop and calls:
                most = max(map(number_of, calls))
                places = [f"{step.id}/{number}" for number in range(most + 1)]
            else:
                places = [place for place, made in calls.items() if made.succeeded]
            if places:
                self._states[step.id] = Succeeded(tuple(places))

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
        made = self.view.begin(place, step.tool_name, parameters, timeout_s=step.timeout_s)
        if made.open:
            return Open()
        base = place.partition("#")[0]
        if made.succeeded:  # the answer was known already
            return Succeeded((base,))
        return self.call(step, base, item=self._item)

    def _output_at(self, place: str) -> Any:
        made = last_attempt(self.view.made, place)[1]
        found = self.view.outputs([made.place]) if made else {}
        if not found:
            raise MissingValue(_EXPIRED)
        return next(iter(found.values()))

    def _output(self, step: str, state: Succeeded) -> Any:
        if self._bytes_until(step) > MOST_READ:
            limit = f"it and the steps before it gave back more than {MOST_READ} bytes"
            raise ValueTooLarge(f"it cannot be read: {limit}")
        succeeded = self._succeeded(state)
        outputs = self.view.outputs(succeeded.values())
        if len(outputs) < len(succeeded):
            raise MissingValue(_EXPIRED)
        if state.places == (step,):
            return outputs[succeeded[step]]
        return [outputs.get(succeeded.get(place, "")) for place in state.places]

    def _bytes_until(self, step: str) -> int:
        """Of all outputs up to a step's that is over: as much in each later turn."""
        total = 0
        for one in self.chain.steps:
            state = self._states.get(one.id)
            if isinstance(state, Succeeded):
                places = self._succeeded(state).values()
                total += sum(self.view.made[place].output_bytes or 0 for place in places)
            if one.id == step:
                break
        return total

    def _succeeded(self, state: Succeeded) -> dict[str, str]:
        """By place, that of its last attempt: an item of a loop may have failed."""
        attempts = {place: last_attempt(self.view.made, place)[1] for place in state.places}
        return {place: one.place for place, one in attempts.items() if one and one.succeeded}


def _most_attempts(step: ChainStep, made: Made) -> int:
    """A compensation is retried after a temporary refusal, regardless of the step's own limit."""
    briefly = made.error_code in call_attempts.BRIEFLY and _undoes(made.place)
    return MOST_ATTEMPTS if briefly else step.attempts


def _undoes(place: str) -> bool:
    return place.startswith(UNDO)
