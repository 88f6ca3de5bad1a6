"""`/explain/`: the decision of each gate for each tool, for an agent and a request, with remedies.
`/explain/what-if/`: the impact preview of a change of grants, groups or tier."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Page, Paginator
from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from tools.accounts.grants.grant_queries import granted_tools
from tools.accounts.user_permissions import may, require
from tools.authorization.pins import snapshot_for
from tools.catalog.snapshot import CatalogTool
from tools.definitions.callers import Caller, CallerKind
from tools.errors import Malformed, ToolcribError
from tools.insight.changes import GrantChange, PreviewedChange, Tier, ToolGroups
from tools.insight.explain import Explained, Explanation, subject_of
from tools.insight.whatif import what_if
from tools.models import Agent, LicenseTier
from tools.policy.questions import DEFAULT_STATE, EffectiveRequest, Gate
from tools.shapes.reports import difference_shape
from tools.ui.agents.agent_choices import explained_agents
from tools.web.pages import PageRequest, page, page_or_results, snapshot_of, wants_results

TEMPLATE = "workflow/explain.html"
PAGE_SIZE = 25
MOST_SUGGESTED = 200  # tools that a form offers
MOST_NAMES, MOST_CALLS = 12, 50  # in a row, and in a table, of an impact preview
GATE_LABELS: dict[str, str] = {
    Gate.STATUS: "In service",
    Gate.GROUP: "Group",
    Gate.GROUP_OPEN: "Group open",
    Gate.SOURCE_OPEN: "Service open",
    Gate.STATE: "State",
    Gate.OBJECT_PERMISSION: "Granted",
    Gate.REQUIRED_PERMISSIONS: "Permissions",
    Gate.LICENSE: "Licence",
    Gate.SANDBOX_PROFILE: "Profile licence",
    Gate.ISOLATION_LICENSE: "Level licence",
    Gate.ISOLATION: "Sandbox profile",
    Gate.NETWORK: "Network",
    Gate.RATE: "Rate",
    Gate.BUDGET: "Budget",
    Gate.CONFIRMATION: "Confirmation",
    Gate.STANDING: "The agent",
    Gate.GRANTED_GROUPS: "Its request",
}
PERIOD_DAYS = ("1", "3", "7")


@dataclass(frozen=True)
class ExplanationQuery:
    """The search of the URL. `of` is the agent whose groups are in `groups`."""

    agent: str = ""
    of: str = ""
    groups: str = ""
    state: str = ""
    q: str = ""
    refused: str = ""

    @classmethod
    def of_query(cls, query: QueryDict) -> "ExplanationQuery":
        """Groups that were entered for another agent are dropped."""
        given = {name: query.get(name, "").strip()[:2000] for name in cls.__dataclass_fields__}
        if given["of"] != given["agent"]:
            given["groups"] = ""
        return cls(**given)

    def group_names(self, caller: Caller) -> list[str]:
        """The groups of the request; an empty input means all granted groups."""
        return split_names(self.groups) or sorted(caller.granted_groups)

    def matches(self, tool: CatalogTool) -> bool:
        if not self.q:
            return True
        raw = tool.definition.raw
        text = f"{tool.name} {raw['title'] or ''} {raw['description']}".lower()
        return all(word in text for word in self.q.lower().split())

    def address(self, **changes: Any) -> str:
        query = {name: getattr(self, name) for name in self.__dataclass_fields__}
        query = {name: value for name, value in {**query, **changes}.items() if value}
        return reverse("explain") + (f"?{urlencode(query)}" if query else "")


def split_names(text: str) -> list[str]:
    """Comma-separated names."""
    return list(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


@require_safe
@page
def explain_page(request: PageRequest) -> HttpResponse:
    search = ExplanationQuery.of_query(request.GET)
    about, everything = subject_of(request.caller, search.agent or None)
    asked = EffectiveRequest.from_options(search.group_names(about), search.state or None)
    explanation = Explanation(about, asked, snapshot_for(about), everything)
    tools, refused = _find_tools(explanation, search)
    shown = Paginator(refused if search.refused else tools, PAGE_SIZE).get_page(
        request.GET.get("page")
    )
    context = {
        "search": search,
        "groups": ", ".join(sorted(asked.groups)),
        "about": about,
        "himself": about is request.caller,
        "agents": explained_agents(request, search.agent),
        "may_ask_what_if": _may_ask_what_if(request),
        "request_rows": _label_rows(explanation.request),
        "allowed": explanation.allowed,
        "counts": {"all": len(tools), "refused": len(refused)},
        "shown": shown,
        "links": _page_links(search, shown),
        "rows": [_tool_row(explanation.explain(tool)) for tool in shown.object_list],
        "state": asked.state,
        "default_state": DEFAULT_STATE,
        "part": wants_results(request),
    }
    here = search.address(page="" if shown.number == 1 else shown.number)
    return page_or_results(request, TEMPLATE, context, here=here)


@require_safe
@page
def what_if_page(request: PageRequest) -> HttpResponse:
    for permission in ("view_agent", "view_tool"):
        require(request.caller, permission)
    snapshot, query = snapshot_of(request), request.GET
    context: dict[str, Any] = {
        "query": query,
        "agents": explained_agents(
            request, query.get("agent", "")[:63] if query.get("kind") == "grant" else ""
        ),
        "tools": snapshot.sorted_tools[:MOST_SUGGESTED],
        "tiers": LicenseTier.objects.all(),
        "tier": snapshot.tier,
        "days": PERIOD_DAYS,
        "labels": GATE_LABELS,
        "most_names": MOST_NAMES,
        "shown_names": f":{MOST_NAMES}",
        "most_calls": MOST_CALLS,
        "shown_calls": f":{MOST_CALLS}",
        "allowed": {kind: may(request.caller, of.permission) for kind, of in _CHANGE_TYPES.items()},
    }
    read = _CHANGE_READERS.get(query.get("kind", ""))
    if read is not None:
        try:
            difference = what_if(
                viewer=request.caller,
                change=read(query, request.caller),
                snapshot=snapshot,
                since=timezone.now() - _parse_period(query),
            )
            context["difference"] = difference_shape(difference)
            context["cut_at"] = difference.cut
        except ToolcribError as refusal:
            context["refusal"] = refusal
    status = context["refusal"].http_status if "refusal" in context else 200
    return render(request, "workflow/what_if.html", context, status=status)


def _find_tools(
    explanation: Explanation, search: ExplanationQuery
) -> tuple[list[CatalogTool], list[CatalogTool]]:
    """The tools that match, and those of them that are not available to the request."""
    tools = [tool for tool in explanation.tools if search.matches(tool)]
    return tools, [tool for tool in tools if not explanation.available(tool)]


def _tool_row(explained: Explained) -> dict[str, Any]:
    refused_by = explained.refused_by
    cells = _label_rows(explained.rows)
    return {
        "tool": explained.tool,
        "available": explained.available,
        "needs_approval": explained.needs_approval,
        "refused_by": GATE_LABELS.get(refused_by.gate, refused_by.gate) if refused_by else "",
        "cells": cells,
        "refusals": [cell for cell in cells if not cell["passed"]],
        "passed": [cell["label"] for cell in cells if cell["passed"]],
    }


def _label_rows(rows: Any) -> list[dict[str, Any]]:
    return [
        {
            **row.as_dict(),
            "label": GATE_LABELS.get(row.gate, row.gate),
            "word": "yes" if row.passed else "asks" if row.gate == "confirmation" else "no",
        }
        for row in rows
    ]


def _page_links(search: ExplanationQuery, shown: Page[CatalogTool]) -> dict[str, str]:
    last, further = shown.has_previous(), shown.has_next()
    return {
        "previous": search.address(page=shown.number - 1) if last else "",
        "next": search.address(page=shown.number + 1) if further else "",
        "clear": search.address(q="", refused=""),
    }


def _may_ask_what_if(request: PageRequest) -> bool:
    return all(may(request.caller, name) for name in ("view_agent", "view_tool"))


def _parse_period(query: QueryDict) -> timedelta:
    days = query.get("days", "1")
    return timedelta(days=int(days) if days in PERIOD_DAYS else 1) - timedelta(seconds=1)


def _grant_change(query: QueryDict, viewer: Caller) -> PreviewedChange:
    """The change of the agent's current grants."""
    about, _ = subject_of(viewer, query.get("agent", "")[:63])
    if about.kind != CallerKind.AGENT:
        raise Malformed("Choose an agent.")
    what, names = query.get("what", ""), split_names(query.get("names", "")[:2000])
    held = _current_grants(about, what)
    if query.get("do") == "take":
        left = tuple(name for name in held if name not in names)
    else:
        left = (*held, *(name for name in names if name not in held))
    return GrantChange(about.name, **{what: left})


def _current_grants(about: Caller, what: str) -> list[str]:
    if what == "groups":
        return sorted(about.granted_groups)
    if what == "permissions":
        return sorted(about.granted_permissions)
    if what == "tools":
        rows = Agent.objects.select_related("service_account", "organization")
        mine = {"organization_id": about.organization_id, "slug": about.name}
        return granted_tools(rows.get(**mine))
    raise Malformed("Groups, tools or permissions can be granted.")


def _tool_groups_change(query: QueryDict, viewer: Caller) -> PreviewedChange:
    names = split_names(query.get("names", "")[:2000])
    absent = query.get("absent") == "on"
    return ToolGroups(query.get("tool", "")[:128], None if absent else tuple(names))


def _tier_change(query: QueryDict, viewer: Caller) -> PreviewedChange:
    return Tier(query.get("tier", "")[:60])


_CHANGE_TYPES: dict[str, type[PreviewedChange]] = {
    "grant": GrantChange,
    "tool_groups": ToolGroups,
    "tier": Tier,
}
_CHANGE_READERS: dict[str, Callable[[QueryDict, Caller], PreviewedChange]] = {
    "grant": _grant_change,
    "tool_groups": _tool_groups_change,
    "tier": _tier_change,
}
