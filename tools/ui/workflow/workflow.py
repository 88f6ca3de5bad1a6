"""`/workflow/`: the state graph of some groups as a table and a drawing, where states are in
columns by their distance from the start, with the linter's findings."""

from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render

from tools.catalog.workflow.lint import WorkflowFinding, WorkflowSeverity
from tools.catalog.workflow.workflow import (
    EVERY_GROUP,
    START,
    StateNode,
    WorkflowEdge,
    WorkflowGraph,
    graph,
)
from tools.insight.workflow_findings import findings
from tools.ui.layout import (
    LABEL,
    LayoutBox,
    LayoutDrawing,
    draw_layout,
    edge_boxes,
    edge_label,
    shorten_name,
)
from tools.ui.suggestions import MOST_OFFERED
from tools.web.pages import PageRequest, page, snapshot_of

TEMPLATE = "workflow/workflow.html"
MOST_FINDINGS = 100
_TONES = {
    WorkflowSeverity.ERROR: "bad",
    WorkflowSeverity.WARNING: "warn",
    WorkflowSeverity.INFORMATION: "calm",
}
_CHIPS = {
    WorkflowSeverity.ERROR: ("denied", "error"),
    WorkflowSeverity.WARNING: ("pending", "warning"),
    WorkflowSeverity.INFORMATION: ("", "note"),
}
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


@page("view_tool")
def workflow_page(request: PageRequest) -> HttpResponse:
    """The state graph; without a group, of the tools of every group."""
    snapshot = snapshot_of(request)
    chosen = frozenset(name[:200] for name in request.GET.getlist("group") if name)
    groups = chosen or EVERY_GROUP
    choices = _group_choices(snapshot.groups, chosen, request.GET.get("q", "").strip()[:200])
    if request.htmx and request.htmx.target == "groups":
        return render(request, f"{TEMPLATE}#groups", choices)
    shown, found = graph(snapshot, groups), findings(snapshot, groups)
    marks = finding_marks(found[:MOST_FINDINGS])
    drawing = draw_workflow(shown, marks)
    context = {
        "graph": shown,
        "drawing": drawing,
        "rows": _state_rows(shown),
        "kinds": _group_findings(found[:MOST_FINDINGS], marks if drawing else FindingMarks()),
        "more_findings": max(0, len(found) - MOST_FINDINGS),
        **choices,
    }
    part = "#flow" if request.htmx and request.htmx.target == "flow" else ""
    return render(request, f"{TEMPLATE}{part}", context)


def _group_choices(groups: Collection[str], chosen: frozenset[str], words: str) -> dict[str, Any]:
    """The chosen groups, and up to a hundred others, of those with the words in their names."""
    found = sorted(name for name in {*groups} - chosen if words.lower() in name.lower())
    return {
        "groups": sorted([*chosen, *found[:MOST_OFFERED]]),
        "more_groups": len(found) - len(found[:MOST_OFFERED]),
        "searched": len(groups) > MOST_OFFERED,
        "words": words,
        "chosen": sorted(chosen),
    }


def finding_row(finding: WorkflowFinding) -> dict[str, Any]:
    chip, word = _CHIPS[finding.severity]
    return {"finding": finding, "chip": chip, "word": word}


def finding_marks(found: Sequence[WorkflowFinding]) -> FindingMarks:
    """Each state and tool with its most severe finding. A finding about one state or one tool marks
    that; a finding about a cycle of states marks all of them."""
    states: dict[str, FindingMark] = {}
    tools: dict[str, FindingMark] = {}
    for number, finding in enumerate(found, start=1):
        mark = FindingMark(number, _TONES[finding.severity])
        about_one = finding.state or finding.tool
        for state in () if about_one else finding.states:
            states.setdefault(state, mark)
        for tool in () if about_one else finding.tools:
            tools.setdefault(tool, mark)
        if finding.state:
            states.setdefault(finding.state, mark)
        if finding.tool:
            tools.setdefault(finding.tool, mark)
    return FindingMarks(states, tools)


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
    return draw_layout([*states.values()], chains)


def _group_findings(
    found: tuple[WorkflowFinding, ...], marks: FindingMarks
) -> list[list[dict[str, Any]]]:
    """The findings grouped by kind, in the order of severity, with their numbers and their places
    in the drawing: a state has the number of the most severe one."""
    shown = [
        finding_row(finding) | {"number": number, "at": marks.states.get(finding.state or "")}
        for number, finding in enumerate(found, start=1)
    ]
    kinds = groupby(shown, key=lambda one: (one["finding"].severity, one["finding"].code))
    return [list(kind) for _, kind in kinds]


def _state_rows(shown: WorkflowGraph) -> list[dict[str, Any]]:
    """The drawing as a table, for accessibility: each state, its tools, and the next states."""
    everywhere = [edge for edge in shown.edges if edge.start is None]
    leaving: dict[str, list[WorkflowEdge]] = {node.name: [] for node in shown.nodes}
    for edge in shown.edges:
        if edge.start is not None:
            leaving[edge.start].append(edge)
    return [
        {
            "node": node,
            "ways": [
                *leaving[node.name],
                *(edge for edge in everywhere if edge.end != node.name),
            ],
            "more": node.tool_count - len(node.tools),
        }
        for node in shown.nodes
    ]


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
    return LayoutBox(
        column, [shorten_name(node.name), caption], kind=_state_kind(node), tooltip=node.name
    )


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
        return [edge_label(end.column - 1, [EVERY_STATE], tools), end]
    return edge_boxes(states[way[0]], end, tools)
