"""Repairs of what servers of PHP, Go and others write: deviations from the protocol, what each was
read as, and schemas as equivalent JSON Schema.

PHP writes an empty map as `[]`, an empty list with `JSON_FORCE_OBJECT` as `{}`, and a list from
which something was filtered as an object of numbers; Go writes null for an empty map or list. A
schema that is well-formed comes back equal, so that its digest stays.
"""

import math
import re
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tools.definitions.values.json_pointers import child_pointer, parse_pointer

LONGEST_MESSAGE = 500
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\ufffd"
_MAPS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas",
     "dependentRequired", "dependencies"}
)  # fmt: skip
_SCHEMAS = frozenset(
    {"items", "additionalProperties", "additionalItems", "unevaluatedProperties",
     "unevaluatedItems", "contains", "propertyNames", "not", "if", "then", "else"}
)  # fmt: skip
_LISTS_OF_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_LISTS = frozenset({"required", "enum"})
_NULL_MEANS_NOTHING = (
    _MAPS | _SCHEMAS | _LISTS_OF_SCHEMAS | _LISTS
    | {"type", "title", "description", "format", "pattern", "minimum", "maximum",
       "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems",
       "maxItems", "uniqueItems", "minProperties", "maxProperties", "$ref", "$schema", "$id",
       "$comment", "deprecated", "readOnly", "writeOnly"}
)  # fmt: skip


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
        *path, last = parse_pointer(place)
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


def well_formed_schema(schema: Any, repairs: list[Repair], place: str = "") -> Any:
    """Anything that is no schema comes back as it is: its compilation reports what is wrong."""
    if schema == [] and isinstance(schema, list):
        repairs.append(Repair(place, "is [], which is read as {}"))
        return {}
    if not isinstance(schema, dict):
        return schema
    return _repair_schema(schema, repairs, place)


def _repair_schema(schema: dict[str, Any], repairs: list[Repair], place: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in schema.items():
        here = child_pointer(place, key)
        if value is None and key in _NULL_MEANS_NOTHING:
            repairs.append(Repair(here, "is null, which is read as if it were not there"))
        elif key in _MAPS:
            made[key] = _repair_map(value, repairs, here)
        elif key in _LISTS_OF_SCHEMAS | {"items"} and isinstance(value, list) and value:
            made[key] = [
                _repair_subschema(item, repairs, f"{here}/{at}") for at, item in enumerate(value)
            ]
        elif key in _SCHEMAS:
            made[key] = _repair_subschema(value, repairs, here)
        elif key in _LISTS and isinstance(value, dict):
            made[key] = _repair_list(value, repairs, here)
        else:
            made[key] = value
    return _lift_required(made, repairs, place)


def _repair_subschema(value: Any, repairs: list[Repair], place: str) -> Any:
    if isinstance(value, dict):
        return _repair_schema(value, repairs, place)
    return _repair_empty_object(value, repairs, place)


def _repair_map(value: Any, repairs: list[Repair], place: str) -> Any:
    value = _repair_empty_object(value, repairs, place)
    if not isinstance(value, dict):
        return value
    lists = place.endswith(("/dependentRequired", "/dependencies"))
    return {
        name: item
        if lists and isinstance(item, list)
        else _repair_subschema(item, repairs, child_pointer(place, name))
        for name, item in value.items()
    }


def _repair_empty_object(value: Any, repairs: list[Repair], place: str) -> Any:
    if not (isinstance(value, list) and not value):
        return value
    repairs.append(Repair(place, "is [], which is read as {}"))
    return {}


def _repair_list(value: dict[str, Any], repairs: list[Repair], place: str) -> Any:
    """Of an object whose names are numbers alone: the list of its values."""
    if not all(name.isdecimal() for name in value):
        return value
    repairs.append(Repair(place, "is an object, which is read as the list of its values"))
    return [*value.values()]


def _lift_required(schema: dict[str, Any], repairs: list[Repair], place: str) -> dict[str, Any]:
    """In drafts before 4 a property itself is marked as required."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    marks = {
        name: part["required"]
        for name, part in properties.items()
        if isinstance(part, dict) and isinstance(part.get("required"), bool)
    }
    required = schema.get("required", [])
    if not marks or not isinstance(required, list):
        return schema
    for name in marks:
        repairs.append(
            Repair(
                f"{child_pointer(f'{place}/properties', name)}/required", "is read as its parent's"
            )
        )
    plain = {
        name: {key: item for key, item in part.items() if key != "required"}
        if name in marks
        else part
        for name, part in properties.items()
    }
    wanted = [name for name, must in marks.items() if must and name not in required]
    return schema | {"properties": plain, "required": [*required, *wanted]}
