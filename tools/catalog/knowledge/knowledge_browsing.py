"""Browses an organization's graph: lists of entities, and one entity with its surroundings."""

from dataclasses import dataclass
from typing import Any

from tools.catalog.knowledge import graph_store
from tools.errors import Malformed, NotFound
from tools.knowledge import entity_index, entity_search, entity_statements
from tools.knowledge.entity_search import EntityLabel
from tools.knowledge.entity_statements import (
    EntityStatements,
    load_statements,
    neighbor_count_query,
)
from tools.knowledge.sparql_endpoint import QueryRows
from tools.models import GraphScope, KnowledgeEntry, Organization

TIMEOUT_S = 20.0
DEEPEST = 2
_OF_EACH = 60
_MOST_KINDS = 30


@dataclass(frozen=True)
class EntityView:
    """`edges` are statements around it; `neighbours` how many entities are one step away; `more`
    that the graph has more edges than these. `named` has the label of every IRI."""

    portrait: EntityStatements
    edges: list[dict[str, Any]]
    neighbours: int
    more: bool
    named: dict[str, EntityLabel]


def search(
    organization: Organization, wanted: entity_search.EntitySearchQuery
) -> entity_search.EntitySearchResult:
    """Entities by words, or all where no word is given."""
    scope = GraphScope.of(organization.pk, None)
    found = entity_search.find_entities if wanted.query.strip() else entity_search.list_entities
    return found(scope, wanted)


def kinds(organization: Organization) -> list[tuple[str, int]]:
    return entity_search.common_types(GraphScope.of(organization.pk, None), _MOST_KINDS)


def size(organization: Organization) -> int:
    """How many entities can be found."""
    return KnowledgeEntry.objects.within(GraphScope.of(organization.pk, None)).count()


def standing(organization: Organization) -> entity_search.EntityIndexStatus:
    return entity_search.index_status(GraphScope.of(organization.pk, None))


def entity(organization: Organization, iri: str, depth: int = 1) -> EntityView:
    """Raises `Malformed`, `NotFound` where it has no statement, `Unavailable`."""
    if not entity_index.is_indexable(iri):
        raise Malformed("That is no IRI of an entity.", code="invalid")
    scope = GraphScope.of(organization.pk, None)
    bounds = graph_store.within(TIMEOUT_S)

    def select(text: str, limit: int) -> QueryRows:
        return graph_store.select(scope, text, bounds, limit)

    try:
        drawn = load_statements(iri, select)
        if drawn.empty:
            raise NotFound("The graph says nothing of this entity.", code="entity_not_found")
        edges, more = entity_statements.find_neighbors([iri], depth, select, of_each=_OF_EACH)
        count = graph_store.number(select(neighbor_count_query(iri), 1))
    except graph_store.Failed as failure:
        raise graph_store.refusal(failure) from None
    return EntityView(
        drawn, edges, count, more, entity_search.load_entity_labels(scope, _iris(drawn, edges))
    )


def _iris(drawn: EntityStatements, edges: list[dict[str, Any]]) -> list[str]:
    """Every entity and type that a page of it names."""
    related = [one.iri for one in (*drawn.outgoing, *drawn.incoming) if one.iri]
    ends = [end for one in edges for end in (one["subject"], one["object"])]
    return list(dict.fromkeys([drawn.iri, *drawn.types, *related, *ends]))
