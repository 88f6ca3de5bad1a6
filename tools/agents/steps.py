"""The steps of an agent run, derived from the rows of its calls; nothing is stored twice."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self
from uuid import UUID

from tools.agents.call_rows import (
    ACT,
    NOTHING,
    THINK,
    CallRow,
    Spent,
    call_rows,
    number_of,
    spent_below,
)
from tools.definitions.results import Status
from tools.execution import outputs
from tools.execution.composing import Made, absent_calls
from tools.models import Execution
from tools.models.execution_queryset import ExecutionQuerySet

_MOST_PLACES = 10
_MOST_REASON = 300  # characters


@dataclass(frozen=True, slots=True)
class AgentAction:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AgentReply:
    """The model's reply in one turn: an action, an answer, or an error."""

    text: str = ""
    thought: str = ""
    action: AgentAction | None = None
    answer: str | None = None
    flaw: str | None = None
    further: tuple[dict[str, str], ...] = ()  # calls of the same reply, which were not made
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, output: Any) -> Self:
        """Parsed from the output of `ask_model`; an expired output is an error."""
        if not isinstance(output, dict):
            return cls(flaw="What was said has expired.")
        action = output.get("action")
        return cls(
            str(output.get("text") or ""),
            str(output.get("thought") or ""),
            AgentAction(action["name"], action["arguments"]) if action else None,
            output.get("answer"),
            output.get("flaw"),
            tuple(output.get("further_actions") or ()),
            tuple(output.get("warnings") or ()),
        )


@dataclass(frozen=True, slots=True)
class AgentStep:
    """`execution_id` is the action's; None where there is no row of it. `observation` is None as
    long as the action is open, or where there was none; `status` is empty before it begins."""

    number: int
    move: AgentReply
    observation: str | None
    status: str
    execution_id: UUID | None
    thinking: Spent
    acting: Spent = NOTHING
    place: str = ""  # of the last call that was made of it


def observation_of(row: CallRow) -> str:
    """What became of a call, in words: its observation, or why there is none."""
    if row.status == Status.SUCCESS:
        return str(row.seen)
    return f"{row.error_code or row.status}: {row.error_message}{_places(row.error_details)}"


def _places(details: Any) -> str:
    """What is wrong with each argument: a model cannot open the details of an error."""
    errors = details.get("errors") if isinstance(details, dict) else None
    if not isinstance(errors, list):
        return ""
    lines = [_place(one) for one in errors[:_MOST_PLACES] if isinstance(one, dict)]
    if len(errors) > _MOST_PLACES:
        lines.append(f"and {len(errors) - _MOST_PLACES} more")
    return "".join(f"\n- {line}" for line in lines)


def _place(error: dict[str, Any]) -> str:
    place = error.get("place") or error.get("path") or error.get("field") or "/"
    return f"{place}: {error.get('message', '')}"[:_MOST_REASON]


def absence_of(made: Made) -> str:
    """Why there is no row of a call, in words."""
    return f"{made.error_code}: {made.error_message}"


class AgentCallRows:
    """The calls of one run, of those that a reader may see. One query; of a replay three.

    Of a replay the calls are those of the run that it replays: a reader of the replay's questions
    reads those calls there anyway.
    """

    def __init__(self, run: Execution, readable: ExecutionQuerySet) -> None:
        rows = call_rows(run.pk, readable)
        self.thinks = {place: row for place, row in rows.items() if place.startswith(THINK)}
        self.acts = {place: row for place, row in rows.items() if place.startswith(ACT)}
        self.absent = absent_calls(run.memory)
        self._replayed: dict[str, str] = run.memory.get("replayed", {})
        if self._replayed:
            self._take_from(run.parameters["replays"])

    def _take_from(self, recorded: str) -> None:
        there = call_rows(UUID(recorded), Execution.objects.all())
        gone = absent_calls(Execution.objects.values_list("memory", flat=True).get(pk=recorded))
        for place, source in self._replayed.items():
            if source in there:
                self.acts[place] = there[source]
            elif source in gone:
                self.absent[place] = gone[source]

    def state_after(self, state: str) -> str:
        """The state after the replayed calls, from a given state."""
        for place in sorted(self._replayed, key=number_of):
            row = self.acts.get(place)
            state = row.state_after or state if row is not None else state
        return state

    def move(self, number: int) -> AgentReply | None:
        """Of a step, once the model has said something."""
        row = self._last_thought(number)
        if row is None or row.status != Status.SUCCESS:
            return None
        return AgentReply.of(outputs.whole(row) if row.output_expired_at is None else None)

    def steps(self) -> list[AgentStep]:
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
    def calls(self) -> dict[str, Made]:
        """Its actions, by place."""
        return {place: row.made for place, row in self.acts.items()} | self.absent

    @property
    def made(self) -> dict[str, Made]:
        """All calls that the composite call made."""
        return {place: row.made for place, row in self.thinks.items()} | self.calls

    @cached_property
    def spent(self) -> Spent:
        own = [] if self._replayed else self.acts.values()  # what was replayed cost nothing
        every = [*self.thinks.values(), *own]
        below = spent_below([row.pk for row in own if row.composite])
        return sum((row.spent for row in every), start=below)

    def _last_thought(self, number: int) -> CallRow | None:
        place, last, attempt = f"{THINK}{number}", None, 2
        row = self.thinks.get(place)
        while row is not None:
            last, row = row, self.thinks.get(f"{place}#{attempt}")
            attempt += 1
        return last

    def _step(self, number: int, move: AgentReply) -> AgentStep:
        move = self._by_own_name(number, move)
        thinking, place = self.thinking(number), f"{ACT}{number}"
        row = self.acts.get(place)
        if row is not None:
            came = None if row.open else observation_of(row)
            return AgentStep(number, move, came, row.status, row.pk, thinking, row.spent, place)
        made = self.absent.get(place)
        if made is not None:
            came = absence_of(made)
            return AgentStep(number, move, came, made.status, None, thinking, place=place)
        status = "" if move.action else Status.SUCCESS
        return AgentStep(number, move, move.flaw, status, None, thinking)

    def _by_own_name(self, number: int, move: AgentReply) -> AgentReply:
        """Endpoints do not allow every name of a tool (`toolbox.function_name`)."""
        place = f"{ACT}{number}"
        made = self.acts.get(place) or self.absent.get(place)
        if move.action is None or made is None:
            return move
        return replace(move, action=AgentAction(made.tool_name, move.action.arguments))

    def thinking(self, number: int) -> Spent:
        """With the attempts that came to nothing."""
        place = f"{THINK}{number}"
        own = [row for at, row in self.thinks.items() if at.partition("#")[0] == place]
        return sum((row.spent for row in own), start=NOTHING)
