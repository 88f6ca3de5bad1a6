"""Placeholders in http tools: `{name}` is replaced by an argument, as text or, alone, with its
type."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tools.definitions.texts.names import PARAMETER_NAME

PLACEHOLDER = re.compile(rf"\{{({PARAMETER_NAME.pattern})\}}")
Arguments = Mapping[str, Any]


class Absent(Exception):
    """An argument the text needs was not given: the element with the text is left out."""


class UnusableArgument(ValueError):
    """An argument cannot be used at its placeholder. The text is for the caller."""


def names_in(template: Any) -> Iterator[str]:
    """The placeholders of every text in a template, keys aside."""
    if isinstance(template, str):
        yield from PLACEHOLDER.findall(template)
    elif isinstance(template, dict):
        for part in template.values():
            yield from names_in(part)
    elif isinstance(template, list):
        for part in template:
            yield from names_in(part)


def alone(template: str) -> str | None:
    """The name where a text is one placeholder and nothing else."""
    found = PLACEHOLDER.fullmatch(template)
    return found[1] if found else None


def text_of(name: str, value: Any) -> str:
    """A value in a URL, a header or a form; a list with commas. Raises `UnusableArgument`."""
    if isinstance(value, list):
        return ",".join(_item(name, item) for item in value)
    return _item(name, value)


def _item(name: str, value: Any) -> str:
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if not isinstance(value, str):
        raise UnusableArgument(
            f"The argument {name} must be a text, a number, a boolean or a list of them here."
        )
    return value


def given(name: str, arguments: Arguments) -> Any:
    """Outside JSON, null is nothing. Raises `Absent`."""
    if arguments.get(name) is None:
        raise Absent(name)
    return arguments[name]


def filled_text(template: str, arguments: Arguments) -> str:
    """Raises `Absent` and `UnusableArgument`."""
    return PLACEHOLDER.sub(lambda found: text_of(found[1], given(found[1], arguments)), template)


def filled_json(template: Any, arguments: Arguments) -> Any:
    """A JSON template with its values; members and items whose argument is absent are left out.

    Raises `Absent` where the whole of it is.
    """
    if isinstance(template, dict):
        pairs = ((key, _or_absent(part, arguments)) for key, part in template.items())
        return {key: value for key, value in pairs if value is not Absent}
    if isinstance(template, list):
        items = (_or_absent(part, arguments) for part in template)
        return [value for value in items if value is not Absent]
    if not isinstance(template, str):
        return template
    name = alone(template)
    if name is None:
        return PLACEHOLDER.sub(lambda found: _within(found[1], arguments), template)
    if name not in arguments:
        raise Absent(name)
    return arguments[name]


def _or_absent(part: Any, arguments: Arguments) -> Any:
    try:
        return filled_json(part, arguments)
    except Absent:
        return Absent


def _within(name: str, arguments: Arguments) -> str:
    """Inside other text of a body: lists and objects as JSON."""
    value = given(name, arguments)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
