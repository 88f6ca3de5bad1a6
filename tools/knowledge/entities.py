"""Parses entities from callers, and builds the update that creates one or adds to it. Pure.

An entity's IRI follows from its type and its key, so that describing it again refers to the same
one. The update is one transaction of the store: of two concurrent ones one creates it. The call
that created the entity is stored with it, so that a retry of the same call finds itself there.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pyoxigraph as ox

from tools.knowledge.rdf_terms import LONGEST_TEXT, BadTerm

VOCABULARY = "urn:toolcrib:terms:"
CREATED_BY = ox.NamedNode(f"{VOCABULARY}createdBy")
MOST_STATEMENTS = 1_000
LONGEST_IRI = 2_000
LONGEST_KEY = 500
_RDF, _RDFS = "http://www.w3.org/1999/02/22-rdf-syntax-ns#", "http://www.w3.org/2000/01/rdf-schema#"
_XSD = "http://www.w3.org/2001/XMLSchema#"
_TYPE, _LABEL = ox.NamedNode(f"{_RDF}type"), ox.NamedNode(f"{_RDFS}label")
_COMMENT = ox.NamedNode(f"{_RDFS}comment")
_NAME = re.compile(r"[^\W\d][\w.-]{0,99}")
_DAY = r"-?\d{4,6}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(Z|[+-]\d\d:\d\d)?"
_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?"
_DATATYPE_PATTERNS = {
    "string": r"(?s).*",
    "date": _DAY,
    "dateTime": rf"-?\d{{4,6}}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T{_TIME}(Z|[+-]\d\d:\d\d)?",
    "time": rf"{_TIME}(Z|[+-]\d\d:\d\d)?",
    "gYear": r"-?\d{4,6}",
    "integer": r"[+-]?\d{1,200}",
    "decimal": r"[+-]?(\d{1,200}(\.\d{0,200})?|\.\d{1,200})",
    "double": r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?",
    "boolean": r"true|false|1|0",
    "anyURI": r"\S{1,2000}",
}
_DATATYPES = {name: re.compile(form) for name, form in _DATATYPE_PATTERNS.items()}


type Statement = tuple[ox.NamedNode, ox.NamedNode | ox.Literal]


class EntityExists(Exception):
    """An entity with this key exists, and the call must not add to it."""


@dataclass(frozen=True)
class GraphEntity:
    """`statements` are those about it; its IRI is their subject."""

    iri: str
    statements: tuple[Statement, ...]


def read_entity(organization_id: UUID, given: dict[str, Any]) -> GraphEntity:
    """Raises `BadTerm`, which says where."""
    kind = _name_node(given.get("type"), "type")
    node = _entity_node(organization_id, kind, given, "")
    said: list[Statement] = [(_TYPE, kind), *_labels(given)]
    if given.get("description"):
        about = _language_literal(given["description"], given.get("language"), "description")
        said.append((_COMMENT, about))
    said += _properties(_object_member(given, "properties"))
    said += _relations(organization_id, _object_member(given, "relations"))
    if len(said) > MOST_STATEMENTS:
        raise BadTerm(f"An entity is created with at most {MOST_STATEMENTS} statements.")
    return GraphEntity(node.value, tuple(dict.fromkeys(said)))


def creation_update(graph: str, entity: GraphEntity, *, call: str, merge: bool) -> str:
    """The update: a new entity gets all statements; an existing one is only added to."""
    place, node = ox.NamedNode(graph), ox.NamedNode(entity.iri)
    marked = f"{node} {CREATED_BY} {ox.Literal(call)} ."
    said = " ".join(f"{node} {about} {thing} ." for about, thing in entity.statements)
    new = f"FILTER NOT EXISTS {{ GRAPH {place} {{ {node} ?p ?o }} }}"
    first = f"{marked} {said}" if not merge else marked
    update = f"INSERT {{ GRAPH {place} {{ {first} }} }} WHERE {{ {new} }}"
    return update if not merge else f"{update} ;\nINSERT DATA {{ GRAPH {place} {{ {said} }} }}"


def creation_query(entity: GraphEntity, *, call: str) -> str:
    """The query whether this very call has created it."""
    return f"ASK {{ {ox.NamedNode(entity.iri)} {CREATED_BY} {ox.Literal(call)} }}"


def _entity_node(
    organization_id: UUID, kind: ox.NamedNode, given: dict[str, Any], place: str
) -> ox.NamedNode:
    iri, key = given.get("iri"), given.get("key")
    if iri is not None:
        return _iri_node(iri, f"{place}iri")
    key = given.get("name") if key is None else key
    if not isinstance(key, str) or not key.strip() or len(key) > LONGEST_KEY:
        raise BadTerm(f"{place}key must be a text of 1 to {LONGEST_KEY} characters.")
    parts = (quote(_check_text(part, f"{place}key"), safe="") for part in (kind.value, key.strip()))
    return ox.NamedNode(f"urn:toolcrib:{organization_id}:entity:{':'.join(parts)}")


def _labels(given: dict[str, Any]) -> Iterator[tuple[ox.NamedNode, ox.Literal]]:
    name, language = given.get("name"), given.get("language")
    if not isinstance(name, str) or not name.strip():
        raise BadTerm("name must be a text.")
    yield _LABEL, _language_literal(name.strip(), language, "name")
    labels = _object_member(given, "labels")
    for tag, texts in labels.items():
        place = f"labels.{ascii(tag[:40])[1:-1]}"
        for text in texts if isinstance(texts, list) else [texts]:
            if not isinstance(text, str):
                raise BadTerm(f"{place} must be a text or a list of texts.")
            yield _LABEL, _language_literal(text, tag, place)


def _properties(given: dict[str, Any]) -> Iterator[tuple[ox.NamedNode, ox.Literal]]:
    for name, values in given.items():
        predicate = _predicate(name, "properties")
        for number, value in enumerate(values if isinstance(values, list) else [values]):
            yield predicate, _literal(value, f"properties.{name[:60]}.{number}")


def _relations(
    organization_id: UUID, given: dict[str, Any]
) -> Iterator[tuple[ox.NamedNode, ox.NamedNode]]:
    for name, targets in given.items():
        predicate = _predicate(name, "relations")
        for number, target in enumerate(targets if isinstance(targets, list) else [targets]):
            yield (
                predicate,
                _relation_target(organization_id, target, f"relations.{name[:60]}.{number}."),
            )


def _relation_target(organization_id: UUID, given: Any, place: str) -> ox.NamedNode:
    """An IRI, or an entity by its type and key, which need not exist yet."""
    if isinstance(given, str):
        return _iri_node(given, place.rstrip("."))
    if not isinstance(given, dict) or not set(given) <= {"iri", "type", "key", "name"}:
        raise BadTerm(f"{place.rstrip('.')} must be an IRI, or an object with type and key.")
    kind = _TYPE if "iri" in given else _name_node(given.get("type"), f"{place}type")
    return _entity_node(organization_id, kind, given, place)


def _literal(given: Any, place: str) -> ox.Literal:
    if isinstance(given, bool | int | float):
        if isinstance(given, int) and not isinstance(given, bool) and abs(given) >= 2**63:
            return ox.Literal(str(given), datatype=ox.NamedNode(f"{_XSD}integer"))
        return ox.Literal(given)
    if isinstance(given, str):
        return ox.Literal(_check_text(given, place))
    if not isinstance(given, dict) or not {"value"} <= set(given) <= {
        "value", "language", "datatype",
    }:  # fmt: skip
        raise BadTerm(f"{place} must be a text, a number, true, false or an object with value.")
    value, tag, kind = given["value"], given.get("language"), given.get("datatype")
    if tag is not None and kind is not None:
        raise BadTerm(f"{place} has a language or a datatype, not both.")
    if kind is None:
        return _language_literal(value, tag, place)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    return _typed_literal(_check_text(value, place), kind, place)


def _typed_literal(value: str, kind: Any, place: str) -> ox.Literal:
    name = str(kind).removeprefix(_XSD).removeprefix("xsd:") if isinstance(kind, str) else ""
    form = _DATATYPES.get(name)
    if form is None:
        return ox.Literal(value, datatype=_iri_node(kind, f"{place}.datatype"))
    if not form.fullmatch(value):
        raise BadTerm(f"{place} is no {name}: {value[:60]!r}.")
    return ox.Literal(value, datatype=ox.NamedNode(f"{_XSD}{name}"))


def _language_literal(value: Any, tag: Any, place: str) -> ox.Literal:
    text = _check_text(value, place)
    if tag is None:
        return ox.Literal(text)
    try:
        return ox.Literal(text, language=tag)
    except (ValueError, TypeError):
        raise BadTerm(f"{place}: {str(tag)[:40]!r} is no language tag, such as en.") from None


def _predicate(given: Any, place: str) -> ox.NamedNode:
    """Only we state who created an entity."""
    predicate = _name_node(given, place)
    if predicate == CREATED_BY:
        raise BadTerm(f"{place} may not hold createdBy, which names the call that created it.")
    return predicate


def _name_node(given: Any, place: str) -> ox.NamedNode:
    """An IRI, or a plain name, which is one of our own vocabulary."""
    if isinstance(given, str) and _NAME.fullmatch(given):
        return ox.NamedNode(f"{VOCABULARY}{quote(given, safe='')}")
    return _iri_node(given, place)


def _iri_node(given: Any, place: str) -> ox.NamedNode:
    text = given[1:-1] if isinstance(given, str) and given[:1] + given[-1:] == "<>" else given
    if not isinstance(text, str) or len(text) > LONGEST_IRI or ":" not in text:
        raise BadTerm(f"{place} must be a name, or an IRI such as http://example.org/thing.")
    try:
        return ox.NamedNode(_check_text(text, place))
    except ValueError:
        raise BadTerm(f"{place} is no IRI: {text[:100]!r}.") from None


def _check_text(given: Any, place: str) -> str:
    if not isinstance(given, str):
        raise BadTerm(f"{place} must be a text.")
    if len(given) > LONGEST_TEXT:
        raise BadTerm(f"{place} is longer than {LONGEST_TEXT} characters.")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise BadTerm(f"{place} holds half a character.") from None
    return given


def _object_member(given: dict[str, Any], name: str) -> dict[str, Any]:
    value = given.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadTerm(f"{name} must be an object.")
    return value
