"""`/tools/<name>/who/`: each agent with the first gate that refuses it the tool.
`/tools/<name>/usage/`: calls, durations and cost of the last fourteen days."""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Page, Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from tools.accounts.user_permissions import may, require
from tools.authorization.listings import visible_tool
from tools.authorization.pins import snapshot_for
from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.insight.explain import Explanation
from tools.insight.tool_reach import known_callers
from tools.models import Agent
from tools.policy.questions import EffectiveRequest
from tools.shapes import money
from tools.ui.access import PageRequest, page, snapshot_of
from tools.ui.home.usage import usage_charts
from tools.ui.playground.call_form import default_state
from tools.ui.workflow.explanations import GATE_LABELS
from tools.usage.usage_reports import Usage, UsageQuery, UsageTotals, durations, usage

PAGE_SIZE = 25
DAYS = 14


@dataclass(frozen=True)
class ToolAgentRow:
    """An agent; `gate` and `reason` are empty where it may use the tool."""

    agent: str
    description: str
    gate: str
    reason: str
    explain: str


@dataclass(frozen=True)
class Day:
    day: date
    figures: UsageTotals
    cost: str
    p95: float | None


@require_safe
@page
def who_page(request: PageRequest, name: str) -> HttpResponse:
    snapshot = snapshot_of(request)
    tool = visible_tool(request.caller, snapshot, name)
    for permission in ("view_agent", "view_tool"):
        require(request.caller, permission)
    q = request.GET.get("q", "").strip()[:63]
    rows = Agent.objects.filter(organization_id=snapshot.organization_id).order_by("slug")
    found = rows.filter(slug__icontains=q) if q else rows
    shown = Paginator(found, PAGE_SIZE).get_page(request.GET.get("page"))
    agents = _agents(shown, tool, snapshot)
    context = {
        "tool": tool,
        "q": q,
        "shown": shown,
        "agents": agents,
        "yes": sum(not row.gate for row in agents),
        "state": default_state(tool),
        "links": _links(tool, q, shown),
    }
    return render(request, "catalog/tool_who.html", context)


@require_safe
@page
def usage_page(request: PageRequest, name: str) -> HttpResponse:
    snapshot = snapshot_of(request)
    tool = visible_tool(request.caller, snapshot, name)
    until = timezone.now().astimezone(snapshot.time_zone).date()
    since = until - timedelta(days=DAYS - 1)
    wanted = UsageQuery(since=since, until=until, tool=tool.name)
    found = usage(request.caller, snapshot, wanted)
    total = sum((figures for _, figures in found.rows), UsageTotals())
    took = durations(request.caller, snapshot, wanted, total.calls)
    context = {
        "tool": tool,
        "found": found,
        "days": _days(found, took),
        "total": total,
        "cost": money(total.cost),
        "p95": took.get(None),
        "most_calls": max((figures.calls for _, figures in found.rows), default=0),
        **usage_charts(found),
        "everyone": may(request.caller, "view_execution"),
        "time_zone": snapshot.time_zone.key,
        "since": since,
        "until": until,
    }
    return render(request, "catalog/tool_usage.html", context)


def _agents(shown: Page[Agent], tool: CatalogTool, snapshot: Snapshot) -> list[ToolAgentRow]:
    """The agents of the page, evaluated with all of their grants, in a state that has the tool."""
    agents = list(shown.object_list)
    about = {agent.slug: agent.description for agent in agents}
    callers = known_callers(agents, snapshot.revision)
    return [_row(caller, about[caller.name], tool) for caller in callers]


def _row(caller: Caller, description: str, tool: CatalogTool) -> ToolAgentRow:
    own = snapshot_for(caller)  # with the versions that are pinned for the agent
    asked = EffectiveRequest(caller.granted_groups, default_state(tool))
    explanation = Explanation(caller, asked, own, everything=True)
    refusal = explanation.refusal(own.tools.get(tool.name, tool))
    query = {"agent": caller.name, "q": tool.name, "state": asked.state}
    return ToolAgentRow(
        agent=caller.name,
        description=description,
        gate=GATE_LABELS.get(refusal.gate, refusal.gate) if refusal else "",
        reason=refusal.reason if refusal else "",
        explain=f"{reverse('explain')}?{urlencode(query)}",
    )


def _links(tool: CatalogTool, q: str, shown: Page[Agent]) -> dict[str, str]:
    def address(number: int) -> str:
        query = {name: value for name, value in (("q", q), ("page", number)) if value}
        return f"{reverse('tool-who', args=[tool.name])}?{urlencode(query)}"

    return {
        "previous": address(shown.number - 1) if shown.has_previous() else "",
        "next": address(shown.number + 1) if shown.has_next() else "",
    }


def _days(found: Usage, took: dict[date | None, float]) -> list[Day]:
    """The latest first; days without a call are left out."""
    lines: list[tuple[dict[str, Any], UsageTotals]] = found.rows[::-1]
    return [
        Day(values["day"], figures, money(figures.cost), took.get(values["day"]))
        for values, figures in lines
    ]
