"""Full-text search and lists of entities. PostgreSQL finds and ranks; this module sets the order of
attempts, and the limits.

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
from tools.knowledge.rdf_terms import sparql_literal
from tools.models import GraphScope, KnowledgeEntry, KnowledgeIndex, KnowledgePending

MOST_WORDS = 12
_WORD = re.compile(r"\w{2,50}")
# Stop words.
_STOP_WORDS = frozenset(
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
_SCOPE_CONDITION = "organization_id = %(organization)s AND collection = %(collection)s"
_TYPE_CONDITION = "AND (%(kinds)s::text[] IS NULL OR kinds && %(kinds)s::text[])"
_SEARCH_BY_WORDS = """
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
_SEARCH_BY_SIMILARITY = """
WITH every AS (SELECT id, word_similarity(%(folded)s, label_text) AS alike, iri
    FROM tools_knowledgeentry
    WHERE {scope} AND %(folded)s <%% label_text {kind} LIMIT {most_said}),
page AS (SELECT * FROM every ORDER BY alike DESC, iri LIMIT %(limit)s OFFSET %(offset)s)
SELECT e.iri, e.shown, e.types, 1, (SELECT count(*) FROM every),
    (SELECT count(*) FROM every) = {most_said}
FROM page JOIN tools_knowledgeentry e USING (id) ORDER BY page.alike DESC, page.iri
"""
# A word of eight letters with two wrong ones is still similar.
_SET_SIMILARITY = "SELECT set_config('pg_trgm.word_similarity_threshold', '0.3', true)"
_BOUNDS = {"most_named": _NAMED, "most_labelled": _LABELLED, "most_said": _SAID}
_COUNT_TYPES = """
SELECT kind, count(*) FROM tools_knowledgeentry, unnest(types) AS kind
WHERE organization_id = %s AND collection = %s GROUP BY kind ORDER BY 2 DESC, 1 LIMIT %s
"""


class NoSearchWords(ValueError):
    """The question has no word to search for."""


class EntitySearchMode(StrEnum):
    """How the words were matched. Each mode is tried when the one before found nothing."""

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
    """`capped` says that more entities match than were ranked, so that `total` is a lower bound."""

    hits: list[EntityHit]
    mode: EntitySearchMode
    total: int
    capped: bool


@dataclass(frozen=True, slots=True)
class EntityIndexStatus:
    """When the index was built, and whether it may be behind the graph."""

    indexed_at: datetime | None
    stale: bool


@dataclass(frozen=True, slots=True)
class EntityLabel:
    """An entity by its label and the end of its first type; `known` where the index has it."""

    iri: str
    label: str
    type: str = ""
    known: bool = True


def search_words(question: str) -> list[str]:
    """In order, each once, in lower case. Raises `NoSearchWords`."""
    every = dict.fromkeys(word.lower() for word in _WORD.findall(question[:10_000]))
    found = [word for word in every if word not in _STOP_WORDS] or list(every)
    if not found:
        raise NoSearchWords("The question holds no word to look for.")
    return found[:MOST_WORDS]


def statement_query(words: list[str], *, limit: int) -> str:
    """Statements about the entities that match most of the words, best first."""
    tests = [f"CONTAINS(LCASE(STR(?text)), {sparql_literal(word)})" for word in words]
    score = " + ".join(f"MAX(IF({test}, 1, 0))" for test in tests)
    return (
        "SELECT ?subject ?predicate ?object WHERE {"
        f" {{ SELECT ?subject (({score}) AS ?score) WHERE {{ ?subject ?said ?text ."
        f" FILTER(isLiteral(?text) && ({' || '.join(tests)})) }}"
        f" GROUP BY ?subject ORDER BY DESC(?score) ?subject LIMIT {int(limit)} }}"
        " ?subject ?predicate ?object . }"
        f" ORDER BY DESC(?score) ?subject ?predicate ?object LIMIT {int(limit) + 1}"
    )


def rows_text(rows: Iterable[dict[str, Any]]) -> str:
    """Rows as lines of values, for a model to read."""
    return "\n".join("\t".join(term["value"] for term in row.values()) for row in rows)


def statements_text(rows: list[dict[str, Any]]) -> str:
    """One statement a line, by short names: for a model to read."""
    return "\n".join(
        " ".join(_short_term(row.get(part)) for part in ("subject", "predicate", "object"))
        for row in rows
    )


def find_entities(scope: GraphScope, wanted: EntitySearchQuery) -> EntitySearchResult:
    """The best first. A phrase in quotes is exact: nothing looser is tried for it."""
    kinds = type_names(scope, wanted.type) if wanted.type else None
    for mode in EntitySearchMode:
        if (statement := _statement(mode, wanted.query)) is None:
            continue
        found = _run_search(scope, wanted, mode, statement, kinds)
        if found.total or (mode is EntitySearchMode.ALL and '"' in wanted.query):
            return found
    return EntitySearchResult([], EntitySearchMode.ALL, 0, False)


def type_names(scope: GraphScope, name: str) -> list[str]:
    """Forms of a type's name: its IRI, its local name, and the IRIs that bear the label."""
    folded = entity_index.normalized_name(name)
    labelled = KnowledgeEntry.objects.within(scope).filter(names__contains=[folded])
    return [
        entity_index.remove_controls(name),
        folded,
        *labelled.values_list("iri", flat=True)[:_MOST_KINDS],
    ]


def index_status(scope: GraphScope) -> EntityIndexStatus:
    """Stale also where the index was never complete."""
    index = KnowledgeIndex.objects.within(scope).values("indexed_at", "complete").first()
    if index is None:
        return EntityIndexStatus(None, stale=True)
    behind = KnowledgePending.objects.within(scope).exists()
    return EntityIndexStatus(index["indexed_at"], stale=behind or not index["complete"])


def load_labels(scope: GraphScope, iris: list[str], language: str | None) -> dict[str, str]:
    """Labels of these; those without a row have only the end of their IRI."""
    rows = KnowledgeEntry.objects.within(scope).filter(iri__in=iris).values_list("iri", "shown")
    known = {iri: _preferred_text(shown["labels"], language)[0] for iri, shown in rows}
    return {iri: known.get(iri) or entity_index.local_name(iri) for iri in iris}


def entity_hit(
    language: str | None, iri: str, shown: dict[str, Any], types: list[str], match: str = ""
) -> EntityHit:
    """A row as a result, in the wanted language or a related one."""
    label, tag = _preferred_text(shown["labels"], language)
    description, _ = _preferred_text(shown["descriptions"], language)
    return EntityHit(iri, label or entity_index.local_name(iri), tag, description, types, match)


def list_entities(scope: GraphScope, wanted: EntitySearchQuery) -> EntitySearchResult:
    """A page of all, or of those of a type."""
    rows = KnowledgeEntry.objects.within(scope)
    if wanted.type:
        rows = rows.filter(kinds__overlap=type_names(scope, wanted.type))
    page = rows.order_by("iri").values_list("iri", "shown", "types")
    end = wanted.offset + wanted.limit
    hits = [entity_hit(wanted.language, *row) for row in page[wanted.offset : end]]
    return EntitySearchResult(hits, EntitySearchMode.ALL, rows.count(), capped=False)


def common_types(scope: GraphScope, most: int) -> list[tuple[str, int]]:
    """The most common types, with their numbers of entities."""
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_TYPES, [scope.organization_id, scope.collection, most])
        return cursor.fetchall()


def load_entity_labels(
    scope: GraphScope, iris: list[str], language: str | None = None
) -> dict[str, EntityLabel]:
    """The label of each, also of those without a row in the index."""
    found = KnowledgeEntry.objects.within(scope).filter(iri__in=iris)
    rows = {iri: (shown, types) for iri, shown, types in found.values_list("iri", "shown", "types")}
    return {iri: _entity_label(iri, rows.get(iri), language) for iri in iris}


def _short_term(term: Any) -> str:
    if not isinstance(term, dict):
        return ""
    value = str(term["value"])
    if term["type"] != "uri":
        return value
    return re.split(r"[/#:]", value.rstrip("/#:"))[-1] or value


def _statement(mode: EntitySearchMode, query: str) -> str | None:
    if mode is EntitySearchMode.SIMILAR:
        return _SEARCH_BY_SIMILARITY.format(scope=_SCOPE_CONDITION, kind=_TYPE_CONDITION, **_BOUNDS)
    words = _prefix_words(query)
    if mode is not EntitySearchMode.ALL and not words:
        return None
    parsed, coverage = "websearch_to_tsquery('simple', %(folded)s)", "0"
    if mode is EntitySearchMode.BEGINNINGS:
        parsed = "to_tsquery('simple', %(every)s)"
    if mode is EntitySearchMode.ANY:
        parsed = "to_tsquery('simple', %(any)s)"
        coverage = " + ".join(
            f"(e.words @@ to_tsquery('simple', %(word{at})s))::int" for at in range(len(words))
        )
    return _SEARCH_BY_WORDS.format(
        query=parsed, coverage=coverage, scope=_SCOPE_CONDITION, kind=_TYPE_CONDITION, **_BOUNDS
    )


def _prefix_words(query: str) -> list[str]:
    """Each as a prefix in the database's language; a word has no query syntax."""
    try:
        return [f"'{word}':*" for word in search_words(entity_index.fold_text(query))]
    except NoSearchWords:
        return []


def _run_search(
    scope: GraphScope,
    wanted: EntitySearchQuery,
    mode: EntitySearchMode,
    statement: str,
    kinds: list[str] | None,
) -> EntitySearchResult:
    words = _prefix_words(wanted.query)
    given: dict[str, Any] = {
        "organization": scope.organization_id,
        "collection": scope.collection,
        "folded": entity_index.fold_text(wanted.query),
        "name": entity_index.normalized_name(wanted.query.strip().strip('"')),
        "every": " & ".join(words),
        "any": " | ".join(words),
        **{f"word{at}": word for at, word in enumerate(words)},
        "kinds": kinds,
        "limit": wanted.limit,
        "offset": wanted.offset,
    }
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_SET_SIMILARITY)
        cursor.execute(statement, given)
        rows = cursor.fetchall()
    if not rows and wanted.offset:  # past the end
        first = _run_search(scope, replace(wanted, offset=0, limit=1), mode, statement, kinds)
        return replace(first, hits=[])
    if not rows:
        return EntitySearchResult([], mode, 0, False)
    hits = [_search_hit(mode, wanted.language, row) for row in rows]
    return EntitySearchResult(hits, mode, total=rows[0][4], capped=rows[0][5])


def _search_hit(mode: EntitySearchMode, language: str | None, row: tuple[Any, ...]) -> EntityHit:
    iri, shown, types, tier = row[:4]
    texts = json.loads(shown) if isinstance(shown, str) else shown
    match = mode.value if mode is EntitySearchMode.SIMILAR else _MATCHES[tier]
    return entity_hit(language, iri, texts, types, match)


def _preferred_text(texts: list[tuple[str, str]], language: str | None) -> tuple[str, str]:
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


def _entity_label(
    iri: str, row: tuple[dict[str, list[tuple[str, str]]], list[str]] | None, language: str | None
) -> EntityLabel:
    if row is None:
        return EntityLabel(iri, local_name(iri), known=False)
    one = entity_hit(language, iri, *row)
    return EntityLabel(iri, one.label, local_name(one.types[0]) if one.types else "")
