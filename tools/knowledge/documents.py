"""Whole graphs as Turtle or JSON-LD: read and written by a library, bounded, nothing fetched."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyoxigraph as ox

MOST_BYTES = 8 * 1024 * 1024
MOST_TRIPLES = 50_000
_PREFIXES = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}


class Syntax(StrEnum):
    TURTLE = "turtle"
    JSON_LD = "json-ld"


_FORMATS = {Syntax.TURTLE: ox.RdfFormat.TURTLE, Syntax.JSON_LD: ox.RdfFormat.JSON_LD}


class BadDocument(ValueError):
    """The document is no graph, or too large a one; `line` where it is known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Insertion:
    """One update, all or nothing, that adds a document to one graph."""

    text: str
    count: int
    subjects: frozenset[str]


def insertion(graph: str, data: bytes, syntax: Syntax) -> Insertion:
    """The update, how many statements it adds, and which IRIs they are about.

    Raises `BadDocument`. A graph that the document itself names is refused.
    """
    found = _read(data, syntax)
    statements = " . ".join(f"{one.subject} {one.predicate} {one.object}" for one in found)
    text = f"INSERT DATA {{ GRAPH {ox.NamedNode(graph)} {{ {statements} }} }}"
    about = {one.subject.value for one in found if isinstance(one.subject, ox.NamedNode)}
    return Insertion(text, len(found), frozenset(about))


def written(n_triples: bytes, syntax: Syntax) -> bytes:
    """What an endpoint said, as a document. Raises `BadDocument`."""
    found = (ox.Triple(one.subject, one.predicate, one.object) for one in _parsed(n_triples))
    text = ox.serialize(found, format=_FORMATS[syntax], prefixes=_PREFIXES)
    return text if text is not None else b""


def statements(n_triples: bytes, limit: int) -> tuple[list[dict[str, str]], bool]:
    """So many of what an endpoint said, and whether there are more. Raises `BadDocument`."""
    found = sorted(
        (str(one.subject), str(one.predicate), str(one.object)) for one in _parsed(n_triples)
    )
    names = ("subject", "predicate", "object")
    return [dict(zip(names, one, strict=True)) for one in found[:limit]], len(found) > limit


def _parsed(n_triples: bytes) -> Iterable[Any]:
    try:
        return list(ox.parse(n_triples, format=ox.RdfFormat.N_TRIPLES))
    except (SyntaxError, ValueError, OSError) as flaw:
        raise BadDocument(f"The knowledge store's answer is no graph: {str(flaw)[:200]}") from None


def _read(data: bytes, syntax: Syntax) -> list[Any]:
    if len(data) > MOST_BYTES:
        raise BadDocument(f"The document is longer than {MOST_BYTES} bytes.")
    found: list[Any] = []
    try:
        for one in ox.parse(data, format=_FORMATS[syntax], without_named_graphs=True):
            found.append(_plain(one))
            if len(found) > MOST_TRIPLES:
                raise BadDocument(f"The document has more than {MOST_TRIPLES} statements.")
    except SyntaxError as flaw:
        raise BadDocument(str(flaw.msg)[:200], flaw.lineno) from None
    except (OSError, UnicodeError) as flaw:
        raise BadDocument(str(flaw)[:200]) from None
    if not found:
        raise BadDocument("The document holds no statement.")
    return found


def _plain(one: Any) -> Any:
    """A statement about a statement is not SPARQL 1.1, which is what endpoints speak."""
    if isinstance(one.object, ox.Triple):
        raise BadDocument("A statement may not be about another statement.")
    return one
