"""One run of a chain, as its rows tell it: which steps are over, and what they gave back."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from tools.definitions.chains import values
from tools.definitions.chains.document import Chain, Step
from tools.definitions.chains.values import TooMuch, Unknown
from tools.definitions.results import Status
from tools.definitions.vocabulary import Delivery
from tools.execution.composing import Composition, Made
from tools.execution.composition import Waiting

UNDO = "undo:"
MOST_READ = 32 * 1024 * 1024  # bytes of outputs, which a turn holds in memory
clock = timezone.now
_TRIED_AGAIN = frozenset({Status.FAILED, Status.TIMEOUT, Status.SANDBOX_ERROR})
_BRIEFLY = frozenset({"rate_limited", "too_many_held"})
_REPEATABLE = frozenset({Delivery.PURE, Delivery.IDEMPOTENT})


@dataclass(frozen=True, slots=True)
class Open:
    """Not over: fewer than `below` of the run's calls must be open, or `until` must have come."""

    below: int = 1
    until: datetime | None = None

    @classmethod
    def of(cls, states: Iterable["Open"], *, last: bool = False) -> "Open":
        """Of items of a loop: any of them that ends makes room; after the last, all must end."""
        found = list(states)
        running = [state for state in found if state.until is None]
        moments = [state.until for state in found if state.until is not None]
        below = 1 if last and not moments else len(running)
        return cls(below, min(moments, default=None))


@dataclass(frozen=True, slots=True)
class Succeeded:
    places: tuple[str, ...]  # of its calls: one, or one for each item of its loop


@dataclass(frozen=True, slots=True)
class Failed:
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """Its condition did not hold."""


type Over = Succeeded | Failed | Skipped
type StepState = Over | Open
_WORDS = {Succeeded: "succeeded", Failed: "failed", Skipped: "skipped"}


class Run:
    """The scope of its values and conditions, too."""

    def __init__(self, view: Composition) -> None:
        self.view = view
        self.chain: Chain = view.definition.chain
        self._states: dict[str, Over] = {}
        self._outputs: dict[str, Any] = {}
        self._item: Any = None
        self._in_loop = False

    # --- what values and conditions ask ---
    @property
    def input(self) -> dict[str, Any]:
        return self.view.parameters

    def output(self, step: str) -> Any:
        state = self._states.get(step)
        if not isinstance(state, Succeeded):
            raise Unknown(f"it {self.state(step)}" if state else "it has not run")
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
            raise Unknown("there is no item outside a loop")
        return self._item

    def state(self, step: str) -> str:
        return _WORDS[type(self._states[step])]

    # --- what the turn asks ---
    def settle(self, step: Step, state: Over) -> None:
        self._states[step.id] = state

    def at(self, item: Any) -> None:
        """Values are asked at an item of a loop from here on."""
        self._item, self._in_loop = item, True

    def call(self, step: Step, place: str, *, item: Any = None) -> StepState:
        """The last attempt of one call, made if it can be."""
        self._item, self._in_loop = item, step.loop
        attempt, made = self._last_attempt(place)
        if made is None:
            return self._begin(step, place)
        if made.open:
            return Open()
        if made.succeeded:
            return Succeeded((place,))
        if attempt >= step.attempts or not self._tried_again(made):
            return Failed(made.error_code, made.error_message)
        due = (made.completed_at or clock()) + timedelta(seconds=step.wait_s(attempt))
        if clock() < due:
            return Open(below=0, until=due)
        return self._begin(step, f"{place}#{attempt + 1}")

    def stop_steps(self) -> None:
        """Nobody waits for what is open of its steps any more; what undoes goes on."""
        self.view.cancel_open(place for place in list(self.view.made) if not _undoes(place))

    def steps_open(self) -> Waiting | None:
        """While steps run it is not known what there is to undo."""
        opened = [one for one in self.view.made.values() if one.open and not _undoes(one.place)]
        return Waiting(below=1) if opened else None

    def done(self) -> Iterator[tuple[Step, str, Made]]:
        """What succeeded, the last first: each with the place of its call, without the attempt."""
        for step in reversed(self.chain.steps):
            calls = [
                (place, made) for place, made in self._calls_of(step.id).items() if made.succeeded
            ]
            for place, made in reversed(calls):
                yield step, place, made

    def boundary(self) -> dict[str, Any]:
        """What stays done, what was undone, what could not be, and what nobody knows."""
        found: dict[str, list[dict[str, Any]]] = {
            "committed": [], "compensated": [], "not_compensated": [], "unknown": [],
        }  # fmt: skip
        for step, place, made in self.done():
            undoing = self.view.made.get(f"{UNDO}{place}")
            told = {"step": step.id, "place": place, "execution_id": str(made.id)}
            if undoing is None:
                found["committed"].append(told)
            elif undoing.succeeded:
                found["compensated"].append(told | {"by": str(undoing.id)})
            else:
                why = {"by": str(undoing.id) if undoing.id else None, "code": undoing.error_code}
                found["not_compensated"].append(told | why)
        found["unknown"] = [
            {"place": one.place, "execution_id": str(one.id)}
            for one in self.view.made.values()
            if not one.succeeded and _may_have_happened(one)
        ]
        return found

    def items_of(self, step: Step) -> list[Any]:
        """Of a loop that has run; raises `Unknown` where its list is gone."""
        found = values.resolved(step.for_each, self)
        return found if isinstance(found, list) else []

    def settle_for_undoing(self) -> None:
        """So that what undoes may use what the steps gave back."""
        for step in self.chain.steps:
            places = [place for place, made in self._calls_of(step.id).items() if made.succeeded]
            if places:
                self._states[step.id] = Succeeded(tuple(places))

    def _begin(self, step: Step, place: str) -> StepState:
        try:
            parameters = values.resolved(step.parameters, self)
        except Unknown as absence:
            return Failed(absence.code, f"{absence}.")
        made = self.view.begin(place, step.tool_name, parameters, timeout_s=step.timeout_s)
        if made.open:
            return Open()
        base = place.partition("#")[0]
        if made.succeeded:  # the answer was known already
            return Succeeded((base,))
        return self.call(step, base, item=self._item)

    def _last_attempt(self, place: str) -> tuple[int, Made | None]:
        attempt, made = 1, self.view.made.get(place)
        while (later := self.view.made.get(f"{place}#{attempt + 1}")) is not None:
            attempt, made = attempt + 1, later
        return attempt, made

    def _tried_again(self, made: Made) -> bool:
        """Not what was refused for good, nor what may have had an effect that must not double."""
        if made.error_code in _BRIEFLY:
            return True
        if made.status not in _TRIED_AGAIN:
            return False
        return not _may_have_happened(made) or self._repeatable(made.tool_name)

    def _repeatable(self, name: str) -> bool:
        """Of what makes calls of its own, these decide: they are made once more with it."""
        tool = self.view.performance.snapshot.tool(name)
        if tool is None or tool.definition.composite:
            return False
        return tool.definition.raw["delivery"] in _REPEATABLE

    def _calls_of(self, step: str) -> dict[str, Made]:
        """Its last attempts by place, in the order of a loop's items."""
        found: dict[str, Made] = {}
        for place in self.view.made:
            base = place.partition("#")[0]
            if base == step or base.startswith(f"{step}/"):
                attempt = self._last_attempt(base)[1]
                if attempt is not None:
                    found[base] = attempt
        return dict(sorted(found.items(), key=lambda one: _number(one[0])))

    def _output(self, step: str, state: Succeeded) -> Any:
        if self._bytes_until(step) > MOST_READ:
            limit = f"it and the steps before it gave back more than {MOST_READ} bytes"
            raise TooMuch(f"it cannot be read: {limit}")
        succeeded = self._succeeded(state)
        outputs = self.view.outputs(succeeded.values())
        if len(outputs) < len(succeeded):
            raise Unknown("what it gave back has expired")
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
        attempts = {place: self._last_attempt(place)[1] for place in state.places}
        return {place: one.place for place, one in attempts.items() if one and one.succeeded}


def _undoes(place: str) -> bool:
    return place.startswith(UNDO)


def _may_have_happened(made: Made) -> bool:
    return bool((made.error_details or {}).get("effect_possible")) or (
        made.error_code == "OUTCOME_UNKNOWN"
    )


def _number(place: str) -> int:
    _, _, number = place.partition("/")
    return int(number) if number else -1
