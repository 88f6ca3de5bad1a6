"""`/explain/`: the decision of each gate for each tool, for an agent and a request, with remedies.
`/explain/what-if/`: the impact preview of a change of grants, groups or tier."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django import forms
from django.http import HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import timezone

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
from tools.ui.suggestions import first_names, matching_names
from tools.web.listing import (
    Column,
    Filters,
    Listing,
    choice_field,
    search_field,
    text_field,
)
from tools.web.pages import PageRequest, page, snapshot_of, wants_results

TEMPLATE = "workflow/explain.html"
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


def split_names(text: str) -> list[str]:
    """Comma-separated names."""
    return list(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


class ExplanationFilters(Filters):
    """`of` is the agent whose groups are in `groups`."""

    agent, of, groups = text_field("Agent"), forms.CharField(), text_field("Groups")
    state, q = text_field("State"), search_field("Name or description")
    refused = choice_field("Only what is not there", [("yes", "yes")])


class ExplanationListing(Listing):
    """The tools, each with the verdict of every gate on a request of the caller it is about."""

    view, template, noun, filters = "explain", TEMPLATE, "tool", ExplanationFilters
    results, longest_filter, place = f"{TEMPLATE}#results", 2_000, "name"
    columns = [
        Column("tool", "Tool", lambda row: row["tool"].name),
        Column("available", "", lambda row: row["available"]),
        Column("needs_approval", "", lambda row: row["needs_approval"]),
        Column("refused_by", "", lambda row: row["refused_by"]),
        Column("refusals", "", lambda row: [cell["reason"] for cell in row["refusals"]]),
    ]

    def build(self) -> None:
        if self.values.get("of") != self.values.get("agent"):  # they were of another agent
            self.values.pop("groups", None)
        agent = self.values.get("agent")
        self.filter.texts = {name: self.filter.texts[name] for name in self.values}
        self.about, everything = subject_of(self.caller, agent)
        groups = split_names(self.values.get("groups", "")) or sorted(self.about.granted_groups)
        self.asked = EffectiveRequest.from_options(groups, self.values.get("state"))
        snapshot = snapshot_for(self.about)
        self.explanation = Explanation(self.about, self.asked, snapshot, everything)
        words = self.values.get("q", "").lower().split()
        self.tools = [tool for tool in self.explanation.tools if _matches(tool, words)]
        self.refused = [tool for tool in self.tools if not self.explanation.available(tool)]

    def rows(self) -> list[CatalogTool]:
        return self.refused if self.values.get("refused") else self.tools

    def prepare(self, rows: list[CatalogTool]) -> list[dict[str, Any]]:
        return [_tool_row(self.explanation.explain(tool)) for tool in rows]

    @property
    def clear(self) -> str:
        """The same request, and every tool."""
        return self.address(q="", refused="")

    def context(self) -> dict[str, Any]:
        return {
            "search": self.values,
            "groups": ", ".join(sorted(self.asked.groups)),
            "about": self.about,
            "himself": self.about is self.caller,
            "agents": explained_agents(self.request, self.values.get("agent", "")),
            "may_ask_what_if": _may_ask_what_if(self.request),
            "request_rows": _label_rows(self.explanation.request),
            "counts": {"all": len(self.tools), "refused": len(self.refused)},
            "state": self.asked.state,
            "default_state": DEFAULT_STATE,
            "part": wants_results(self.request),
        }


@page()
def explain_page(request: PageRequest) -> HttpResponseBase:
    return ExplanationListing(request).respond()


@page()
def what_if_page(request: PageRequest) -> HttpResponse:
    for permission in ("view_agent", "view_tool"):
        require(request.caller, permission)
    snapshot, query = snapshot_of(request), request.GET
    context: dict[str, Any] = {
        "query": query,
        "agents": explained_agents(
            request, query.get("agent", "")[:63] if query.get("kind") == "grant" else ""
        ),
        "tools": first_names([tool.name for tool in snapshot.sorted_tools], "known-tools"),
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


@page("view_tool")
def search_tools(request: PageRequest) -> HttpResponse:
    """The options of a field of tools."""
    tools = snapshot_of(request).sorted_tools
    return matching_names(
        request, lambda text: (one.name for one in tools if text.lower() in one.name.lower()), 128
    )


def _matches(tool: CatalogTool, words: list[str]) -> bool:
    raw = tool.definition.raw
    text = f"{tool.name} {raw['title'] or ''} {raw['description']}".lower()
    return all(word in text for word in words)


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
