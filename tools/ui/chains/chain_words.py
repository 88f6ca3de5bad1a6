"""Short descriptions of the steps of a chain, for its drawing."""

import json
import re
from collections.abc import Iterator
from typing import Any

from tools.definitions.chains import conditions, expressions
from tools.definitions.chains.chain_document import Chain, ChainStep
from tools.definitions.chains.expressions import ValueReference

_SIGNS = {
    "equals": "=", "less": "<", "less_or_equal": "≤", "greater": ">", "greater_or_equal": "≥",
    "contains": "contains",
}  # fmt: skip
_JOINED = {"all": " and ", "any": " or "}
_ON_ERROR = {"continue": "goes on if it fails", "compensate": "if it fails, undoes what was done"}
_IN_TEMPLATE = re.compile(r"steps(?:\.|\[\s*['\"])([a-z][a-z0-9_-]*)")


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
        return _JOINED[word].join(_within(one) for one in about)
    if word == "not":
        return f"not {_within(about)}"
    if word == "exists":
        return f"there is {value_words(about)}"
    if word in _SIGNS:
        return f"{value_words(about[0])} {_SIGNS[word]} {value_words(about[1])}"
    return f"{about} {word}"


def _within(condition: dict[str, Any]) -> str:
    said = condition_words(condition)
    return f"({said})" if next(iter(condition)) in _JOINED else said


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


def _list_words(listed: Any) -> str:
    return f"{len(listed)} items" if isinstance(listed, list) else value_words(listed)


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
