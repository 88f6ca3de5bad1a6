"""Statements about one entity, grouped for display, and its neighborhood in the graph."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tools.knowledge import entity_index, rdf_terms
from tools.knowledge.entity_index import TYPE
from tools.knowledge.sparql_endpoint import QueryRows

type Select = Callable[[str, int], QueryRows]
MOST_EDGES = 200  # statements in all
EDGES_PER_ENTITY = 10  # in each direction
_MOST_AT_ONCE = 50  # entities, whose neighbors are asked for at once
MOST_OUTGOING, MOST_INCOMING = 500, 200  # statements about it, and of others that refer to it
LONGEST_VALUE = 2_000
_NODE, _BLANK_NODE = "uri", "bnode"


@dataclass(frozen=True)
class StatementValue:
    """A literal, such as a text or a number; `tag` is its language or its datatype."""

    predicate: str
    text: str
    tag: str = ""
    cut: bool = False


@dataclass(frozen=True)
class Relation:
    """`iri` is the other end; empty for a blank node."""

    predicate: str
    iri: str


@dataclass
class EntityStatements:
    """`more_outgoing` and `more_incoming` say that there are more statements than are listed."""

    iri: str
    types: list[str] = field(default_factory=list)
    labels: list[StatementValue] = field(default_factory=list)
    descriptions: list[StatementValue] = field(default_factory=list)
    properties: list[StatementValue] = field(default_factory=list)
    outgoing: list[Relation] = field(default_factory=list)
    incoming: list[Relation] = field(default_factory=list)
    more_outgoing: bool = False
    more_incoming: bool = False

    @property
    def empty(self) -> bool:
        said = self.types or self.labels or self.descriptions or self.properties
        return not (said or self.outgoing or self.incoming)


def find_neighbors(
    iris: list[str], depth: int, select: Select, *, of_each: int = EDGES_PER_ENTITY
) -> tuple[list[dict[str, Any]], bool]:
    """Statements between entities, each once, to so many steps; and whether there are more.

    `select` asks the graph. Raises what it raises.
    """
    seen, found, cut = set(iris), dict[tuple[str, str, str], int](), False
    for step in range(1, depth + 1):
        if not iris or len(found) >= MOST_EDGES:
            break
        rows = select(_neighbors_query(iris[:_MOST_AT_ONCE], of_each), MOST_EDGES)
        cut = cut or rows.truncated or len(iris) > _MOST_AT_ONCE
        edges = sorted(_edge(row) for row in rows.rows if len(row) == len("spo"))
        cut = cut or (len(edges) >= of_each and _may_have_more(iris, edges, of_each))
        for edge in edges:
            found.setdefault(edge, step)
        ends = dict.fromkeys(end for edge in edges for end in (edge[0], edge[2]))
        iris = [end for end in ends if end not in seen]
        seen.update(iris)
    most = list(found.items())[:MOST_EDGES]
    parts = ("subject", "predicate", "object")
    stated = [dict(zip(parts, edge, strict=True)) | {"depth": step} for edge, step in most]
    return stated, cut or len(found) > MOST_EDGES


def load_statements(iri: str, select: Select) -> EntityStatements:
    """Empty where the graph has no statement about it. `select` asks the graph; raises what it
    raises."""
    (node,) = rdf_terms.sparql_nodes([iri])
    said = select(
        _ordered_query(f"SELECT ?p ?o WHERE {{ {node} ?p ?o }}", "?p ?o", MOST_OUTGOING),
        MOST_OUTGOING,
    )
    asked = f"SELECT ?s ?p WHERE {{ ?s ?p {node} }}"
    others = select(_ordered_query(asked, "?p ?s", MOST_INCOMING), MOST_INCOMING)
    entity = EntityStatements(iri, more_outgoing=said.truncated, more_incoming=others.truncated)
    for predicate, thing in _pairs(said, "o"):
        _add_statement(entity, predicate, thing)
    entity.incoming = [_relation(predicate, one) for predicate, one in _pairs(others, "s")]
    return entity


def neighbor_count_query(iri: str) -> str:
    """The query that counts entities one step away."""
    (node,), (kind,) = rdf_terms.sparql_nodes([iri]), rdf_terms.sparql_nodes([entity_index.TYPE])
    away = f"{{ {node} ?p ?n FILTER(isIRI(?n) && ?p != {kind}) }}"
    here = f"{{ ?n ?p {node} FILTER(isIRI(?n) && ?p != {kind}) }}"
    apart = f"FILTER(?n != {node})"
    return f"SELECT (COUNT(DISTINCT ?n) AS ?count) WHERE {{ {away} UNION {here} {apart} }}"


def _neighbors_query(iris: list[str], of_each: int) -> str:
    """A fixed number for each, so that one with a thousand neighbors leaves room for the others."""
    kind = rdf_terms.sparql_nodes([TYPE])[0]
    parts = []
    for one in rdf_terms.sparql_nodes(iris):
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


def _may_have_more(iris: list[str], edges: list[tuple[str, str, str]], of_each: int) -> bool:
    """Whether one of them may have more than were requested."""
    return any(sum(edge[at] == one for edge in edges) >= of_each for one in iris for at in (0, 2))


def _ordered_query(question: str, by: str, most: int) -> str:
    return f"{question} ORDER BY {by} LIMIT {most + 1}"


def _pairs(found: QueryRows, name: str) -> Iterable[tuple[str, dict[str, Any]]]:
    return ((row["p"]["value"], row[name]) for row in found.rows if {"p", name} <= row.keys())


def _add_statement(entity: EntityStatements, predicate: str, thing: dict[str, Any]) -> None:
    if thing["type"] in {_NODE, _BLANK_NODE}:
        if predicate == entity_index.TYPE and thing["type"] == _NODE:
            entity.types.append(thing["value"])
        else:
            entity.outgoing.append(_relation(predicate, thing))
    elif predicate in entity_index.LABELS:
        entity.labels.append(_value(predicate, thing))
    elif predicate in entity_index.DESCRIPTIONS:
        entity.descriptions.append(_value(predicate, thing))
    else:
        entity.properties.append(_value(predicate, thing))


def _relation(predicate: str, thing: dict[str, Any]) -> Relation:
    return Relation(predicate, thing["value"] if thing["type"] == _NODE else "")


def _value(predicate: str, thing: dict[str, Any]) -> StatementValue:
    text, tag = thing["value"], thing.get("language") or thing.get("datatype", "")
    return StatementValue(predicate, text[:LONGEST_VALUE], tag, cut=len(text) > LONGEST_VALUE)
