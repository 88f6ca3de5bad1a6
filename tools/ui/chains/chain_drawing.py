"""Layout of the drawing of a chain. Pure: a chain in, numbers out.

Steps are placed below each other in the order of their execution. The output of a step is a line
beside them, in its own lane, to every step that uses it.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from tools.definitions.chains.chain_document import Chain
from tools.definitions.tool import Definition
from tools.ui.chains.chain_words import sources_of, sources_of_output, step_words, value_words

_LETTER, _LINE = 7.25, 17.0  # of the fixed-width font of `.flow text`, in pixels
_WIDTH, _PAD, _MARGIN, _GAP = 316.0, 12.0, 2.0, 26.0
_ROOM = int((_WIDTH - 2 * _PAD) / _LETTER)  # characters of a line
_LANE, _FIRST_LANE, _ARROW = 11.0, 16.0, 7.0
_MOST_LANES = 8


@dataclass(frozen=True, slots=True)
class StepStatus:
    """The state of a step in a run: the name of its color, and the text beside its id."""

    status: str
    words: str


@dataclass(eq=False)
class ChainBox:
    """A step; or, without a tool, the start or end of the chain."""

    name: str
    tool: str
    words: list[str]
    standing: StepStatus | None
    y: float = 0.0

    @property
    def x(self) -> float:
        return _MARGIN

    @property
    def width(self) -> float:
        return _WIDTH

    @property
    def lines(self) -> list[str]:
        return [_cut(line) for line in ([self.tool, *self.words] if self.tool else self.words)]

    @property
    def height(self) -> float:
        return (len(self.lines) + 1) * _LINE + _PAD

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def first(self) -> float:
        """The baseline of its name."""
        return self.y + _PAD / 2 + _LINE * 0.74

    @property
    def left(self) -> float:
        return self.x + _PAD

    @property
    def right(self) -> float:
        return self.x + self.width - _PAD

    @property
    def texts(self) -> list[tuple[float, str]]:
        return [(self.first + at * _LINE, line) for at, line in enumerate(self.lines, 1)]

    @property
    def hint(self) -> str:
        told = f": {self.standing.words}" if self.standing else ""
        return "\n".join([f"{self.name}{told}", *([self.tool] if self.tool else []), *self.words])


@dataclass(frozen=True)
class ChainLine:
    path: str
    arrows: list[str]
    data: bool = False


@dataclass(frozen=True)
class ChainDrawing:
    width: float
    height: float
    boxes: list[ChainBox]
    lines: list[ChainLine] = field(default_factory=list)
    unseen: int = 0  # lines of values that are left out for lack of room


def inputs_of(definition: Definition) -> list[str]:
    """The names of the inputs, in the order of the definition where it has one."""
    named = [str(one["name"]) for one in definition["parameters"]]
    return named or list(definition["input_schema"].get("properties", {}))


def draw(
    chain: Chain, inputs: list[str], run: Mapping[str, StepStatus] | None = None
) -> ChainDrawing:
    """`run` has the state of each step of a run, by its id."""
    boxes = _boxes(chain, inputs, run or {})
    y = _MARGIN
    for box in boxes:
        box.y = y
        y += box.height + _GAP
    lines = [_down(one, other) for one, other in itertools.pairwise(boxes)]
    lanes, unseen = _lanes(chain, boxes)
    lines += [_lane_line(boxes, start, ends, at) for start, ends, at in lanes]
    used = max((at for _, _, at in lanes), default=-1) + 1
    width = _MARGIN * 2 + _WIDTH + (_FIRST_LANE + used * _LANE if used else 0)
    return ChainDrawing(width, y - _GAP + _MARGIN, boxes, lines, unseen)


def _boxes(chain: Chain, inputs: list[str], run: Mapping[str, StepStatus]) -> list[ChainBox]:
    steps = [
        ChainBox(step.id, step.tool_name, step_words(step), run.get(step.id))
        for step in chain.steps
    ]
    given = value_words(chain.raw["output"]) if "output" in chain.raw else chain.steps[-1].id
    return [
        ChainBox("Takes", "", [", ".join(inputs) or "nothing"], None),
        *steps,
        ChainBox("Gives back", "", [given], None),
    ]


def _lanes(chain: Chain, boxes: list[ChainBox]) -> tuple[list[tuple[int, list[int], int]], int]:
    """(the source of a value, its targets, its lane); lines in one lane do not overlap."""
    numbers = {step.id: at for at, step in enumerate(chain.steps, 1)}
    goes: dict[int, set[int]] = {}
    for at, step in enumerate(chain.steps, 1):
        for source in sources_of(step):
            if source in numbers and numbers[source] < at:
                goes.setdefault(numbers[source], set()).add(at)
    for source in sources_of_output(chain):
        if source in numbers:
            goes.setdefault(numbers[source], set()).add(len(boxes) - 1)
    ends: list[int] = []  # of each lane: the last box it reaches
    found, unseen = [], 0
    for start in sorted(goes):
        at = next((at for at, last in enumerate(ends) if last <= start), len(ends))
        if at >= _MOST_LANES:
            unseen += 1
            continue
        ends[at : at + 1] = [max(goes[start])]
        found.append((start, sorted(goes[start]), at))
    return found, unseen


def _down(one: ChainBox, other: ChainBox) -> ChainLine:
    x = one.x + one.width / 2
    tip = other.y - 1
    arrow = f"{x:.1f},{tip:.1f} {x - 4.5:.1f},{tip - _ARROW:.1f} {x + 4.5:.1f},{tip - _ARROW:.1f}"
    return ChainLine(f"M{x:.1f} {one.bottom:.1f}V{tip - _ARROW:.1f}", [arrow])


def _lane_line(boxes: list[ChainBox], start: int, ends: list[int], lane: int) -> ChainLine:
    """The line leaves its box in the lower half, and enters the others in their upper half."""
    edge = boxes[start].x + _WIDTH
    x = edge + _FIRST_LANE + lane * _LANE
    leaves = boxes[start].bottom - _PAD
    enters = [boxes[end].y + _PAD for end in ends]
    path = f"M{edge:.1f} {leaves:.1f}H{x:.1f}V{enters[-1]:.1f}"
    path += "".join(f"M{x:.1f} {y:.1f}H{edge + _ARROW:.1f}" for y in enters)
    back = edge + _ARROW
    arrows = [
        f"{edge + 1:.1f},{y:.1f} {back:.1f},{y - 4:.1f} {back:.1f},{y + 4:.1f}" for y in enters
    ]
    return ChainLine(path, arrows, data=True)


def _cut(text: str) -> str:
    return text if len(text) <= _ROOM else f"{text[: _ROOM - 1]}…"
