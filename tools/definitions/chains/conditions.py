"""The condition language of chain steps: comparisons, combined with boolean operators.

{"equals": [{"$step": "check", "path": "/output/valid"}, true]}
{"all": [{"exists": {"$input": "/to"}}, {"not": {"failed": "check"}}]}
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tools.definitions.chains import expressions
from tools.definitions.chains.expressions import ChainScope, MissingValue, ValueTooLarge

DEEPEST_CONDITION, MOST_CONDITIONS = 8, 50
_COMPARISONS = ("equals", "less", "less_or_equal", "greater", "greater_or_equal", "contains")
_COMBINATIONS, STEP_STATES = ("all", "any"), ("succeeded", "failed", "skipped")
OPERATORS = (*_COMPARISONS, *_COMBINATIONS, *STEP_STATES, "not", "exists")


class ConditionScope(ChainScope, Protocol):
    def state(self, step: str) -> str:
        """`succeeded`, `failed` or `skipped`, of an ended step."""
        ...


def condition_flaws(
    condition: Any, place: str, *, steps: frozenset[str], loop: bool, depth: int = 0
) -> Iterator[tuple[str, str]]:
    if not isinstance(condition, dict) or len(condition) != 1:
        yield place, f"must be an object with one of {', '.join(OPERATORS)}"
        return
    ((word, about),) = condition.items()
    here = f"{place}.{word}"
    if depth > DEEPEST_CONDITION:
        yield place, f"stands more than {DEEPEST_CONDITION} deep"
    elif word in _COMPARISONS:
        if not isinstance(about, list) or len(about) != 2:
            yield here, "must be a list of two values"
        else:
            yield from expressions.reference_flaws(about, here, steps=steps, loop=loop)
    elif word in _COMBINATIONS:
        yield from _combination_flaws(about, here, steps=steps, loop=loop, depth=depth)
    elif word in STEP_STATES:
        if not isinstance(about, str) or about not in steps:
            yield here, "must be the id of an earlier step"
    elif word == "not":
        yield from condition_flaws(about, here, steps=steps, loop=loop, depth=depth + 1)
    elif word == "exists":
        yield from _exists_flaws(about, here, steps=steps, loop=loop)
    else:
        yield here, f"is no condition; these are: {', '.join(OPERATORS)}"


@dataclass(frozen=True, slots=True)
class ConditionComparison:
    """One comparison within a condition: two values, or the one that is to exist."""

    word: str
    place: str
    values: tuple[Any, ...]


def comparisons(condition: Any, place: str) -> Iterator[ConditionComparison]:
    """Every comparison of a condition without flaws."""
    ((word, about),) = condition.items()
    here = f"{place}.{word}"
    if word in _COMBINATIONS:
        for number, one in enumerate(about):
            yield from comparisons(one, f"{here}.{number}")
    elif word == "not":
        yield from comparisons(about, here)
    elif word == "exists":
        yield ConditionComparison(word, here, (about,))
    elif word in _COMPARISONS:
        yield ConditionComparison(word, here, tuple(about))


def evaluate_condition(condition: Any, run: ConditionScope) -> bool:
    """Raises `MissingValue` where a compared value is missing."""
    ((word, about),) = condition.items()
    if word == "all":
        return all(evaluate_condition(one, run) for one in about)
    if word == "any":
        return any(evaluate_condition(one, run) for one in about)
    if word == "not":
        return not evaluate_condition(about, run)
    if word in STEP_STATES:
        return run.state(about) == word
    if word == "exists":
        return _evaluate_exists(about, run)
    left, right = (expressions.resolve_value(one, run) for one in about)
    return _evaluate_comparison(word, left, right)


def _evaluate_exists(about: Any, run: ConditionScope) -> bool:
    try:
        return expressions.resolve_value(about, run) is not None
    except ValueTooLarge:
        raise
    except MissingValue:
        return False


def _evaluate_comparison(word: str, left: Any, right: Any) -> bool:
    """Values of different kinds are never less or greater, and equal only to their own."""
    if word == "equals":
        return _are_equal(left, right)
    if word == "contains":
        if isinstance(left, str):
            return isinstance(right, str) and right in left
        return isinstance(left, list) and any(_are_equal(one, right) for one in left)
    if not (_is_number(left) and _is_number(right)) and not (
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


def _are_equal(left: Any, right: Any) -> bool:
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _combination_flaws(
    about: Any, place: str, *, steps: frozenset[str], loop: bool, depth: int
) -> Iterator[tuple[str, str]]:
    if not isinstance(about, list) or not 1 <= len(about) <= MOST_CONDITIONS:
        yield place, f"must be a list of 1 to {MOST_CONDITIONS} conditions"
        return
    for number, one in enumerate(about):
        yield from condition_flaws(
            one, f"{place}.{number}", steps=steps, loop=loop, depth=depth + 1
        )


def _exists_flaws(
    about: Any, place: str, *, steps: frozenset[str], loop: bool
) -> Iterator[tuple[str, str]]:
    if expressions.reference_key(about) not in (
        expressions.INPUT,
        expressions.STEP,
        expressions.ITEM,
    ):
        yield place, "must be a $input, $step or $item"
        return
    yield from expressions.reference_flaws(about, place, steps=steps, loop=loop)
