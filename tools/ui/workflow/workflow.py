"""`/workflow/`: the state graph of some groups as a drawing and a table, with the linter's
findings."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from tools.accounts.people import require
from tools.catalog.workflow.lint import WorkflowFinding, WorkflowSeverity
from tools.catalog.workflow.workflow import EVERY_GROUP, WorkflowEdge, WorkflowGraph, graph
from tools.insight.findings import findings
from tools.ui.access import PageRequest, page, snapshot_of
from tools.ui.workflow.drawing import FindingMark, FindingMarks, draw_workflow

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


@require_safe
@page
def workflow_page(request: PageRequest) -> HttpResponse:
    """The state graph; without a group, of the tools of every group."""
    require(request.caller, "view_tool")
    snapshot = snapshot_of(request)
    chosen = frozenset(name[:200] for name in request.GET.getlist("group") if name)
    groups = chosen or EVERY_GROUP
    shown, found = graph(snapshot, groups), findings(snapshot, groups)
    marks = finding_marks(found[:MOST_FINDINGS])
    drawing = draw_workflow(shown, marks)
    context = {
        "graph": shown,
        "drawing": drawing,
        "rows": _state_rows(shown),
        "kinds": _group_findings(found[:MOST_FINDINGS], marks if drawing else FindingMarks()),
        "more_findings": max(0, len(found) - MOST_FINDINGS),
        "groups": sorted({*snapshot.groups, *chosen}),
        "chosen": sorted(chosen),
    }
    part = "#flow" if request.htmx and request.htmx.target == "flow" else ""
    return render(request, f"{TEMPLATE}{part}", context)


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
