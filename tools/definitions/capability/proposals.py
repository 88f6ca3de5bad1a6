"""Derives plans from the search, and drafts a chain from each, with a list of what it still lacks.

Given values and those that no tool produces become parameters of the chain; outputs of steps become
references. The draft is parsed and its types are checked as when a chain is saved.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from tools.definitions.capability.capability_search import (
    GIVEN,
    MOST_STEPS,
    CapabilitySearch,
    Goal,
    PlanningTarget,
    ValueSource,
)
from tools.definitions.capability.graph import MISSING_INPUT_COST, CapabilityGraph, CapabilityNode
from tools.definitions.capability.ports import TOO_LARGE, Port
from tools.definitions.chains import expressions
from tools.definitions.chains.chain_document import Chain, chain_definition
from tools.definitions.chains.type_check import Doubt, Interface, find_type_doubts
from tools.definitions.schemas.schema_parts import inline_references
from tools.definitions.tool import Definition, read_definition
from tools.definitions.values.json_pointers import child_pointer
from tools.errors import InvalidDefinition

MOST_PLANS = 5
_MOST_VARIANTS = 100
_MOST_EXTRA_STEPS = 6  # steps more than the best plan: such plans are dropped
type SourceChoices = dict[tuple[int, str], int]
_NO_ID = re.compile(r"[^a-z0-9_-]")
_LONGEST_ID = 56
_LONGEST_NAME = 120
Raw = dict[str, Any]


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


@dataclass(frozen=True)
class Proposal:
    """`document` is the body of a request that would create the chain."""

    plan: CapabilityPlan
    document: Raw
    links: list[Raw]
    lacks: list[Raw]
    warnings: list[Doubt]


def draft_proposal(
    plan: CapabilityPlan,
    wish: PlanningTarget,
    interfaces: Mapping[str, Interface],
    taken: frozenset[str],
) -> Proposal | None:
    """None where a step cannot be called that way."""
    draft = _ChainDraft(plan, wish)
    document = draft.document(_free_chain_name(wish, taken))
    try:
        definition: Definition = read_definition(chain_definition(document))
    except (
        InvalidDefinition
    ):  # too large, or a parameter is named like a reference: it could not be saved
        return None
    chain = Chain(definition["implementation"]["chain"])
    found = find_type_doubts(chain, Interface.from_definition(definition), interfaces)
    if any(one.certain for one in found):
        return None
    return Proposal(plan, document, draft.links, draft.lacks, found)


@dataclass
class _ChainDraft:
    plan: CapabilityPlan
    wish: PlanningTarget
    links: list[Raw] = field(default_factory=list)
    lacks: list[Raw] = field(default_factory=list)
    _parameters: dict[str, Any] = field(default_factory=dict)
    _ids: dict[int, str] = field(default_factory=dict)

    def document(self, name: str) -> Raw:
        steps = [self._draft_step(call) for call in self.plan.calls]
        made: Raw = {
            "name": name,
            "description": self._description(),
            "input_schema": {
                "type": "object",
                "properties": self._parameters,
                "required": [*self._parameters],
                "additionalProperties": False,
            },
            "steps": steps,
        }
        wanted = self.plan.goal.given
        if wanted is not None:
            made["output"] = _step_reference(steps[-1]["id"], wanted.pointer)
        return made

    def _draft_step(self, call: CapabilityCall) -> Raw:
        step = self._ids[call.place] = self._free_step_id(call.node.name)
        given: Raw = {}
        lacking = {port.name for port in call.lacking}
        for port in call.node.consumes:
            if port.only:
                given[port.name] = _as_literal(json.loads(port.only))
            elif port.name in call.sources:
                given[port.name] = self._given_parameter(step, port, call.sources[port.name])
            elif port.name in lacking:
                given[port.name] = self._missing_parameter(step, call, port)
        return {"id": step, "tool_name": call.node.name, "parameters": given}

    def _given_parameter(self, step: str, port: Port, source: ValueSource) -> Raw:
        said = {"step": step, "parameter": port.name, "fit": str(source.link.fit),
                "why": list(source.link.why)}  # fmt: skip
        if source.place == GIVEN:
            name = source.given.name
            schema = _port_schema(source.given) or _port_schema(port)
            self._parameters[name] = _combine_schemas(self._parameters.get(name), schema)
            self.links.append(said | {"from": {"given": name}})
            return {expressions.INPUT: child_pointer("", name)}
        origin = _step_reference(self._ids[source.place], source.given.pointer)
        self.links.append(
            said | {"from": {"step": origin[expressions.STEP], "path": origin["path"]}}
        )
        return origin

    def _missing_parameter(self, step: str, call: CapabilityCall, port: Port) -> Raw:
        schema = _port_schema(port) | {"description": f"{port.name} of {call.node.name}."}
        name = port.name
        if name in self._parameters or any(name == one for one in self._given_names()):
            name = f"{step}_{port.name}"
        self._parameters[name] = schema
        self.lacks.append({"name": name, "step": step, "parameter": port.name, "schema": schema})
        return {expressions.INPUT: child_pointer("", name)}

    def _given_names(self) -> list[str]:
        return [one.given.name for one in self.plan.sources if one.place == GIVEN]

    def _free_step_id(self, tool: str) -> str:
        plain = _NO_ID.sub("_", tool.lower())[:_LONGEST_ID]
        stem = plain if plain[:1].isalpha() else f"s{plain}"
        used = self._ids.values()
        return next(one for one in _numbered_names(stem) if one not in used)

    def _description(self) -> str:
        had = ", ".join(dict.fromkeys(self._given_names())) or "nothing"
        return f"From {had} to {self.wish.called}, by {', '.join(self.plan.names)}."[:2_000]


def _free_chain_name(wish: PlanningTarget, taken: frozenset[str]) -> str:
    words = re.sub(r"[^A-Za-z0-9_.-]+", "_", wish.called).strip("_")[:_LONGEST_NAME]
    return next(one for one in _numbered_names(f"get_{words}") if one not in taken)


def _numbered_names(stem: str) -> Iterator[str]:
    yield stem
    for number in range(2, 100_000):
        yield f"{stem}_{number}"


def _step_reference(step: str, pointer: str) -> Raw:
    return {expressions.STEP: step, "path": f"{expressions.OUTPUT}{pointer}"}


def _as_literal(value: Any) -> Any:
    """A value in which nothing is taken for a reference."""
    return {expressions.LITERAL: value} if any(expressions.find_references(value)) else value


def _port_schema(port: Port) -> Raw:
    """As a schema that may be part of the chain's schema."""
    if port.schema in ("", TOO_LARGE):
        return {}
    schema = json.loads(port.schema)
    alone = inline_references(schema, schema)
    return alone if isinstance(alone, dict) else {}


def _combine_schemas(known: Any, schema: Raw) -> Raw:
    return schema if known in (None, schema) else {"allOf": [known, schema]}
