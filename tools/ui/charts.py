"""Figures by day or hour as stacked bars or as lines. The picture stretches with its frame, so it
holds no words: what a reader must know stands beside it, and each column tells its own when pointed
at.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 1000.0, 100.0
_FILLED = 0.8  # of the place of a column
_LEAST = 1.0  # of a part that is not nothing

type Part = tuple[str, float]  # what kind it is, and how much


@dataclass(frozen=True, slots=True)
class Bar:
    kind: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Column:
    """`x` and `width` are of its whole place, so that also an empty one can be pointed at."""

    hint: str
    x: float
    width: float
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """`path` is what an SVG path is drawn by: in pieces where something is not known."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class Chart:
    columns: tuple[Column, ...]
    lines: tuple[Line, ...] = ()
    width: float = WIDTH
    height: float = HEIGHT


def stacked(days: Sequence[tuple[str, Sequence[Part]]]) -> Chart:
    """A column for each, with its hint; the parts of one stand on each other, the first lowest."""
    most = max((sum(amount for _, amount in parts) for _, parts in days), default=0.0)
    place = WIDTH / max(1, len(days))
    return Chart(
        tuple(
            Column(hint, at * place, place, tuple(_bars(parts, at * place, place, most)))
            for at, (hint, parts) in enumerate(days)
        )
    )


def lined(points: Sequence[tuple[str, Sequence[float | None]]], kinds: Sequence[str]) -> Chart:
    """A place for each point, with its hint and its value of each kind; None leaves a gap."""
    known = [value for _, values in points for value in values if value is not None]
    most, place = max(known, default=0.0), WIDTH / max(1, len(points))
    columns = (Column(hint, at * place, place, ()) for at, (hint, _) in enumerate(points))
    series = zip(*(values for _, values in points), strict=True)
    return Chart(
        tuple(columns),
        tuple(
            Line(kind, _path(values, place, most))
            for kind, values in zip(kinds, series, strict=False)
        ),
    )


def _path(values: Sequence[float | None], place: float, most: float) -> str:
    """What stands alone is a line of no length, which a round end makes a dot."""
    steps, begun = [], False
    for at, value in enumerate(values):
        if value is None:
            begun = False
            continue
        x, y = (at + 0.5) * place, HEIGHT - HEIGHT * value / (most or 1.0)
        steps.append(f"{'L' if begun else 'M'}{x:.2f} {y:.2f}" + ("" if begun else "h0"))
        begun = True
    return "".join(steps)


def _bars(parts: Sequence[Part], left: float, place: float, most: float) -> Iterator[Bar]:
    foot, gap = HEIGHT, place * (1 - _FILLED) / 2
    for kind, height in _heights([part for part in parts if part[1] > 0], most):
        foot -= height
        yield Bar(kind, left + gap, foot, place * _FILLED, height)


def _heights(parts: Sequence[Part], most: float) -> list[Part]:
    """What little there is can be seen, at the cost of the largest part."""
    heights = [(kind, max(_LEAST, HEIGHT * amount / most)) for kind, amount in parts]
    beyond = sum(height for _, height in heights) - HEIGHT
    if beyond > 0:
        at = max(range(len(heights)), key=lambda one: heights[one][1])
        heights[at] = (heights[at][0], heights[at][1] - beyond)
    return heights
