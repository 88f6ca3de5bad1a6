"""Finding tools by words, in what PostgreSQL keeps of them (`tools.catalog.words`).

A word that few tools have tells more than one that many have: the rarest of a question choose the
tools that are looked at, all of its words rank them, and those stand first that know most of it.
Beginnings of words count as words. Where no tool has any of them, those that are written alike are
found.
"""

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from tools.catalog.registry import CatalogTool, Snapshot
from tools.definitions.words import words_of

MOST_FOUND = 500
_MOST_WORDS = 32
_MOST_LOOKED_AT = 500  # tools that are ranked; of a single word that is too common, so many
_SHORTEST_BEGINNING = 3
_NOISE = 0.05  # of what the words of the best are worth
_ALIKE = 50
_LIKENESS = 0.4

_COUNTS = """
SELECT (SELECT count(*) FROM (SELECT FROM tools_toolwords WHERE organization_id = %(place)s
    AND words @@ w.query LIMIT %(most)s) AS few)
FROM unnest(%(queries)s::tsquery[]) WITH ORDINALITY AS w(query, at) ORDER BY at
"""
_RANKED = """
SELECT e.tool_id, r.score * power(r.known / %(whole)s, 2), r.score
FROM (SELECT tool_id, words FROM tools_toolwords WHERE organization_id = %(place)s
    AND words @@ %(any)s::tsquery {among} LIMIT %(most)s) AS e,
LATERAL (SELECT sum(w.worth * rank) AS score, sum(w.worth) FILTER (WHERE rank > 0) AS known
    FROM unnest(%(queries)s::tsquery[], %(worths)s::float8[]) AS w(query, worth),
    LATERAL ts_rank('{{0.2,0.4,0.8,1.0}}', e.words, w.query, 1) AS rank) AS r
ORDER BY 2 DESC LIMIT %(limit)s
"""
_BY_LETTERS = """
SELECT tool_id, alike, alike
FROM (SELECT tool_id, max(word_similarity(word, letters)) AS alike
    FROM tools_toolwords, unnest(%(words)s::text[]) AS word
    WHERE organization_id = %(place)s AND word <%% letters {among} GROUP BY tool_id) AS e
ORDER BY alike DESC LIMIT %(limit)s
"""
_AMONG = "AND tool_id = ANY(%(among)s::uuid[])"
_THRESHOLD = "SELECT set_config('pg_trgm.word_similarity_threshold', %s, true)"


@dataclass(frozen=True, slots=True)
class Found:
    """`score` is its rank; `worth` what its words tell, however few of the question they are."""

    tool: CatalogTool
    score: float
    worth: float


def ranked(
    snapshot: Snapshot, text: str, among: Collection[CatalogTool] | None = None
) -> list[Found]:
    """The tools that fit, the best first; at most `MOST_FOUND`. `among`: only of these.

    Of any status and group: who may use them is asked by whoever shows them.
    """
    words = list(dict.fromkeys(words_of(text)[:_MOST_WORDS]))
    if not words or (among is not None and not among):
        return []
    within = None if among is None or len(among) >= len(snapshot.tools) else _ids(among)
    scores = _by_words(snapshot, words, within) or _by_letters(snapshot, words, within)
    tools = snapshot.remember(
        ("tools by id",), lambda: {one.id: one for one in snapshot.sorted_tools}
    )
    found = [Found(tools[one], score, worth) for one, score, worth in scores if one in tools]
    return sorted(found, key=lambda one: (-one.score, one.tool.name.lower()))


def relevant(found: Iterable[Found]) -> Iterator[Found]:
    """Without those that share only a word such as "the" with what was asked. They are measured by
    the best of what is shown, so that nothing else can be told from it."""
    best: float | None = None
    for one in found:
        best = one.worth if best is None else best
        if one.worth >= best * _NOISE:
            yield one


def _ids(tools: Iterable[CatalogTool]) -> list[UUID]:
    return [tool.id for tool in tools]


Scores = list[tuple[UUID, float, float]]


def _by_words(snapshot: Snapshot, words: list[str], among: list[UUID] | None) -> Scores:
    queries = [_query(word) for word in words]
    counts = _counts(snapshot, queries)
    known = sorted(
        ((count, query) for count, query in zip(counts, queries, strict=True) if count),
        key=lambda one: one[0],
    )
    if not known:
        return []
    size = len(snapshot.tools)
    worths = [_worth(count, size) for count, _ in known]
    values: dict[str, Any] = {
        "place": snapshot.organization_id,
        "any": " | ".join(_telling(known)),
        "queries": [query for _, query in known],
        "worths": worths,
        "whole": sum(worths),
        "among": among,
        "most": _MOST_LOOKED_AT,
        "limit": MOST_FOUND,
    }
    return _asked(_RANKED, values)


def _worth(count: int, size: int) -> float:
    """Of a word that so many tools have: next to nothing where every one has it, never less."""
    return math.log(1 + (max(0, size - count) + 0.5) / (count + 0.5))


def _query(word: str) -> str:
    """Words hold letters and digits only: nothing of them is read as a query's own sign."""
    return f"{word}:*" if len(word) >= _SHORTEST_BEGINNING or not word.isascii() else word


def _counts(snapshot: Snapshot, queries: list[str]) -> list[int]:
    values: dict[str, Any] = {
        "place": snapshot.organization_id, "queries": queries, "most": _MOST_LOOKED_AT,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS, values)
        return [count for (count,) in cursor.fetchall()]


def _telling(known: list[tuple[int, str]]) -> Iterator[str]:
    """The rare words first, while there is something left to be looked at."""
    left = _MOST_LOOKED_AT
    for at, (count, query) in enumerate(known):
        left -= count
        if left < 0 and at:
            return
        yield query


def _by_letters(snapshot: Snapshot, words: list[str], among: list[UUID] | None) -> Scores:
    long = [word for word in words if len(word) >= _SHORTEST_BEGINNING]
    values: dict[str, Any] = {
        "place": snapshot.organization_id, "words": long, "among": among, "limit": _ALIKE,
    }  # fmt: skip
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_THRESHOLD, [str(_LIKENESS)])
        return _asked(_BY_LETTERS, values) if long else []


def _asked(statement: str, values: dict[str, Any]) -> Scores:
    among = "" if values["among"] is None else _AMONG
    with connection.cursor() as cursor:
        cursor.execute(statement.format(among=among), values)
        return [(tool, float(score), float(worth)) for tool, score, worth in cursor.fetchall()]
