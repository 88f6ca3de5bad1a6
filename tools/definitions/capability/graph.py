"""Links outputs of tools to inputs of others, and indexes a catalog by the names of these values.

Two values may be the same thing where what they are called agrees: where both schemas declare what
they mean (`x-means`), by that alone; else by the name of the property, by its name with that of the
object around it (`user: {id}` is a `userId`), or by the `title` of its schema, all without case,
plural or punctuation. A name that half of all tools use (`VAGUE_NAMES`: id, name, status …) and a
`format` that both declare are weak evidence only. That both are texts is no evidence. Where their
schemas exclude each other, there is no fit, whatever they are called.

Pairs of tools are compared only when one of them is queried: ten thousand tools that all take a
`text` would have a hundred million edges, and are as many entries under one name.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Any

from tools.definitions.capability.ports import (
    MEANING_KEYWORD,
    TOO_LARGE,
    Port,
    input_ports,
    normalize_key,
    output_ports,
)
from tools.definitions.schemas.compatibility import find_misfits
from tools.definitions.tool import ToolDefinition

MISSING_INPUT_COST = 10  # in steps: plans without missing inputs rank first
_MOST_REASONS = 3
_FIT_ORDER = {"exact": 0, "path": 1, "doubtful": 2}
_MOST_COMPARED = 20_000  # pairs of values that the edges of one answer compare
PortEntries = dict[str, list[tuple[int, Port]]]


class Fit(StrEnum):
    EXACT = "exact"  # a property of the output, all of whose values are accepted
    PATH = "path"  # the same, deeper in the output
    DOUBTFUL = "doubtful"


@dataclass(frozen=True, slots=True)
class Link:
    """`why` says what is doubtful; of other links nothing. `hinted`: only weak names agree."""

    fit: Fit
    why: tuple[str, ...] = ()
    hinted: bool = False

    @property
    def doubtful(self) -> bool:
        return self.fit == Fit.DOUBTFUL

    @property
    def effort(self) -> int:
        """What it costs beside steps: a doubt as much as one step, weak evidence more than a
        parameter of the chain."""
        return (MISSING_INPUT_COST + 1 if self.hinted else 1) if self.doubtful else 0


EXACT_LINK, PATH_LINK = Link(Fit.EXACT), Link(Fit.PATH)


def link_ports(given: Port, taken: Port) -> Link | None:
    """None where no name agrees, or where it certainly does not fit."""
    agreed = _compare_names(given, taken)
    if agreed is None:
        return None
    ours = given.cataloged and taken.cataloged  # schemas of callers are not cached
    compared = _compare_schemas if ours else _compare_schemas.__wrapped__
    doubts = () if given.free else compared(given.schema, taken.schema)
    if doubts is None:
        return None
    why = (*agreed, *(() if given.sure else ("it may be missing",)), *doubts)
    if why:
        return Link(Fit.DOUBTFUL, why[:_MOST_REASONS], hinted=bool(agreed))
    return PATH_LINK if given.deep else EXACT_LINK


def _compare_names(given: Port, taken: Port) -> tuple[str, ...] | None:
    """What is doubtful of the names; None where none agrees."""
    if given.means and taken.means:
        return () if given.means == taken.means else None
    theirs = dict(taken.keys)
    shared = [(key, sure and theirs[key]) for key, sure in given.keys if key in theirs]
    if not shared:
        return None
    if any(sure for _, sure in shared):
        return ()
    return (_weak_name_reason(shared[0][0]),)


def _weak_name_reason(key: str) -> str:
    if key.startswith("format:"):
        return f"only the format {key.removeprefix('format:')} agrees"
    return f"the name {key} is used for many things: {MEANING_KEYWORD} would say what is meant"


@lru_cache(maxsize=16_384)
def _compare_schemas(given: str, taken: str) -> tuple[str, ...] | None:
    """Uncertain mismatches of two schemas; None where no value fits."""
    if TOO_LARGE in (given, taken):
        return ("its schema is too large to be compared here",)
    if given == taken or not taken:
        return ()
    if not given:
        return ("what it is, its schema does not say",)
    found = find_misfits(json.loads(given), json.loads(taken))
    if any(one.certain for one in found):
        return None
    return tuple(f"{one.path} {one.message}".strip() for one in found[:_MOST_REASONS])


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
    def from_definition(cls, definition: ToolDefinition) -> "CapabilityNode":
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
