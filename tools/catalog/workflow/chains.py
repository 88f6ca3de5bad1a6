"""Checks that the tools a chain names exist when it is written, and that none leads back to the
chain; and proposes chains from the capability graph.
"""

from collections.abc import Iterator

from django.db.models import Q

from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.capability.capability_search import PlanningTarget
from tools.definitions.capability.graph import CapabilityGraph, CapabilityNode
from tools.definitions.capability.ports import Port
from tools.definitions.capability.proposals import Proposal, draft_proposal, find_plans
from tools.definitions.chains import type_check
from tools.definitions.chains.chain_document import Chain
from tools.definitions.chains.type_check import Doubt, Interface
from tools.definitions.tool import Definition
from tools.definitions.vocabulary import ToolType
from tools.errors import Conflict, InvalidDefinition
from tools.models import Organization, Tool

_NAMED = 20
MOST_VISITED = 1_000  # chains that chains lead to
_MOST_NODES = 20_000
_nodes: dict[str, CapabilityNode] = {}


def check_chain(organization: Organization, definition: Definition) -> None:
    """Raises `InvalidDefinition`, which names each place."""
    if definition["type"] != ToolType.CHAIN:
        return
    chain = _chain_of(definition)
    flaws = list(_flaws(organization, str(definition["name"]), chain))
    flaws += [
        (doubt.place, doubt.message)
        for doubt in doubts_about(organization, definition)
        if doubt.certain
    ]
    if flaws:
        raise InvalidDefinition(
            "The chain was not accepted: see details.errors.",
            errors=[
                {"field": f"implementation.chain.{place}", "message": message}
                for place, message in flaws
            ],
        )


def check_not_called(organization: Organization, name: str) -> None:
    """Raises `Conflict` while chains call the tool: their runs would fail at that step."""
    names = chains_that_call(organization, name)[:_NAMED]
    if names:
        raise Conflict(
            f"Chains call the tool {name}: {', '.join(names)}.",
            code="has_dependants",
            dependants=names,
        )


def chains_that_call(organization: Organization, name: str) -> list[str]:
    """In the order of their names; in a step, or to undo one."""
    steps = "version__definition__implementation__chain__steps__contains"
    called = Q(**{steps: [{"tool_name": name}]})
    called |= Q(**{steps: [{"compensate_with": {"tool_name": name}}]})
    rows = Tool.objects.present().filter(called, organization=organization, type=ToolType.CHAIN)
    return list(rows.order_by("name").values_list("name", flat=True))


def doubts_about(organization: Organization, definition: Definition) -> list[Doubt]:
    """Certain and possible mismatches between its steps, by the schemas of their tools."""
    chain = _chain_of(definition)
    known = _definitions(organization, {tool for _, tool in chain.tools()})
    return type_check.find_type_doubts(
        chain,
        Interface.from_definition(definition),
        {name: Interface.from_definition(one) for name, one in known.items()},
    )


def _flaws(organization: Organization, name: str, chain: Chain) -> Iterator[tuple[str, str]]:
    called = list(chain.tools())
    known = _definitions(organization, {tool for _, tool in called})
    for place, tool in called:
        if tool == name:
            yield place, "is the chain itself"
        elif tool not in known:
            yield place, f"names no tool: there is no {tool}"
        elif way := _way_back(organization, name, tool):
            yield place, f"leads back to the chain: {' → '.join(way)}"


def _way_back(organization: Organization, name: str, start: str) -> list[str] | None:
    """From a tool to the chain that is written, where chains lead there."""
    ways, visited = [[start]], {start}
    while ways and len(visited) < MOST_VISITED:
        way = ways.pop(0)
        definition = _definitions(organization, {way[-1]}).get(way[-1])
        if definition is None or definition["type"] != ToolType.CHAIN:
            continue
        for _, tool in _chain_of(definition).tools():
            if tool == name:
                return [*way, name]
            if tool not in visited:
                visited.add(tool)
                ways.append([*way, tool])
    return None


def _definitions(organization: Organization, names: set[str]) -> dict[str, Definition]:
    """Of the tools that are there."""
    rows = Tool.objects.present().filter(organization=organization, name__in=names)
    return dict(rows.values_list("name", "version__definition"))


def _chain_of(definition: Definition) -> Chain:
    return Chain(definition["implementation"]["chain"])


def capability_graph(snapshot: Snapshot) -> CapabilityGraph:
    """Of tools of any status and group; the caller checks who may use them."""
    return snapshot.settle(
        "capability graph", lambda: CapabilityGraph(map(_node, snapshot.sorted_tools))
    )


def proposals(
    snapshot: Snapshot, usable: frozenset[str], had: tuple[Port, ...], wish: PlanningTarget
) -> list[Proposal]:
    """Chains of usable tools from given values to a goal, the best first."""
    found = []
    taken = frozenset(usable)
    for plan in find_plans(capability_graph(snapshot), usable, had, wish):
        known = {
            name: Interface.from_definition(snapshot.tools[name].definition.raw)
            for name in plan.names
        }
        made = draft_proposal(plan, wish, known, taken)
        if made is not None:
            found.append(made)
            taken |= {made.document["name"]}
    return found


def _node(tool: CatalogTool) -> CapabilityNode:
    if tool.flaw:  # its definition does not match its digest
        return CapabilityNode.from_definition(tool.definition)
    known = _nodes.get(tool.digest)
    if known is None:
        if len(_nodes) >= _MOST_NODES:
            _nodes.clear()
        known = _nodes[tool.digest] = CapabilityNode.from_definition(tool.definition)
    return known


def forget() -> None:
    """A cache of parsed definitions."""
    _nodes.clear()
