"""Derives plans from the search: which calls, in which order, and what goes into each."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from tools.definitions.capability.fits import MISSING_INPUT_COST
from tools.definitions.capability.graph import CapabilityGraph, CapabilityNode
from tools.definitions.capability.ports import Port
from tools.definitions.capability.search import GIVEN, MOST_STEPS, CapabilitySearch, ValueSource
from tools.definitions.capability.wishes import Goal, PlanningTarget

MOST_PLANS = 5
_MOST_VARIANTS = 100
_MOST_EXTRA_STEPS = 6  # steps more than the best plan: such plans are dropped
type SourceChoices = dict[tuple[int, str], int]


@dataclass(frozen=True)
class CapabilityCall:
    """One step, with the source of each input. `lacking` are inputs without a source."""

    place: int
    node: CapabilityNode
    sources: dict[str, ValueSource]
    lacking: tuple[Port, ...]


@dataclass(frozen=True)
class CapabilityPlan:
    """Steps in the order in which they run; the last produces the wanted value."""

    calls: tuple[CapabilityCall, ...]
    goal: Goal
    idle: bool  # uses none of the given values

    @cached_property
    def sources(self) -> list[ValueSource]:
        return [source for call in self.calls for source in call.sources.values()]

    @cached_property
    def effort(self) -> int:
        """Its steps, its doubts, and what it lacks, in steps."""
        doubts = sum(source.doubt for source in self.sources)
        doubts += min(1, self.goal.link.effort) if self.goal.link else 0
        return len(self.calls) + doubts + MISSING_INPUT_COST * (len(self.lacking) + self.idle)

    @property
    def lacking(self) -> list[tuple[int, str]]:
        return [(call.place, port.name) for call in self.calls for port in call.lacking]

    @property
    def key(self) -> tuple[Any, ...]:
        return self.effort, self.writing, self.asking, self.cost, self.names, self._written

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(call.node.name for call in self.calls)

    @property
    def writing(self) -> int:
        return sum(call.node.writes for call in self.calls)

    @property
    def asking(self) -> int:
        return sum(call.node.asks for call in self.calls)

    @property
    def cost(self) -> Decimal:
        return sum((call.node.cost for call in self.calls), Decimal(0))

    @property
    def _written(self) -> tuple[tuple[int, str, str], ...]:
        """Two plans with the same are the same."""
        return tuple(
            (source.place, source.given.pointer, name)
            for call in self.calls
            for name, source in call.sources.items()
        )

    def goes_round(self, shorter: "CapabilityPlan") -> bool:
        """Whether another plan reaches the same goal with fewer of the same steps and lacks no
        more."""
        same = self.names[-1] == shorter.names[-1] and set(shorter.lacking) <= set(self.lacking)
        return same and set(shorter.names) < set(self.names)


def find_plans(
    graph: CapabilityGraph, usable: frozenset[str], had: tuple[Port, ...], wish: PlanningTarget
) -> list[CapabilityPlan]:
    """At most `MOST_PLANS`, the best first: fewest steps, doubtful links counted like steps, then
    those with the fewest effects, then the cheapest."""
    reached = CapabilitySearch(graph, usable, had, wish.goals(graph, usable))
    found = [
        plan
        for at in (*reached.using, *reached.idle)
        for plan in _plan_variants(graph, reached, at, had)
    ]
    chosen: list[CapabilityPlan] = []
    for plan in sorted(found, key=lambda one: one.key):
        known = any(plan.key == one.key or plan.goes_round(one) for one in chosen)
        far = bool(chosen) and plan.effort > chosen[0].effort + _MOST_EXTRA_STEPS
        if not known and not far and len(chosen) < MOST_PLANS:
            chosen.append(plan)
    return chosen


def _plan_variants(
    graph: CapabilityGraph, reached: CapabilitySearch, at: int, had: tuple[Port, ...]
) -> Iterator[CapabilityPlan]:
    """The best plan, and variants with another source for one input."""
    best = _build_plan(graph, reached, at, had, {})
    if best is None:
        return
    yield best
    others = [
        {(call.place, port.name): number}
        for call in best.calls
        for port in call.node.needs
        for number in range(1, len(reached.sources(call.place, port)))
    ]
    for choices in others[:_MOST_VARIANTS]:
        plan = _build_plan(graph, reached, at, had, choices)
        if plan is not None:
            yield plan


def _build_plan(
    graph: CapabilityGraph,
    reached: CapabilitySearch,
    at: int,
    had: tuple[Port, ...],
    choices: SourceChoices,
) -> CapabilityPlan | None:
    """None where it has more steps than a proposal may have."""
    calls: dict[int, CapabilityCall] = {}
    ahead = [at]
    while ahead:
        place = ahead.pop()
        if place in calls:
            continue
        if len(calls) >= MOST_STEPS:
            return None
        calls[place] = call = _build_call(graph, reached, place, choices)
        ahead += [one.place for one in call.sources.values() if one.place != GIVEN]
    ordered = sorted(calls.values(), key=lambda call: reached.order[call.place])
    used = any(one.place == GIVEN for call in ordered for one in call.sources.values())
    return CapabilityPlan(tuple(ordered), reached.goals[at], idle=bool(had) and not used)


def _build_call(
    graph: CapabilityGraph, reached: CapabilitySearch, place: int, choices: SourceChoices
) -> CapabilityCall:
    node = graph.tools[place]
    sources: dict[str, ValueSource] = {}
    lacking = []
    for port in node.consumes:
        found = reached.sources(place, port)
        if not port.sure:  # an optional input is set only from an equal given value
            found = [one for one in found if one and one.place == GIVEN and not one.link.doubtful]
        source = found[choices.get((place, port.name), 0)] if found else None
        if source is not None:
            sources[port.name] = source
        elif port.sure:
            lacking.append(port)
    return CapabilityCall(place, node, sources, tuple(lacking))
