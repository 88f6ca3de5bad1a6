"""The steps of a run, told from the rows of its calls: nothing of them is stored twice.

The place of a question to the model is `think/3`, or `think/3#2` where it was asked once more; of
the call that its answer led to, `act/3`.
"""

from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Self
from uuid import UUID

from django.db.models import Case, IntegerField, TextField, When
from django.db.models.functions import Cast, Left, Length

from tools.definitions.results import OPEN, Status
from tools.execution import outputs
from tools.execution.composing import Made, absent_calls
from tools.models import Execution
from tools.models.execution import ExecutionQuerySet

THINK, ACT = "think/", "act/"
MOST_OBSERVATION = 8_000  # characters that a model is shown
_BYTES_PER_TOKEN = 3  # where an endpoint counts none: rather too many than too few
_COLUMNS = (
    "pk", "place", "tool_name", "status", "error_code", "error_message", "error_details",
    "parameters", "cost", "metrics", "created_at", "completed_at", "state", "state_after",
    "output_bytes",
)  # fmt: skip
_CALLED = ("parameters", "error_details", "output_bytes")
_OUTPUT = (
    "organization_id", "output", "output_digest", "output_type", "output_expired_at",
)  # fmt: skip

# Characters of a question whose tokens nobody counted. Of all others it stays in the database.
_ASKED = Case(
    When(metrics__has_key="input_tokens", then=None),
    default=Length(Cast("parameters", TextField())),
    output_field=IntegerField(null=True),
)


@dataclass(frozen=True, slots=True)
class Action:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Move:
    """What the model said in one turn: an action, or an answer, or what is wrong with it."""

    text: str = ""
    thought: str = ""
    action: Action | None = None
    answer: str | None = None
    flaw: str | None = None

    @classmethod
    def of(cls, output: Any) -> Self:
        """From what `ask_model` gave back; what has expired says so."""
        if not isinstance(output, dict):
            return cls(flaw="What was said has expired.")
        action = output.get("action")
        return cls(
            str(output.get("text") or ""),
            str(output.get("thought") or ""),
            Action(action["name"], action["arguments"]) if action else None,
            output.get("answer"),
            output.get("flaw"),
        )


@dataclass(frozen=True, slots=True)
class Spent:
    """By one call, or by several."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal = Decimal(0)
    duration_ms: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
            self.duration_ms + other.duration_ms,
        )

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Step:
    """`execution_id` is the action's; None where there is no row of it. `observation` is None as
    long as the action is open, or where there was none; `status` is empty before it begins."""

    number: int
    move: Move
    observation: str | None
    status: str
    execution_id: UUID | None
    thinking: Spent
    acting: Spent = Spent()
    place: str = ""  # of the last call that was made of it


def observation_of(row: Any, made: Made | None = None) -> str:
    """What became of a call, in words: its observation, or why there is none."""
    if made is not None:
        return f"{made.error_code}: {made.error_message}"
    if row.status == Status.SUCCESS:
        return str(row.seen)
    return f"{row.error_code or row.status}: {row.error_message}"


class Rows:
    """The calls of one run, of those that a reader may see. Three queries at most.

    Of a replay the calls are those of the run that it replays: whoever may read the questions of
    the replay reads them there anyway.
    """

    def __init__(self, run: Execution, readable: ExecutionQuerySet) -> None:
        thinks = readable.filter(parent=run.pk, place__startswith=THINK).annotate(asked_size=_ASKED)
        self.thinks = {row.place: row for row in thinks.only(*_COLUMNS, *_OUTPUT)}
        self.acts = _acts(run.pk, readable)
        self.absent = absent_calls(run.memory)
        self._replayed: dict[str, str] = run.memory.get("replayed", {})
        if self._replayed:
            self._take_from(run.parameters["replays"])

    def _take_from(self, recorded: str) -> None:
        there = _acts(UUID(recorded), Execution.objects.all())
        gone = absent_calls(Execution.objects.values_list("memory", flat=True).get(pk=recorded))
        for place, source in self._replayed.items():
            if source in there:
                self.acts[place] = there[source]
            elif source in gone:
                self.absent[place] = gone[source]

    def state_after(self, state: str) -> str:
        """Where the replayed calls have led, from a state on."""
        for place in sorted(self._replayed, key=number_of):
            row = self.acts.get(place)
            state = row.state_after or state if row is not None else state
        return state

    def move(self, number: int) -> Move | None:
        """Of a step, once the model has said something."""
        row = self._last_thought(number)
        if row is None or row.status != Status.SUCCESS:
            return None
        return Move.of(outputs.whole(row) if row.output_expired_at is None else None)

    def steps(self) -> list[Step]:
        """Those whose thought is over, in their order."""
        found = []
        number = 1
        while (move := self.move(number)) is not None:
            found.append(self._step(number, move))
            number += 1
        return found

    def told(self) -> dict[str, Any] | None:
        """Of a plan: its steps and what became of them."""
        return None

    @cached_property
    def spent(self) -> Spent:
        own = [] if self._replayed else self.acts.values()  # what was replayed cost nothing
        every = [*self.thinks.values(), *own]
        below = _below([row.pk for row in own if row.composite])
        return sum(map(spent_by, every), start=below)

    def _last_thought(self, number: int) -> Execution | None:
        place, last, attempt = f"{THINK}{number}", None, 2
        row = self.thinks.get(place)
        while row is not None:
            last, row = row, self.thinks.get(f"{place}#{attempt}")
            attempt += 1
        return last

    def _step(self, number: int, move: Move) -> Step:
        move = self._by_own_name(number, move)
        thinking, place = self.thinking(number), f"{ACT}{number}"
        row = self.acts.get(place)
        if row is not None:
            seen = None if row.status in OPEN else observation_of(row)
            return Step(number, move, seen, row.status, row.pk, thinking, spent_by(row), place)
        made = self.absent.get(place)
        if made is not None:
            seen = observation_of(None, made)
            return Step(number, move, seen, made.status, None, thinking, place=place)
        status = "" if move.action else Status.SUCCESS
        return Step(number, move, move.flaw, status, None, thinking)

    def _by_own_name(self, number: int, move: Move) -> Move:
        """Endpoints do not allow every name of a tool (`toolbox.function_name`)."""
        place = f"{ACT}{number}"
        made = self.acts.get(place) or self.absent.get(place)
        if move.action is None or made is None:
            return move
        return replace(move, action=Action(made.tool_name, move.action.arguments))

    def thinking(self, number: int) -> Spent:
        """With the attempts that came to nothing."""
        place = f"{THINK}{number}"
        own = [row for at, row in self.thinks.items() if at.partition("#")[0] == place]
        return sum(map(spent_by, own), start=Spent())


def _acts(run: UUID, readable: ExecutionQuerySet) -> dict[str, Any]:
    rows = readable.filter(parent=run, place__startswith=ACT)
    seen = rows.annotate(seen=Left("observation", MOST_OBSERVATION + 1))
    return {row.place: row for row in seen.only(*_COLUMNS, *_CALLED)}


def _below(parents: list[UUID]) -> Spent:
    """By calls that composite ones made, and by those below these: no batch, chain, program or
    other run is a way around what a run may spend."""
    total = Spent()
    while parents:
        rows = Execution.objects.filter(parent__in=parents)
        found = list(rows.values_list("pk", "composite", "cost", "metrics"))
        for _, _, cost, metrics in found:
            went, said = (metrics.get(name) or 0 for name in ("input_tokens", "output_tokens"))
            total += Spent(int(went), int(said), cost)
        parents = [pk for pk, composite, *_ in found if composite]
    return total


def number_of(place: str) -> int:
    """Of the step that a call belongs to."""
    return int(place.partition("/")[2].partition("#")[0])


def spent_by(row: Any) -> Spent:
    """Where the endpoint counted no tokens, they are estimated by the bytes that went and came."""
    came, ended = row.metrics or {}, row.completed_at
    took = (ended - row.created_at).total_seconds() * 1000 if ended else 0.0
    took = max(0.0, took)  # a refusal's end is of another clock than its row
    if not row.place.startswith(THINK) or row.status in OPEN:
        return Spent(cost=row.cost or Decimal(0), duration_ms=took)
    went = came.get("input_tokens")
    if went is None:
        went = (row.asked_size or 0) // _BYTES_PER_TOKEN
    said = came.get("output_tokens")
    if said is None:
        said = (row.output_bytes or 0) // _BYTES_PER_TOKEN
    return Spent(int(went), int(said), row.cost or Decimal(0), took)
