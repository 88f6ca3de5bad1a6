"""Repairs: deviations from the protocol, and what each was read as."""

import math
import re
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tools.definitions.schemas.schema_parts import child_pointer

LONGEST_MESSAGE = 500
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class Repair:
    """`place` is a JSON pointer below what was read."""

    place: str
    message: str

    def __str__(self) -> str:
        text = f"{self.place or '/'} {self.message}"
        return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"


def repair_empty_objects(value: Any, places: Iterable[str], repairs: list[Repair]) -> Any:
    """The value with {} in place of each [] at these JSON pointers, where an object is expected."""
    if value == [] and isinstance(value, list) and "/" in places:
        repairs.append(Repair("", "is [], which is read as {}"))
        return {}
    made = deepcopy(value)
    for place in places:
        *path, last = [step.replace("~1", "/").replace("~0", "~") for step in place.split("/")[1:]]
        at = made
        for step in path:
            at = _get_member(at, step)
        if _get_member(at, last) == []:
            at[last if isinstance(at, dict) else int(last)] = {}
            repairs.append(Repair(place, "is [], which is read as {}"))
    return made


def _get_member(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    indexed = isinstance(value, list) and step.isdecimal() and int(step) < len(value)
    return value[int(step)] if indexed else None


def clean_value(value: Any, repairs: list[Repair], place: str = "") -> Any:
    """The value without characters and numbers that JSON or a database cannot store: NUL and halves
    of surrogate pairs in texts become U+FFFD, NaN and infinities become null."""
    if isinstance(value, str):
        return _clean_text(value, repairs, place)
    if isinstance(value, dict):
        return {
            _clean_text(key, repairs, place): clean_value(item, repairs, child_pointer(place, key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [clean_value(item, repairs, f"{place}/{at}") for at, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        repairs.append(Repair(place, f"is {value}, which JSON does not have; it is read as null"))
        return None
    return value


def _clean_text(text: str, repairs: list[Repair], place: str) -> str:
    found = "" if text.isascii() and "\x00" not in text else _UNSTORABLE.sub(_REPLACEMENT, text)
    if not found or found == text:
        return text
    repairs.append(Repair(place, "contains NUL or half a surrogate pair; it is read as U+FFFD"))
    return found
