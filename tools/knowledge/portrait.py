"""All statements of a graph about one entity, grouped for display."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tools.knowledge import entries, terms
from tools.knowledge.endpoint import QueryRows
from tools.knowledge.neighbours import Select

MOST_SAID, MOST_FROM = 500, 200  # statements of it, and of others that lead to it
LONGEST_VALUE = 2_000
_NODE, _NAMELESS = "uri", "bnode"


@dataclass(frozen=True)
class Value:
    """A text, a number or whatever else is no entity; `tag` is its language or its datatype."""

    predicate: str
    text: str
    tag: str = ""
    cut: bool = False


@dataclass(frozen=True)
class Relation:
    """`iri` is the other end; empty for one that has no name."""

    predicate: str
    iri: str


@dataclass
class Portrait:
    """`more_said`, `more_from`: there are more statements than are listed."""

    iri: str
    types: list[str] = field(default_factory=list)
    labels: list[Value] = field(default_factory=list)
    descriptions: list[Value] = field(default_factory=list)
    properties: list[Value] = field(default_factory=list)
    leading_out: list[Relation] = field(default_factory=list)
    leading_in: list[Relation] = field(default_factory=list)
    more_said: bool = False
    more_from: bool = False

    @property
    def empty(self) -> bool:
        said = self.types or self.labels or self.descriptions or self.properties
        return not (said or self.leading_out or self.leading_in)


def portrait(iri: str, select: Select) -> Portrait:
    """Empty where the graph has no statement about it. `select` asks the graph; raises what it
    raises."""
    (node,) = terms.nodes([iri])
    said = select(_ordered(f"SELECT ?p ?o WHERE {{ {node} ?p ?o }}", "?p ?o", MOST_SAID), MOST_SAID)
    asked = f"SELECT ?s ?p WHERE {{ ?s ?p {node} }}"
    others = select(_ordered(asked, "?p ?s", MOST_FROM), MOST_FROM)
    drawn = Portrait(iri, more_said=said.truncated, more_from=others.truncated)
    for predicate, thing in _pairs(said, "o"):
        _add(drawn, predicate, thing)
    drawn.leading_in = [_relation(predicate, one) for predicate, one in _pairs(others, "s")]
    return drawn


def neighbours_counted(iri: str) -> str:
    """The query that counts entities one step away."""
    (node,), (kind,) = terms.nodes([iri]), terms.nodes([entries.TYPE])
    away = f"{{ {node} ?p ?n FILTER(isIRI(?n) && ?p != {kind}) }}"
    here = f"{{ ?n ?p {node} FILTER(isIRI(?n) && ?p != {kind}) }}"
    apart = f"FILTER(?n != {node})"
    return f"SELECT (COUNT(DISTINCT ?n) AS ?count) WHERE {{ {away} UNION {here} {apart} }}"


def _ordered(question: str, by: str, most: int) -> str:
    return f"{question} ORDER BY {by} LIMIT {most + 1}"


def _pairs(found: QueryRows, name: str) -> Iterable[tuple[str, dict[str, Any]]]:
    return ((row["p"]["value"], row[name]) for row in found.rows if {"p", name} <= row.keys())


def _add(drawn: Portrait, predicate: str, thing: dict[str, Any]) -> None:
    if thing["type"] in {_NODE, _NAMELESS}:
        if predicate == entries.TYPE and thing["type"] == _NODE:
            drawn.types.append(thing["value"])
        else:
            drawn.leading_out.append(_relation(predicate, thing))
    elif predicate in entries.LABELS:
        drawn.labels.append(_value(predicate, thing))
    elif predicate in entries.DESCRIPTIONS:
        drawn.descriptions.append(_value(predicate, thing))
    else:
        drawn.properties.append(_value(predicate, thing))


def _relation(predicate: str, thing: dict[str, Any]) -> Relation:
    return Relation(predicate, thing["value"] if thing["type"] == _NODE else "")


def _value(predicate: str, thing: dict[str, Any]) -> Value:
    text, tag = thing["value"], thing.get("language") or thing.get("datatype", "")
    return Value(predicate, text[:LONGEST_VALUE], tag, cut=len(text) > LONGEST_VALUE)
