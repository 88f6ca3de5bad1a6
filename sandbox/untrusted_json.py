"""Strict parsing of untrusted JSON: irregular input is refused, not repaired. It is also
copied into the sandbox, hence the standard library alone."""

import json
import math
import re
from typing import Any

DEPTH = 64
_LARGEST_INTEGER = 2**53
MOST_DIGITS = 300  # of an integer that is kept exactly: all are below the largest double
# A text without its end reaches to the document's: searching on behind each of its quotes would
# take time with the square of the length.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class HostileJson(ValueError):
    """The text says which rule was broken."""


def parse(raw: bytes, *, large_integers: bool = False) -> Any:
    """Strict UTF-8, depth at most 64, no duplicate keys, no NaN, no NUL, and integers to ±2^53 or,
    where they may be large, of up to `MOST_DIGITS` digits."""
    value = _decoded(raw, _strict_but_large if large_integers else _strict)
    if b"\\u" in raw:
        _check_texts(value)
    return value


def parse_repairable(raw: bytes) -> Any:
    """As `parse`, for a reader that repairs what it is given: NaN and infinities are floats, texts
    may hold NUL and half a surrogate pair, and integers have up to `MOST_DIGITS` digits."""
    return _decoded(raw, _repairable)


def check_depth(raw: bytes) -> None:
    """Before any recursive parser sees it. One pass removes the innermost level of all."""
    left = _STRING.sub(b"", raw).translate(_BRACKETS, _NOT_BRACKETS)
    for _ in range(DEPTH):
        if not left:
            return
        left = left.replace(b"[]", b"")
    if left:
        raise HostileJson("nested too deeply, or not closed")


def _decoded(raw: bytes, decoder: json.JSONDecoder) -> Any:
    check_depth(raw)
    try:
        return decoder.decode(raw.decode("utf-8", "strict"))
    except UnicodeDecodeError:
        raise HostileJson("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise HostileJson(f"not JSON: {error.msg}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise HostileJson("a key appears twice")
    return found


def _integer(text: str) -> int:
    if len(text) > 17 or abs(number := int(text)) > _LARGEST_INTEGER:
        raise HostileJson("an integer is out of range")
    return number


def _large_integer(text: str) -> int:
    if len(text.lstrip("-")) > MOST_DIGITS:
        raise HostileJson(f"an integer has more than {MOST_DIGITS} digits")
    return int(text)


def _number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise HostileJson("a number is out of range")
    return number


def _no_constant(text: str) -> Any:
    raise HostileJson(f"{text} is not JSON")


def _check_texts(value: Any) -> None:
    """Escapes can spell what the raw bytes could not: NUL and half a surrogate pair."""
    text = json.dumps(value, ensure_ascii=False)
    if "\\u0000" in text.replace("\\\\", ""):
        raise HostileJson("a text holds NUL")
    try:
        text.encode("utf-8", "strict")
    except UnicodeEncodeError:
        raise HostileJson("a text holds half a surrogate pair") from None


_strict = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_int=_integer,
    parse_float=_number,
    parse_constant=_no_constant,
)


_strict_but_large = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_int=_large_integer,
    parse_float=_number,
    parse_constant=_no_constant,
)


_repairable = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_large_integer, parse_float=_number
)
