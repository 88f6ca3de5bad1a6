"""What of a message stands in headers as well (2026-07-28)."""

import base64
import re
from collections.abc import Iterator
from typing import Any

_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_ENCODED_VALUE = re.compile(r"=\?base64\?.*\?=")
_HEADER_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_SCALAR_TYPES = ("string", "integer", "boolean")
_DEEPEST_PROPERTY = 16
_LONGEST_HEADER_VALUE = 4_096


def encode_header_value(text: str) -> str:
    """As it is where it survives as a header, else wrapped."""
    if _PRINTABLE.fullmatch(text) and text == text.strip() and not _ENCODED_VALUE.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def parameter_headers(schema: Any, arguments: dict[str, Any]) -> list[tuple[str, str]]:
    """`Mcp-Param-…` for the properties whose schema says `x-mcp-header`."""
    found: list[tuple[str, str]] = []
    for path, token in _sendable_header_properties(schema, ()):
        text = _scalar_text(_nested_value(arguments, path))
        if text is not None and len(text) <= _LONGEST_HEADER_VALUE:
            found.append((f"Mcp-Param-{token}", encode_header_value(text)))
    return found


def has_sendable_headers(schema: Any) -> bool:
    """Whether a tool's headers can be sent as its schema says; else it must not be offered."""
    marks = list(_header_properties(schema, ()))
    tokens = [one["x-mcp-header"] for _, one in marks]
    if not all(isinstance(token, str) and _HEADER_TOKEN.fullmatch(token) for token in tokens):
        return False
    plain = all(_is_scalar_type(one.get("type")) for _, one in marks)
    return plain and len({token.lower() for token in tokens}) == len(tokens)


def _is_scalar_type(kind: Any) -> bool:
    kinds = [one for one in kind if one != "null"] if isinstance(kind, list) else [kind]
    return bool(kinds) and all(one in _SCALAR_TYPES for one in kinds)


def _sendable_header_properties(
    schema: Any, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    for place, one in _header_properties(schema, path):
        token = one["x-mcp-header"]
        if isinstance(token, str) and _HEADER_TOKEN.fullmatch(token):
            yield place, token


def _header_properties(
    schema: Any, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(path) >= _DEEPEST_PROPERTY:
        return
    for name, below in properties.items():
        if isinstance(below, dict) and "x-mcp-header" in below:
            yield (*path, name), below
        yield from _header_properties(below, (*path, name))


def _nested_value(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _scalar_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None
