"""`/knowledge/`: full-text search of the entities of the organization's graph, by type too, and
export of the graph. Users who may call the tool that searches the graph may use it."""

from typing import Any
from urllib.parse import urlencode

from django.http import FileResponse, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from tools.accounts.user_permissions import may
from tools.authorization.facts import check_groups_uncounted, question_of
from tools.catalog import knowledge_graphs as browsing
from tools.catalog.knowledge_graphs import export_graph
from tools.definitions.texts.lookalikes import make_visible
from tools.errors import Malformed, NotFound
from tools.knowledge import entity_search
from tools.knowledge.entity_index import local_name
from tools.knowledge.graph_documents import Syntax
from tools.policy import gates
from tools.policy.questions import EffectiveRequest
from tools.ui.access import PageRequest, page, snapshot_of
from tools.ui.playground.calling import usual_group, usual_state
from tools.web.proof import Proof, proof

TEMPLATE = "knowledge/knowledge.html"
TOOL = "search_knowledge"
PAGE_SIZE = 25
_FURTHEST = 1_000_000
_LONGEST_TYPE = 2_000
_FILES = {
    Syntax.TURTLE: ("ttl", "text/turtle; charset=utf-8"),
    Syntax.JSON_LD: ("jsonld", "application/ld+json"),
}


@require_safe
@page
def search_page(request: PageRequest) -> HttpResponse:
    require_reader(request)
    place, wanted = request.user.organization, _wanted(request)
    found = browsing.search_entities(place, wanted)
    after = wanted.offset + len(found.hits)
    context = {
        "wanted": wanted,
        "found": found,
        "rows": [_row(hit) for hit in found.hits],
        "kinds": [_kind(iri, count) for iri, count in browsing.entity_kinds(place)],
        "size": browsing.count_entities(place),
        "standing": browsing.index_status(place),
        "before": _address(wanted, wanted.offset - PAGE_SIZE) if wanted.offset else "",
        "after": _address(wanted, after) if found.hits and after < found.total else "",
        "may_import": may(request.caller, "add_knowledgeentry"),
        "organization": place,
    }
    return render(request, TEMPLATE, context)


@proof(Proof.ALWAYS)
@require_safe
@page
def export(request: PageRequest) -> HttpResponseBase:
    """Download the whole graph. A failure is reported before the first byte is sent."""
    require_reader(request)
    given = request.GET.get("format", Syntax.TURTLE)
    if given not in set(Syntax):
        raise Malformed(f"format must be one of {', '.join(Syntax)}.", code="invalid")
    syntax, place = Syntax(given), request.user.organization
    ending, kind = _FILES[syntax]
    written = export_graph(organization=place, syntax=syntax, collection=None)
    name = f"{place.slug}-knowledge.{ending}"
    return FileResponse(written, as_attachment=True, filename=name, content_type=kind)


def require_reader(request: PageRequest) -> None:
    """Raises the `NotFound` or `Refused` that a call of the tool would get."""
    snapshot = snapshot_of(request)
    tool = snapshot.tool(TOOL)
    if tool is None:
        raise NotFound(f"There is no tool {TOOL} here to read with.", code="tool_not_found")
    asked = EffectiveRequest.of(usual_group(tool, request.caller, snapshot), usual_state(tool))
    check_groups_uncounted(request.caller, asked, snapshot)
    gates.authorize(question_of(request.caller, tool, asked, snapshot))


def entity_address(iri: str, **more: Any) -> str:
    return f"{reverse('knowledge-entity')}?{urlencode({'iri': iri, **more})}"


def type_address(iri: str) -> str:
    return f"{reverse('knowledge')}?{urlencode({'type': iri})}"


def _wanted(request: HttpRequest) -> entity_search.EntitySearchQuery:
    """Raises `Malformed`."""
    offset = request.GET.get("offset", "0")
    if not (offset.isascii() and offset.isdecimal() and len(offset) <= 15):
        raise Malformed("offset must be a whole number.")
    return entity_search.EntitySearchQuery(
        query=request.GET.get("q", "")[: entity_search.LONGEST_QUERY],
        type=request.GET.get("type", "").strip()[:_LONGEST_TYPE] or None,
        limit=PAGE_SIZE,
        offset=min(int(offset), _FURTHEST),
    )


def _row(hit: entity_search.EntityHit) -> dict[str, Any]:
    return {
        "label": make_visible(hit.label),
        "iri": make_visible(hit.iri),
        "description": make_visible(hit.description),
        "language": hit.language,
        "types": [(make_visible(local_name(one)), type_address(one)) for one in hit.types[:5]],
        "url": entity_address(hit.iri),
    }


def _kind(iri: str, count: int) -> dict[str, Any]:
    return {
        "iri": iri,
        "name": make_visible(local_name(iri)),
        "count": count,
        "url": type_address(iri),
    }


def _address(wanted: entity_search.EntitySearchQuery, offset: int) -> str:
    said = {"q": wanted.query, "type": wanted.type or "", "offset": str(max(0, offset))}
    return f"{reverse('knowledge')}?{urlencode({name: one for name, one in said.items() if one})}"
