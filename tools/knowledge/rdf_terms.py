"""RDF terms, created and serialized by a library: no text of a caller is ever joined into a
statement."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pyoxigraph as ox

MOST_TRIPLES = 1_000
LONGEST_TEXT = 100_000
_DEFAULT_COLLECTION = "default"


class BadTerm(ValueError):
    """A given item is no statement; the message says which and why."""


def graph_iri(organization_id: UUID, collection: str | None) -> str:
    """The IRI of one organization's named graph for one collection."""
    return f"urn:toolcrib:{organization_id}:{collection or _DEFAULT_COLLECTION}"


def sparql_literal(text: str) -> str:
    """A plain literal as SPARQL writes it."""
    return str(ox.Literal(text))


def sparql_nodes(iris: Iterable[str]) -> list[str]:
    """IRIs as SPARQL writes them. Raises `ValueError` for one that is none."""
    return [str(ox.NamedNode(iri)) for iri in iris]


def sparql_term(value: Any) -> str:
    """A value as SPARQL writes it: a text in angle brackets is an IRI, every other value a literal.
    Raises `ValueError`, `TypeError` for what is no term."""
    return str(_object(value))


def triples_insertion(graph: str, triples: Any) -> str:
    """The update that adds statements to one graph. Raises `BadTerm`."""
    if not isinstance(triples, list) or not 0 < len(triples) <= MOST_TRIPLES:
        raise BadTerm(f"triples must be a list of 1 to {MOST_TRIPLES} statements.")
    statements = " . ".join(_join_terms(_triple(at, one)) for at, one in enumerate(triples))
    return f"INSERT DATA {{ GRAPH {ox.NamedNode(graph)} {{ {statements} }} }}"


def subject_iri(triple: dict[str, Any]) -> str:
    """The subject's IRI of a statement that `insertion` has accepted."""
    return _remove_brackets(str(triple["subject"]))


def _join_terms(parts: Iterable[Any]) -> str:
    return " ".join(str(part) for part in parts)


def _triple(at: int, given: Any) -> tuple[Any, Any, Any]:
    if not isinstance(given, dict) or set(given) != {"subject", "predicate", "object"}:
        raise BadTerm(f"triples[{at}] must have subject, predicate and object, nothing else.")
    try:
        return _node(given["subject"]), _node(given["predicate"]), _object(given["object"])
    except (ValueError, TypeError) as flaw:
        raise BadTerm(f"triples[{at}] is no statement: {str(flaw)[:200]}") from None


def _node(given: Any) -> ox.NamedNode:
    if not isinstance(given, str):
        raise TypeError("an IRI is a text")
    return ox.NamedNode(_remove_brackets(given))


def _object(given: Any) -> ox.NamedNode | ox.Literal:
    """A text in angle brackets is an IRI, every other value a literal."""
    if isinstance(given, str):
        return _node(given) if _is_bracketed(given) else _literal(given)
    if isinstance(given, bool | int | float):
        return ox.Literal(given)
    if isinstance(given, dict) and {"value"} <= set(given) <= {"value", "language", "datatype"}:
        return _typed(given)
    raise TypeError("an object is a text, a number, a truth value or an object with value")


def _typed(given: dict[str, Any]) -> ox.Literal:
    value, language, datatype = given["value"], given.get("language"), given.get("datatype")
    if not isinstance(value, str):
        raise TypeError("value is a text")
    if language is not None and datatype is not None:
        raise TypeError("a text has a language or a datatype")
    if datatype is not None:
        return _literal(value, datatype=_node(datatype))
    return _literal(value) if language is None else _literal(value, language=language)


def _literal(value: str, **more: Any) -> ox.Literal:
    if len(value) > LONGEST_TEXT:
        raise ValueError(f"a text is longer than {LONGEST_TEXT} characters")
    return ox.Literal(value, **more)


def _remove_brackets(iri: str) -> str:
    return iri[1:-1] if _is_bracketed(iri) else iri


def _is_bracketed(text: str) -> bool:
    return text.startswith("<") and text.endswith(">")
