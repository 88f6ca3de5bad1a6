"""`/`: the tool catalog with search, filters, facets and a switch for each tool; and its export."""

from functools import cached_property
from typing import Any

from django import forms
from django.http import HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django_htmx.http import trigger_client_event

from config.http.browser_security import safe_redirect_path
from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may
from tools.authorization.listings import visible_tools
from tools.catalog.actions import find_tool, set_enabled
from tools.catalog.imports.catalog_export import CatalogExportFormat, ExportedCatalog, exported
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.vocabulary import Category, ToolType
from tools.errors import Conflict, Malformed
from tools.licensing.license_coverage import LowestTiers, lowest_tiers
from tools.models import ToolStatus
from tools.ui.catalog.catalog_search import (
    LABELS,
    CatalogFacet,
    CatalogSearch,
    ToolFacetCounts,
    catalog_facets,
    count_facets,
    facet_counts,
)
from tools.ui.display import pretty
from tools.web.listing import Column, Filters, Listing, offer, search_field, select_field
from tools.web.pages import PageRequest, action_page, current_snapshot, page, snapshot_of
from tools.web.reauthentication import Proof

TEMPLATE = "catalog/catalog.html"
UNDO = "catalog-undo"  # key of the last change that can be undone, in the session and on a message


class CatalogFilters(Filters):
    q = search_field("What it is called, or what it should do")
    category = select_field("Category", [*Category])
    group = select_field("Group")
    type = select_field("Type", [*ToolType])
    status = select_field("Status", ToolStatus.values)
    tier = forms.CharField(label=LABELS["tier"], widget=forms.HiddenInput)
    origin = forms.CharField(label=LABELS["origin"], widget=forms.HiddenInput)


_COLUMNS = [
    Column("name", "Tool", lambda tool: tool.name, sort=lambda tool: tool.name.lower()),
    Column("description", "", lambda tool: tool.definition.raw["description"]),
    Column("category", "Category", lambda tool: tool.definition.raw["category"],
           sort=lambda tool: tool.definition.raw["category"]),
    Column("type", "Type", lambda tool: tool.definition.raw["type"],
           sort=lambda tool: tool.definition.raw["type"]),
    Column("groups", "Groups", lambda tool: tool.definition.raw.get("group") or []),
    Column("tokens", "Tokens", lambda tool: tool.definition.token_price, css="number",
           tooltip="What the definition takes of a model's context, estimated"),
    Column("updated", "Updated", lambda tool: tool.updated_at, css="number",
           sort=lambda tool: tool.updated_at),
    Column("status", "Status", lambda tool: tool.status, sort=lambda tool: tool.status),
]  # fmt: skip


class CatalogListing(Listing):
    """The tools that the user may see: by relevance for a full-text search, else by name."""

    view, template, filters, noun = "catalog", TEMPLATE, CatalogFilters, "tool"
    order, place, above, below = "name", "name", True, True

    def build(self) -> None:
        self.may_change = may(self.caller, "change_tool")
        self.css = "ticked" if self.may_change else ""
        self.snapshot = snapshot_of(self.request)
        self.tools = visible_tools(self.caller, self.snapshot)
        self.tiers = lowest_tiers(self.snapshot)
        self.kinds = facet_counts(self.tools, self.snapshot, self.tiers)
        groups: set[str] = set().union(*(kind.group for kind in self.kinds))
        offer(self.filter.fields["group"], sorted(groups))
        pick = [Column("pick", "Pick all on this page", css="tick")] if self.may_change else []
        self.columns = [*pick, *_COLUMNS]

    @property
    def usual_order(self) -> str:
        return "" if self.values.get("q") else self.order

    @cached_property
    def found_tools(self) -> list[CatalogTool]:
        return CatalogSearch(**self.values).find_tools(self.tools, self.snapshot, self.tiers)

    def rows(self) -> list[CatalogTool]:
        return self.found_tools

    @property
    def facets(self) -> list[CatalogFacet]:
        """Of a full-text search they count its results, which are ranked only once."""
        kinds = self.kinds
        if "q" in self.values:
            kinds = facet_counts(self.found_tools, self.snapshot, self.tiers)
        chosen = {name: value for name, value in self.values.items() if name in LABELS}
        return catalog_facets(count_facets(kinds, chosen), chosen, self.address)

    def context(self) -> dict[str, Any]:
        return {
            "counts": _status_counts(self.kinds),
            "may_change": self.may_change,
            **_bulk_context(self.request, self.snapshot, self.tiers),
            "may_add": may(self.caller, "add_tool"),
            "here": self.current_address,
        }


@page()
def tool_list(request: PageRequest) -> HttpResponseBase:
    return CatalogListing(request).respond()


@action_page(lambda request, *, enabled, **_: enabled, "change_tool")
def switch_tool(request: PageRequest, name: str, enabled: bool) -> HttpResponseBase:
    tool = find_tool(request.user.organization, name)
    set_enabled(tool=tool, enabled=enabled, by=actor_of(request.caller), reason="ui")
    if not request.htmx:
        return redirect(return_address(request, request.POST))
    part = "catalog/tool.html#state" if request.POST.get("part") == "state" else f"{TEMPLATE}#row"
    changed = current_snapshot(request).tools[tool.name]
    here = return_address(request, request.POST)
    context = {"tool": changed, "row": changed, "may_change": True, "here": here, "part": "state"}
    said = {"text": f"{tool.name} is {'enabled' if enabled else 'disabled'}."}
    response = render(request, part, context)
    trigger_client_event(response, "toast", said)
    return trigger_client_event(response, "tool-changed", {})


def return_address(request: PageRequest, given: QueryDict) -> str:
    """The page that a form names as its origin, if it belongs to the product; else the catalog."""
    return safe_redirect_path(given.get("next", ""), reverse("catalog"))


@page("view_tool", proof=Proof.ALWAYS)
def export_catalog(request: PageRequest) -> HttpResponse:
    place = request.user.organization
    return _export_file(request, exported(place), f"{place.slug}-catalog")


@page("view_tool", proof=Proof.ALWAYS)
def export_tool(request: PageRequest, name: str) -> HttpResponse:
    tool = find_tool(request.user.organization, name)
    if tool.type == ToolType.BUILTIN:
        raise Conflict("A built-in tool comes with the product.", code="tool_is_builtin")
    found = exported(request.user.organization, tool)
    if found.left_out:
        message = f"The stored version of {tool.name} is not what was signed."
        raise Conflict(message, code="not_verified")
    return _export_file(request, found, tool.name)


def _status_counts(kinds: ToolFacetCounts) -> dict[str, int]:
    counts = {status.value: 0 for status in ToolStatus}
    for kind, number in kinds.items():
        counts[kind.status] += number
    return counts | {"all": sum(counts.values())}


def _bulk_context(request: PageRequest, snapshot: Snapshot, tiers: LowestTiers) -> dict[str, Any]:
    """The bulk actions below the list, and the change that can be undone."""
    return {
        "groups": sorted(snapshot.groups),
        "tiers": tiers.names if request.caller.is_superuser else (),
        "undo": request.session.get(UNDO, {}).get("key", ""),
    }


def _export_file(request: PageRequest, found: ExportedCatalog, name: str) -> HttpResponse:
    wanted = request.GET.get("format", CatalogExportFormat.DEFINITIONS)
    if wanted not in set(CatalogExportFormat):
        raise Malformed(f"format must be one of {', '.join(CatalogExportFormat)}.", code="invalid")
    if wanted == CatalogExportFormat.YAML:
        return _attachment(found.yaml(), f"{name}.yaml", "application/yaml")
    items = {"items": found.items(), "left_out": found.left_out}
    document = items if wanted == CatalogExportFormat.TRUSTGRAPH else found.document
    return _attachment(pretty(document) + "\n", f"{name}.json", "application/json")


def _attachment(text: str, name: str, kind: str) -> HttpResponse:
    response = HttpResponse(text, content_type=f"{kind}; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
