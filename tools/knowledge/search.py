"""Retrieves statements about entities whose texts contain given words."""

import re
from collections.abc import Iterable
from typing import Any

from tools.knowledge.terms import literal

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
