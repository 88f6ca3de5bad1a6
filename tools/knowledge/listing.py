"""Lists the entities of a graph without a search: in the order of their IRIs, by type."""

from dataclasses import dataclass

from django.db import connection

from tools.knowledge import finding
from tools.knowledge.entries import local_name
from tools.models import GraphScope, KnowledgeEntry

_KINDS = """
SELECT kind, count(*) FROM tools_knowledgeentry, unnest(types) AS kind
WHERE organization_id = %s AND collection = %s GROUP BY kind ORDER BY 2 DESC, 1 LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class Named:
    """An entity by its label and the end of its first type; `known` where the index has it."""

    iri: str
    label: str
    type: str = ""
    known: bool = True


def listed(scope: GraphScope, wanted: finding.EntitySearchQuery) -> finding.EntitySearchResult:
    """A page of all, or of those of a type."""
    rows = KnowledgeEntry.objects.within(scope)
    if wanted.type:
        rows = rows.filter(kinds__overlap=finding.kinds_called(scope, wanted.type))
    page = rows.order_by("iri").values_list("iri", "shown", "types")
    end = wanted.offset + wanted.limit
    hits = [finding.hit(wanted.language, *row) for row in page[wanted.offset : end]]
    return finding.EntitySearchResult(
        hits, finding.EntitySearchMode.ALL, rows.count(), capped=False
    )


def kinds(scope: GraphScope, most: int) -> list[tuple[str, int]]:
    """The most common types, with their numbers of entities."""
    with connection.cursor() as cursor:
        cursor.execute(_KINDS, [scope.organization_id, scope.collection, most])
        return cursor.fetchall()


def named(scope: GraphScope, iris: list[str], language: str | None = None) -> dict[str, Named]:
    """The label of each, also of those without a row in the index."""
    found = KnowledgeEntry.objects.within(scope).filter(iri__in=iris)
    rows = {iri: (shown, types) for iri, shown, types in found.values_list("iri", "shown", "types")}
    return {iri: _named(iri, rows.get(iri), language) for iri in iris}


def _named(
    iri: str, row: tuple[dict[str, list[tuple[str, str]]], list[str]] | None, language: str | None
) -> Named:
    if row is None:
        return Named(iri, local_name(iri), known=False)
    one = finding.hit(language, iri, *row)
    return Named(iri, one.label, local_name(one.types[0]) if one.types else "")
