"""`/workflow/`: the states for some groups as a picture and as a table, and what is odd there."""

from itertools import groupby
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from tools.catalog.lint import Finding, Severity
from tools.catalog.workflow import EVERY_GROUP, Edge, Graph, graph
from tools.policy.findings import findings
from tools.policy.people import require
from tools.ui.access import PageRequest, page, snapshot_of
from tools.ui.drawing import draw

TEMPLATE = "ui/workflow.html"
MOST_FINDINGS = 100
_CHIPS = {
    Severity.ERROR: ("denied", "error"),
    Severity.WARNING: ("pending", "warning"),
    Severity.INFORMATION: ("", "note"),
}


@require_safe
@page
def workflow_page(request: PageRequest) -> HttpResponse:
    """Without a group, the tools of every group."""
    require(request.caller, "view_tool")
    snapshot = snapshot_of(request)
    chosen = frozenset(name[:200] for name in request.GET.getlist("group") if name)
    groups = chosen or EVERY_GROUP
    shown, found = graph(snapshot, groups), findings(snapshot, groups)
    context = {
        "graph": shown,
        "drawing": draw(shown),
        "rows": _rows(shown),
        "kinds": _kinds(found[:MOST_FINDINGS]),
        "more_findings": max(0, len(found) - MOST_FINDINGS),
        "groups": sorted({*snapshot.groups, *chosen}),
        "chosen": sorted(chosen),
    }
    part = "#flow" if request.htmx and request.htmx.target == "flow" else ""
    return render(request, f"{TEMPLATE}{part}", context)


def shown_finding(finding: Finding) -> dict[str, Any]:
    chip, word = _CHIPS[finding.severity]
    return {"finding": finding, "chip": chip, "word": word}


def _kinds(found: tuple[Finding, ...]) -> list[list[dict[str, Any]]]:
    """The findings of one kind together, in the order of their gravity."""
    kinds = groupby(found, key=lambda finding: (finding.severity, finding.code))
    return [[shown_finding(finding) for finding in kind] for _, kind in kinds]


def _rows(shown: Graph) -> list[dict[str, Any]]:
    """The picture for who does not see it: a state, what is available, and where that leads."""
    everywhere = [edge for edge in shown.edges if edge.start is None]
    leaving: dict[str, list[Edge]] = {node.name: [] for node in shown.nodes}
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
