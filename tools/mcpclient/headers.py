"""What of a message stands in headers as well (2026-07-28)."""

import base64
import re
from collections.abc import Iterator
from typing import Any

_SAFE = re.compile(r"[\x20-\x7e]*")
_WRAPPED = re.compile(r"=\?base64\?.*\?=")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_DEEPEST = 16
_LONGEST = 4_096


def header_value(text: str) -> str:
    """As it is where it survives as a header, else wrapped."""
    if _SAFE.fullmatch(text) and text == text.strip() and not _WRAPPED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def parameter_headers(schema: Any, arguments: dict[str, Any]) -> list[tuple[str, str]]:
    """`Mcp-Param-…` for the properties whose schema says `x-mcp-header`."""
    found: list[tuple[str, str]] = []
    for path, token in _marked(schema, ()):
        text = _shown(_at(arguments, path))
        if text is not None and len(text) <= _LONGEST:
            found.append((f"Mcp-Param-{token}", header_value(text)))
    return found


def _marked(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(path) >= _DEEPEST:
        return
    for name, below in properties.items():
        token = below.get("x-mcp-header") if isinstance(below, dict) else None
        if isinstance(token, str) and _TOKEN.fullmatch(token):
            yield (*path, name), token
        yield from _marked(below, (*path, name))


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _shown(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None
