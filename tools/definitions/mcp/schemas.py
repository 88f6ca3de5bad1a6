"""Normalizes schemas that servers of PHP, Go and others write to equivalent JSON Schema.

PHP writes an empty map as `[]`, an empty list with `JSON_FORCE_OBJECT` as `{}`, and a list from
which something was filtered as an object of numbers; Go writes null for an empty map or list. A
schema that is well-formed comes back equal, so that its digest stays.
"""

from typing import Any

from tools.definitions.mcp.repairs import Repair
from tools.definitions.schemas.schema_parts import child_pointer

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
