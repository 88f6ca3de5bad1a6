"""The condition language of chain steps: comparisons, combined with boolean operators.

{"equals": [{"$step": "check", "path": "/output/valid"}, true]}
{"all": [{"exists": {"$input": "/to"}}, {"not": {"failed": "check"}}]}
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tools.definitions.chains import values
from tools.definitions.chains.values import ChainScope, Unknown, ValueTooLarge

DEEPEST, MOST = 8, 50
_PAIRS = ("equals", "less", "less_or_equal", "greater", "greater_or_equal", "contains")
_MANY, STEPS = ("all", "any"), ("succeeded", "failed", "skipped")
KNOWN = (*_PAIRS, *_MANY, *STEPS, "not", "exists")


class ConditionScope(ChainScope, Protocol):
    def state(self, step: str) -> str:
        """`succeeded`, `failed` or `skipped`, of an ended step."""
        ...


def flaws(
    condition: Any, place: str, *, steps: frozenset[str], loop: bool, depth: int = 0
) -> Iterator[tuple[str, str]]:
    if not isinstance(condition, dict) or len(condition) != 1:
        yield place, f"must be an object with one of {', '.join(KNOWN)}"
        return
    ((word, about),) = condition.items()
    here = f"{place}.{word}"
    if depth > DEEPEST:
        yield place, f"stands more than {DEEPEST} deep"
    elif word in _PAIRS:
        if not isinstance(about, list) or len(about) != 2:
            yield here, "must be a list of two values"
        else:
            yield from values.flaws(about, here, steps=steps, loop=loop)
    elif word in _MANY:
        yield from _flaws_in_many(about, here, steps=steps, loop=loop, depth=depth)
    elif word in STEPS:
        if not isinstance(about, str) or about not in steps:
            yield here, "must be the id of an earlier step"
    elif word == "not":
        yield from flaws(about, here, steps=steps, loop=loop, depth=depth + 1)
    elif word == "exists":
        yield from _flaws_in_exists(about, here, steps=steps, loop=loop)
    else:
        yield here, f"is no condition; these are: {', '.join(KNOWN)}"


@dataclass(frozen=True, slots=True)
class ConditionComparison:
    """One comparison within a condition: two values, or the one that is to exist."""

    word: str
    place: str
    values: tuple[Any, ...]


def compared(condition: Any, place: str) -> Iterator[ConditionComparison]:
    """Every comparison of a condition without flaws."""
    ((word, about),) = condition.items()
    here = f"{place}.{word}"
    if word in _MANY:
        for number, one in enumerate(about):
            yield from compared(one, f"{here}.{number}")
    elif word == "not":
        yield from compared(about, here)
    elif word == "exists":
        yield ConditionComparison(word, here, (about,))
    elif word in _PAIRS:
        yield ConditionComparison(word, here, tuple(about))


def holds(condition: Any, run: ConditionScope) -> bool:
    """Raises `Unknown` where a compared value is missing."""
    ((word, about),) = condition.items()
    if word == "all":
        return all(holds(one, run) for one in about)
    if word == "any":
        return any(holds(one, run) for one in about)
    if word == "not":
        return not holds(about, run)
    if word in STEPS:
        return run.state(about) == word
    if word == "exists":
        return _exists(about, run)
    left, right = (values.resolved(one, run) for one in about)
    return _compares(word, left, right)


def _exists(about: Any, run: ConditionScope) -> bool:
    try:
        return values.resolved(about, run) is not None
    except ValueTooLarge:
        raise
    except Unknown:
        return False


def _compares(word: str, left: Any, right: Any) -> bool:
    """Values of different kinds are never less or greater, and equal only to their own."""
    if word == "equals":
        return _same(left, right)
    if word == "contains":
        if isinstance(left, str):
            return isinstance(right, str) and right in left
        return isinstance(left, list) and any(_same(one, right) for one in left)
    if not (_number(left) and _number(right)) and not (
        isinstance(left, str) and isinstance(right, str)
    ):
        return False
    found: bool = {
        "less": left < right,
        "less_or_equal": left <= right,
        "greater": left > right,
        "greater_or_equal": left >= right,
    }[word]
    return found


def _same(left: Any, right: Any) -> bool:
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _flaws_in_many(
    about: Any, place: str, *, steps: frozenset[str], loop: bool, depth: int
) -> Iterator[tuple[str, str]]:
    if not isinstance(about, list) or not 1 <= len(about) <= MOST:
        yield place, f"must be a list of 1 to {MOST} conditions"
        return
    for number, one in enumerate(about):
        yield from flaws(one, f"{place}.{number}", steps=steps, loop=loop, depth=depth + 1)


def _flaws_in_exists(
    about: Any, place: str, *, steps: frozenset[str], loop: bool
) -> Iterator[tuple[str, str]]:
    if values.mark_of(about) not in (values.INPUT, values.STEP, values.ITEM):
        yield place, "must be a $input, $step or $item"
        return
    yield from values.flaws(about, place, steps=steps, loop=loop)
