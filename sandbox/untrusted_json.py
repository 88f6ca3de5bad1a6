"""Strict parsing of untrusted JSON: irregular input is refused, not repaired."""

import json
import math
import re
from enum import StrEnum
from typing import Any, cast

from sandbox.errors import SpecInvalid

DEPTH = 64
_LARGEST_INTEGER = 2**53
MOST_DIGITS = 300  # of an integer that is kept exactly: all are below the largest double
# A text without its end reaches to the document's: searching on behind each of its quotes would
# take time with the square of the length.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_LARGEST = 2**53


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


class Fields:
    """Take each key once by its type, then call `done`, which refuses unknown keys."""

    def __init__(self, wire: object) -> None:
        if not isinstance(wire, dict):
            raise SpecInvalid("expected an object")
        self._left: dict[str, Any] = dict(wire)

    def done[T](self, made: T) -> T:
        if self._left:
            raise SpecInvalid(f"unknown fields: {sorted(map(str, self._left))}")
        return made

    def has(self, key: str) -> bool:
        return key in self._left

    def value(self, key: str) -> Any:
        if key not in self._left:
            raise SpecInvalid(f"{key} is missing")
        return self._left.pop(key)

    def _typed(self, key: str, *kinds: type) -> Any:
        value = self.value(key)
        if type(value) not in kinds:
            raise SpecInvalid(f"{key} has the wrong type")
        return value

    def text(self, key: str) -> str:
        return cast(str, self._typed(key, str))

    def integer(self, key: str) -> int:
        return cast(int, _bounded(key, self._typed(key, int)))

    def number(self, key: str) -> float:
        return _bounded(key, self._typed(key, int, float))

    def flag(self, key: str) -> bool:
        return cast(bool, self._typed(key, bool))

    def mapping(self, key: str) -> dict[str, Any]:
        return cast(dict[str, Any], self._typed(key, dict))

    def optional_text(self, key: str) -> str | None:
        return cast(str | None, self._typed(key, str, type(None)))

    def optional_integer(self, key: str) -> int | None:
        return cast(int | None, self._typed(key, int, type(None)))

    def items(self, key: str) -> list[Any]:
        return list(self._typed(key, list, tuple))

    def texts(self, key: str) -> list[str]:
        values = self.items(key)
        if any(type(value) is not str for value in values):
            raise SpecInvalid(f"{key} must be texts")
        return values

    def integers(self, key: str) -> list[int]:
        values = self.items(key)
        if any(type(value) is not int for value in values):
            raise SpecInvalid(f"{key} must be whole numbers")
        return values

    def pairs(self, key: str) -> list[tuple[str, str]]:
        """Pairs of texts."""
        return [_pair(key, entry) for entry in self.items(key)]

    def member[E: StrEnum](self, key: str, kind: type[E]) -> E:
        text = self.text(key)
        if text not in kind:
            raise SpecInvalid(f"{key} is not one of {[str(one) for one in kind]}")
        return kind(text)


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


def _bounded(key: str, value: float) -> float:
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise SpecInvalid(f"{key} is out of range")
    return value


def _pair(key: str, entry: object) -> tuple[str, str]:
    if isinstance(entry, list | tuple) and len(entry) == 2:
        first, second = entry
        if isinstance(first, str) and isinstance(second, str):
            return first, second
    raise SpecInvalid(f"{key} must be pairs of texts")


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
