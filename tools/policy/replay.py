"""Calls of a while ago, put to the gates again: as things stand, and as they would stand.

Where a group has windows, each call is judged by the hour at which it was made. Equal calls are
asked about once; nothing is written, counted or spent.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Case, Count, DateTimeField, Func, Q, Value, When

from tools.catalog.registry import Snapshot
from tools.definitions.callers import Caller
from tools.definitions.results import Status
from tools.errors import ToolcribError
from tools.models import Execution
from tools.policy import authorization, openings
from tools.policy.decision import Asked, Question, Verdict

MOST_COMBINATIONS = 10_000
STEP = timedelta(minutes=15)  # windows rarely begin at other minutes
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Combination:
    """Calls that are alike to every gate; `at` only where the hour counts."""

    agent_id: UUID
    tool: str
    groups: tuple[str, ...] | None
    state: str
    refused: bool
    calls: int
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Turned:
    """Calls that would end otherwise. `verdict` is the gate's that refuses: with the change those
    that were accepted, without it those that were refused."""

    combination: Combination
    verdict: Verdict


@dataclass
class Replay:
    """How the calls of a time would have ended. `cut` where there were too many combinations."""

    calls: int = 0
    combinations: int = 0
    cut: bool = False
    would_be_refused: list[Turned] = field(default_factory=list)
    would_pass: list[Turned] = field(default_factory=list)


class Clock(openings.Watch):
    """Opening hours as of a moment that is set."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._shown: openings.Openings | None = None

    def set(self, moment: datetime | None) -> None:
        self._shown = None if moment is None else self.at(moment)

    def now(self) -> openings.Openings:
        return super().now() if self._shown is None else self._shown


@dataclass(frozen=True, eq=False)
class Then(Snapshot):
    """A catalog whose opening hours follow a clock of their own."""

    clock: Clock | None = field(default=None, repr=False)

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Then":
        kept = {one.name: getattr(snapshot, one.name) for one in fields(Snapshot)}
        return cls(**kept, clock=Clock(snapshot)).changed()

    def settle(self, key: Any, work: Any) -> Any:
        return self.clock if key == openings.WATCH else super().settle(key, work)


@dataclass(frozen=True)
class World:
    """A catalog, and the agents as they are in it."""

    snapshot: Snapshot
    callers: dict[UUID, Caller]

    def refusal(self, combination: Combination) -> Verdict | None:
        """The first gate's that would refuse the call. Raises `LookupError` for what is gone."""
        tool = self.snapshot.tools[combination.tool]
        caller, groups = self.callers[combination.agent_id], combination.groups
        asked = Asked.of(None if groups is None else list(groups), combination.state)
        try:
            authorization.check_standing(caller)
            authorization.groups_granted(caller, asked, self.snapshot)
        except ToolcribError as refusal:
            gate = str(refusal.details.get("gate", "granted_groups"))
            return Verdict(gate, False, refusal.code, refusal.message)
        question = Question(caller, tool, asked, self.snapshot)
        verdicts = (gate(question) for gate in authorization.GATES)
        return next((verdict for verdict in verdicts if not verdict.passed), None)


def hours_count(*snapshots: Snapshot) -> bool:
    return any(group.schedule for one in snapshots for group in one.groups.values())


def combinations_of(
    *, organization_id: UUID, agents: Iterable[UUID], since: datetime, until: datetime, hourly: bool
) -> tuple[list[Combination], bool]:
    """The commonest first, in one query, and whether there were more. Invalid calls are left out:
    they say nothing about who may do what."""
    rows = Execution.objects.filter(
        organization_id=organization_id,
        agent_id__in=list(agents),
        created_at__gte=since,
        created_at__lt=until,
    ).exclude(status=Status.VALIDATION_ERROR)
    quarter = Func(Value(STEP), "created_at", Value(_EPOCH), function="date_bin")
    when = quarter if hourly else Value(None)
    denied = Case(When(Q(status=Status.PERMISSION_DENIED), then=True), default=False)
    counted = (
        rows.annotate(denied=denied, at=Func(when, function="", output_field=DateTimeField()))
        .values("agent_id", "tool_name", "requested_groups", "state", "denied", "at")
        .annotate(calls=Count("pk"))
        .order_by("-calls", "tool_name", "state")[: MOST_COMBINATIONS + 1]
    )
    found = [_combination(dict(row)) for row in counted]
    return found[:MOST_COMBINATIONS], len(found) > MOST_COMBINATIONS


def replay(combinations: list[Combination], before: World, after: World) -> Replay:
    """What ends otherwise because of the change alone: what the gates would say now as they stand
    is not the change's doing."""
    found = Replay(sum(one.calls for one in combinations), len(combinations))
    for one, old, new in _judged(combinations, before, after):
        if old is None and new is not None and not one.refused:
            found.would_be_refused.append(Turned(one, new))
        elif old is not None and new is None and one.refused:
            found.would_pass.append(Turned(one, old))
    return found


def _judged(
    combinations: list[Combination], before: World, after: World
) -> Iterator[tuple[Combination, Verdict | None, Verdict | None]]:
    worlds = [World(Then.of(world.snapshot), world.callers) for world in (before, after)]
    for one in sorted(combinations, key=lambda one: one.at or _EPOCH):
        for world in worlds:
            assert isinstance(world.snapshot, Then) and world.snapshot.clock is not None
            world.snapshot.clock.set(one.at)
        try:
            old, new = (world.refusal(one) for world in worlds)
        except LookupError:  # the tool was deleted since
            continue
        yield one, old, new


def _combination(row: dict[str, Any]) -> Combination:
    groups = row["requested_groups"]
    return Combination(
        agent_id=row["agent_id"],
        tool=row["tool_name"],
        groups=None if groups is None else tuple(groups),
        state=row["state"],
        refused=row["denied"],
        calls=row["calls"],
        at=row["at"],
    )
