"""Browses an organization's graph: lists of entities, and one entity with its surroundings."""

from dataclasses import dataclass
from typing import Any

from tools.catalog.knowledge import graph_store
from tools.errors import Malformed, NotFound
from tools.knowledge import entity_index, entity_search, entity_statements
from tools.knowledge.entity_search import Named
from tools.knowledge.entity_statements import Portrait, neighbours_counted, portrait
from tools.knowledge.sparql_endpoint import QueryRows
from tools.models import GraphScope, KnowledgeEntry, Organization

BROWSING_TIMEOUT_S = 20.0
DEEPEST = 2
_OF_EACH = 60
_MOST_KINDS = 30


@dataclass(frozen=True)
class EntityView:
    """`edges` are statements around it; `neighbours` how many entities are one step away; `more`
    that the graph has more edges than these. `named` has the label of every IRI."""

    portrait: Portrait
    edges: list[dict[str, Any]]
    neighbours: int
    more: bool
    named: dict[str, Named]


def search_entities(
    organization: Organization, wanted: entity_search.EntitySearchQuery
) -> entity_search.EntitySearchResult:
    """Entities by words, or all where no word is given."""
    scope = GraphScope.of(organization.pk, None)
    found = entity_search.find if wanted.query.strip() else entity_search.listed
    return found(scope, wanted)


def entity_kinds(organization: Organization) -> list[tuple[str, int]]:
    return entity_search.kinds(GraphScope.of(organization.pk, None), _MOST_KINDS)


def count_entities(organization: Organization) -> int:
    """How many entities can be found."""
    return KnowledgeEntry.objects.within(GraphScope.of(organization.pk, None)).count()


def index_status(organization: Organization) -> entity_search.EntityIndexStatus:
    return entity_search.standing(GraphScope.of(organization.pk, None))


def view_entity(organization: Organization, iri: str, depth: int = 1) -> EntityView:
    """Raises `Malformed`, `NotFound` where it has no statement, `Unavailable`."""
    if not entity_index.fits(iri):
        raise Malformed("That is no IRI of an entity.", code="invalid")
    scope = GraphScope.of(organization.pk, None)
    bounds = graph_store.bounds_of_seconds(BROWSING_TIMEOUT_S)

    def select(text: str, limit: int) -> QueryRows:
        return graph_store.select_rows(scope, text, bounds, limit)

    try:
        drawn = portrait(iri, select)
        if drawn.empty:
            raise NotFound("The graph says nothing of this entity.", code="entity_not_found")
        edges, more = entity_statements.around([iri], depth, select, of_each=_OF_EACH)
        count = graph_store.count_of(select(neighbours_counted(iri), 1))
    except graph_store.GRAPH_FAILURES as failure:
        raise graph_store.as_api_error(failure) from None
    return EntityView(
        drawn, edges, count, more, entity_search.named(scope, _named_iris(drawn, edges))
    )


def _named_iris(drawn: Portrait, edges: list[dict[str, Any]]) -> list[str]:
    """Every entity and type that a page of it names."""
    related = [one.iri for one in (*drawn.leading_out, *drawn.leading_in) if one.iri]
    ends = [end for one in edges for end in (one["subject"], one["object"])]
    return list(dict.fromkeys([drawn.iri, *drawn.types, *related, *ends]))
