"""Placeholders in http tools: `{name}` is replaced by an argument, as text or, alone, with its
type."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tools.definitions.texts.names import PARAMETER_NAME

PLACEHOLDER = re.compile(rf"\{{({PARAMETER_NAME.pattern})\}}")
Arguments = Mapping[str, Any]


class AbsentArgument(Exception):
    """An argument the text needs was not given: the element with the text is left out."""


class UnusableArgument(ValueError):
    """An argument cannot be used at its placeholder. The text is for the caller."""


def placeholder_names(template: Any) -> Iterator[str]:
    """The placeholders of every text in a template, keys aside."""
    if isinstance(template, str):
        yield from PLACEHOLDER.findall(template)
    elif isinstance(template, dict):
        for part in template.values():
            yield from placeholder_names(part)
    elif isinstance(template, list):
        for part in template:
            yield from placeholder_names(part)


def sole_placeholder(template: str) -> str | None:
    """The name where a text is one placeholder and nothing else."""
    found = PLACEHOLDER.fullmatch(template)
    return found[1] if found else None


def argument_text(name: str, value: Any) -> str:
    """A value in a URL, a header or a form; a list with commas. Raises `UnusableArgument`."""
    if isinstance(value, list):
        return ",".join(_item_text(name, item) for item in value)
    return _item_text(name, value)


def _item_text(name: str, value: Any) -> str:
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if not isinstance(value, str):
        raise UnusableArgument(
            f"The argument {name} must be a text, a number, a boolean or a list of them here."
        )
    return value


def require_argument(name: str, arguments: Arguments) -> Any:
    """Outside JSON, null is nothing. Raises `AbsentArgument`."""
    if arguments.get(name) is None:
        raise AbsentArgument(name)
    return arguments[name]


def fill_text(template: str, arguments: Arguments) -> str:
    """Raises `AbsentArgument` and `UnusableArgument`."""
    return PLACEHOLDER.sub(
        lambda found: argument_text(found[1], require_argument(found[1], arguments)), template
    )


def fill_json(template: Any, arguments: Arguments) -> Any:
    """A JSON template with its values; members and items whose argument is absent are left out.

    Raises `AbsentArgument` where the whole of it is.
    """
    if isinstance(template, dict):
        pairs = ((key, _fill_or_absent(part, arguments)) for key, part in template.items())
        return {key: value for key, value in pairs if value is not AbsentArgument}
    if isinstance(template, list):
        items = (_fill_or_absent(part, arguments) for part in template)
        return [value for value in items if value is not AbsentArgument]
    if not isinstance(template, str):
        return template
    name = sole_placeholder(template)
    if name is None:
        return PLACEHOLDER.sub(lambda found: _embedded_text(found[1], arguments), template)
    if name not in arguments:
        raise AbsentArgument(name)
    return arguments[name]


def _fill_or_absent(part: Any, arguments: Arguments) -> Any:
    try:
        return fill_json(part, arguments)
    except AbsentArgument:
        return AbsentArgument


def _embedded_text(name: str, arguments: Arguments) -> str:
    """Inside other text of a body: lists and objects as JSON."""
    value = require_argument(name, arguments)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
