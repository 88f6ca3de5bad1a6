"""Converts a JSON Schema into a table of arguments, where the table can represent all of it."""

from typing import Any

from tools.definitions.tool_parameters import parameters_schema
from tools.definitions.vocabulary import ParameterType
from tools.ui.editor.argument_rows import ArgumentRow, rows_of

_KINDS = {kind.lower(): str(kind) for kind in ParameterType}
_TOP = frozenset({"type", "properties", "required", "additionalProperties"})


class NotAsTable(Exception):
    """The message says what the table cannot represent."""


def unfolded(schema: Any) -> list[ArgumentRow]:
    """Raises `NotAsTable`. The only loss: unlisted properties, which a schema without
    `additionalProperties` allows by default, are no longer allowed."""
    properties = _properties(schema)
    required = schema.get("required") or []
    parameters = [_parameter(name, one, name in required) for name, one in properties.items()]
    if not _same(parameters_schema(parameters), schema | {"additionalProperties": False}):
        raise NotAsTable("It requires what its properties do not list.")
    return rows_of(parameters)


def _properties(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        raise NotAsTable("It has no properties that could become arguments.")
    more = sorted(str(key) for key in schema.keys() - _TOP)
    if more:
        raise NotAsTable(f"Outside its properties it says {', '.join(more)[:200]}.")
    if schema.get("additionalProperties", False) is not False:
        raise NotAsTable("It admits members that it does not list.")
    if not isinstance(schema.get("required", []), list):
        raise NotAsTable("Its field required is no list.")
    return dict(schema["properties"])


def _parameter(name: str, schema: Any, required: bool) -> dict[str, Any]:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise NotAsTable(f"Its property {name[:64]} has no single type.")
    left = {key: value for key, value in schema.items() if key != "type"}
    if not isinstance(left.get("description", ""), str):
        raise NotAsTable(f"The description of its property {name[:64]} is no text.")
    if left.get("default", 0) is None or left.get("enum", 0) is None:
        raise NotAsTable(f"Its property {name[:64]} says null where a table says nothing.")
    return {
        "name": name,
        "type": _KINDS[kind],
        "description": left.pop("description", ""),
        "required": required,
        "default": left.pop("default", None),
        "enum": left.pop("enum", None),
        "schema": left or None,
    }


def _same(made: dict[str, Any], given: dict[str, Any]) -> bool:
    """Whether both are equal, except missing descriptions and the order of `required`."""

    def told(schema: dict[str, Any]) -> Any:
        properties = {name: {"description": ""} | one for name, one in schema["properties"].items()}
        named = sorted(map(str, schema.get("required") or []))
        return schema | {"type": "object", "properties": properties, "required": named}

    return bool(told(made) == told(given))
