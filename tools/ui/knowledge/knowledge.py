"""`/knowledge/`: full-text search of the entities of the organization's graph, by type too, the
page of one entity with a drawing of its neighborhood, and export of the graph. Users who may
call the tool that searches the graph may use them."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from itertools import chain as joined
from itertools import zip_longest
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import FileResponse, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse

from tools.accounts.user_permissions import may
from tools.authorization.facts import check_groups_uncounted, question_of
from tools.catalog import knowledge_graphs as browsing
from tools.catalog.knowledge_graphs import EntityView, export_graph
from tools.definitions.texts.lookalikes import make_visible
from tools.errors import Malformed, NotFound
from tools.knowledge import entity_search
from tools.knowledge.entity_index import local_name
from tools.knowledge.entity_search import EntityLabel
from tools.knowledge.entity_statements import Relation, StatementValue
from tools.knowledge.graph_documents import Syntax
from tools.policy import gates
from tools.policy.questions import EffectiveRequest
from tools.ui.layout import LayoutBox, LayoutDrawing, draw_layout, edge_boxes, shorten_name
from tools.ui.playground.call_form import default_group, default_state
from tools.web.keyset import KeysetPage
from tools.web.listing import Column, Filters, Listing, text_field
from tools.web.pages import PageRequest, page, snapshot_of
from tools.web.reauthentication import Proof

SEARCH_TEMPLATE = "knowledge/knowledge.html"
SEARCH_TOOL = "search_knowledge"
PAGE_SIZE = 25
_MOST_OFFSET = 1_000_000
_LONGEST_TYPE = 2_000
_EXPORT_FORMATS = {
    Syntax.TURTLE: ("ttl", "text/turtle; charset=utf-8"),
    Syntax.JSON_LD: ("jsonld", "application/ld+json"),
}
ENTITY_TEMPLATE = "knowledge/knowledge_entity.html"
MOST_ENTITIES = 40
MOST_EDGES = 120
Edge = tuple[str, str, str]


class EntityFilters(Filters):
    q = forms.CharField(
        label="Words",
        widget=forms.TextInput({"type": "search", "placeholder": 'Words, or "a phrase"'}),
    )
    type = text_field("Type", "Any", list="types")


class EntityListing(Listing):
    """The entities that are found, the best first. The index pages them by offset."""

    view, template, filters, noun = "knowledge", SEARCH_TEMPLATE, EntityFilters, "entity"
    css, place, exported = "entities", "iri", False
    columns = [Column("entity", "Entity"), Column("types", "Types"), Column("iri", "Identifier")]
    results = f"{SEARCH_TEMPLATE}#results"

    def build(self) -> None:
        self.wanted = _search_query(self.request)

    @cached_property
    def search_result(self) -> entity_search.EntitySearchResult:
        return browsing.search_entities(self.request.user.organization, self.wanted)

    @cached_property
    def page(self) -> KeysetPage:
        offset, total = self.wanted.offset, self.search_result.total
        follow = bool(self.search_result.hits) and offset + len(self.search_result.hits) < total
        return KeysetPage(self.search_result.hits, offset > 0, follow, offset + 1, total)

    @property
    def paged(self) -> bool:
        return self.wanted.offset > 0

    @property
    def current_address(self) -> str:
        return self._offset_address(self.wanted.offset)

    @property
    def previous(self) -> str:
        return self._offset_address(self.wanted.offset - PAGE_SIZE) if self.page.precede else ""

    @property
    def next(self) -> str:
        after = self.wanted.offset + len(self.search_result.hits)
        return self._offset_address(after) if self.page.follow else ""

    def _offset_address(self, offset: int) -> str:
        return self.address(offset=str(offset) if offset > 0 else "")

    def prepare(self, rows: list[entity_search.EntityHit]) -> list[dict[str, Any]]:
        return [_hit_row(hit) for hit in rows]

    def context(self) -> dict[str, Any]:
        place = self.request.user.organization
        return {
            "kinds": [_type_row(iri, count) for iri, count in browsing.entity_kinds(place)],
            "size": browsing.count_entities(place),
            "index_status": browsing.index_status(place),
            "may_import": may(self.caller, "add_knowledgeentry"),
            "organization": place,
        }


@page()
def search_page(request: PageRequest) -> HttpResponseBase:
    require_reader(request)
    return EntityListing(request).respond()


@page(proof=Proof.ALWAYS)
def export_knowledge(request: PageRequest) -> HttpResponseBase:
    """Download the whole graph. A failure is reported before the first byte is sent."""
    require_reader(request)
    given = request.GET.get("format", Syntax.TURTLE)
    if given not in set(Syntax):
        raise Malformed(f"format must be one of {', '.join(Syntax)}.", code="invalid")
    syntax, place = Syntax(given), request.user.organization
    ending, kind = _EXPORT_FORMATS[syntax]
    written = export_graph(organization=place, syntax=syntax, collection=None)
    name = f"{place.slug}-knowledge.{ending}"
    return FileResponse(written, as_attachment=True, filename=name, content_type=kind)


def require_reader(request: PageRequest) -> None:
    """Raises the `NotFound` or `Refused` that a call of the tool would get."""
    snapshot = snapshot_of(request)
    tool = snapshot.tool(SEARCH_TOOL)
    if tool is None:
        raise NotFound(f"There is no tool {SEARCH_TOOL} here to read with.", code="tool_not_found")
    asked = EffectiveRequest.from_options(
        default_group(tool, request.caller, snapshot), default_state(tool)
    )
    check_groups_uncounted(request.caller, asked, snapshot)
    gates.authorize(question_of(request.caller, tool, asked, snapshot))


def entity_url(iri: str, **more: Any) -> str:
    return f"{reverse('knowledge-entity')}?{urlencode({'iri': iri, **more})}"


def type_url(iri: str) -> str:
    return f"{reverse('knowledge')}?{urlencode({'type': iri})}"


@page()
def entity_page(request: PageRequest) -> HttpResponse:
    require_reader(request)
    iri, depth = request.GET.get("iri", ""), _parse_depth(request)
    seen = browsing.view_entity(request.user.organization, iri, depth)
    named = {one: replace(name, label=make_visible(name.label)) for one, name in seen.named.items()}
    drawing = draw_neighborhood(iri, seen.edges, named, entity_url) if seen.edges else None
    drawn = len(drawing.things) if drawing else 1
    said = seen.portrait
    context = {
        "iri": make_visible(iri),
        "label": named[iri].label,
        "said": said,
        "types": [(named[one].label, make_visible(one), type_url(one)) for one in said.types],
        "labels": [_value_row(one) for one in said.labels],
        "descriptions": [_value_row(one) for one in said.descriptions],
        "properties": [_value_row(one) for one in said.properties],
        "outgoing": [_relation_row(one, seen) for one in said.outgoing],
        "incoming": [_relation_row(one, seen) for one in said.incoming],
        "drawing": drawing,
        "drawn": drawn - 1,
        "left_out": _count_left_out(seen, depth, drawn),
        "edges": [_edge_row(one, seen) for one in seen.edges],
        "more": seen.more,
        "depth": depth,
        "other_depth": entity_url(iri, **({} if depth > 1 else {"depth": browsing.DEEPEST})),
    }
    return render(request, ENTITY_TEMPLATE, context)


def draw_neighborhood(
    center: str,
    edges: list[dict[str, Any]],
    named: dict[str, EntityLabel],
    url: Callable[[str], str],
) -> LayoutDrawing:
    """Draw a limited number of entities: the nearest first, and some of each relation."""
    stated = _interleave_edges(center, edges)
    columns = _place_entities(center, stated)
    boxes = {iri: _entity_box(named[iri], at, url(iri)) for iri, at in columns.items()}
    boxes[center].kind, boxes[center].url = "start", ""
    ways: dict[tuple[str, str], list[str]] = defaultdict(list)
    for start, predicate, end in stated:
        if start in columns and end in columns:
            ways[start, end].append(local_name(predicate))
    shown = list(ways.items())[:MOST_EDGES]
    return draw_layout(
        [*boxes.values()], [edge_boxes(boxes[a], boxes[b], by) for (a, b), by in shown]
    )


def _search_query(request: HttpRequest) -> entity_search.EntitySearchQuery:
    """Raises `Malformed`."""
    offset = request.GET.get("offset", "0")
    if not (offset.isascii() and offset.isdecimal() and len(offset) <= 15):
        raise Malformed("offset must be a whole number.")
    return entity_search.EntitySearchQuery(
        query=request.GET.get("q", "")[: entity_search.LONGEST_QUERY],
        type=request.GET.get("type", "").strip()[:_LONGEST_TYPE] or None,
        limit=PAGE_SIZE,
        offset=min(int(offset), _MOST_OFFSET),
    )


def _hit_row(hit: entity_search.EntityHit) -> dict[str, Any]:
    return {
        "label": make_visible(hit.label),
        "iri": make_visible(hit.iri),
        "description": make_visible(hit.description),
        "language": hit.language,
        "types": [(make_visible(local_name(one)), type_url(one)) for one in hit.types[:5]],
        "url": entity_url(hit.iri),
    }


def _type_row(iri: str, count: int) -> dict[str, Any]:
    return {
        "iri": iri,
        "name": make_visible(local_name(iri)),
        "count": count,
        "url": type_url(iri),
    }


def _parse_depth(request: PageRequest) -> int:
    """Raises `Malformed`."""
    given = request.GET.get("depth", "1")
    if given not in {str(one) for one in range(1, browsing.DEEPEST + 1)}:
        raise Malformed(f"depth must be a whole number from 1 to {browsing.DEEPEST}.")
    return int(given)


def _count_left_out(seen: EntityView, depth: int, drawn: int) -> int:
    """The number of entities not drawn: counted at depth 1, beyond it only of the edges read."""
    ends = {end for one in seen.edges for end in (one["subject"], one["object"])}
    near = seen.neighbours + 1
    return max(0, (near if depth == 1 else max(near, len(ends))) - drawn)


def _value_row(one: StatementValue) -> dict[str, Any]:
    """A value with its datatype's name and its language tag."""
    return {
        "predicate": make_visible(local_name(one.predicate)),
        "predicate_iri": make_visible(one.predicate),
        "text": make_visible(one.text),
        "tag": make_visible(local_name(one.tag)) if one.tag else "",
        "cut": one.cut,
    }


def _relation_row(one: Relation, seen: EntityView) -> dict[str, Any]:
    return {
        "predicate": make_visible(local_name(one.predicate)),
        "predicate_iri": make_visible(one.predicate),
        **_edge_end(one.iri, seen),
    }


def _edge_row(one: dict[str, Any], seen: EntityView) -> dict[str, Any]:
    return {
        "subject": _edge_end(one["subject"], seen),
        "predicate": make_visible(local_name(one["predicate"])),
        "object": _edge_end(one["object"], seen),
    }


def _edge_end(iri: str, seen: EntityView) -> dict[str, str]:
    if not iri:
        return {"label": "", "iri": "", "url": ""}
    return {
        "label": make_visible(seen.named[iri].label),
        "iri": make_visible(iri),
        "url": entity_url(iri),
    }


def _interleave_edges(center: str, edges: list[dict[str, Any]]) -> list[Edge]:
    """Edges by distance; within a distance, round-robin over relations and directions, so that
    frequent ones do not displace others."""
    kinds: dict[tuple[int, str, bool], list[Edge]] = defaultdict(list)
    for one in edges:
        edge = one["subject"], one["predicate"], one["object"]
        kinds[one["depth"], one["predicate"], one["subject"] == center].append(edge)
    order: list[Edge] = []
    for depth in sorted({kind[0] for kind in kinds}):
        lists = [found for kind, found in sorted(kinds.items()) if kind[0] == depth]
        order += [edge for edge in joined(*zip_longest(*lists)) if edge is not None]
    return order


def _place_entities(center: str, edges: list[Edge]) -> dict[str, int]:
    columns = {center: 0}
    for start, _, end in edges:
        for here, there, side in ((start, end, 1), (end, start, -1)):
            if len(columns) < MOST_ENTITIES and here in columns and there not in columns:
                columns[there] = _next_column(columns[here], side)
    return columns


def _next_column(column: int, side: int) -> int:
    """The next column away from the center; from the center, on the side of the relation."""
    return 2 * side if column == 0 else column + (2 if column > 0 else -2)


def _entity_box(one: EntityLabel, column: int, url: str) -> LayoutBox:
    caption = one.type or ("entity" if one.known else "only named")
    return LayoutBox(
        column,
        [shorten_name(one.label), shorten_name(caption)],
        kind="thing",
        tooltip=one.label,
        url=url,
    )
