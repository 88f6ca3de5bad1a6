"""Strict reading of a JSON object: every key known, every type exact, nothing guessed."""

from enum import StrEnum
from typing import Any, cast

from sandbox.errors import SpecInvalid

_LARGEST = 2**53


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
