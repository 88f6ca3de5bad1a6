"""Reads the call rows of an agent run with only the columns that a run needs, since every turn
reads all of them.

The key of a model call is `think/3`, or `think/3#2` for its retry; that of the tool call that its
answer led to is `act/3`.
"""

from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Case, IntegerField, JSONField, Q, TextField, When
from django.db.models.functions import Cast, Left, Length

from tools.definitions.results import FINAL, OPEN, Status
from tools.execution.composing import Made
from tools.models import Execution
from tools.models.execution_queryset import ExecutionQuerySet

THINK, ACT = "think/", "act/"
MOST_OBSERVATION = 8_000  # characters that a model is shown
_BYTES_PER_TOKEN = 3  # where an endpoint counts none: rather too many than too few
_THOUGHT, _DONE = Q(place__startswith=THINK), Q(place__startswith=ACT)
_TOLD = {
    "asked": Case(When(_DONE, then="parameters"), output_field=JSONField(null=True)),
    "gave": Case(When(_THOUGHT, then="output"), output_field=JSONField(null=True)),
    "seen": Case(When(_DONE, then=Left("observation", MOST_OBSERVATION + 1))),
    "asked_size": Case(
        When(_THOUGHT & ~Q(metrics__has_key="input_tokens"),
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
    def over(self) -> bool:
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
    def made(self) -> Made:
        return Made(
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
    def spent(self) -> "Spent":
        """Where the endpoint counted no tokens, they are estimated by the bytes that went and
        came."""
        took = (self.completed_at - self.created_at).total_seconds() if self.completed_at else 0.0
        took_ms = max(0.0, took) * 1000  # a refusal's end has another clock than its row
        cost = self.cost or Decimal(0)
        if not self.place.startswith(THINK) or self.open:
            return Spent(cost=cost, duration_ms=took_ms)
        went = self.metrics.get("input_tokens")
        if went is None:
            went = (self.asked_size or 0) // _BYTES_PER_TOKEN
        said = self.metrics.get("output_tokens")
        if said is None:
            said = (self.output_bytes or 0) // _BYTES_PER_TOKEN
        return Spent(int(went), int(said), cost, took_ms)


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


NOTHING = Spent()
_COLUMNS = [one.name for one in fields(CallRow) if one.name not in _TOLD]


def call_rows(run: UUID, readable: ExecutionQuerySet) -> dict[str, CallRow]:
    """By their places, those that a reader may see. One query."""
    rows = readable.filter(parent=run).values_list(*_COLUMNS).annotate(**_TOLD)
    return {row.place: row for row in (CallRow(*values) for values in rows)}


def spent_below(parents: list[UUID]) -> Spent:
    """Cost of calls that composite calls made, at any depth, so that no batch, chain, program or
    nested run evades the run's budget."""
    total = NOTHING
    while parents:
        rows = Execution.objects.filter(parent__in=parents)
        found = list(rows.values_list("pk", "composite", "cost", "metrics"))
        for _, _, cost, metrics in found:
            went, said = (metrics.get(name) or 0 for name in ("input_tokens", "output_tokens"))
            total += Spent(int(went), int(said), cost)
        parents = [pk for pk, composite, *_ in found if composite]
    return total


def number_of(place: str) -> int:
    """The number of the step that a call belongs to."""
    return int(place.partition("/")[2].partition("#")[0])
