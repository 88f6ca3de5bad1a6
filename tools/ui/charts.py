"""Charts of values by day or hour (stacked bars or lines, as SVG), and gauges of limits. The SVG
stretches with its frame, so it contains no text: legends are beside it, and each column has a
tooltip.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

WIDTH, HEIGHT = 1000.0, 100.0
FULL = 100.0
WARNS = 80.0  # percent, as in alerts
_FILLED = 0.8  # share of a column's place
_SMALLEST = 1.0  # height of a part above zero
type Part = tuple[str, float]  # kind and amount


@dataclass(frozen=True, slots=True)
class ChartBar:
    kind: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class ChartColumn:
    """`x` and `width` are of its whole place, so that an empty column has a tooltip too."""

    tooltip: str
    x: float
    width: float
    bars: tuple[ChartBar, ...]


@dataclass(frozen=True, slots=True)
class ChartLine:
    """`path` is the data of an SVG path, interrupted where values are missing."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class Chart:
    columns: tuple[ChartColumn, ...]
    lines: tuple[ChartLine, ...] = ()
    width: float = WIDTH
    height: float = HEIGHT


@dataclass(frozen=True, slots=True)
class Gauge:
    """`used` and `held` (reserved) are percent of the limit, together at most 100."""

    used: float
    held: float
    tone: str
    says: str


def stacked_chart(days: Sequence[tuple[str, Sequence[Part]]]) -> Chart:
    """A column for each, with its tooltip; its parts are stacked, the first at the bottom."""
    most = max((sum(amount for _, amount in parts) for _, parts in days), default=0.0)
    place = WIDTH / max(1, len(days))
    return Chart(
        tuple(
            ChartColumn(tooltip, at * place, place, tuple(_bars(parts, at * place, place, most)))
            for at, (tooltip, parts) in enumerate(days)
        )
    )


def line_chart(points: Sequence[tuple[str, Sequence[float | None]]], kinds: Sequence[str]) -> Chart:
    """A place for each point, with its tooltip and its value of each kind; None leaves a gap."""
    known = [value for _, values in points for value in values if value is not None]
    most, place = max(known, default=0.0), WIDTH / max(1, len(points))
    columns = (
        ChartColumn(tooltip, at * place, place, ()) for at, (tooltip, _) in enumerate(points)
    )
    series = zip(*(values for _, values in points), strict=True)
    return Chart(
        tuple(columns),
        tuple(
            ChartLine(kind, _path(values, place, most))
            for kind, values in zip(kinds, series, strict=False)
        ),
    )


def gauge(
    used: Decimal | float, bound: Decimal | float, says: str, held: Decimal | float = 0
) -> Gauge:
    """With a limit of zero, any usage is 100 percent."""
    share, more = _percent(used, bound), _percent(held, bound)
    taken = share + more
    tone = "bad" if taken >= FULL else "warn" if taken >= WARNS else "good"
    share = min(FULL, share)
    return Gauge(share, min(FULL - share, more), tone, says)


def _path(values: Sequence[float | None], place: float, most: float) -> str:
    """An isolated value is a line of no length, which round line ends make a dot."""
    steps, begun = [], False
    for at, value in enumerate(values):
        if value is None:
            begun = False
            continue
        x, y = (at + 0.5) * place, HEIGHT - HEIGHT * value / (most or 1.0)
        steps.append(f"{'L' if begun else 'M'}{x:.2f} {y:.2f}" + ("" if begun else "h0"))
        begun = True
    return "".join(steps)


def _bars(parts: Sequence[Part], left: float, place: float, most: float) -> Iterator[ChartBar]:
    foot, gap = HEIGHT, place * (1 - _FILLED) / 2
    for kind, height in _heights([part for part in parts if part[1] > 0], most):
        foot -= height
        yield ChartBar(kind, left + gap, foot, place * _FILLED, height)


def _heights(parts: Sequence[Part], most: float) -> list[Part]:
    """Heights of parts; small ones get a visible height, which the largest part loses."""
    heights = [(kind, max(_SMALLEST, HEIGHT * amount / most)) for kind, amount in parts]
    beyond = sum(height for _, height in heights) - HEIGHT
    if beyond > 0:
        at = max(range(len(heights)), key=lambda one: heights[one][1])
        heights[at] = (heights[at][0], heights[at][1] - beyond)
    return heights


def _percent(part: Decimal | float, whole: Decimal | float) -> float:
    if not part:
        return 0.0
    return max(_SMALLEST, float(part) / float(whole) * FULL) if whole else FULL
