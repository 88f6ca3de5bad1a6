"""JSON Pointers (RFC 6901) into values of a chain."""

import re
from typing import Any

LONGEST_POINTER = 1_000
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_INVALID_ESCAPE = re.compile(r"~(?![01])")


class NothingAtPointer(LookupError):
    """There is nothing at this place."""


def pointer_flaw(pointer: str) -> str | None:
    if len(pointer) > LONGEST_POINTER:
        return f"is longer than {LONGEST_POINTER} characters"
    if pointer and not pointer.startswith("/"):
        return "must be empty or begin with /"
    if _INVALID_ESCAPE.search(pointer):
        return "has a ~ that stands before neither 0 nor 1 (RFC 6901)"
    return None


def parse_pointer(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def resolve_pointer(value: Any, pointer: str) -> Any:
    """Raises `NothingAtPointer`."""
    for step in parse_pointer(pointer):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and _INDEX.fullmatch(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            raise NothingAtPointer(f"there is nothing at {pointer}")
    return value


def is_index(step: str) -> bool:
    return _INDEX.fullmatch(step) is not None
