"""An entity and what is around it as a picture. Pure: statements in, numbers out.

It stands in the middle; what leads to it is on the left, what it leads to on the right, and what is
two steps away beyond its neighbours.
"""

from collections import defaultdict
from collections.abc import Callable
from itertools import chain as joined
from itertools import zip_longest
from typing import Any

from tools.knowledge.entries import local_name
from tools.knowledge.listing import Named
from tools.ui.layout import Box, Drawing, chain, cut, drawn

MOST_THINGS = 40
MOST_WAYS = 120

Edge = tuple[str, str, str]


def draw(
    center: str, edges: list[dict[str, Any]], named: dict[str, Named], url: Callable[[str], str]
) -> Drawing:
    """So many entities, the nearest first, and of those at one distance some of each relation."""
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
    """By distance; within one, by turns of each relation and direction, so that none is crowded
    out by another that there is more of."""
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
    """Away from the middle; of the middle itself, to the side the relation leads to."""
    return 2 * side if column == 0 else column + (2 if column > 0 else -2)


def _box(one: Named, column: int, url: str) -> Box:
    caption = one.type or ("entity" if one.known else "only named")
    return Box(column, [cut(one.label), cut(caption)], kind="thing", hint=one.label, url=url)
