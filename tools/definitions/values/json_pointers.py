"""JSON Pointers (RFC 6901): parsed, written, and resolved in a value."""

import re
from collections.abc import Iterable
from typing import Any

LONGEST_POINTER = 1_000
INVALID_ESCAPE = re.compile(r"~(?![01])")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


class NothingAtPointer(LookupError):
    """There is nothing at this place."""


def pointer_flaw(pointer: str) -> str | None:
    if len(pointer) > LONGEST_POINTER:
        return f"is longer than {LONGEST_POINTER} characters"
    if pointer and not pointer.startswith("/"):
        return "must be empty or begin with /"
    if INVALID_ESCAPE.search(pointer):
        return "has a ~ that stands before neither 0 nor 1 (RFC 6901)"
    return None


def parse_pointer(pointer: str) -> list[str]:
    return [unescape(step) for step in pointer.split("/")[1:]]


def unescape(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")


def format_pointer(steps: Iterable[str | int]) -> str:
    """The pointer to a place; "" for the whole value."""
    return "".join(child_pointer("", str(step)) for step in steps)


def child_pointer(pointer: str, name: str) -> str:
    return f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"


def resolve_pointer(value: Any, pointer: str) -> Any:
    """Raises `NothingAtPointer`."""
    for step in parse_pointer(pointer):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and is_index(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            raise NothingAtPointer(f"there is nothing at {pointer}")
    return value


def is_index(step: str) -> bool:
    return _INDEX.fullmatch(step) is not None
