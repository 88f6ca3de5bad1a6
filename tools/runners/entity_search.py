"""What the built-in `search_knowledge` answers: entities, and on demand what surrounds them."""

from collections.abc import Callable
from typing import Any

from tools.knowledge import finding, terms
from tools.knowledge.endpoint import Rows
from tools.knowledge.entries import TYPE, local_name
from tools.models import GraphScope

type Select = Callable[[str, int], Rows]
MOST_NEIGHBOURS = 200  # statements in all
_OF_EACH = 10  # in each direction
_FROM_AT_MOST = 50  # entities, whose neighbours are asked for at once


def answer(scope: GraphScope, given: dict[str, Any], select: Select) -> dict[str, Any]:
    """`select` asks the graph. Raises what it raises."""
    wanted = _wanted(given)
    standing = finding.standing(scope)
    found = finding.find(scope, wanted)
    around, cut = _neighbours([hit.iri for hit in found.hits], int(given["depth"]), select)
    iris = sorted({end for one in around for end in (one["subject"], one["object"])})
    labels = finding.labels_of(scope, iris, wanted.language)
    after = wanted.offset + len(found.hits)
    return {
        "results": [_shown(hit) for hit in found.hits],
        "matched": found.way.value,
        "total": found.total,
        "total_is_exact": not found.capped,
        "next_offset": after if found.hits and after < found.total else None,
        "neighbours": around,
        "neighbours_truncated": cut,
        "labels": labels,
        "indexed_at": standing.indexed_at.isoformat() if standing.indexed_at else None,
        "stale": standing.stale,
        "text": _text(found.hits, around, labels),
    }


def _wanted(given: dict[str, Any]) -> finding.Wanted:
    return finding.Wanted(
        query=str(given["query"])[: finding.LONGEST_QUERY],
        type=given.get("type"),
        language=given.get("language"),
        limit=int(given["limit"]),
        offset=int(given["offset"]),
    )


def _shown(hit: finding.Hit) -> dict[str, Any]:
    return {
        "iri": hit.iri,
        "label": hit.label,
        "language": hit.language,
        "description": hit.description,
        "types": hit.types,
        "match": hit.match,
    }


def _neighbours(iris: list[str], depth: int, select: Select) -> tuple[list[dict[str, Any]], bool]:
    """Statements between entities, nearest first, each once; and whether there are more."""
    seen, around, cut = set(iris), dict[tuple[str, str, str], int](), False
    for step in range(1, depth + 1):
        if not iris or len(around) >= MOST_NEIGHBOURS:
            break
        rows = select(_question(iris[:_FROM_AT_MOST]), MOST_NEIGHBOURS)
        cut = cut or rows.truncated or len(iris) > _FROM_AT_MOST
        edges = sorted(_edge(row) for row in rows.rows if len(row) == len("spo"))
        cut = cut or (len(edges) >= _OF_EACH and _is_full(iris, edges))
        for edge in edges:
            around.setdefault(edge, step)
        ends = dict.fromkeys(end for edge in edges for end in (edge[0], edge[2]))
        iris = [end for end in ends if end not in seen]
        seen.update(iris)
    most = list(around.items())[:MOST_NEIGHBOURS]
    parts = ("subject", "predicate", "object")
    found = [dict(zip(parts, edge, strict=True)) | {"depth": step} for edge, step in most]
    return found, cut or len(around) > MOST_NEIGHBOURS


def _question(iris: list[str]) -> str:
    """So many of each, that one with a thousand neighbours leaves room for the others."""
    kind = terms.nodes([TYPE])[0]
    parts = []
    for one in terms.nodes(iris):
        away, here = f"{one} ?p ?o", f"?s ?p {one}"
        parts += [
            f"{{ SELECT ({one} AS ?s) ?p ?o {{ {away} FILTER(isIRI(?o) && ?p != {kind}) }}"
            f" LIMIT {_OF_EACH} }}",
            f"{{ SELECT ?s ?p ({one} AS ?o) {{ {here} FILTER(isIRI(?s) && ?p != {kind}) }}"
            f" LIMIT {_OF_EACH} }}",
        ]
    return f"SELECT ?s ?p ?o WHERE {{ {' UNION '.join(parts)} }}"


def _edge(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["s"]["value"], row["p"]["value"], row["o"]["value"]


def _is_full(iris: list[str], edges: list[tuple[str, str, str]]) -> bool:
    """Whether of one of them there may be more than was asked for."""
    return any(sum(edge[at] == one for edge in edges) >= _OF_EACH for one in iris for at in (0, 2))


def _text(hits: list[finding.Hit], around: list[dict[str, Any]], labels: dict[str, str]) -> str:
    """One entity or statement a line: for a model to read."""
    found = [f"{hit.label} <{hit.iri}> {hit.description}".rstrip() for hit in hits]
    near = [
        f"{labels[one['subject']]} {local_name(one['predicate'])} {labels[one['object']]}"
        for one in around
    ]
    return "\n".join([*found, *near])
