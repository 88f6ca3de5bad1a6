"""Full-text search of entities by words and phrases. PostgreSQL finds and ranks; this module sets
the order of attempts, and the limits.

Common words match half a graph, so only a part of the matches is ranked: all with the words as
their name, most with them in a label, and then others.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.db import connection, transaction

from tools.knowledge import entity_index
from tools.knowledge.entity_index import local_name
from tools.knowledge.rdf_terms import literal
from tools.models import GraphScope, KnowledgeEntry, KnowledgeIndex, KnowledgePending

MOST_WORDS = 12
_WORD = re.compile(r"\w{2,50}")
# Stop words.
_COMMON = frozenset(
    {
        "about", "an", "and", "are", "as", "at", "be", "by", "can", "could", "did", "do", "does",
        "for", "from", "had", "has", "have", "how", "in", "is", "it", "its", "me", "of", "on", "or",
        "our", "that", "the", "their", "them", "there", "these", "they", "this", "to", "was", "we",
        "were", "what", "when", "where", "which", "who", "whom", "why", "will", "with", "would",
        "you", "your",
    }
)  # fmt: skip
LONGEST_QUERY = 500
_NAMED, _LABELLED, _SAID = 200, 2_000, 2_000
_MOST_KINDS = 20
_MATCHES = ("exact", "label", "description", "text")
_NO_LANGUAGE = ""
# Organization and type are part of each index, so that no other rows are read.
_OF_SCOPE = "organization_id = %(organization)s AND collection = %(collection)s"
_OF_KIND = "AND (%(kinds)s::text[] IS NULL OR kinds && %(kinds)s::text[])"
_BY_WORDS = """
WITH asked AS (SELECT {query} AS q),
named AS (SELECT id FROM tools_knowledgeentry
    WHERE {scope} AND names @> ARRAY[%(name)s] {kind} LIMIT {most_named}),
labelled AS (SELECT id FROM tools_knowledgeentry
    WHERE {scope} AND querytree({query}) NOT IN ('', 'T') AND label_words @@ {query} {kind}
    LIMIT {most_labelled}),
said AS (SELECT id FROM tools_knowledgeentry
    WHERE {scope} AND querytree({query}) NOT IN ('', 'T') AND words @@ {query} {kind}
    LIMIT {most_said}),
every AS (SELECT id FROM named UNION SELECT id FROM labelled UNION SELECT id FROM said),
ranked AS (
    SELECT e.id, {coverage} AS coverage,
        CASE WHEN e.names @> ARRAY[%(name)s] THEN 0 WHEN e.label_words @@ q THEN 1
            WHEN ts_filter(e.words, '{{a,b}}') @@ q THEN 2 ELSE 3 END AS tier,
        ts_rank('{{0.05,0.1,0.4,1.0}}', e.words, q, 1) AS rank,
        length(e.label_text) AS length, e.iri
    FROM every JOIN tools_knowledgeentry e USING (id) CROSS JOIN asked),
page AS (SELECT * FROM ranked ORDER BY coverage DESC, tier, rank DESC, length, iri
    LIMIT %(limit)s OFFSET %(offset)s)
SELECT e.iri, e.shown, e.types, page.tier, (SELECT count(*) FROM every),
    (SELECT count(*) FROM labelled) = {most_labelled} OR (SELECT count(*) FROM said) = {most_said}
FROM page JOIN tools_knowledgeentry e USING (id)
ORDER BY page.coverage DESC, page.tier, page.rank DESC, page.length, page.iri
"""
_BY_LETTERS = """
WITH every AS (SELECT id, word_similarity(%(folded)s, label_text) AS alike, iri
    FROM tools_knowledgeentry
    WHERE {scope} AND %(folded)s <%% label_text {kind} LIMIT {most_said}),
page AS (SELECT * FROM every ORDER BY alike DESC, iri LIMIT %(limit)s OFFSET %(offset)s)
SELECT e.iri, e.shown, e.types, 1, (SELECT count(*) FROM every),
    (SELECT count(*) FROM every) = {most_said}
FROM page JOIN tools_knowledgeentry e USING (id) ORDER BY page.alike DESC, page.iri
"""
# A word of eight letters with two wrong ones is still similar.
_ALIKE = "SELECT set_config('pg_trgm.word_similarity_threshold', '0.3', true)"
_BOUNDS = {"most_named": _NAMED, "most_labelled": _LABELLED, "most_said": _SAID}
_KINDS = """
SELECT kind, count(*) FROM tools_knowledgeentry, unnest(types) AS kind
WHERE organization_id = %s AND collection = %s GROUP BY kind ORDER BY 2 DESC, 1 LIMIT %s
"""


class NothingToLookFor(ValueError):
    """The question has no word to search for."""


def words_in(question: str) -> list[str]:
    """In order, each once, in lower case. Raises `NothingToLookFor`."""
    every = dict.fromkeys(word.lower() for word in _WORD.findall(question[:10_000]))
    found = [word for word in every if word not in _COMMON] or list(every)
    if not found:
        raise NothingToLookFor("The question holds no word to look for.")
    return found[:MOST_WORDS]


def query_for(words: list[str], *, limit: int) -> str:
    """Statements about the entities that match most of the words, best first."""
    tests = [f"CONTAINS(LCASE(STR(?text)), {literal(word)})" for word in words]
    score = " + ".join(f"MAX(IF({test}, 1, 0))" for test in tests)
    return (
        "SELECT ?subject ?predicate ?object WHERE {"
        f" {{ SELECT ?subject (({score}) AS ?score) WHERE {{ ?subject ?said ?text ."
        f" FILTER(isLiteral(?text) && ({' || '.join(tests)})) }}"
        f" GROUP BY ?subject ORDER BY DESC(?score) ?subject LIMIT {int(limit)} }}"
        " ?subject ?predicate ?object . }"
        f" ORDER BY DESC(?score) ?subject ?predicate ?object LIMIT {int(limit) + 1}"
    )


def words(rows: Iterable[dict[str, Any]]) -> str:
    """Rows as lines of values, for a model to read."""
    return "\n".join("\t".join(term["value"] for term in row.values()) for row in rows)


def text_of(rows: list[dict[str, Any]]) -> str:
    """One statement a line, by short names: for a model to read."""
    return "\n".join(
        " ".join(_short(row.get(part)) for part in ("subject", "predicate", "object"))
        for row in rows
    )


def _short(term: Any) -> str:
    if not isinstance(term, dict):
        return ""
    value = str(term["value"])
    if term["type"] != "uri":
        return value
    return re.split(r"[/#:]", value.rstrip("/#:"))[-1] or value


class EntitySearchMode(StrEnum):
    """How the words were matched; each way is tried when the one before found nothing."""

    ALL = "all"
    BEGINNINGS = "beginnings"
    ANY = "any"
    SIMILAR = "similar"


@dataclass(frozen=True, slots=True)
class EntitySearchQuery:
    query: str
    type: str | None = None
    language: str | None = None
    limit: int = 10
    offset: int = 0


@dataclass(frozen=True, slots=True)
class EntityHit:
    iri: str
    label: str
    language: str
    description: str
    types: list[str]
    match: str


@dataclass(frozen=True, slots=True)
class EntitySearchResult:
    """`capped` says that more match than were ranked, so that `total` is a lower bound."""

    hits: list[EntityHit]
    way: EntitySearchMode
    total: int
    capped: bool


@dataclass(frozen=True, slots=True)
class EntityIndexStatus:
    """When the index was built, and whether it may be behind the graph."""

    indexed_at: datetime | None
    stale: bool


def find(scope: GraphScope, wanted: EntitySearchQuery) -> EntitySearchResult:
    """The best first. A phrase in quotes is exact: nothing looser is tried for it."""
    kinds = kinds_called(scope, wanted.type) if wanted.type else None
    for way in EntitySearchMode:
        if (statement := _statement(way, wanted.query)) is None:
            continue
        found = _asked(scope, wanted, way, statement, kinds)
        if found.total or (way is EntitySearchMode.ALL and '"' in wanted.query):
            return found
    return EntitySearchResult([], EntitySearchMode.ALL, 0, False)


def kinds_called(scope: GraphScope, name: str) -> list[str]:
    """Forms of a type's name: its IRI, its local name, and the IRIs that bear the label."""
    folded = entity_index.name_of(name)
    labelled = KnowledgeEntry.objects.within(scope).filter(names__contains=[folded])
    return [entity_index.plain(name), folded, *labelled.values_list("iri", flat=True)[:_MOST_KINDS]]


def standing(scope: GraphScope) -> EntityIndexStatus:
    """Stale also where the index was never complete."""
    index = KnowledgeIndex.objects.within(scope).values("indexed_at", "complete").first()
    if index is None:
        return EntityIndexStatus(None, stale=True)
    behind = KnowledgePending.objects.within(scope).exists()
    return EntityIndexStatus(index["indexed_at"], stale=behind or not index["complete"])


def labels_of(scope: GraphScope, iris: list[str], language: str | None) -> dict[str, str]:
    """Labels of these; those without a row have only the end of their IRI."""
    rows = KnowledgeEntry.objects.within(scope).filter(iri__in=iris).values_list("iri", "shown")
    known = {iri: _preferred(shown["labels"], language)[0] for iri, shown in rows}
    return {iri: known.get(iri) or entity_index.local_name(iri) for iri in iris}


def _statement(way: EntitySearchMode, query: str) -> str | None:
    if way is EntitySearchMode.SIMILAR:
        return _BY_LETTERS.format(scope=_OF_SCOPE, kind=_OF_KIND, **_BOUNDS)
    words = _words(query)
    if way is not EntitySearchMode.ALL and not words:
        return None
    parsed, coverage = "websearch_to_tsquery('simple', %(folded)s)", "0"
    if way is EntitySearchMode.BEGINNINGS:
        parsed = "to_tsquery('simple', %(every)s)"
    if way is EntitySearchMode.ANY:
        parsed = "to_tsquery('simple', %(any)s)"
        coverage = " + ".join(
            f"(e.words @@ to_tsquery('simple', %(word{at})s))::int" for at in range(len(words))
        )
    return _BY_WORDS.format(
        query=parsed, coverage=coverage, scope=_OF_SCOPE, kind=_OF_KIND, **_BOUNDS
    )


def _words(query: str) -> list[str]:
    """Each as a prefix in the database's language; a word has no query syntax."""
    try:
        return [f"'{word}':*" for word in words_in(entity_index.fold(query))]
    except NothingToLookFor:
        return []


def _asked(
    scope: GraphScope,
    wanted: EntitySearchQuery,
    way: EntitySearchMode,
    statement: str,
    kinds: list[str] | None,
) -> EntitySearchResult:
    words = _words(wanted.query)
    given: dict[str, Any] = {
        "organization": scope.organization_id,
        "collection": scope.collection,
        "folded": entity_index.fold(wanted.query),
        "name": entity_index.name_of(wanted.query.strip().strip('"')),
        "every": " & ".join(words),
        "any": " | ".join(words),
        **{f"word{at}": word for at, word in enumerate(words)},
        "kinds": kinds,
        "limit": wanted.limit,
        "offset": wanted.offset,
    }
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_ALIKE)
        cursor.execute(statement, given)
        rows = cursor.fetchall()
    if not rows and wanted.offset:  # past the end
        first = _asked(scope, replace(wanted, offset=0, limit=1), way, statement, kinds)
        return replace(first, hits=[])
    if not rows:
        return EntitySearchResult([], way, 0, False)
    hits = [_hit(way, wanted.language, row) for row in rows]
    return EntitySearchResult(hits, way, total=rows[0][4], capped=rows[0][5])


def _hit(way: EntitySearchMode, language: str | None, row: tuple[Any, ...]) -> EntityHit:
    iri, shown, types, tier = row[:4]
    said = json.loads(shown) if isinstance(shown, str) else shown
    match = way.value if way is EntitySearchMode.SIMILAR else _MATCHES[tier]
    return hit(language, iri, said, types, match)


def hit(
    language: str | None, iri: str, shown: dict[str, Any], types: list[str], match: str = ""
) -> EntityHit:
    """A row as a result, in the wanted language or a related one."""
    label, tag = _preferred(shown["labels"], language)
    description, _ = _preferred(shown["descriptions"], language)
    return EntityHit(iri, label or entity_index.local_name(iri), tag, description, types, match)


def _preferred(texts: list[tuple[str, str]], language: str | None) -> tuple[str, str]:
    """In the wanted language or a variant of it; otherwise in none, in English, or in any."""
    asked = (language or "en").lower()

    def distance(text: tuple[str, str]) -> tuple[int, str, str]:
        tag = text[1].lower()
        order = (asked, re.split("[-_]", asked)[0], _NO_LANGUAGE, "en")
        if tag in order:
            return order.index(tag), tag, text[0]
        near = tag.split("-")[0] == order[1]
        return (1 if near else len(order)), tag, text[0]

    best = min(texts, key=distance, default=("", ""))
    return best[0], best[1]


@dataclass(frozen=True, slots=True)
class Named:
    """An entity by its label and the end of its first type; `known` where the index has it."""

    iri: str
    label: str
    type: str = ""
    known: bool = True


def listed(scope: GraphScope, wanted: EntitySearchQuery) -> EntitySearchResult:
    """A page of all, or of those of a type."""
    rows = KnowledgeEntry.objects.within(scope)
    if wanted.type:
        rows = rows.filter(kinds__overlap=kinds_called(scope, wanted.type))
    page = rows.order_by("iri").values_list("iri", "shown", "types")
    end = wanted.offset + wanted.limit
    hits = [hit(wanted.language, *row) for row in page[wanted.offset : end]]
    return EntitySearchResult(hits, EntitySearchMode.ALL, rows.count(), capped=False)


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
    one = hit(language, iri, *row)
    return Named(iri, one.label, local_name(one.types[0]) if one.types else "")
