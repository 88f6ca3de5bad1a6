"""Indexes the tools of a catalog by the names of what they consume and produce.

Pairs of tools are compared only when one of them is queried: ten thousand tools that all take a
`text` would have a hundred million edges, and are as many entries under one name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tools.definitions.capability.fits import Link, link_ports
from tools.definitions.capability.ports import Port, input_ports, normalize_key, output_ports
from tools.definitions.tool import ToolDefinition

_FIT_ORDER = {"exact": 0, "path": 1, "doubtful": 2}
_MOST_COMPARED = 20_000  # pairs of values that the edges of one answer compare


@dataclass(frozen=True, slots=True)
class CapabilityNode:
    """A tool as the graph knows it."""

    name: str
    consumes: tuple[Port, ...]
    produces: tuple[Port, ...]
    capabilities: frozenset[str]
    writes: bool
    asks: bool
    cost: Decimal

    @classmethod
    def of(cls, definition: ToolDefinition) -> "CapabilityNode":
        raw = definition.raw
        return cls(
            definition.name,
            input_ports(raw["input_schema"]),
            output_ports(raw["output_schema"]),
            frozenset(normalize_key(one) for one in raw["capabilities"]),
            bool(raw["constraints"]["allow_side_effects"]),
            bool(raw["requires_confirmation"]),
            definition.cost,
        )

    @property
    def preference(self) -> tuple[Any, ...]:
        """Sort key: read-only tools first, then cheaper ones."""
        return self.writes, self.asks, self.cost, self.name

    @property
    def needs(self) -> list[Port]:
        return [one for one in self.consumes if one.sure]


@dataclass(frozen=True, slots=True)
class CapabilityEdge:
    """The output of `source` at `given.pointer` may be the input `taken` of `target`."""

    source: str
    target: str
    given: Port
    taken: Port
    link: Link


PortEntries = dict[str, list[tuple[int, Port]]]


class CapabilityGraph:
    """`tools` are in order of preference."""

    def __init__(self, nodes: Iterable[CapabilityNode]) -> None:
        self.tools = tuple(sorted(nodes, key=lambda node: node.preference))
        self.place = {node.name: at for at, node in enumerate(self.tools)}
        self.producers: PortEntries = {}
        self.consumers: PortEntries = {}
        for at, node in enumerate(self.tools):
            add_entries(self.producers, at, node.produces)
            add_entries(self.consumers, at, node.consumes)

    def node(self, name: str) -> CapabilityNode:
        return self.tools[self.place[name]]

    def edges(
        self, about: Iterable[str], usable: frozenset[str], most: int
    ) -> tuple[list[CapabilityEdge], bool]:
        """Those that lead from or to some tools, the best for each parameter; and whether there may
        be more than `most`."""
        best: dict[tuple[str, str, str], CapabilityEdge] = {}
        tried = 0
        for edge in self._candidate_edges(about, usable):
            tried += 1
            if edge is None:
                if tried > _MOST_COMPARED:
                    return list(best.values()), True
                continue
            key = (edge.source, edge.target, edge.taken.name)
            known = best.get(key)
            if known is None and len(best) >= most:
                return list(best.values()), True
            if known is None or _edge_rank(edge) < _edge_rank(known):
                best[key] = edge
        return list(best.values()), False

    def _candidate_edges(
        self, about: Iterable[str], usable: frozenset[str]
    ) -> Iterator[CapabilityEdge | None]:
        """None for a pair that shares a name and does not fit."""
        for name in about:
            here = self.node(name)
            for given in here.produces:
                for there, taken in self._matching_ports(self.consumers, given, here, usable):
                    yield _build_edge(here, there, given, taken)
            for taken in here.consumes:
                for there, given in self._matching_ports(self.producers, taken, here, usable):
                    yield _build_edge(there, here, given, taken)

    def _matching_ports(
        self, entries: PortEntries, port: Port, here: CapabilityNode, usable: frozenset[str]
    ) -> Iterator[tuple[CapabilityNode, Port]]:
        for key, _ in port.keys:
            for at, other in entries.get(key, ()):
                there = self.tools[at]
                if there.name in usable and there is not here:
                    yield there, other


def _build_edge(
    source: CapabilityNode, target: CapabilityNode, given: Port, taken: Port
) -> CapabilityEdge | None:
    found = link_ports(given, taken)
    return None if found is None else CapabilityEdge(source.name, target.name, given, taken, found)


def _edge_rank(edge: CapabilityEdge) -> tuple[int, int]:
    return _FIT_ORDER[edge.link.fit], len(edge.link.why)


def add_entries(entries: PortEntries, at: int, ports: tuple[Port, ...]) -> None:
    for port in ports:
        for key, _ in port.keys:
            entries.setdefault(key, []).append((at, port))
