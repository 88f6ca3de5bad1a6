"""Layout of graph drawings: positions of nodes and paths of edges. Pure: boxes in, numbers out.

Nodes are placed in columns. The labels of edges get columns between those of nodes, and an edge
that passes a column gets a place in it too, so that nothing overlaps.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

LABEL = "label"
MOST_SHRUNK = 1_250.0
_LETTER, _LINE = 7.25, 17.0  # of the fixed-width font of `.flow text`, in pixels
_LONGEST = 24
_SHOWN = 3
_PAD, _GAP, _BETWEEN, _MARGIN = 10.0, 16.0, 36.0, 12.0
_THING_HEIGHT, _PASSING_HEIGHT = 54.0, 10.0
_ARROW = 8.0
_SWEEPS = 6


@dataclass(eq=False)
class LayoutBox:
    """A node, a label, or (without lines) the place where an edge passes a column."""

    column: int
    lines: list[str]
    kind: str = LABEL  # how it is marked
    tooltip: str = ""
    url: str = ""  # of a page about it
    ident: str = ""  # by which a link leads to it
    mark: str = ""  # the text at its corner
    tone: str = ""  # of the mark
    here: bool = False  # the current state of the workflow simulator
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    sides: tuple[float, float] = (0.0, 0.0)  # of its column

    def __post_init__(self) -> None:
        if self.lines:
            self.width = max(map(len, self.lines)) * _LETTER + 2 * _PAD

    @property
    def height(self) -> float:
        if self.kind != LABEL:
            return _THING_HEIGHT
        return len(self.lines) * _LINE + 8 if self.lines else _PASSING_HEIGHT

    @property
    def middle(self) -> float:
        return self.y + self.height / 2

    @property
    def center(self) -> float:
        return self.x + self.width / 2

    @property
    def corner(self) -> float:
        return self.x + self.width - 4

    @property
    def mark_y(self) -> float:
        return self.y + 4

    @property
    def inner(self) -> tuple[float, float, float, float]:
        """The position and size of a second frame within the first."""
        return self.x + 4, self.y + 4, self.width - 8, self.height - 8

    @property
    def texts(self) -> list[tuple[float, str]]:
        """Each line with its baseline."""
        first = self.y + (self.height - len(self.lines) * _LINE) / 2 + _LINE * 0.74
        return [(first + at * _LINE, line) for at, line in enumerate(self.lines)]


@dataclass(eq=False)
class LineSegment:
    """A line from one box to the next; `side` is 1 where it leaves to the right, else -1."""

    start: LayoutBox
    end: LayoutBox
    from_y: float = 0.0
    to_y: float = 0.0

    @property
    def side(self) -> int:
        return 1 if self.end.column > self.start.column else -1


@dataclass(frozen=True)
class LayoutLine:
    path: str
    arrow: str
    back: bool


@dataclass(frozen=True)
class LayoutDrawing:
    width: float
    height: float
    things: list[LayoutBox]
    labels: list[LayoutBox]
    lines: list[LayoutLine]

    @property
    def fits(self) -> bool:
        """Whether the whole drawing fits a wide screen and can still be read."""
        return self.width <= MOST_SHRUNK


def draw_layout(things: list[LayoutBox], chains: list[list[LayoutBox]]) -> LayoutDrawing:
    """Each chain has the boxes of one edge."""
    boxes = list(dict.fromkeys([*things, *(box for chain in chains for box in chain)]))
    _place_boxes(boxes, chains)
    lines = [[LineSegment(*two) for two in pairwise(chain)] for chain in chains]
    _spread_ends(piece for line in lines for piece in line)
    return LayoutDrawing(
        width=max(box.x + box.width for box in boxes) + _MARGIN,
        height=max(box.y + box.height for box in boxes) + _MARGIN,
        things=things,
        labels=[box for box in boxes if box.kind == LABEL and box.lines],
        lines=[_layout_line(pieces) for pieces in lines],
    )


def edge_boxes(start: LayoutBox, end: LayoutBox, names: list[str]) -> list[LayoutBox]:
    """The boxes of an edge, from one node to the other."""
    step = 1 if end.column >= start.column else -1
    passed = range(start.column + 2 * step, end.column, step)
    named = edge_label(start.column + step, [], names)
    return [start, named, *(LayoutBox(column, []) for column in passed), end]


def edge_label(column: int, head: list[str], names: list[str]) -> LayoutBox:
    left = len(names) - _SHOWN
    shown = [shorten_name(name) for name in names[:_SHOWN]]
    return LayoutBox(
        column,
        [*head, *shown, *([f"and {left} more"] if left > 0 else [])],
        tooltip=", ".join([*head, *names[:50]]),
    )


def shorten_name(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _place_boxes(boxes: list[LayoutBox], chains: list[list[LayoutBox]]) -> None:
    columns: dict[int, list[LayoutBox]] = defaultdict(list)
    for box in boxes:
        columns[box.column].append(box)
    _set_x(columns)
    beside: dict[LayoutBox, list[LayoutBox]] = defaultdict(list)
    for chain in chains:
        for one, other in pairwise(chain):
            beside[one].append(other)
            beside[other].append(one)
    for sweep in range(_SWEEPS):
        for column in sorted(columns, reverse=sweep % 2 == 1):
            _stack_boxes(columns[column], beside)
    top = min(box.y for box in boxes)
    for box in boxes:
        box.y += _MARGIN - top


def _set_x(columns: dict[int, list[LayoutBox]]) -> None:
    x = _MARGIN
    for column in sorted(columns):
        width = max(box.width for box in columns[column])
        for box in columns[column]:
            box.sides = x, x + width
            if not box.lines:
                box.width = width  # an edge passes the whole column
            box.x = x + (width - box.width) / 2
        x += width + _BETWEEN


def _stack_boxes(boxes: list[LayoutBox], beside: dict[LayoutBox, list[LayoutBox]]) -> None:
    """Place each box in the order, and about the height, of its neighbors."""
    wanted = {box: _mean([other.middle for other in beside[box]] or [box.middle]) for box in boxes}
    boxes.sort(key=lambda box: (box.kind == "unreachable", wanted[box]))
    y = 0.0
    for box in boxes:
        box.y = y
        y += box.height + _GAP
    shift = _mean([wanted[box] - box.middle for box in boxes])
    for box in boxes:
        box.y += shift


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _spread_ends(pieces: Iterable[LineSegment]) -> None:
    """Spread the ends of edges over the sides of their boxes, so that none overlap."""
    sides: dict[tuple[LayoutBox, int], list[tuple[float, LineSegment, bool]]] = defaultdict(list)
    for piece in pieces:
        sides[piece.start, piece.side].append((piece.end.middle, piece, True))
        sides[piece.end, -piece.side].append((piece.start.middle, piece, False))
    for (box, _), ends in sides.items():
        ends.sort(key=lambda end: end[0])
        for at, (_, piece, leaving) in enumerate(ends, 1):
            y = box.y + box.height * at / (len(ends) + 1)
            if leaving:
                piece.from_y = y
            else:
                piece.to_y = y


def _layout_line(pieces: list[LineSegment]) -> LayoutLine:
    last = pieces[-1]
    path = " ".join(_curve_path(piece, short=piece is last) for piece in pieces)
    x, y, back = _side_x(last.end, -last.side), last.to_y, last.side * _ARROW
    arrow = f"{x:.1f},{y:.1f} {x - back:.1f},{y - 4.5:.1f} {x - back:.1f},{y + 4.5:.1f}"
    return LayoutLine(path, arrow, back=last.end.column < pieces[0].start.column)


def _curve_path(piece: LineSegment, *, short: bool) -> str:
    """A path that is straight beside the boxes of a column, and curved between two columns."""
    leaves, enters = _side_x(piece.start, piece.side), _side_x(piece.end, -piece.side)
    if not piece.start.lines:
        leaves = _side_x(piece.start, -piece.side)  # continues at the end of the previous piece
    bend, unbend = piece.start.sides[piece.side > 0], piece.end.sides[piece.side < 0]
    half = (bend + unbend) / 2
    enters -= piece.side * _ARROW if short else 0
    return (
        f"M{leaves:.1f} {piece.from_y:.1f}H{bend:.1f}"
        f"C{half:.1f} {piece.from_y:.1f} {half:.1f} {piece.to_y:.1f} {unbend:.1f} {piece.to_y:.1f}"
        f"H{enters:.1f}"
    )


def _side_x(box: LayoutBox, side: int) -> float:
    return box.x + box.width if side > 0 else box.x
