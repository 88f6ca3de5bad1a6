"""Replays recent calls through the gates: with the current catalog, and with a changed one.

Where a group has windows, each call is judged by the hour at which it was made. Equal calls are
asked about once; nothing is written, counted or spent.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import Case, Count, DateTimeField, Func, Q, Value, When

from tools.authorization.facts import CURRENT, question_of
from tools.catalog import group_openings
from tools.catalog.snapshot import Snapshot
from tools.definitions.callers import Caller
from tools.definitions.results import Status
from tools.insight.tool_reach import SKIPPED, checks_of_callers
from tools.models import Execution
from tools.policy import gates
from tools.policy.gates import Scope
from tools.policy.questions import EffectiveRequest, RequestQuestion, Verdict

MOST_COMBINATIONS = 10_000
MOST_TURNED = 200
STEP = timedelta(minutes=15)  # windows rarely begin at other minutes
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# Fields of a catalog that are compared tool by tool, or derived from it. A tier decides only which
# tools there are.
_LOOKED_AT = {"tools", "tier", "_settled", "_remembered"}


@dataclass(frozen=True, slots=True)
class Combination:
    """Calls that are equal to every gate; `at` only where the time of day matters."""

    agent_id: UUID
    tool: str
    groups: tuple[str, ...] | None
    state: str
    refused: bool
    calls: int
    at: datetime | None


@dataclass(frozen=True, slots=True)
class ChangedVerdict:
    """Calls that would end otherwise. `verdict` is that of the refusing gate: for accepted calls
    with the change, for refused ones without it."""

    combination: Combination
    verdict: Verdict


@dataclass
class Replay:
    """How the calls of a time would have ended. `cut` where there were too many combinations. All
    calls that would end otherwise are counted; of their combinations the first `MOST_TURNED` are
    listed.
    """

    calls: int = 0
    combinations: int = 0
    cut: bool = False
    calls_refused: int = 0
    calls_passed: int = 0
    would_be_refused: list[ChangedVerdict] = field(default_factory=list)
    would_pass: list[ChangedVerdict] = field(default_factory=list)


class ReplayClock(group_openings.OpeningsWatch):
    """Opening hours as of a given moment."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._shown: group_openings.Openings | None = None

    def set(self, moment: datetime | None) -> None:
        self._shown = None if moment is None else self.openings_at(moment)

    def current_openings(self) -> group_openings.Openings:
        return super().current_openings() if self._shown is None else self._shown


@dataclass(frozen=True, eq=False)
class Then(Snapshot):
    """A catalog whose opening hours follow a clock of their own."""

    clock: ReplayClock | None = field(default=None, repr=False)

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> "Then":
        kept = {one.name: getattr(snapshot, one.name) for one in fields(Snapshot)}
        return cls(**kept, clock=ReplayClock(snapshot)).changed()

    def settle(self, key: Any, work: Any) -> Any:
        return self.clock if key == group_openings.WATCH else super().settle(key, work)


@dataclass(frozen=True)
class World:
    """A catalog, the agents as they are in it, and the names of the tools in service and in the
    license."""

    snapshot: Snapshot
    callers: dict[UUID, Caller]
    there: Collection[str]

    @cached_property
    def _granted(self) -> dict[tuple[UUID, tuple[str, ...] | None], bool]:
        return {}

    def passes(self, combination: Combination) -> bool:
        """Whether no gate would refuse the call. Raises `LookupError` for what is gone."""
        tool = self.snapshot.tools[combination.tool]
        key = (combination.agent_id, combination.groups)
        granted = self._granted.get(key)
        if granted is None:
            granted = self._granted[key] = self._beforehand(combination) is None
        if not granted or combination.tool not in self.there:
            return False
        question = question_of(
            self.callers[combination.agent_id], tool, _effective_request(combination), self.snapshot
        )
        return gates.passes(question, checks_of_callers())

    def refusal(self, combination: Combination) -> Verdict | None:
        """The first gate's that would refuse the call. Raises `LookupError` for what is gone."""
        tool, caller = self.snapshot.tools[combination.tool], self.callers[combination.agent_id]
        if verdict := self._beforehand(combination):
            return verdict
        question = question_of(caller, tool, _effective_request(combination), self.snapshot)
        checks = gates.select(skip=SKIPPED)
        verdicts = (one.decide(question) for one in checks if one.scope != Scope.REQUEST)
        return next((verdict for verdict in verdicts if not verdict.passed), None)

    def _beforehand(self, combination: Combination) -> Verdict | None:
        """Refusals of the request before any tool is checked."""
        question = RequestQuestion(
            self.callers[combination.agent_id],
            _effective_request(combination),
            self.snapshot,
            CURRENT,
        )
        checks = (one for one in gates.select(skip=SKIPPED) if one.scope == Scope.REQUEST)
        verdicts = (check.decide_request(question) for check in checks)
        return next((verdict for verdict in verdicts if not verdict.passed), None)


def hours_count(*snapshots: Snapshot) -> bool:
    return any(group.schedule for one in snapshots for group in one.groups.values())


def combinations_of(
    *, organization_id: UUID, agents: Iterable[UUID], since: datetime, until: datetime, hourly: bool
) -> tuple[list[Combination], bool]:
    """The commonest first, in one query, and whether there were more. Invalid calls are left out:
    they do not depend on permissions."""
    rows = Execution.objects.filter(
        organization_id=organization_id,
        user__agent__in=list(agents),  # the caller, which an index of the calls has
        created_at__gte=since,
        created_at__lt=until,
    ).exclude(status=Status.VALIDATION_ERROR)
    quarter = Func(Value(STEP), "created_at", Value(_EPOCH), function="date_bin")
    when = quarter if hourly else Value(None)
    denied = Case(When(Q(status=Status.PERMISSION_DENIED), then=True), default=False)
    counted = (
        rows.annotate(denied=denied, at=Func(when, function="", output_field=DateTimeField()))
        .values_list("agent_id", "tool_name", "requested_groups", "state", "denied", "at")
        .annotate(calls=Count("pk"))
        .order_by("-calls", "tool_name", "state")[: MOST_COMBINATIONS + 1]
    )
    found = [_combination(row) for row in counted]
    return found[:MOST_COMBINATIONS], len(found) > MOST_COMBINATIONS


def replay(combinations: list[Combination], before: World, after: World) -> Replay:
    """Calls that would end otherwise because of the change: differences that the current gates show
    too are no effect of the change."""
    alike = _Alike(before, after)
    now, then = (
        replace(world, snapshot=Then.from_snapshot(world.snapshot)) for world in (before, after)
    )
    found = Replay(sum(one.calls for one in combinations), len(combinations))
    for one in sorted(combinations, key=lambda one: one.at or _EPOCH):
        if alike.to_all_gates(one):
            continue
        for world in (now, then):
            assert isinstance(world.snapshot, Then) and world.snapshot.clock is not None
            world.snapshot.clock.set(one.at)
        try:
            if then.passes(one) != one.refused or now.passes(one) == one.refused:
                continue  # as it ended, or no effect of the change
        except LookupError:  # the tool was deleted since
            continue
        if one.refused:
            found.calls_passed += one.calls
            _add_change(found.would_pass, one, now)
        else:
            found.calls_refused += one.calls
            _add_change(found.would_be_refused, one, then)
    return found


class _Alike:
    """Finds what the change leaves unchanged, so that the gates need not be asked."""

    def __init__(self, before: World, after: World) -> None:
        self._before, self._after = before, after
        kept = {one.name for one in fields(Snapshot)} - _LOOKED_AT
        self._rest = all(
            getattr(before.snapshot, name) is getattr(after.snapshot, name) for name in kept
        )

    def to_all_gates(self, one: Combination) -> bool:
        before, after = self._before, self._after
        return (
            self._rest
            and before.snapshot.tools.get(one.tool) is after.snapshot.tools.get(one.tool)
            and (one.tool in before.there) == (one.tool in after.there)
            and before.callers[one.agent_id] is after.callers[one.agent_id]
        )


def _add_change(turned: list[ChangedVerdict], one: Combination, refusing: World) -> None:
    verdict = refusing.refusal(one) if len(turned) < MOST_TURNED else None
    if verdict is not None:
        turned.append(ChangedVerdict(one, verdict))


def _effective_request(combination: Combination) -> EffectiveRequest:
    groups = combination.groups
    return EffectiveRequest.from_options(
        None if groups is None else list(groups), combination.state
    )


def _combination(row: tuple[Any, ...]) -> Combination:
    agent_id, tool, groups, state, refused, at, calls = row
    asked = None if groups is None else tuple(groups)
    return Combination(agent_id, tool, asked, state, refused, calls, at)
