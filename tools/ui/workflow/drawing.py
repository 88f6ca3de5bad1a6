"""The drawing of a state graph: states are in columns by their distance from the start."""

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from tools.catalog.workflow.workflow import START, StateNode, WorkflowGraph
from tools.ui.layout import LABEL, LayoutBox, LayoutDrawing, chain, cut, drawn, label

MOST_STATES = 40
MOST_TRANSITIONS = 120

Transitions = dict[tuple[str | None, str], list[str]]
EVERY_STATE = "from every state"
CAPTIONS = {"no_tool": "dead end: no tool", "no_way_on": "end: no way on"}


@dataclass(frozen=True)
class FindingMark:
    """The mark of a finding in the drawing: its number in the list, and its severity."""

    number: int
    tone: str


@dataclass(frozen=True)
class FindingMarks:
    """Marks by state and by tool: a tool is marked at its transitions between states."""

    states: Mapping[str, FindingMark] = field(default_factory=dict)
    tools: Mapping[str, FindingMark] = field(default_factory=dict)


_NO_MARKS = FindingMarks()


def draw_workflow(
    graph: WorkflowGraph, marks: FindingMarks = _NO_MARKS, here: str | None = None
) -> LayoutDrawing | None:
    """None for a graph that is too large to draw. `here` is the simulator's current state."""
    ways = _transitions(graph)
    if len(graph.nodes) > MOST_STATES or len(ways) > MOST_TRANSITIONS or graph.left_off:
        return None
    columns = _state_columns(graph, ways)
    states = {node.name: _state_box(node, columns[node.name]) for node in graph.nodes}
    chains = [_transition_boxes(way, tools, states) for way, tools in ways.items()]
    _mark_states(states, marks, here)
    for (_, tools), boxes in zip(ways.items(), chains, strict=True):
        _mark_transition(next(box for box in boxes if box.kind == LABEL), tools, marks)
    return drawn([*states.values()], chains)


def _mark_states(states: dict[str, LayoutBox], marks: FindingMarks, here: str | None) -> None:
    """Mark the states. A link leads to the first state that has the number."""
    led_to: set[int] = set()
    for name, box in states.items():
        box.here = name == here
        if (mark := marks.states.get(name)) is not None:
            box.mark, box.tone = str(mark.number), mark.tone
            box.ident = "" if mark.number in led_to else f"at-{mark.number}"
            led_to.add(mark.number)


def _mark_transition(box: LayoutBox, tools: list[str], marks: FindingMarks) -> None:
    """Mark a label with the most severe finding of its tools, which has the lowest number."""
    found = [marks.tools[name] for name in tools if name in marks.tools]
    if found:
        mark = min(found, key=lambda one: one.number)
        box.mark, box.tone = str(mark.number), mark.tone


def _transitions(graph: WorkflowGraph) -> Transitions:
    """The tools of each pair of states; a tool that is available in every state starts at None."""
    ways: Transitions = defaultdict(list)
    for edge in graph.edges:
        ways[edge.start, edge.end].append(edge.tool)
    return dict(ways)


def _state_columns(graph: WorkflowGraph, ways: Transitions) -> dict[str, int]:
    """Columns by distance from the start; an unreachable state starts another count."""
    after: dict[str, list[str]] = defaultdict(list)
    for start, end in ways:
        after[START if start is None else start].append(end)
    entered = {end for _, end in ways}
    names = [node.name for node in graph.nodes]
    columns: dict[str, int] = {}
    for root in sorted(names, key=lambda name: (name != START, name in entered)):
        ahead = deque([] if root in columns else [root])
        columns.setdefault(root, 0)
        while ahead:
            name = ahead.popleft()
            for end in after[name]:
                if end not in columns:
                    columns[end] = columns[name] + 2
                    ahead.append(end)
    return columns


def _state_box(node: StateNode, column: int) -> LayoutBox:
    count = f"{node.tool_count} tool{'' if node.tool_count == 1 else 's'}"
    if not node.reachable:
        caption = f"never entered · {count}"
    elif node.ended:
        caption = CAPTIONS[node.ended]
    else:
        caption = f"start · {count}" if node.name == START else count
    return LayoutBox(column, [cut(node.name), caption], kind=_state_kind(node), hint=node.name)


def _state_kind(node: StateNode) -> str:
    if not node.reachable:
        return "unreachable"
    return node.ended or ("start" if node.name == START else "state")


def _transition_boxes(
    way: tuple[str | None, str], tools: list[str], states: dict[str, LayoutBox]
) -> list[LayoutBox]:
    """The boxes of an edge, from one state to the other."""
    end = states[way[1]]
    if way[0] is None:
        return [label(end.column - 1, [EVERY_STATE], tools), end]
    return chain(states[way[0]], end, tools)
