"""Searches forward from given values: which tools can be called, and what becomes available then.

It is the shortest way of every tool to its inputs, by Knuth's generalization of Dijkstra's
algorithm: a tool costs a step and what its inputs cost, a link its `Link.effort`, and an input that
no tool produces `MISSING_INPUT_COST` steps, since it becomes a parameter of the chain. First it
searches backward from the goals of the planning target, so that only relevant tools are examined.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tools.definitions.capability.graph import (
    MISSING_INPUT_COST,
    CapabilityGraph,
    CapabilityNode,
    Link,
    PortEntries,
    add_entries,
    link_ports,
)
from tools.definitions.capability.ports import Port, build_port, normalize_key
from tools.definitions.schemas.schema_parts import resolve_schema, value_kind
from tools.definitions.values.json_pointers import child_pointer

_DEEPEST_EXAMPLE = 6
_MOST_EXAMPLE_MEMBERS = 50
MOST_STEPS = 8
MOST_RELEVANT = 1_500  # tools
MOST_ENTRIES_READ = 200_000  # entries of the graph, each way
MOST_SOURCES = 4  # of one input
MOST_GOALS = 12  # that use given values, and as many that do not
GIVEN = -1  # the place of given values


@dataclass(frozen=True, slots=True)
class Goal:
    """A tool, and the wanted part of its output; None: all of it."""

    tool: CapabilityNode
    given: Port | None = None
    link: Link | None = None


@dataclass(frozen=True, slots=True)
class PlanningTarget:
    """One of the three: a value by its name, a capability, or a tool."""

    value: Port | None = None
    capability: str = ""
    tool: str = ""

    def goals(self, graph: CapabilityGraph, usable: frozenset[str]) -> Iterator[Goal]:
        """The preferred tools first."""
        if self.value is not None:
            yield from _goals_producing(graph, self.value, usable)
        elif self.tool:
            if self.tool in usable and self.tool in graph.place:
                yield Goal(graph.node(self.tool))
        else:
            wanted = normalize_key(self.capability)
            found = (node for node in graph.tools if wanted in node.capabilities)
            yield from (Goal(node) for node in found if node.name in usable)

    @property
    def called(self) -> str:
        return self.value.name if self.value is not None else self.capability or self.tool


def given_ports(values: Mapping[str, Any]) -> tuple[Port, ...]:
    """Each by its name, with its schema; None where only the name is known."""
    ports = (_value_port(name, values[name], child_pointer("", name)) for name in values)
    return tuple(replace(one, free=values[one.name] is None) for one in ports)


def target_port(name: str, schema: Any = None) -> Port:
    return _value_port(name, schema, "")


def schema_of_example(value: Any, depth: int = 0) -> dict[str, Any]:
    """A schema from an example: the kind of the value, and its members."""
    said = value_kind(value)
    if depth >= _DEEPEST_EXAMPLE or said not in {"object", "array"}:
        return {"type": "number" if said == "fraction" else said}
    if said == "array":
        items = {"items": schema_of_example(value[0], depth + 1)} if value else {}
        return {"type": "array", **items}
    parts = list(value.items())[:_MOST_EXAMPLE_MEMBERS]
    members = {name: schema_of_example(one, depth + 1) for name, one in parts}
    return {"type": "object", "properties": members, "required": [*members]}


def _value_port(name: str, schema: Any, pointer: str) -> Port:
    part = resolve_schema(schema, schema)
    return build_port(name, pointer, schema, part if isinstance(part, dict) else {}, sure=True)


def _goals_producing(graph: CapabilityGraph, value: Port, usable: frozenset[str]) -> Iterator[Goal]:
    """The best match of each tool."""
    best: dict[int, Goal] = {}
    for key, _ in value.keys:
        for at, given in graph.producers.get(key, ()):
            node = graph.tools[at]
            found = link_ports(given, value) if node.name in usable else None
            known = best.get(at)
            if found and (
                known is None or known.link is None or _link_rank(found) < _link_rank(known.link)
            ):
                best[at] = Goal(node, given, found)
    yield from (best[at] for at in sorted(best))


def _link_rank(one: Link) -> tuple[bool, int, str]:
    return one.doubtful, len(one.why), one.fit


@dataclass(frozen=True, slots=True)
class ValueSource:
    """A value that a tool produces or the caller has, and the cost of obtaining it."""

    place: int
    given: Port
    link: Link
    before: int = 0  # cost of the steps before

    @property
    def doubt(self) -> int:
        """A given value is doubtful by one step at most: a caller's `name` may well be the `name`
        of a tool."""
        return min(1, self.link.effort) if self.place == GIVEN else self.link.effort

    @property
    def effort(self) -> int:
        return self.before + self.doubt


@dataclass
class _ToolReach:
    """A tool under search, with the possible sources of each input."""

    node: CapabilityNode
    sources: dict[str, list[ValueSource]]

    @property
    def effort(self) -> int:
        """The cost of the tool: an input without a source costs as much as a parameter of the
        chain."""
        return 1 + sum(_cheapest_source(self.sources.get(one.name, ())) for one in self.node.needs)


class CapabilitySearch:
    """What can be reached from the given values. `order` has the tools, the nearest first."""

    def __init__(
        self,
        graph: CapabilityGraph,
        usable: frozenset[str],
        had: tuple[Port, ...],
        goals: Iterable[Goal],
    ) -> None:
        self._graph, self._usable = graph, usable
        self.goals = {graph.place[goal.tool.name]: goal for goal in goals}
        self.order: dict[int, int] = {}
        self.using: list[int] = []  # goals, the nearest first, and those that need nothing given
        self.idle: list[int] = []
        self._relevant = self._find_relevant()
        self._ways = {at: _ToolReach(graph.tools[at], {}) for at in self._relevant}
        self._consumers = self._index_consumers()
        self._ahead: list[tuple[int, int]] = []
        self._used: set[int] = {GIVEN}
        self._left = MOST_ENTRIES_READ
        self._search_forward(had)

    def sources(self, place: int, port: Port) -> list[ValueSource | None]:
        """Possible sources of a tool's input, the best first, that were reached before the tool;
        None stands for a parameter of the chain."""
        before = self.order[place]
        known = self._ways[place].sources.get(port.name, ())
        found = [one for one in known if one.place == GIVEN or self.order[one.place] < before]
        if found and (found[0].effort <= MISSING_INPUT_COST or self._uses_given_value(found[0])):
            return [*found]
        return [None, *found]

    def _uses_given_value(self, source: ValueSource) -> bool:
        """Whether it uses a given value, although another input is missing."""
        return source.place in self._used and not source.link.hinted

    def _find_relevant(self) -> set[int]:
        """Tools that may produce, directly or through others, what a goal needs; the nearest
        first."""
        ahead = deque(self.goals)
        found, asked, left = set(self.goals), set[str](), MOST_ENTRIES_READ
        most = MOST_RELEVANT + len(found)
        while ahead and left > 0:
            for port in self._graph.tools[ahead.popleft()].needs:
                for key, _ in port.keys:
                    if key in asked:
                        continue
                    asked.add(key)
                    for at, _port in self._graph.producers.get(key, ()):
                        left -= 1
                        if at not in found and self._graph.tools[at].name in self._usable:
                            found.add(at)
                            ahead.append(at)
                        if len(found) >= most or left <= 0:
                            return found
        return found

    def _search_forward(self, had: tuple[Port, ...]) -> None:
        for port in had:
            self._offer_value(GIVEN, port, 0)
        for at, way in self._ways.items():
            if not way.node.needs:
                self._push(at)
        self._drain_queue()
        for at in self.goals:  # a tool that no other leads to can be called with given values only
            self._push(at)
        self._drain_queue()

    def _drain_queue(self) -> None:
        while self._ahead and len(self.using) < MOST_GOALS:
            effort, at = heapq.heappop(self._ahead)
            if at not in self.order:
                self._visit(at, effort)

    def _visit(self, at: int, effort: int) -> None:
        self.order[at] = len(self.order)
        fed = self._ways[at].sources.values()
        if any(source.place in self._used for found in fed for source in found):
            self._used.add(at)
        if at in self.goals:
            met = self.using if at in self._used else self.idle
            if len(met) < MOST_GOALS:
                met.append(at)
        for port in self._graph.tools[at].produces:
            self._offer_value(at, port, effort)

    def _offer_value(self, source: int, given: Port, effort: int) -> None:
        """Passes a value to every input with one of its names that needs further sources."""
        for key, _ in given.keys:
            takers = self._consumers.get(key, [])
            self._left -= len(takers)
            if self._left < 0:
                return
            self._consumers[key] = [
                (at, taken)
                for at, taken in takers
                if at not in self.order and self._add_source(at, taken, source, given, effort)
            ]

    def _add_source(self, at: int, taken: Port, source: int, given: Port, effort: int) -> bool:
        """False where the input has enough sources."""
        known = self._ways[at].sources.setdefault(taken.name, [])
        if all(one.place != source or one.given != given for one in known):
            found = link_ports(given, taken)
            if found is not None:
                known.append(ValueSource(source, given, found, effort))
                known.sort(key=lambda one: (one.effort, one.place))
                if taken.sure:
                    self._push(at)
        return len(known) < MOST_SOURCES

    def _index_consumers(self) -> PortEntries:
        found: PortEntries = {}
        for at in sorted(self._relevant):
            add_entries(found, at, self._graph.tools[at].consumes)
        return found

    def _push(self, at: int) -> None:
        heapq.heappush(self._ahead, (self._ways[at].effort, at))


def _cheapest_source(sources: Iterable[ValueSource]) -> int:
    return min((MISSING_INPUT_COST, *(one.effort for one in sources)))
