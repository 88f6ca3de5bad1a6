"""The given and wanted values of a proposal, as values of the graph."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tools.definitions.capability.fits import Link, link_ports
from tools.definitions.capability.graph import CapabilityGraph, CapabilityNode
from tools.definitions.capability.ports import Port, build_port, normalize_key
from tools.definitions.schemas.schema_parts import child_pointer, resolve_schema, value_kind

_DEEPEST_EXAMPLE = 6
_MOST_EXAMPLE_MEMBERS = 50


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
