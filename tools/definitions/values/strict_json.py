"""A strict parser of untrusted JSON (API contract, "JSON at the edge").

Two readers of one document must never disagree, so everything on which they could is refused:
duplicate keys, NUL, lone surrogates, NaN and Infinity, integers beyond 2^53, deep nesting. And
what would take long to read is refused before it does.
"""

import json
import math
import re
from typing import Any, NoReturn

MAX_DEPTH = 64
MAX_INTEGER = 2**53
MAX_DIGITS = 300  # of an integer in a parsed value: all are below the largest double
MAX_VALUES = 500_000
# Possessive, and an unterminated text reaches to the document's end: no document is read twice.
_STRUCTURE = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
TOO_LARGE = 10**MAX_DIGITS


class BadJson(ValueError):
    """The text is not valid or not allowed JSON; the message says why."""


def parse(raw: bytes | str, *, most_values: int = MAX_VALUES) -> Any:
    """The value of a JSON document. Raises `BadJson`."""
    text = _decode(raw)
    _check_depth(text, most_values)
    value = _load(text, parse_constant=_constant, parse_int=_integer, parse_float=_number)
    check(value, most_values=most_values)
    return value


def parse_exact(text: str) -> Any:
    """As `parse`, with whole numbers of up to `MAX_DIGITS` digits. Raises `BadJson`."""
    value = parse_repairable(text)
    check(value)
    return value


def parse_repairable(text: str) -> Any:
    """As `parse`, for a reader that checks or repairs the numbers and texts: whole numbers have
    up to `MAX_DIGITS` digits, a number that no double holds is infinite, and texts may hold NUL
    and halves of surrogate pairs. Raises `BadJson`."""
    _check_depth(text, MAX_VALUES)
    value = _load(text, parse_int=_large_integer)
    check(value, scalars=False)
    return value


def _load(text: str, **hooks: Any) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object, **hooks)
    except json.JSONDecodeError as error:
        raise BadJson(
            f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None


def parse_leading(text: str) -> Any:
    """The object or list that a text begins with, whatever follows it. Raises `BadJson`."""
    if text[:1] not in ("{", "["):
        raise BadJson("not JSON: no object begins here")
    depth = 0
    for count, found in enumerate(_STRUCTURE.finditer(text)):
        depth = _depth_after(found.group(), depth, count, MAX_VALUES)
        if depth == 0:
            return parse(text[: found.end()])
    raise BadJson("not JSON: it has no end")


def check(
    value: Any, *, depth: int = 0, most_values: int = MAX_VALUES, scalars: bool = True
) -> None:
    """Refuse a value that `parse` would not have accepted, except for large integers: a tool's
    output is passed on exactly. `depth` is its level in the document that it becomes a part of;
    without `scalars` only its size and depth are checked."""
    pending, seen = [(value, depth)], 0
    while pending:
        item, depth = pending.pop()
        seen += 1
        if seen + len(pending) > most_values:
            raise BadJson(f"more than {most_values} values")
        if isinstance(item, dict):
            depth += 1
            for key, part in item.items():
                if scalars:
                    _check_scalar(key)
                pending.append((part, depth))
            seen += len(item)
        elif isinstance(item, list | tuple):
            depth += 1
            pending += [(part, depth) for part in item]
        else:
            if scalars:
                _check_scalar(item)
            continue
        if depth > MAX_DEPTH:
            raise BadJson(f"nested deeper than {MAX_DEPTH} levels")


def _check_scalar(item: Any) -> None:
    if isinstance(item, str):
        if not item.isascii() or "\x00" in item:
            _check_text(item)
    elif isinstance(item, float) and not math.isfinite(item):
        _constant(str(item))
    elif isinstance(item, int) and abs(item) >= TOO_LARGE:
        raise BadJson(f"a whole number has more than {MAX_DIGITS} digits")


def _decode(raw: bytes | str) -> str:
    if isinstance(raw, str):
        return raw
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadJson(f"not UTF-8 at byte {error.start}") from None


def _check_depth(text: str, most_values: int) -> None:
    """Counted before parsing: the parser itself would meet its recursion limit."""
    depth = 0
    for count, found in enumerate(_STRUCTURE.finditer(text)):
        depth = _depth_after(found.group(), depth, count, most_values)


def _depth_after(mark: str, depth: int, count: int, most_values: int) -> int:
    """The depth of the text after a token, a bracket or a whole text, of which `count` came
    before."""
    if count > 2 * most_values:
        raise BadJson(f"more than {most_values} values")
    if mark in "[{" and depth >= MAX_DEPTH:
        raise BadJson(f"nested deeper than {MAX_DEPTH} levels")
    return depth + (mark in "[{") - (mark in "]}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise BadJson(f"the key {key[:60]!r} stands twice in one object")
        result[key] = value
    return result


def _check_text(text: str) -> None:
    if "\x00" in text:
        raise BadJson("a text holds a NUL character")
    if _SURROGATE.search(text):
        raise BadJson("a text holds half of a surrogate pair")


def _integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > MAX_INTEGER:
        raise BadJson("a whole number is beyond 2^53; send it as a text")
    return int(text)


def _large_integer(text: str) -> int | float:
    return int(text) if len(text.lstrip("-")) <= MAX_DIGITS else float(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _constant(text)
    return value


def _constant(text: str) -> NoReturn:
    raise BadJson(f"{text[:20]} is not a number JSON knows")
