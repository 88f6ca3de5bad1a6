"""Value expressions of a chain: JSON with placeholders that are resolved when it runs.

    {"$input": "/url"}                        a parameter of the chain
    {"$step": "page", "path": "/output/text"} what an earlier step gave back
    {"$item": "/name"}                        within a loop: the item it is at
    {"$text": "Dear {{ input.name }}"}        a template over input, steps and item
    {"$literal": {"$step": "as it is"}}       a value that only looks like one of these

Each of the first three may have a `default` for a missing value.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tools.definitions.texts import templates
from tools.definitions.values import json_pointers

INPUT, STEP, ITEM, TEXT, LITERAL = REFERENCE_KEYS = (
    "$input",
    "$step",
    "$item",
    "$text",
    "$literal",
)
OUTPUT = "/output"
TEMPLATE_NAMES = ("input", "steps", "item")  # that a template may use
_EXTRA_KEYS = {
    INPUT: {"default"},
    STEP: {"path", "default"},
    ITEM: {"default"},
    TEXT: set(),
    LITERAL: set(),
}


class MissingValue(LookupError):
    """A value is missing; the message says which and why."""

    code = "VALUE_MISSING"


class ValueTooLarge(MissingValue):
    """A value that exceeds the size limit: no default may replace it."""

    code = "OUTPUT_LIMIT"


class ChainScope(Protocol):
    """The values that are known at one point of a run."""

    @property
    def input(self) -> dict[str, Any]: ...

    def output(self, step: str) -> Any:
        """Raises `MissingValue` where the step has no output."""
        ...

    def item(self) -> Any: ...

    def outputs(self, text: str) -> dict[str, Any]:
        """The outputs of the steps that a template names, where they have one."""
        ...


@dataclass(frozen=True, slots=True)
class ValueReference:
    """One reference, and its place in the document."""

    place: str
    mark: str
    raw: dict[str, Any]

    @property
    def pointer(self) -> str:
        """Into what it stands for a part of."""
        if self.mark == STEP:
            return str(self.raw.get("path", OUTPUT)).removeprefix(OUTPUT)
        return str(self.raw[self.mark])

    @property
    def step(self) -> str:
        return str(self.raw[STEP])

    @property
    def has_default(self) -> bool:
        return "default" in self.raw


def reference_key(value: Any) -> str | None:
    """The kind of reference that an object has the form of."""
    if not isinstance(value, dict):
        return None
    return next((mark for mark in REFERENCE_KEYS if mark in value), None)


def find_references(value: Any, place: str = "") -> Iterator[ValueReference]:
    """Every reference in a value, with its place; none within another."""
    pending = [(place, value)]
    while pending:
        where, one = pending.pop()
        mark = reference_key(one)
        if mark is not None:
            yield ValueReference(where, mark, one)
        elif isinstance(one, dict):
            pending += [(f"{where}.{key}", item) for key, item in one.items()]
        elif isinstance(one, list):
            pending += [(f"{where}.{number}", item) for number, item in enumerate(one)]


def reference_flaws(
    value: Any, place: str, *, steps: frozenset[str], loop: bool
) -> Iterator[tuple[str, str]]:
    """What is wrong with the references of a value: place and message."""
    for one in find_references(value, place):
        beside = set(one.raw) - {one.mark} - _EXTRA_KEYS[one.mark]
        if beside:
            yield one.place, f"beside {one.mark} there must not be {', '.join(sorted(beside))[:80]}"
        elif (flaw := _CHECKS[one.mark](one, steps, loop)) is not None:
            yield one.place, flaw


def resolve_value(value: Any, scope: ChainScope) -> Any:
    """The value with every reference replaced. Raises `MissingValue`."""
    mark = reference_key(value)
    if mark is not None:
        return _resolve_reference(ValueReference("", mark, value), scope)
    if isinstance(value, dict):
        return {key: resolve_value(item, scope) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve_value(item, scope) for item in value]
    return value


def _resolve_reference(one: ValueReference, scope: ChainScope) -> Any:
    if one.mark == LITERAL:
        return one.raw[LITERAL]
    if one.mark == TEXT:
        return _render_text(one.raw[TEXT], scope)
    try:
        return json_pointers.resolve_pointer(_reference_base(one, scope), one.pointer)
    except ValueTooLarge as limit:
        raise ValueTooLarge(f"{_reference_label(one)}: {limit}") from None
    except (json_pointers.NothingAtPointer, MissingValue) as absence:
        if one.has_default:
            return one.raw["default"]
        raise MissingValue(f"{_reference_label(one)}: {absence}") from None


def _reference_base(one: ValueReference, scope: ChainScope) -> Any:
    if one.mark == INPUT:
        return scope.input
    return scope.item() if one.mark == ITEM else scope.output(one.step)


def _render_text(text: str, scope: ChainScope) -> str:
    arguments: dict[str, Any] = {"input": scope.input, "steps": scope.outputs(text)}
    try:
        arguments["item"] = scope.item()
    except MissingValue:
        pass  # outside a loop a template uses none
    try:
        return templates.render_template(text, arguments)
    except templates.CannotRender as error:
        raise MissingValue(f"the text cannot be written: {error}") from None


def _reference_label(one: ValueReference) -> str:
    if one.mark == STEP:
        return f"step {one.step}, {one.raw.get('path', OUTPUT)}"
    return f"{one.mark.removeprefix('$')} {one.pointer or '/'}"


def _flaw_in_pointer(one: ValueReference, _steps: frozenset[str], loop: bool) -> str | None:
    if one.mark == ITEM and not loop:
        return "$item stands only in a step with for_each"
    if not isinstance(one.raw[one.mark], str):
        return f"{one.mark} must be a JSON Pointer, such as /name"
    flaw = json_pointers.pointer_flaw(one.raw[one.mark])
    return f"{one.mark} {flaw}" if flaw else None


def _flaw_in_step(one: ValueReference, steps: frozenset[str], _loop: bool) -> str | None:
    name, path = one.raw[STEP], one.raw.get("path", OUTPUT)
    if not isinstance(name, str) or name not in steps:
        earlier = ", ".join(sorted(steps)) or "none"
        return f"$step must be the id of an earlier step: {earlier[:200]}"
    if not isinstance(path, str) or not (path == OUTPUT or path.startswith(f"{OUTPUT}/")):
        return "path must be /output, or a JSON Pointer that begins with /output/"
    flaw = json_pointers.pointer_flaw(path)
    return f"path {flaw}" if flaw else None


def _flaw_in_text(one: ValueReference, _steps: frozenset[str], _loop: bool) -> str | None:
    text = one.raw[TEXT]
    if not isinstance(text, str):
        return "$text must be a text"
    try:
        templates.check_template(text, TEMPLATE_NAMES)
    except templates.BadTemplate as error:
        return f"$text {error}"
    return None


def _no_flaw(_one: ValueReference, _steps: frozenset[str], _loop: bool) -> str | None:
    return None


_CHECKS: dict[str, Callable[[ValueReference, frozenset[str], bool], str | None]] = {
    INPUT: _flaw_in_pointer,
    STEP: _flaw_in_step,
    ITEM: _flaw_in_pointer,
    TEXT: _flaw_in_text,
    LITERAL: _no_flaw,
}
