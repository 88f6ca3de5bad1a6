"""The state machine of a workflow for a set of groups: its states, and the tools that lead from one
to the next.

A tool moves the state after success (Tool groups specification, 2.1.2); a tool that keeps the state
is no transition. Only enabled tools count. A tool without `available_in_states` is available in
every state, so it is stored once and not once per state: everything here is linear in the size of
the tools' definitions.
"""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.texts.names import WILDCARD

START = "undefined"
EVERY_GROUP = frozenset([WILDCARD])
MOST_STATES = 200
MOST_EDGES = 1_000
MOST_TOOLS = 20  # named beside a state; their count is always shown


def leads_to(tool: CatalogTool) -> str | None:
    """The state after success; None where the tool leaves the state as it is."""
    state: str | None = tool.definition.raw["state"]
    return state


def is_everywhere(tool: CatalogTool) -> bool:
    return WILDCARD in tool.definition.states


def open_to(tool: CatalogTool, groups: frozenset[str], snapshot: Snapshot) -> bool:
    """The group half of 4.2, as the availability gate checks it for every request."""
    return WILDCARD in groups or not snapshot.groups_of(tool).isdisjoint(groups)


@dataclass(frozen=True, eq=False)
class Workflow:
    """The state machine of a set of tools. `START` is always a state."""

    tools: tuple[CatalogTool, ...]

    @cached_property
    def everywhere(self) -> tuple[CatalogTool, ...]:
        return tuple(tool for tool in self.tools if is_everywhere(tool))

    @cached_property
    def tools_by_state(self) -> dict[str, list[CatalogTool]]:
        """By state: the tools that list it."""
        found: dict[str, list[CatalogTool]] = defaultdict(list)
        for tool in self.tools:
            for state in tool.definition.states - EVERY_GROUP:
                found[state].append(tool)
        return dict(found)

    @cached_property
    def entered(self) -> dict[str, list[CatalogTool]]:
        """By state: the tools that lead there."""
        found: dict[str, list[CatalogTool]] = defaultdict(list)
        for tool in self.tools:
            if (state := leads_to(tool)) is not None:
                found[state].append(tool)
        return dict(found)

    @cached_property
    def states(self) -> tuple[str, ...]:
        return tuple(sorted({START, *self.tools_by_state, *self.entered}))

    def available(self, state: str) -> Iterator[CatalogTool]:
        yield from self.tools_by_state.get(state, ())
        yield from self.everywhere

    def has_tools(self, state: str) -> bool:
        return state in self.tools_by_state or bool(self.everywhere)

    def has_way_on(self, state: str) -> bool:
        return any(leads_to(tool) not in {None, state} for tool in self.available(state))

    def dead_end_reason(self, state: str) -> str | None:
        """`no_tool` or `no_way_on` for a state that a workflow can reach and not leave."""
        if state not in self.distances:
            return None
        if not self.has_tools(state):
            return "no_tool"
        return None if self.has_way_on(state) or len(self.states) == 1 else "no_way_on"

    @cached_property
    def distances(self) -> dict[str, int]:
        """The states that can be reached, with the fewest steps that lead there from `START`."""
        steps = {START: 0}
        ahead = deque([START])
        while ahead:
            state = ahead.popleft()
            # Tools of every state were handled in the first one.
            tools = self.available(state) if state == START else self.tools_by_state.get(state, ())
            for tool in tools:
                target = leads_to(tool)
                if target is not None and target not in steps:
                    steps[target] = steps[state] + 1
                    ahead.append(target)
        return steps

    def later_than(self, state: str) -> list[str]:
        """The reachable states that are further from `START` than a reachable one."""
        states, steps = self._in_order
        return states[bisect_right(steps, self.distances[state]) :]

    @cached_property
    def _in_order(self) -> tuple[list[str], list[int]]:
        states = sorted(self.distances, key=lambda state: (self.distances[state], state))
        return states, [self.distances[state] for state in states]

    def cycles(self, *, resets: bool = True) -> list[list[str]]:
        """Sets of states, two and more each, that lead into one another.

        Without `resets`, ways back to `START` do not count.
        """
        ways: dict[str | None, list[str | None]] = {
            state: [*_targets(self.tools_by_state.get(state, ()), resets), None]
            for state in self.states
        }
        # None is an auxiliary node: every state leads there, and tools of every state lead on from
        # it. So such a tool is one edge and not one per state.
        ways[None] = [*_targets(self.everywhere, resets)]
        parts = [[state for state in part if state is not None] for part in components(ways)]
        return sorted(sorted(part) for part in parts if len(part) > 1)


def _targets(tools: Iterable[CatalogTool], resets: bool) -> list[str]:
    found = {state for tool in tools if (state := leads_to(tool)) is not None}
    return sorted(found if resets else found - {START})


def components[Node](ways: Mapping[Node, Sequence[Node]]) -> Iterator[list[Node]]:
    """The strongly connected parts of a graph (Tarjan), without recursion.

    `ways` names every node, with those it leads to.
    """
    number: dict[Node, int] = {}  # in the order of discovery
    lowest: dict[Node, int] = {}  # the earliest node of an open part that can be reached
    open_nodes: dict[Node, None] = {}  # a stack that knows what is in it
    for root in ways:
        if root in number:
            continue
        path = [(root, iter(ways[root]))]
        number[root] = lowest[root] = len(number)
        open_nodes[root] = None
        while path:
            node, ahead = path[-1]
            for target in ahead:
                if target not in number:
                    number[target] = lowest[target] = len(number)
                    open_nodes[target] = None
                    path.append((target, iter(ways[target])))
                    break
                if target in open_nodes:
                    lowest[node] = min(lowest[node], number[target])
            else:
                path.pop()
                if path:
                    before = path[-1][0]
                    lowest[before] = min(lowest[before], lowest[node])
                if lowest[node] == number[node]:
                    yield _closed(open_nodes, node)


def _closed[Node](open_nodes: dict[Node, None], root: Node) -> list[Node]:
    part = []
    while True:
        node, _ = open_nodes.popitem()
        part.append(node)
        if node == root:
            return part


def workflow(snapshot: Snapshot, groups: frozenset[str] = EVERY_GROUP) -> Workflow:
    """Of the tools in service that are open to the groups."""
    if groups == EVERY_GROUP:
        return snapshot.settle("workflow", lambda: _workflow(snapshot, groups))
    return _workflow(snapshot, groups)


def _workflow(snapshot: Snapshot, groups: frozenset[str]) -> Workflow:
    tools = (tool for tool in snapshot.sorted_tools if tool.enabled)
    return Workflow(tuple(tool for tool in tools if open_to(tool, groups, snapshot)))


@dataclass(frozen=True)
class StateNode:
    """A state as it is shown. `ended` is `no_tool`, `no_way_on` or None."""

    name: str
    tools: tuple[str, ...]
    tool_count: int
    reachable: bool
    ended: str | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "start": self.name == START,
            "tools": list(self.tools),
            "tool_count": self.tool_count,
            "reachable": self.reachable,
            "dead_end": self.ended,
        }


@dataclass(frozen=True)
class WorkflowEdge:
    """What a tool does to a state. `start` is None for a tool that is available in every state."""

    start: str | None
    end: str
    tool: str

    def as_dict(self) -> dict[str, Any]:
        return {"from": self.start, "to": self.end, "tool": self.tool}


@dataclass(frozen=True)
class WorkflowGraph:
    """`left_off` counts the states and edges beyond what is shown."""

    nodes: tuple[StateNode, ...]
    edges: tuple[WorkflowEdge, ...]
    left_off: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "nodes": [node.as_dict() for node in self.nodes],
            "edges": [edge.as_dict() for edge in self.edges],
            "left_off": self.left_off,
        }


def graph(
    snapshot: Snapshot, groups: frozenset[str] = EVERY_GROUP, only: Set[str] | None = None
) -> WorkflowGraph:
    """States in the order in which they are reached, the unreachable ones last. `only`: made of
    the tools of these names."""
    flow = workflow(snapshot, groups)
    if only is not None:
        flow = Workflow(tuple(tool for tool in flow.tools if tool.name in only))
    far = len(flow.states)
    states = sorted(flow.states, key=lambda state: (flow.distances.get(state, far), state))
    edges = [*_edges(flow, states)]
    shown = frozenset(states[:MOST_STATES])
    kept = [edge for edge in edges if edge.end in shown and edge.start in {None, *shown}]
    return WorkflowGraph(
        nodes=tuple(_node(flow, state) for state in states[:MOST_STATES]),
        edges=tuple(kept[:MOST_EDGES]),
        left_off=len(states) - len(shown) + len(edges) - min(len(kept), MOST_EDGES),
    )


def _node(flow: Workflow, state: str) -> StateNode:
    return StateNode(
        name=state,
        tools=tuple(tool.name for tool in islice(flow.available(state), MOST_TOOLS)),
        tool_count=len(flow.tools_by_state.get(state, ())) + len(flow.everywhere),
        reachable=state in flow.distances,
        ended=flow.dead_end_reason(state),
    )


def _edges(flow: Workflow, states: list[str]) -> Iterator[WorkflowEdge]:
    for tool in flow.everywhere:
        if (end := leads_to(tool)) is not None and len(states) > 1:
            yield WorkflowEdge(None, end, tool.name)
    for state in states:
        for tool in flow.tools_by_state.get(state, ()):
            if (end := leads_to(tool)) not in {None, state}:
                yield WorkflowEdge(state, str(end), tool.name)
