"""The plan language of agents: a model's plan, parsed, and the order of its steps.

    {"steps": [{"id": "find", "tool": "knowledge-query", "arguments": {"query": "…"},
                "depends_on": [], "confidence": 0.9, "why": "…"}]}

In arguments `{"$step": "find", "path": "/output/rows"}` stands for the output of an earlier step,
as in a chain. A step depends on the steps that it refers to.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tools.definitions.chains import expressions
from tools.definitions.chains.chain_document import STEP_ID
from tools.definitions.texts import names
from tools.definitions.values import strict_json

MOST_TEXT = 100_000  # characters
MOST_STEPS = 20
MOST_REFERENCES = 100
MOST_WHY = 2_000  # characters
_MOST_TOLD = 10
_KEYS = ("id", "tool", "arguments", "depends_on", "confidence", "why")
_STANDING = (expressions.STEP, expressions.LITERAL)


class UnfitPlan(ValueError):
    """The plan cannot be executed; the message says why, and where."""

    def __init__(self, flaws: Sequence[str]) -> None:
        more = [f"and {len(flaws) - _MOST_TOLD} more"] if len(flaws) > _MOST_TOLD else []
        super().__init__("; ".join([*flaws[:_MOST_TOLD], *more]))


@dataclass(frozen=True, slots=True)
class PlanStep:
    """`depends_on` names also what its arguments refer to."""

    id: str
    tool: str
    arguments: dict[str, Any]
    depends_on: tuple[str, ...]
    confidence: float
    why: str


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """Its steps in the order in which they are taken. `at` is the number of the thought that it
    came from; its steps have those that follow."""

    at: int
    steps: tuple[PlanStep, ...]

    def numbered(self) -> Iterator[tuple[int, PlanStep]]:
        return enumerate(self.steps, self.at + 1)

    @property
    def next(self) -> int:
        """The number of what comes after it."""
        return self.at + len(self.steps) + 1


def read(
    text: str, *, known: frozenset[str] = frozenset(), most: int = MOST_STEPS
) -> list[PlanStep]:
    """The steps in their order. `known` are those of plans before it. Raises `UnfitPlan`."""
    steps = _document(text)
    if len(steps) > most:
        raise UnfitPlan([f"it has {len(steps)} steps, and {most} is the most"])
    reader = _PlanReader(steps, known)
    read_steps = [reader.step(number, one) for number, one in enumerate(steps)]
    if reader.flaws:
        raise UnfitPlan(reader.flaws)
    return _in_order(read_steps, known)


def _document(text: str) -> list[Any]:
    if len(text) > MOST_TEXT:
        raise UnfitPlan([f"it is longer than {MOST_TEXT} characters"])
    try:
        document = strict_json.parse(_unwrapped(text))
    except strict_json.BadJson as flaw:
        raise UnfitPlan([f"it is not one JSON document: {flaw}"]) from None
    if not isinstance(document, dict) or set(document) != {"steps"}:
        raise UnfitPlan(['it must be one object with nothing but "steps"'])
    steps = document["steps"]
    if not isinstance(steps, list):
        raise UnfitPlan(["steps must be a list"])
    return steps


def _unwrapped(text: str) -> str:
    """Without the marks that models like to set around code."""
    bare = text.strip()
    first, _, rest = bare.partition("\n")
    if first in ("```", "```json") and rest.endswith("```"):
        return rest.removesuffix("```")
    return bare


class _PlanReader:
    def __init__(self, steps: list[Any], known: frozenset[str]) -> None:
        found = [one["id"] for one in steps if isinstance(one, dict) and _is_id(one.get("id"))]
        self._ids, self._known = frozenset(found), known
        self._seen: set[str] = set()
        self._references_left = MOST_REFERENCES
        self.flaws: list[str] = []

    def step(self, number: int, raw: Any) -> PlanStep:
        at = f"steps.{number}"
        if not isinstance(raw, dict):
            self._wrong(at, "must be an object")
            raw = {}
        for key in raw:
            if key not in _KEYS:
                meant = names.suggestion(str(key)[:80], _KEYS)
                self._wrong(f"{at}.{str(key)[:80]}", f"is not a field of a step{meant}")
        name = self._id(raw.get("id"), at)
        others = (self._ids | self._known) - {name}
        arguments = self._arguments(raw.get("arguments", {}), f"{at}.arguments", others)
        depends = self._depends(raw.get("depends_on", []), f"{at}.depends_on", others)
        return PlanStep(
            name,
            self._text(raw.get("tool"), f"{at}.tool", least=1, most=128),
            arguments,
            tuple(dict.fromkeys([*depends, *_referred(arguments)])),
            self._confidence(raw.get("confidence"), f"{at}.confidence"),
            self._text(raw.get("why", ""), f"{at}.why", least=0, most=MOST_WHY),
        )

    def _wrong(self, place: str, message: str) -> None:
        self.flaws.append(f"{place} {message}")

    def _id(self, raw: Any, at: str) -> str:
        if not _is_id(raw):
            self._wrong(f"{at}.id", "must begin with a letter; a-z, 0-9, _ and - may follow")
            return ""
        if raw in self._seen or raw in self._known:
            self._wrong(f"{at}.id", f"is the id of another step: {raw}")
        self._seen.add(raw)
        return str(raw)

    def _text(self, raw: Any, place: str, *, least: int, most: int) -> str:
        if not isinstance(raw, str) or not least <= len(raw) <= most:
            self._wrong(place, f"must be a text of {least} to {most} characters")
            return ""
        return raw

    def _confidence(self, raw: Any, place: str) -> float:
        number = isinstance(raw, int | float) and not isinstance(raw, bool)
        if not number or not 0 <= raw <= 1:
            self._wrong(place, "must be a number from 0 to 1")
            return 0.0
        return float(raw)

    def _depends(self, raw: Any, place: str, others: frozenset[str]) -> list[str]:
        if not isinstance(raw, list) or not all(isinstance(one, str) for one in raw):
            self._wrong(place, "must be a list of ids of steps")
            return []
        for one in raw:
            if one not in others:
                self._wrong(place, f"names no other step: {one[:80]}")
        return raw

    def _arguments(self, raw: Any, place: str, others: frozenset[str]) -> dict[str, Any]:
        if not isinstance(raw, dict) or expressions.reference_key(raw) is not None:
            self._wrong(place, "must be an object, each argument by its name")
            return {}
        found = list(expressions.find_references(raw, place))
        self._references_left -= len(found)
        if self._references_left < 0:
            self._wrong(place, f"stands after {MOST_REFERENCES} references, which is the most")
            return {}
        flaws = list(_amiss(found, others)) or expressions.reference_flaws(
            raw, place, steps=others, loop=False
        )
        for where, message in flaws:
            self._wrong(where, message)
        return raw


def _is_id(raw: Any) -> bool:
    return isinstance(raw, str) and STEP_ID.fullmatch(raw) is not None


def _amiss(
    found: list[expressions.ValueReference], steps: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Errors of references: forms that only chains have, and unknown steps."""
    for one in found:
        if one.mark not in _STANDING:
            yield one.place, f"may be $step or $literal, not {one.mark}"
        elif one.mark == expressions.STEP and one.raw[expressions.STEP] not in [*steps]:
            yield one.place, "$step names no other step"


def _referred(arguments: dict[str, Any]) -> list[str]:
    return [str(one.raw[expressions.STEP]) for one in _to_steps(arguments)]


def _to_steps(arguments: dict[str, Any]) -> Iterator[expressions.ValueReference]:
    return (one for one in expressions.find_references(arguments) if one.mark == expressions.STEP)


def _in_order(steps: list[PlanStep], known: frozenset[str]) -> list[PlanStep]:
    """Each after all that it depends on, else as they were written. Raises `UnfitPlan`."""
    left, over, found = list(steps), set(known), list[PlanStep]()
    while left:
        ready = next((one for one in left if over.issuperset(one.depends_on)), None)
        if ready is None:
            circle = ", ".join(one.id for one in left)
            raise UnfitPlan([f"these steps wait for each other in a circle: {circle}"])
        left.remove(ready)
        over.add(ready.id)
        found.append(ready)
    return found
