"""`/knowledge/entity/`: all statements about one entity, and a drawing of its neighborhood."""

from dataclasses import replace
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from tools.catalog import knowledge_graphs as browsing
from tools.catalog.knowledge_graphs import EntityView
from tools.definitions.texts.lookalikes import make_visible
from tools.errors import Malformed
from tools.knowledge.entity_index import local_name
from tools.knowledge.entity_statements import Relation, Value
from tools.ui.access import PageRequest, page
from tools.ui.knowledge.knowledge import entity_address, require_reader, type_address
from tools.ui.knowledge.neighbourhood import draw

TEMPLATE = "knowledge/knowledge_entity.html"


@require_safe
@page
def entity_page(request: PageRequest) -> HttpResponse:
    require_reader(request)
    iri, depth = request.GET.get("iri", ""), _depth(request)
    seen = browsing.view_entity(request.user.organization, iri, depth)
    named = {one: replace(name, label=make_visible(name.label)) for one, name in seen.named.items()}
    drawing = draw(iri, seen.edges, named, entity_address) if seen.edges else None
    drawn = len(drawing.things) if drawing else 1
    said = seen.portrait
    context = {
        "iri": make_visible(iri),
        "label": named[iri].label,
        "said": said,
        "types": [(named[one].label, make_visible(one), type_address(one)) for one in said.types],
        "labels": [_value(one) for one in said.labels],
        "descriptions": [_value(one) for one in said.descriptions],
        "properties": [_value(one) for one in said.properties],
        "leading_out": [_relation(one, seen) for one in said.leading_out],
        "leading_in": [_relation(one, seen) for one in said.leading_in],
        "drawing": drawing,
        "drawn": drawn - 1,
        "left_out": _left_out(seen, depth, drawn),
        "edges": [_edge(one, seen) for one in seen.edges],
        "more": seen.more,
        "depth": depth,
        "other_depth": entity_address(iri, **({} if depth > 1 else {"depth": browsing.DEEPEST})),
    }
    return render(request, TEMPLATE, context)


def _depth(request: PageRequest) -> int:
    """Raises `Malformed`."""
    given = request.GET.get("depth", "1")
    if given not in {str(one) for one in range(1, browsing.DEEPEST + 1)}:
        raise Malformed(f"depth must be a whole number from 1 to {browsing.DEEPEST}.")
    return int(given)


def _left_out(seen: EntityView, depth: int, drawn: int) -> int:
    """The number of entities not drawn: counted at depth 1, beyond it only of the edges read."""
    ends = {end for one in seen.edges for end in (one["subject"], one["object"])}
    near = seen.neighbours + 1
    return max(0, (near if depth == 1 else max(near, len(ends))) - drawn)


def _value(one: Value) -> dict[str, Any]:
    """A value with its datatype's name and its language tag."""
    return {
        "predicate": make_visible(local_name(one.predicate)),
        "predicate_iri": make_visible(one.predicate),
        "text": make_visible(one.text),
        "tag": make_visible(local_name(one.tag)) if one.tag else "",
        "cut": one.cut,
    }


def _relation(one: Relation, seen: EntityView) -> dict[str, Any]:
    return {
        "predicate": make_visible(local_name(one.predicate)),
        "predicate_iri": make_visible(one.predicate),
        **_end(one.iri, seen),
    }


def _edge(one: dict[str, Any], seen: EntityView) -> dict[str, Any]:
    return {
        "subject": _end(one["subject"], seen),
        "predicate": make_visible(local_name(one["predicate"])),
        "object": _end(one["object"], seen),
    }


def _end(iri: str, seen: EntityView) -> dict[str, str]:
    if not iri:
        return {"label": "", "iri": "", "url": ""}
    return {
        "label": make_visible(seen.named[iri].label),
        "iri": make_visible(iri),
        "url": entity_address(iri),
    }
