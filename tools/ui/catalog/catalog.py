"""`/`: the tool catalog with search, filters, facets and a switch for each tool; and its export.

All filters are in the URL, so a view can be bookmarked. A facet is a filter with the number of
tools that each value would leave; a chip removes an active filter.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.core.paginator import Page, Paginator
from django.http import HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from django_htmx.http import trigger_client_event

from config.http.browser_security import safe_redirect_path
from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may, require
from tools.authorization.listings import visible_tools
from tools.catalog.actions import find_tool, set_enabled
from tools.catalog.imports.catalog_export import CatalogExportFormat, ExportedCatalog, exported
from tools.catalog.search.tool_search import rank_tools, relevant_tools
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.vocabulary import Category, ToolType
from tools.errors import Conflict, Malformed
from tools.licensing.license_coverage import LowestTiers, lowest_tiers
from tools.models import ToolStatus
from tools.ui.display import pretty
from tools.web.pages import PageRequest, current_snapshot, page, page_or_results, snapshot_of
from tools.web.reauthentication import Proof, proof

MOST_SHOWN = 8  # values of a facet before "more"
LABELS = {
    "category": "Category",
    "group": "Group",
    "type": "Type",
    "tier": "Licence from",
    "status": "Status",
    "origin": "Origin",
}
FACETS = ("group", "type", "tier", "status", "origin")
PAGE_SIZE = 25
SORTS: dict[str, Callable[[CatalogTool], Any]] = {
    "name": lambda tool: tool.name.lower(),
    "category": lambda tool: (tool.definition.raw["category"], tool.name.lower()),
    "updated": lambda tool: tool.updated_at,
}
TEMPLATE = "catalog/catalog.html"
UNDO = "catalog-undo"  # key of the last change that can be undone, in the session and on a message
_CHIPS = {"q": "Search", **LABELS}
type ToolFacetCounts = Counter["ToolFacetValues"]


class ToolFacetValues(NamedTuple):
    """The values of all facets that a group of tools shares; often hundreds share them."""

    category: str
    group: frozenset[str]
    type: str
    tier: str
    status: str
    origin: str

    def has(self, name: str, value: str) -> bool:
        held = getattr(self, name)
        return value in held if name == "group" else value == held


@dataclass(frozen=True, slots=True)
class CatalogFacetChoice:
    value: str
    count: int
    address: str


@dataclass(frozen=True, slots=True)
class CatalogFacet:
    """The most frequent values are in `choices`, the others in `more`."""

    label: str
    choices: list[CatalogFacetChoice]
    more: list[CatalogFacetChoice]


@dataclass(frozen=True, slots=True)
class CatalogFilterChip:
    """An active filter; its address is the view without it."""

    label: str
    value: str
    address: str


@dataclass(frozen=True)
class CatalogSearch:
    """The search and filters of the URL. Unknown values match no tool, as in the URLs of other
    lists."""

    q: str = ""
    category: str = ""
    group: str = ""
    type: str = ""
    status: str = ""
    tier: str = ""
    origin: str = ""
    sort: str = ""  # empty: by relevance for a full-text search, else by name

    @classmethod
    def from_query(cls, query: QueryDict) -> "CatalogSearch":
        given = {name: query.get(name, "").strip()[:200] for name in cls.__dataclass_fields__}
        usual = given["sort"] == "name" and not given["q"]
        if usual or given["sort"].removeprefix("-") not in SORTS:
            given["sort"] = ""
        return cls(**given)

    @property
    def filters(self) -> dict[str, str]:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value for name, value in fields.items() if value and name != "sort"}

    def address(self, **changes: str | int) -> str:
        """The catalog's URL with this search, without defaults."""
        sort = {"sort": self.sort} if self.sort else {}
        query = {**self.filters, **sort, **changes}
        query = {name: value for name, value in query.items() if (name, value) != ("page", 1)}
        return reverse("catalog") + (f"?{urlencode(query)}" if query else "")

    def without(self, name: str) -> str:
        """The URL of the same search without one of its filters."""
        return replace(self, **{name: ""}).address()

    def matches(self, tool: CatalogTool, snapshot: Snapshot, tiers: Mapping[UUID, str]) -> bool:
        """Whether all filters match; the full-text search is separate."""
        raw = tool.definition.raw
        return (
            self.category in ("", raw["category"])
            and self.type in ("", raw["type"])
            and self.status in ("", tool.status)
            and self.tier in ("", tiers.get(tool.id))
            and self.origin in ("", tool.origin)
            and (not self.group or self.group in snapshot.groups_of(tool))
        )

    def find_tools(
        self, tools: Iterable[CatalogTool], snapshot: Snapshot, tiers: LowestTiers
    ) -> list[CatalogTool]:
        matching = [tool for tool in tools if self.matches(tool, snapshot, tiers.of)]
        if self.q:
            matching = [one.tool for one in relevant_tools(rank_tools(snapshot, self.q, matching))]
        if not self.order or (self.order == "name" and not self.q):
            return matching  # already sorted: by rank, or by name
        key = SORTS[self.order.removeprefix("-")]
        return sorted(matching, key=key, reverse=self.order.startswith("-"))

    @property
    def order(self) -> str:
        """The column to sort by; empty means by rank."""
        return self.sort or ("" if self.q else "name")


def facet_counts(
    tools: Sequence[CatalogTool], snapshot: Snapshot, tiers: LowestTiers
) -> ToolFacetCounts:
    """How many tools there are of each kind; computed once for a whole catalog."""
    if tools is not snapshot.sorted_tools:
        return _facet_counts(tools, snapshot, tiers)
    return snapshot.remember(("kinds", tiers.terms), lambda: _facet_counts(tools, snapshot, tiers))


def count_facets(kinds: ToolFacetCounts, chosen: Mapping[str, str]) -> dict[str, Counter[str]]:
    """By facet and value, the number of tools that match all other facets: a filter narrows the
    other facets, never its own."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in FACETS}
    for kind, number in kinds.items():
        barred = [name for name, value in chosen.items() if not kind.has(name, value)]
        for name in FACETS if not barred else barred if len(barred) == 1 else ():
            if name == "group":
                counts[name].update(dict.fromkeys(kind.group, number))
            elif name in counts:
                counts[name][getattr(kind, name)] += number
    return counts


def catalog_facets(
    counts: Mapping[str, Counter[str]],
    chosen: Mapping[str, str],
    address: Callable[..., str],
) -> list[CatalogFacet]:
    """The facets that leave a choice. An active value is not offered again."""
    found = []
    for name in FACETS:
        ordered = sorted(counts[name].items(), key=lambda item: (-item[1], item[0]))
        offered = [
            CatalogFacetChoice(value, count, address(**{name: value}))
            for value, count in ordered
            if value and value != chosen.get(name)
        ]
        if offered:
            found.append(CatalogFacet(LABELS[name], offered[:MOST_SHOWN], offered[MOST_SHOWN:]))
    return found


def filter_chips(
    chosen: Mapping[str, str], without: Callable[[str], str]
) -> Sequence[CatalogFilterChip]:
    return [CatalogFilterChip(_CHIPS[name], value, without(name)) for name, value in chosen.items()]


@require_safe
@page
def tool_list(request: PageRequest) -> HttpResponse:
    search, snapshot = CatalogSearch.from_query(request.GET), snapshot_of(request)
    tools, tiers = visible_tools(request.caller, snapshot), lowest_tiers(snapshot)
    kinds = facet_counts(tools, snapshot, tiers)
    found = search.find_tools(tools, snapshot, tiers)
    shown = Paginator(found, PAGE_SIZE).get_page(request.GET.get("page"))
    here = search.address(page=shown.number)
    context = {
        "search": search,
        "counts": _status_counts(kinds),
        "shown": shown,
        "links": _page_links(search, shown),
        "columns": _sort_columns(search),
        "choices": _filter_choices(kinds),
        # For a full-text search, facets count its results, which are ranked only once.
        "facets": _search_facets(
            search, facet_counts(found, snapshot, tiers) if search.q else kinds
        ),
        "chips": filter_chips(search.filters, search.without),
        "may_change": may(request.caller, "change_tool"),
        **_bulk_context(request, snapshot, tiers),
        "may_add": may(request.caller, "add_tool"),
        "here": here,
    }
    return page_or_results(request, TEMPLATE, context, here=here)


@proof(lambda request, *, enabled, **_: enabled)
@require_POST
@page
def switch_tool(request: PageRequest, name: str, enabled: bool) -> HttpResponseBase:
    require(request.caller, "change_tool")
    tool = find_tool(request.user.organization, name)
    set_enabled(tool=tool, enabled=enabled, by=actor_of(request.caller), reason="ui")
    if not request.htmx:
        return redirect(return_address(request, request.POST))
    part = "catalog/tool.html#state" if request.POST.get("part") == "state" else f"{TEMPLATE}#row"
    changed = current_snapshot(request).tools[tool.name]
    here = return_address(request, request.POST)
    context = {"tool": changed, "may_change": True, "here": here, "part": "state"}
    said = {"text": f"{tool.name} is {'enabled' if enabled else 'disabled'}."}
    response = render(request, part, context)
    trigger_client_event(response, "toast", said)
    return trigger_client_event(response, "tool-changed", {})


def return_address(request: PageRequest, given: QueryDict) -> str:
    """The page that a form names as its origin, if it belongs to the product; else the catalog."""
    return safe_redirect_path(given.get("next", ""), reverse("catalog"))


@proof(Proof.ALWAYS)
@require_safe
@page
def export_catalog(request: PageRequest) -> HttpResponse:
    require(request.caller, "view_tool")
    place = request.user.organization
    return _export_file(request, exported(place), f"{place.slug}-catalog")


@proof(Proof.ALWAYS)
@require_safe
@page
def export_tool(request: PageRequest, name: str) -> HttpResponse:
    require(request.caller, "view_tool")
    tool = find_tool(request.user.organization, name)
    if tool.type == ToolType.BUILTIN:
        raise Conflict("A built-in tool comes with the product.", code="tool_is_builtin")
    found = exported(request.user.organization, tool)
    if found.left_out:
        message = f"The stored version of {tool.name} is not what was signed."
        raise Conflict(message, code="not_verified")
    return _export_file(request, found, tool.name)


def _facet_counts(
    tools: Sequence[CatalogTool], snapshot: Snapshot, tiers: LowestTiers
) -> ToolFacetCounts:
    return Counter(
        ToolFacetValues(
            tool.definition.raw["category"],
            snapshot.groups_of(tool),
            tool.definition.raw["type"],
            tiers.of.get(tool.id, ""),
            tool.status,
            tool.origin,
        )
        for tool in tools
    )


def _status_counts(kinds: ToolFacetCounts) -> dict[str, int]:
    counts = {status.value: 0 for status in ToolStatus}
    for kind, number in kinds.items():
        counts[kind.status] += number
    return counts | {"all": sum(counts.values())}


def _filter_choices(kinds: ToolFacetCounts) -> list[tuple[str, str, list[str]]]:
    """The filters beside the search: field, label and values."""
    groups = sorted(set().union(*(kind.group for kind in kinds)))
    return [
        ("category", "Category", [*Category]),
        ("group", "Group", groups),
        ("type", "Type", [*ToolType]),
        ("status", "Status", [*ToolStatus.values]),
    ]


def _search_facets(search: CatalogSearch, kinds: ToolFacetCounts) -> list[CatalogFacet]:
    chosen = {name: value for name, value in search.filters.items() if name in LABELS}
    return catalog_facets(count_facets(kinds, chosen), chosen, search.address)


def _bulk_context(request: PageRequest, snapshot: Snapshot, tiers: LowestTiers) -> dict[str, Any]:
    """The bulk actions below the list, and the change that can be undone."""
    return {
        "groups": sorted(snapshot.groups),
        "tiers": tiers.names if request.caller.is_superuser else (),
        "undo": request.session.get(UNDO, {}).get("key", ""),
    }


def _sort_columns(search: CatalogSearch) -> dict[str, dict[str, str]]:
    """Each sortable column: the link of its heading, and its current direction."""
    columns = {}
    for name in SORTS:
        up, down = search.order == name, search.order == f"-{name}"
        wanted = f"-{name}" if up else name
        state = "ascending" if up else "descending" if down else "none"
        address = (
            _unsorted_address(search)
            if wanted == "name" and not search.q
            else search.address(sort=wanted)
        )
        columns[name] = {"address": address, "state": state}
    return columns


def _unsorted_address(search: CatalogSearch) -> str:
    return CatalogSearch(**search.filters).address()


def _page_links(search: CatalogSearch, shown: Page[CatalogTool]) -> dict[str, str]:
    return {
        "previous": search.address(page=shown.number - 1) if shown.has_previous() else "",
        "next": search.address(page=shown.number + 1) if shown.has_next() else "",
        "clear": reverse("catalog"),
        "view": search.address(),
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
