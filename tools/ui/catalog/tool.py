"""`/tools/<name>/`: one tool with its versions and a form that calls it, the agents that may use
it, and its usage.
"""

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from tools.accounts.user_permissions import may, require
from tools.authorization.listings import visible_tool
from tools.authorization.pins import snapshot_for
from tools.catalog.actions import find_tool
from tools.catalog.group_openings import openings_of
from tools.catalog.groups import Through, memberships
from tools.catalog.signatures.verification import Evidence
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.differences import make_value_visible
from tools.insight.explain import Explanation
from tools.insight.tool_reach import MOST_AGENTS, agents_that_reach, known_callers
from tools.insight.workflow_findings import findings_about
from tools.models import Agent, ToolVersion
from tools.policy.questions import EffectiveRequest
from tools.shapes.scalars import money
from tools.ui.catalog.tool_versions import signature_problem, upstream_context, versions_context
from tools.ui.chains.chains import draw_definition, has_dry_run
from tools.ui.display import diff_definitions, pretty
from tools.ui.home.usage import usage_charts
from tools.ui.playground.call_form import default_state
from tools.ui.playground.parameter_form import parameter_fields
from tools.ui.workflow.explanations import GATE_LABELS
from tools.ui.workflow.workflow import finding_row
from tools.usage.usage_reports import (
    UsageQuery,
    UsageReport,
    UsageTotals,
    duration_percentiles,
    usage_report,
)
from tools.web.listing import Column, Filters, Listing, search_field
from tools.web.pages import PageRequest, page, snapshot_of

TEMPLATE = "catalog/tool.html"
WAIT_S = 20.0
LIVE_WAIT_S = 1.5  # after that, the part that htmx loaded follows the execution
MEMBERSHIP_LABELS = {
    Through.OWN: "",
    Through.SOURCE: "from its source",
    Through.PARENT: "as a parent",
}
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
class ToolUsageDay:
    day: date
    figures: UsageTotals
    cost: str
    p95: float | None


@page()
def tool_page(request: PageRequest, name: str) -> HttpResponse:
    tool = visible_tool(request.caller, snapshot_of(request), name)
    raw = tool.definition.raw
    row = find_tool(request.user.organization, tool.name)
    context = {
        "tool": tool,
        "raw": raw,
        "parameters": parameter_fields(raw),
        "may_change": may(request.caller, "change_tool"),
        "may_export": may(request.caller, "view_tool"),
        "here": request.path,
        "input_schema": pretty(raw["input_schema"]),
        "output_schema": pretty(raw["output_schema"]) if raw["output_schema"] else "",
        "facts": _facts(tool),
        "findings": _finding_rows(request, tool),
        "groups": _group_rows(tool, snapshot_of(request)),
        "users": _agents_with_access(request, tool),
        "upstream": upstream_context(row),
        "drawing": draw_definition(raw) if has_dry_run(tool) else None,
        **versions_context(request, row),
    }
    return render(request, TEMPLATE, context)


@page()
def version_page(request: PageRequest, name: str, number: int) -> HttpResponse:
    """A version and its changes."""
    tool = visible_tool(request.caller, snapshot_of(request), name)
    versions = ToolVersion.objects.filter(tool_id=tool.id, number__lte=number)[:2]
    found = list(versions)
    if not found or found[0].number != number:
        raise Http404
    before = found[1] if len(found) > 1 else None
    row = find_tool(request.user.organization, name)
    context = {
        "tool": tool,
        "version": found[0],
        "before": before,
        "flaw": signature_problem(Evidence.load_evidence(row.organization), row, found[0]),
        "lines": diff_definitions(before.definition if before else None, found[0].definition),
        "definition": pretty(make_value_visible(found[0].definition)),
    }
    return render(request, "catalog/tool_version.html", context)


class AgentFilters(Filters):
    q = search_field("Name of an agent")


class ToolAgentListing(Listing):
    """The agents, with the first gate that refuses the tool to each: with all of its grants, in a
    state that has the tool."""

    view, template, noun, css = "tool-who", "catalog/tool_access.html", "agent", "who"
    filters, order, place, above, below = AgentFilters, "agent", "slug", True, True
    columns = [
        Column("agent", "Agent", lambda row: row.agent, sort="slug"),
        Column("may_use_it", "May use it", lambda row: "no" if row.gate else "yes"),
        Column("gate", "First no", lambda row: row.gate),
        Column("reason", "", lambda row: row.reason),
        Column("explain", "Explain", hidden=True),
    ]

    def __init__(self, request: PageRequest, tool: CatalogTool) -> None:
        self.tool, self.snapshot = tool, snapshot_of(request)
        super().__init__(request)

    def rows(self) -> QuerySet[Agent]:
        rows = Agent.objects.filter(organization_id=self.snapshot.organization_id)
        words = self.values.get("q")
        return rows.filter(slug__icontains=words) if words else rows

    def prepare(self, rows: list[Agent]) -> list[ToolAgentRow]:
        about = {agent.slug: agent.description for agent in rows}
        callers = known_callers(rows, self.snapshot.revision)
        return [_agent_row(caller, about[caller.name], self.tool) for caller in callers]

    def context(self) -> dict[str, Any]:
        return {"tool": self.tool, "state": default_state(self.tool)}

    @property
    def able(self) -> int:
        """How many of the page can use it."""
        return sum(not row.gate for row in self.visible_rows)


@page()
def access_page(request: PageRequest, name: str) -> HttpResponseBase:
    tool = visible_tool(request.caller, snapshot_of(request), name)
    for permission in ("view_agent", "view_tool"):
        require(request.caller, permission)
    return ToolAgentListing(request, tool).respond()


@page()
def usage_page(request: PageRequest, name: str) -> HttpResponse:
    snapshot = snapshot_of(request)
    tool = visible_tool(request.caller, snapshot, name)
    until = timezone.now().astimezone(snapshot.time_zone).date()
    since = until - timedelta(days=DAYS - 1)
    wanted = UsageQuery(since=since, until=until, tool=tool.name)
    found = usage_report(request.caller, snapshot, wanted)
    total = sum((figures for _, figures in found.rows), UsageTotals())
    took = duration_percentiles(request.caller, snapshot, wanted, total.calls)
    context = {
        "tool": tool,
        "found": found,
        "days": _day_rows(found, took),
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


def _agents_with_access(request: PageRequest, tool: CatalogTool) -> dict[str, Any] | None:
    """The agents that can use the tool; None for users who may not view agents and tools."""
    if not (may(request.caller, "view_agent") and may(request.caller, "view_tool")):
        return None
    names, cut = agents_that_reach(tool, snapshot_of(request))
    return {"agents": names, "cut": cut, "looked_at": MOST_AGENTS}


def _group_rows(tool: CatalogTool, snapshot: Snapshot) -> list[dict[str, str]]:
    """Each effective group with its origin, and why it is closed where it is."""
    closings = openings_of(snapshot).closings
    return [
        {
            "name": name,
            "through": MEMBERSHIP_LABELS[through],
            "closed": closings[name].reason if name in closings else "",
        }
        for name, through in memberships(tool, snapshot).items()
    ]


def _finding_rows(request: PageRequest, tool: CatalogTool) -> list[dict[str, Any]]:
    """The linter's findings, for users who may view every tool, since findings name others too."""
    if not may(request.caller, "view_tool"):
        return []
    return [finding_row(one) for one in findings_about(snapshot_of(request), tool.name)]


def _facts(tool: CatalogTool) -> list[tuple[str, Any]]:
    raw = tool.definition.raw
    constraints = raw["constraints"]
    return [
        ("Type", raw["type"]),
        ("Category", raw["category"]),
        ("Delivery", raw["delivery"]),
        ("Side effects", "allowed" if constraints["allow_side_effects"] else "none"),
        ("Isolation", constraints["required_isolation"]),
        ("Time at most", constraints["max_execution_time"]),
        ("Output at most", f"{constraints['max_output_size']:,} bytes"),
        ("Calls a minute", raw["rate_limit_per_minute"] or "no limit"),
        ("Cost per call", raw["cost_per_invocation"]),
        ("Confirmation", "a person must confirm" if raw["requires_confirmation"] else "not needed"),
        ("Arguments", raw["argument_validation"]),
        ("In a model's context", f"about {tool.definition.token_price:,} tokens"),
    ]


def _agent_row(caller: Caller, description: str, tool: CatalogTool) -> ToolAgentRow:
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


def _day_rows(found: UsageReport, took: dict[date | None, float]) -> list[ToolUsageDay]:
    """The latest first; days without a call are left out."""
    lines: list[tuple[dict[str, Any], UsageTotals]] = found.rows[::-1]
    return [
        ToolUsageDay(values["day"], figures, money(figures.cost), took.get(values["day"]))
        for values, figures in lines
    ]
