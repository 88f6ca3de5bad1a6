"""Validates administrators' input about the sandbox: every wrong field is named."""

from collections.abc import Callable, Iterable
from typing import Any, Self

from sandbox.errors import SpecInvalid
from tools.definitions.fields import DefinitionFields


class ListedFields(DefinitionFields):
    """Fields with lists of numbers or texts, and with objects in lists."""

    def reject_unknown(self, allowed: Iterable[str]) -> None:
        for key in sorted(set(map(str, self.raw)) - set(allowed)):
            self.wrong(key[:60], "is not known here")

    def inside(self, place: str, raw: dict[str, Any]) -> Self:
        """The fields of an object at `place`."""
        return type(self)(raw, self.flaws, f"{self.prefix}{place}.")

    def note(self, name: str, flaw: str | None) -> bool:
        """True when there was a flaw to note."""
        if flaw is None:
            return False
        self.wrong(name, flaw)
        return True

    def distinct(self, name: str, kind: type, *, most: int) -> list[Any]:
        """A list of different values of one type; at least one."""
        value = self.raw.get(name)
        if (
            isinstance(value, list)
            and 0 < len(value) <= most
            and all(type(one) is kind for one in value)
            and len(set(value)) == len(value)
        ):
            return value
        words = {int: "whole numbers", str: "texts"}[kind]
        self.wrong(name, f"must be a list of 1 to {most} different {words}")
        return []


def described(check: Callable[[], object]) -> str | None:
    """What a check of the sandbox's finds wrong, or None."""
    try:
        check()
    except SpecInvalid as error:
        return str(error)
    return None
