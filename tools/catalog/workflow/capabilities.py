"""The capability graph of an organization's catalog, cached with its snapshot.

Parsed definitions are cached by digest, so that a change of one tool parses one tool.
"""

from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.capability.capability_search import PlanningTarget
from tools.definitions.capability.graph import CapabilityGraph, CapabilityNode
from tools.definitions.capability.ports import Port
from tools.definitions.capability.proposals import Proposal, draft_proposal, find_plans
from tools.definitions.chains.type_check import Interface

_MOST_NODES = 20_000
_nodes: dict[str, CapabilityNode] = {}


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
        known = {name: Interface.of(snapshot.tools[name].definition.raw) for name in plan.names}
        made = draft_proposal(plan, wish, known, taken)
        if made is not None:
            found.append(made)
            taken |= {made.document["name"]}
    return found


def _node(tool: CatalogTool) -> CapabilityNode:
    if tool.flaw:  # its definition does not match its digest
        return CapabilityNode.of(tool.definition)
    known = _nodes.get(tool.digest)
    if known is None:
        if len(_nodes) >= _MOST_NODES:
            _nodes.clear()
        known = _nodes[tool.digest] = CapabilityNode.of(tool.definition)
    return known


def forget() -> None:
    """A cache of parsed definitions."""
    _nodes.clear()
