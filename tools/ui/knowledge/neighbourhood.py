"""Layout of the neighborhood of an entity in the knowledge graph. Pure: statements in, numbers out.

The entity is in the center; subjects of its incoming edges are on the left, objects of its outgoing
edges on the right, and entities at distance two beyond its neighbors.
"""

from collections import defaultdict
from collections.abc import Callable
from itertools import chain as joined
from itertools import zip_longest
from typing import Any

from tools.knowledge.entity_index import local_name
from tools.knowledge.entity_search import Named
from tools.ui.layout import LayoutBox, LayoutDrawing, chain, cut, drawn

MOST_THINGS = 40
MOST_WAYS = 120

Edge = tuple[str, str, str]


def draw(
    center: str, edges: list[dict[str, Any]], named: dict[str, Named], url: Callable[[str], str]
) -> LayoutDrawing:
    """Draw a limited number of entities: the nearest first, and some of each relation."""
    stated = _fair(center, edges)
    columns = _columns(center, stated)
    boxes = {iri: _box(named[iri], at, url(iri)) for iri, at in columns.items()}
    boxes[center].kind, boxes[center].url = "start", ""
    ways: dict[tuple[str, str], list[str]] = defaultdict(list)
    for start, predicate, end in stated:
        if start in columns and end in columns:
            ways[start, end].append(local_name(predicate))
    shown = list(ways.items())[:MOST_WAYS]
    return drawn([*boxes.values()], [chain(boxes[a], boxes[b], by) for (a, b), by in shown])


def _fair(center: str, edges: list[dict[str, Any]]) -> list[Edge]:
    """Edges by distance; within a distance, round-robin over relations and directions, so that
    frequent ones do not displace others."""
    kinds: dict[tuple[int, str, bool], list[Edge]] = defaultdict(list)
    for one in edges:
        edge = one["subject"], one["predicate"], one["object"]
        kinds[one["depth"], one["predicate"], one["subject"] == center].append(edge)
    order: list[Edge] = []
    for depth in sorted({kind[0] for kind in kinds}):
        lists = [found for kind, found in sorted(kinds.items()) if kind[0] == depth]
        order += [edge for edge in joined(*zip_longest(*lists)) if edge is not None]
    return order


def _columns(center: str, edges: list[Edge]) -> dict[str, int]:
    columns = {center: 0}
    for start, _, end in edges:
        for here, there, side in ((start, end, 1), (end, start, -1)):
            if len(columns) < MOST_THINGS and here in columns and there not in columns:
                columns[there] = _beside(columns[here], side)
    return columns


def _beside(column: int, side: int) -> int:
    """The next column away from the center; from the center, on the side of the relation."""
    return 2 * side if column == 0 else column + (2 if column > 0 else -2)


def _box(one: Named, column: int, url: str) -> LayoutBox:
    caption = one.type or ("entity" if one.known else "only named")
    return LayoutBox(column, [cut(one.label), cut(caption)], kind="thing", hint=one.label, url=url)
