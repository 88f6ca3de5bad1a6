"""All statements of a graph about one entity, grouped for display."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tools.knowledge import entity_index, rdf_terms
from tools.knowledge.entity_index import TYPE
from tools.knowledge.sparql_endpoint import QueryRows

type Select = Callable[[str, int], QueryRows]
MOST = 200  # statements in all
OF_EACH = 10  # in each direction
_FROM_AT_MOST = 50  # entities, whose neighbors are asked for at once
MOST_SAID, MOST_FROM = 500, 200  # statements of it, and of others that lead to it
LONGEST_VALUE = 2_000
_NODE, _NAMELESS = "uri", "bnode"


def around(
    iris: list[str], depth: int, select: Select, *, of_each: int = OF_EACH
) -> tuple[list[dict[str, Any]], bool]:
    """Statements between entities, each once, to so many steps; and whether there are more.

    `select` asks the graph. Raises what it raises.
    """
    seen, found, cut = set(iris), dict[tuple[str, str, str], int](), False
    for step in range(1, depth + 1):
        if not iris or len(found) >= MOST:
            break
        rows = select(_question(iris[:_FROM_AT_MOST], of_each), MOST)
        cut = cut or rows.truncated or len(iris) > _FROM_AT_MOST
        edges = sorted(_edge(row) for row in rows.rows if len(row) == len("spo"))
        cut = cut or (len(edges) >= of_each and _is_full(iris, edges, of_each))
        for edge in edges:
            found.setdefault(edge, step)
        ends = dict.fromkeys(end for edge in edges for end in (edge[0], edge[2]))
        iris = [end for end in ends if end not in seen]
        seen.update(iris)
    most = list(found.items())[:MOST]
    parts = ("subject", "predicate", "object")
    stated = [dict(zip(parts, edge, strict=True)) | {"depth": step} for edge, step in most]
    return stated, cut or len(found) > MOST


def _question(iris: list[str], of_each: int) -> str:
    """A fixed number for each, so that one with a thousand neighbors leaves room for the others."""
    kind = rdf_terms.nodes([TYPE])[0]
    parts = []
    for one in rdf_terms.nodes(iris):
        away, here = f"{one} ?p ?o", f"?s ?p {one}"
        parts += [
            f"{{ SELECT ({one} AS ?s) ?p ?o {{ {away} FILTER(isIRI(?o) && ?p != {kind}) }}"
            f" LIMIT {int(of_each)} }}",
            f"{{ SELECT ?s ?p ({one} AS ?o) {{ {here} FILTER(isIRI(?s) && ?p != {kind}) }}"
            f" LIMIT {int(of_each)} }}",
        ]
    return f"SELECT ?s ?p ?o WHERE {{ {' UNION '.join(parts)} }}"


def _edge(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["s"]["value"], row["p"]["value"], row["o"]["value"]


def _is_full(iris: list[str], edges: list[tuple[str, str, str]], of_each: int) -> bool:
    """Whether one of them may have more than were requested."""
    return any(sum(edge[at] == one for edge in edges) >= of_each for one in iris for at in (0, 2))


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
    (node,) = rdf_terms.nodes([iri])
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
    (node,), (kind,) = rdf_terms.nodes([iri]), rdf_terms.nodes([entity_index.TYPE])
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
        if predicate == entity_index.TYPE and thing["type"] == _NODE:
            drawn.types.append(thing["value"])
        else:
            drawn.leading_out.append(_relation(predicate, thing))
    elif predicate in entity_index.LABELS:
        drawn.labels.append(_value(predicate, thing))
    elif predicate in entity_index.DESCRIPTIONS:
        drawn.descriptions.append(_value(predicate, thing))
    else:
        drawn.properties.append(_value(predicate, thing))


def _relation(predicate: str, thing: dict[str, Any]) -> Relation:
    return Relation(predicate, thing["value"] if thing["type"] == _NODE else "")


def _value(predicate: str, thing: dict[str, Any]) -> Value:
    text, tag = thing["value"], thing.get("language") or thing.get("datatype", "")
    return Value(predicate, text[:LONGEST_VALUE], tag, cut=len(text) > LONGEST_VALUE)
