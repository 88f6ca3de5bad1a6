"""Reads and writes whole graphs as Turtle or JSON-LD with a library, within limits; nothing is
fetched."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import IO, Any

import pyoxigraph as ox

from tools.definitions.values import strict_json
from tools.definitions.values.strict_json import BadJson

MOST_BYTES = 8 * 1024 * 1024
MOST_TRIPLES = 50_000
MOST_FLAWS = 50
_TYPE = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
_PREFIXES = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}


class Syntax(StrEnum):
    TURTLE = "turtle"
    JSON_LD = "json-ld"


_FORMATS = {Syntax.TURTLE: ox.RdfFormat.TURTLE, Syntax.JSON_LD: ox.RdfFormat.JSON_LD}


@dataclass(frozen=True, slots=True)
class GraphDocumentFlaw:
    """An error in a document; `line` where it is known."""

    message: str
    line: int | None = None


class BadGraphDocument(ValueError):
    """The document is no graph, or too large: all errors that were found, up to a limit."""

    def __init__(self, message: str, flaws: Sequence[GraphDocumentFlaw] = ()) -> None:
        super().__init__(message)
        self.flaws = tuple(flaws) or (GraphDocumentFlaw(message),)


_MOST_QUOTED = 1_000
# RDF-star is not part of SPARQL 1.1, which endpoints implement.
_NESTED_STATEMENT = GraphDocumentFlaw("A statement may not be about another statement.")


@dataclass(frozen=True, slots=True)
class Contents:
    """What a document would add: `entities` are IRIs in order, `types` the commonest first."""

    statements: int
    entities: list[str]
    types: list[tuple[str, int]]
    nameless: int  # blank nodes: each import creates them again


@dataclass(frozen=True, slots=True)
class Insertion:
    """One update, all or nothing, that adds a document to one graph."""

    text: str
    count: int
    subjects: frozenset[str]


def document_insertion(graph: str, data: bytes, syntax: Syntax) -> Insertion:
    """The update, how many statements it adds, and which IRIs they are about.

    Raises `BadGraphDocument`. A graph that the document itself names is refused.
    """
    found = _read_document(data, syntax)
    statements = " . ".join(f"{one.subject} {one.predicate} {one.object}" for one in found)
    text = f"INSERT DATA {{ GRAPH {ox.NamedNode(graph)} {{ {statements} }} }}"
    about = {one.subject.value for one in found if isinstance(one.subject, ox.NamedNode)}
    return Insertion(text, len(found), frozenset(about))


def document_contents(data: bytes, syntax: Syntax) -> Contents:
    """Raises `BadGraphDocument`, as `insertion` does."""
    found = _read_document(data, syntax)
    about = dict.fromkeys(one.subject for one in found)
    named = [node.value for node in about if isinstance(node, ox.NamedNode)]
    kinds = Counter(
        one.object.value
        for one in found
        if one.predicate == _TYPE and isinstance(one.object, ox.NamedNode)
    )
    return Contents(len(found), named, kinds.most_common(), len(about) - len(named))


def write_document(n_triples: IO[bytes], syntax: Syntax, into: IO[bytes]) -> None:
    """An endpoint's statements as a document, streamed. Raises `BadGraphDocument`."""
    try:
        read = ox.parse(n_triples, format=ox.RdfFormat.N_TRIPLES)
        found = (ox.Triple(one.subject, one.predicate, one.object) for one in read)
        ox.serialize(found, output=into, format=_FORMATS[syntax], prefixes=_PREFIXES)
    except (SyntaxError, ValueError, OSError) as flaw:
        raise _unreadable_graph(flaw) from None


def first_statements(n_triples: bytes, limit: int) -> tuple[list[dict[str, str]], bool]:
    """The first statements of an endpoint's response, and whether there are more. Raises
    `BadGraphDocument`."""
    found = sorted(
        (str(one.subject), str(one.predicate), str(one.object))
        for one in _parse_n_triples(n_triples)
    )
    names = ("subject", "predicate", "object")
    return [dict(zip(names, one, strict=True)) for one in found[:limit]], len(found) > limit


def _parse_n_triples(n_triples: bytes) -> Iterable[Any]:
    try:
        return list(ox.parse(n_triples, format=ox.RdfFormat.N_TRIPLES))
    except (SyntaxError, ValueError, OSError) as flaw:
        raise _unreadable_graph(flaw) from None


def _unreadable_graph(flaw: Exception) -> BadGraphDocument:
    return BadGraphDocument(f"The knowledge store's answer is no graph: {str(flaw)[:200]}")


def _read_document(data: bytes, syntax: Syntax) -> list[Any]:
    if len(data) > MOST_BYTES:
        raise BadGraphDocument(f"The document is longer than {MOST_BYTES} bytes.")
    _check_depth(data, syntax)
    found: list[Any] = []
    flaws: list[GraphDocumentFlaw] = []
    for one in _parse_statements(data, syntax):
        if isinstance(one, GraphDocumentFlaw):
            flaws.append(one)
        elif isinstance(one.object, ox.Triple):
            flaws.append(_NESTED_STATEMENT)
        else:
            found.append(one)
        if len(found) > MOST_TRIPLES:
            raise BadGraphDocument(f"The document has more than {MOST_TRIPLES} statements.")
        if len(flaws) == MOST_FLAWS:
            break
    if flaws:
        raise BadGraphDocument(flaws[0].message, flaws)
    if not found:
        raise BadGraphDocument("The document holds no statement.")
    return found


def _check_depth(data: bytes, syntax: Syntax) -> None:
    """Raises `BadGraphDocument`. The parsers are recursive, and a stack overflow ends the process:
    the
    JSON-LD parser gets only strict JSON, and in Turtle only statements about statements nest. `<<`
    may also occur in a text, but never so often in a genuine one."""
    if syntax is Syntax.TURTLE:
        if data.count(b"<<") > _MOST_QUOTED:
            raise BadGraphDocument(_NESTED_STATEMENT.message, [_NESTED_STATEMENT])
        return
    try:
        strict_json.parse(data)
    except BadJson as flaw:
        raise BadGraphDocument(f"The document cannot be read: {flaw}.") from None


def _parse_statements(data: bytes, syntax: Syntax) -> Iterator[Any]:
    """Each statement; a `GraphDocumentFlaw` for each that cannot be read, after which the parser
    continues.
    """
    try:
        parsed = ox.parse(data, format=_FORMATS[syntax], without_named_graphs=True)
        while True:
            try:
                yield next(parsed)
            except StopIteration:
                return
            except SyntaxError as flaw:
                yield GraphDocumentFlaw(str(flaw.msg)[:200], flaw.lineno)
    except (OSError, UnicodeError) as flaw:
        yield GraphDocumentFlaw(str(flaw)[:200])
