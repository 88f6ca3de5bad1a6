"""The drawing of a chain: its steps in words, and in a run the state of each step, derived from its
calls.

Steps are placed below each other in the order of their execution. The output of a step is a line
beside them, in its own lane, to every step that uses it.
"""

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.chains import conditions, expressions
from tools.definitions.chains.chain_document import Chain, ChainStep
from tools.definitions.chains.expressions import ValueReference
from tools.definitions.results import OPEN, Status
from tools.definitions.tool import Definition
from tools.definitions.vocabulary import ToolType
from tools.models import Execution
from tools.models.execution_queryset import UNDO
from tools.workflows.nested_calls import absent_calls

_SIGNS = {
    "equals": "=", "less": "<", "less_or_equal": "≤", "greater": ">", "greater_or_equal": "≥",
    "contains": "contains",
}  # fmt: skip
_JOINED = {"all": " and ", "any": " or "}
_ON_ERROR = {"continue": "goes on if it fails", "compensate": "if it fails, undoes what was done"}
_IN_TEMPLATE = re.compile(r"steps(?:\.|\[\s*['\"])([a-z][a-z0-9_-]*)")
_LETTER, _LINE = 7.25, 17.0  # of the fixed-width font of `.flow text`, in pixels
_WIDTH, _PAD, _MARGIN, _GAP = 316.0, 12.0, 2.0, 26.0
_ROOM = int((_WIDTH - 2 * _PAD) / _LETTER)  # characters of a line
_LANE, _FIRST_LANE, _ARROW = 11.0, 16.0, 7.0
_MOST_LANES = 8
_ENDED = {
    Status.PERMISSION_DENIED: "refused",
    Status.CANCELLED: "cancelled",
    Status.TIMEOUT: "out of time",
}


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
    status: StepStatus | None
    y: float = 0.0

    @property
    def x(self) -> float:
        return _MARGIN

    @property
    def width(self) -> float:
        return _WIDTH

    @property
    def lines(self) -> list[str]:
        return [_shorten(line) for line in ([self.tool, *self.words] if self.tool else self.words)]

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
    def tooltip(self) -> str:
        progress = f": {self.status.words}" if self.status else ""
        return "\n".join(
            [f"{self.name}{progress}", *([self.tool] if self.tool else []), *self.words]
        )


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


def value_words(value: Any) -> str:
    mark = expressions.reference_key(value)
    if mark is None:
        return json.dumps(value, ensure_ascii=False)
    one = ValueReference("", mark, value)
    if mark == expressions.STEP:
        return f"{one.step}{one.pointer}"
    if mark in (expressions.INPUT, expressions.ITEM):
        return f"{mark.removeprefix('$')}{one.pointer}"
    return "a text" if mark == expressions.TEXT else json.dumps(value[mark], ensure_ascii=False)


def condition_words(condition: dict[str, Any]) -> str:
    ((word, about),) = condition.items()
    if word in _JOINED:
        return _JOINED[word].join(_nested_words(one) for one in about)
    if word == "not":
        return f"not {_nested_words(about)}"
    if word == "exists":
        return f"there is {value_words(about)}"
    if word in _SIGNS:
        return f"{value_words(about[0])} {_SIGNS[word]} {value_words(about[1])}"
    return f"{about} {word}"


def step_words(step: ChainStep) -> list[str]:
    """A line for each setting that differs from its default."""
    said = []
    if step.when is not None:
        said.append(f"when {condition_words(step.when)}")
    if step.loop:
        at_once = f", {step.parallel} at once" if step.parallel > 1 else ""
        said.append(f"for each of {_list_words(step.for_each)}{at_once}")
    if step.attempts > 1:
        said.append(f"tried up to {step.attempts} times")
    if step.on_error in _ON_ERROR:
        said.append(_ON_ERROR[step.on_error])
    if step.compensation:
        said.append(f"undone by {step.compensation['tool_name']}")
    return said


def sources_of(step: ChainStep) -> set[str]:
    """The ids of the steps whose end or output this step uses."""
    looked_at = [step.parameters]
    if step.loop:
        looked_at.append(step.for_each)
    found = {name for one in looked_at for name in steps_in(one)}
    return found | (set(_steps_in_condition(step.when)) if step.when else set())


def sources_of_output(chain: Chain) -> set[str]:
    return set(steps_in(chain.output))


def steps_in(value: Any) -> Iterator[str]:
    for one in expressions.find_references(value):
        if one.mark == expressions.STEP:
            yield one.step
        elif one.mark == expressions.TEXT:
            yield from _IN_TEMPLATE.findall(one.raw[expressions.TEXT])


def inputs_of(definition: Definition) -> list[str]:
    """The names of the inputs, in the order of the definition where it has one."""
    named = [str(one["name"]) for one in definition["parameters"]]
    return named or list(definition["input_schema"].get("properties", {}))


def draw_chain(
    chain: Chain, inputs: list[str], run: Mapping[str, StepStatus] | None = None
) -> ChainDrawing:
    """`run` has the state of each step of a run, by its id."""
    boxes = _boxes(chain, inputs, run or {})
    y = _MARGIN
    for box in boxes:
        box.y = y
        y += box.height + _GAP
    lines = [_straight_line(one, other) for one, other in itertools.pairwise(boxes)]
    lanes, unseen = _lanes(chain, boxes)
    lines += [_lane_line(boxes, start, ends, at) for start, ends, at in lanes]
    used = max((at for _, _, at in lanes), default=-1) + 1
    width = _MARGIN * 2 + _WIDTH + (_FIRST_LANE + used * _LANE if used else 0)
    return ChainDrawing(width, y - _GAP + _MARGIN, boxes, lines, unseen)


def draw_run(execution: Execution) -> ChainDrawing | None:
    """None for an execution that is not a run of a chain."""
    definition = execution.tool_version.definition if execution.tool_version else {}
    if definition.get("type") != ToolType.CHAIN:
        return None
    chain = Chain(definition["implementation"]["chain"])
    return draw_chain(chain, inputs_of(definition), dict(_step_statuses(chain, execution)))


def _nested_words(condition: dict[str, Any]) -> str:
    said = condition_words(condition)
    return f"({said})" if next(iter(condition)) in _JOINED else said


def _list_words(listed: Any) -> str:
    return f"{len(listed)} items" if isinstance(listed, list) else value_words(listed)


def _steps_in_condition(condition: dict[str, Any]) -> Iterator[str]:
    ((word, about),) = condition.items()
    if word in _JOINED:
        for one in about:
            yield from _steps_in_condition(one)
    elif word == "not":
        yield from _steps_in_condition(about)
    elif word in conditions.STEP_STATES:
        yield about
    else:
        yield from steps_in(about)


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


def _straight_line(one: ChainBox, other: ChainBox) -> ChainLine:
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


def _shorten(text: str) -> str:
    return text if len(text) <= _ROOM else f"{text[: _ROOM - 1]}…"


def _step_statuses(chain: Chain, execution: Execution) -> Iterator[tuple[str, StepStatus]]:
    calls = _call_statuses(execution)
    begun = [at for at, step in enumerate(chain.steps) if step.id in calls]
    reached = max(begun, default=-1)
    for at, step in enumerate(chain.steps):
        if step.id in calls:
            yield step.id, _step_status(calls[step.id], loop=step.loop)
        elif at < reached or execution.status == Status.SUCCESS:
            yield step.id, StepStatus("", "skipped")
        elif execution.is_final:
            yield step.id, StepStatus("", "not reached")


def _call_statuses(execution: Execution) -> dict[str, dict[str, Status]]:
    """By step: the status of the last attempt of each of its calls and their compensations."""
    rows = Execution.objects.children_of(execution.pk).order_by("created_at", "pk")
    made = [(place, Status(status)) for place, status in rows.values_list("place", "status")]
    made += [(one.place, one.status) for one in absent_calls(execution.memory).values()]
    found: dict[str, dict[str, Status]] = defaultdict(dict)
    for place, status in made:
        base = place.partition("#")[0]
        found[base.removeprefix(UNDO).partition("/")[0]][base] = status
    return dict(found)


def _step_status(calls: dict[str, Status], *, loop: bool) -> StepStatus:
    own = [status for place, status in calls.items() if not place.startswith(UNDO)]
    undone = [status for place, status in calls.items() if place.startswith(UNDO)]
    standing = _calls_status(own, loop=loop)
    if not undone:
        return standing
    if all(status == Status.SUCCESS for status in undone):
        return StepStatus("Cancelled", f"{standing.words}, undone")
    word = "being undone" if any(status in OPEN for status in undone) else "not undone"
    return StepStatus("Failed", f"{standing.words}, {word}")


def _calls_status(own: list[Status], *, loop: bool) -> StepStatus:
    done = own.count(Status.SUCCESS)
    failed = [status for status in own if status not in OPEN and status != Status.SUCCESS]
    if Status.REQUIRES_CONFIRMATION in own:
        return StepStatus("RequiresConfirmation", "waits for a person")
    if any(status in OPEN for status in own):
        return StepStatus("Running", f"running, {done} done" if loop else "running")
    if not failed:
        return StepStatus("Success", f"{done} done" if loop else "done")
    word = _ENDED.get(failed[0], "failed")
    return StepStatus(str(failed[0]), f"{len(failed)} of {len(own)} {word}" if loop else word)
