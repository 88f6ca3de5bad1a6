"""The neighborhood of entities in a graph: statements that lead from one to another, nearest
first."""

from collections.abc import Callable
from typing import Any

from tools.knowledge import terms
from tools.knowledge.endpoint import QueryRows
from tools.knowledge.entries import TYPE

type Select = Callable[[str, int], QueryRows]
MOST = 200  # statements in all
OF_EACH = 10  # in each direction
_FROM_AT_MOST = 50  # entities, whose neighbors are asked for at once


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
    kind = terms.nodes([TYPE])[0]
    parts = []
    for one in terms.nodes(iris):
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
