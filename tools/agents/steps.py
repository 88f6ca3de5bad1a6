"""The steps of an agent run, derived from the rows of its calls; nothing is stored twice."""

from dataclasses import dataclass, fields, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, Self
from uuid import UUID

from django.db.models import Case, IntegerField, JSONField, Q, TextField, When
from django.db.models.functions import Cast, Left, Length

from tools.definitions.results import FINAL, OPEN, Status
from tools.execution import outputs
from tools.models import Execution
from tools.models.execution_queryset import ExecutionQuerySet
from tools.workflows.nested_calls import NestedCall, absent_calls

THINK, ACT = "think/", "act/"
MOST_OBSERVATION = 8_000  # characters that a model is shown
_BYTES_PER_TOKEN = 3  # where an endpoint counts none: rather too many than too few
_IS_THOUGHT, _IS_ACTION = Q(place__startswith=THINK), Q(place__startswith=ACT)
_ANNOTATIONS = {
    "asked": Case(When(_IS_ACTION, then="parameters"), output_field=JSONField(null=True)),
    "gave": Case(When(_IS_THOUGHT, then="output"), output_field=JSONField(null=True)),
    "seen": Case(When(_IS_ACTION, then=Left("observation", MOST_OBSERVATION + 1))),
    "asked_size": Case(
        When(_IS_THOUGHT & ~Q(metrics__has_key="input_tokens"),
             then=Length(Cast("parameters", TextField()))),
        output_field=IntegerField(null=True),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CallRow:
    """A model call has its answer and not its question; an action has its arguments and the
    beginning of its observation, and not its output."""

    pk: UUID
    place: str
    tool_name: str
    status: str
    error_code: str
    error_message: str
    error_details: dict[str, Any]
    cost: Decimal | None
    metrics: dict[str, Any]
    created_at: datetime
    completed_at: datetime | None
    state_after: str
    composite: bool
    organization_id: UUID
    output_bytes: int | None
    output_digest: str
    output_type: str
    output_expired_at: datetime | None
    asked: dict[str, Any] | None
    gave: Any
    seen: str | None
    asked_size: int | None  # characters of a question without a token count

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @property
    def open(self) -> bool:
        return self.status in OPEN

    @property
    def parameters(self) -> dict[str, Any]:
        return self.asked or {}

    @property
    def output(self) -> Any:
        return self.gave

    @property
    def call_state(self) -> NestedCall:
        return NestedCall(
            self.pk,
            self.place,
            self.tool_name,
            Status(self.status),
            self.error_code,
            self.error_message,
            self.error_details,
            self.completed_at,
            self.output_bytes,
        )

    @property
    def spent(self) -> "Spending":
        """Where the endpoint counted no tokens, they are estimated by the bytes that went and
        came."""
        took = (self.completed_at - self.created_at).total_seconds() if self.completed_at else 0.0
        took_ms = max(0.0, took) * 1000  # a refusal's end has another clock than its row
        cost = self.cost or Decimal(0)
        if not self.place.startswith(THINK) or self.open:
            return Spending(cost=cost, duration_ms=took_ms)
        went = self.metrics.get("input_tokens")
        if went is None:
            went = (self.asked_size or 0) // _BYTES_PER_TOKEN
        said = self.metrics.get("output_tokens")
        if said is None:
            said = (self.output_bytes or 0) // _BYTES_PER_TOKEN
        return Spending(int(went), int(said), cost, took_ms)


@dataclass(frozen=True, slots=True)
class Spending:
    """What one call or several have spent."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal = Decimal(0)
    duration_ms: float = 0.0

    def __add__(self, other: "Spending") -> "Spending":
        return Spending(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
            self.duration_ms + other.duration_ms,
        )

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


NO_SPENDING = Spending()
_COLUMNS = [one.name for one in fields(CallRow) if one.name not in _ANNOTATIONS]


def call_rows(calls: ExecutionQuerySet) -> dict[str, CallRow]:
    """By their places. One query."""
    rows = calls.values_list(*_COLUMNS).annotate(**_ANNOTATIONS)
    return {row.place: row for row in (CallRow(*values) for values in rows)}


def spending_below(parents: list[UUID]) -> Spending:
    """Cost of calls that composite calls made, at any depth, so that no batch, chain, program or
    nested run evades the run's budget."""
    total = NO_SPENDING
    while parents:
        rows = Execution.objects.children_of(*parents)
        found = list(rows.values_list("pk", "composite", "cost", "metrics"))
        for _, _, cost, metrics in found:
            went, said = (metrics.get(name) or 0 for name in ("input_tokens", "output_tokens"))
            total += Spending(int(went), int(said), cost)
        parents = [pk for pk, composite, *_ in found if composite]
    return total


def step_number(place: str) -> int:
    """The number of the step that a call belongs to."""
    return int(place.partition("/")[2].partition("#")[0])


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
    def from_output(cls, output: Any) -> Self:
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
    thinking: Spending
    acting: Spending = NO_SPENDING
    place: str = ""  # of the last call that was made of it


def observation_text(row: CallRow) -> str:
    """What became of a call, in words: its observation, or why there is none."""
    if row.status == Status.SUCCESS:
        return str(row.seen)
    return f"{row.error_code or row.status}: {row.error_message}{_error_places(row.error_details)}"


def _error_places(details: Any) -> str:
    """What is wrong with each argument: a model cannot open the details of an error."""
    errors = details.get("errors") if isinstance(details, dict) else None
    if not isinstance(errors, list):
        return ""
    lines = [_error_place(one) for one in errors[:_MOST_PLACES] if isinstance(one, dict)]
    if len(errors) > _MOST_PLACES:
        lines.append(f"and {len(errors) - _MOST_PLACES} more")
    return "".join(f"\n- {line}" for line in lines)


def _error_place(error: dict[str, Any]) -> str:
    place = error.get("place") or error.get("path") or error.get("field") or "/"
    return f"{place}: {error.get('message', '')}"[:_MOST_REASON]


def absence_text(made: NestedCall) -> str:
    """Why there is no row of a call, in words."""
    return f"{made.error_code}: {made.error_message}"


class AgentCallRows:
    """The calls of one run, of those that a reader may see. One query; of a replay three.

    Of a replay the calls are those of the run that it replays: a reader of the replay's questions
    reads those calls there anyway.
    """

    def __init__(self, run: Execution, readable: ExecutionQuerySet) -> None:
        rows = call_rows(readable.children_of(run.pk))
        self.model_calls = {place: row for place, row in rows.items() if place.startswith(THINK)}
        self.tool_calls = {place: row for place, row in rows.items() if place.startswith(ACT)}
        self.absent = absent_calls(run.memory)
        self._replayed: dict[str, str] = run.memory.get("replayed", {})
        if self._replayed:
            self._load_replayed(run.parameters["replays"])

    def _load_replayed(self, recorded: str) -> None:
        there = call_rows(Execution.objects.children_of(UUID(recorded)))
        gone = absent_calls(Execution.objects.values_list("memory", flat=True).get(pk=recorded))
        for place, source in self._replayed.items():
            if source in there:
                self.tool_calls[place] = there[source]
            elif source in gone:
                self.absent[place] = gone[source]

    def state_after(self, state: str) -> str:
        """The state after the replayed calls, from a given state."""
        for place in sorted(self._replayed, key=step_number):
            row = self.tool_calls.get(place)
            state = row.state_after or state if row is not None else state
        return state

    def move(self, number: int) -> AgentReply | None:
        """The reply of a step, once the model has answered."""
        row = self._last_model_call(number)
        if row is None or row.status != Status.SUCCESS:
            return None
        return AgentReply.from_output(
            outputs.load_output(row) if row.output_expired_at is None else None
        )

    def steps(self) -> list[AgentStep]:
        """Steps whose thought is over, in their order."""
        found = []
        number = 1
        while (move := self.move(number)) is not None:
            found.append(self._step(number, move))
            number += 1
        return found

    def plan_document(self) -> dict[str, Any] | None:
        """The plan with its steps and their outcomes; None for a run without plans."""
        return None

    @cached_property
    def calls(self) -> dict[str, NestedCall]:
        """Tool calls, by place."""
        return {place: row.call_state for place, row in self.tool_calls.items()} | self.absent

    @property
    def call_states(self) -> dict[str, NestedCall]:
        """All calls that the composite call made."""
        return {place: row.call_state for place, row in self.model_calls.items()} | self.calls

    @cached_property
    def spent(self) -> Spending:
        own = [] if self._replayed else self.tool_calls.values()  # what was replayed cost nothing
        every = [*self.model_calls.values(), *own]
        below = spending_below([row.pk for row in own if row.composite])
        return sum((row.spent for row in every), start=below)

    def _last_model_call(self, number: int) -> CallRow | None:
        place, last, attempt = f"{THINK}{number}", None, 2
        row = self.model_calls.get(place)
        while row is not None:
            last, row = row, self.model_calls.get(f"{place}#{attempt}")
            attempt += 1
        return last

    def _step(self, number: int, move: AgentReply) -> AgentStep:
        move = self._by_own_name(number, move)
        thinking, place = self.spent_on_model(number), f"{ACT}{number}"
        row = self.tool_calls.get(place)
        if row is not None:
            observation = None if row.open else observation_text(row)
            return AgentStep(
                number, move, observation, row.status, row.pk, thinking, row.spent, place
            )
        made = self.absent.get(place)
        if made is not None:
            observation = absence_text(made)
            return AgentStep(number, move, observation, made.status, None, thinking, place=place)
        status = "" if move.action else Status.SUCCESS
        return AgentStep(number, move, move.flaw, status, None, thinking)

    def _by_own_name(self, number: int, move: AgentReply) -> AgentReply:
        """Endpoints do not allow every name of a tool (`toolbox.function_name`)."""
        place = f"{ACT}{number}"
        made = self.tool_calls.get(place) or self.absent.get(place)
        if move.action is None or made is None:
            return move
        return replace(move, action=AgentAction(made.tool_name, move.action.arguments))

    def spent_on_model(self, number: int) -> Spending:
        """With failed attempts."""
        place = f"{THINK}{number}"
        own = [row for at, row in self.model_calls.items() if at.partition("#")[0] == place]
        return sum((row.spent for row in own), start=NO_SPENDING)
