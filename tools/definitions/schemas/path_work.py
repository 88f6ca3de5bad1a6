"""Bounds the cost of a JSONPath. Syntax that is not listed here is refused."""

from typing import Any

from jsonpath_rfc9535 import _ast

_MOST_SEGMENTS = 20
_MOST_SELECTORS = 20  # of all segments multiplied: each may visit the same once more
_MOST_COMPARED = 20
_COMPARISONS = frozenset(
    {_ast.EQ_EXPR, _ast.NE_EXPR, _ast.LT_EXPR, _ast.LE_EXPR, _ast.GT_EXPR, _ast.GE_EXPR,
     _ast.AND_EXPR, _ast.OR_EXPR, _ast.NOT_EXPR}
)  # fmt: skip
_CONSTANTS = frozenset(
    {_ast.NULL_EXPR, _ast.BOOL_EXPR, _ast.INT_EXPR, _ast.FLOAT_EXPR, _ast.STRING_EXPR}
)
_STEPS = frozenset({_ast.NAME_SELECTOR, _ast.INDEX_SELECTOR})


class BadPath(ValueError):
    """An invalid path; the message is for its author."""


def check_path(segments: Any) -> None:
    """Raises `BadPath`."""
    if len(segments) > _MOST_SEGMENTS:
        raise BadPath(f"has more than {_MOST_SEGMENTS} steps")
    if sum(kind == _ast.DESCENDANT_SEGMENT for kind, _, _ in segments) > 1:
        raise BadPath("descends with .. more than once")
    visits = 1
    for _, _, selectors in segments:
        visits *= len(selectors)
        for selector in selectors:
            if selector[0] == _ast.FILTER_SELECTOR:
                _check_filter(selector[2])
    if visits > _MOST_SELECTORS:
        raise BadPath(f"multiplies to more than {_MOST_SELECTORS} selectors")


def _check_filter(expression: Any) -> None:
    pending, seen = [expression], 0
    while pending:
        kind, _, *rest = pending.pop()
        seen += 1
        if seen > _MOST_COMPARED:
            raise BadPath(f"compares more than {_MOST_COMPARED} times in a filter")
        if kind in _COMPARISONS:
            pending += rest
        elif kind == _ast.RELATIVE_QUERY_EXPR:
            _check_singular(rest[0])
        elif kind not in _CONSTANTS:
            raise BadPath("may compare in a filter only what stands at @ with constants")


def is_singular(segments: Any) -> bool:
    """Whether it can mean one value at most."""
    return all(
        kind == _ast.CHILD_SEGMENT and len(selectors) == 1 and selectors[0][0] in _STEPS
        for kind, _, selectors in segments
    )


def _check_singular(segments: Any) -> None:
    """A search within a filter multiplies the cost."""
    if not is_singular(segments) or len(segments) > _MOST_SEGMENTS:
        raise BadPath("may name in a filter only single places, such as @.kind")
