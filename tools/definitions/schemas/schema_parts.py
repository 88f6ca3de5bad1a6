"""Parts of a JSON Schema: resolved references, the allowed kinds of value, its members."""

from collections.abc import Iterable
from typing import Any

from tools.definitions.schemas.schemas import Schema

MAX_REFERENCE_DEPTH = 24
KINDS = ("null", "boolean", "integer", "fraction", "string", "array", "object")
EVERY_KIND = frozenset(KINDS)
OF_TYPE = {"number": ("integer", "fraction")}
# Keywords without effect on validation, or handled separately.
ANNOTATIONS = frozenset(
    {"description", "title", "examples", "default", "$comment", "$schema", "$id", "$defs",
     "definitions", "deprecated", "readOnly", "writeOnly", "$anchor"}
)  # fmt: skip


def resolve_schema(root: Any, schema: Any) -> Any:
    """The resolved schema, as an object, true or false; None where it is unknown."""
    for _ in range(MAX_REFERENCE_DEPTH):
        if not isinstance(schema, dict):
            return schema if isinstance(schema, bool) else None
        reference = schema.get("$ref")
        if reference is None:
            return None if schema.keys() & {"$dynamicRef", "$recursiveRef"} else schema
        target = resolve_local_reference(root, reference)
        if target is None:
            return None
        beside = {key: value for key, value in schema.items() if key not in {"$ref", *ANNOTATIONS}}
        schema = {**beside, "allOf": [*beside.get("allOf", ()), target]} if beside else target
    return None


def resolve_local_reference(root: Any, reference: Any) -> Any:
    """The target of a reference by JSON pointer; None for any other."""
    if reference != "#" and not str(reference).startswith("#/"):
        return None
    part = root
    for step in str(reference).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(part, list) and name.isdecimal() and int(name) < len(part):
            part = part[int(name)]
        elif isinstance(part, dict) and name in part:
            part = part[name]
        else:
            return None
    return part


def intersect_schemas(one: Any, other: Any) -> Any:
    """A schema that allows at least what both allow, and mostly no more."""
    if other is False or one is False:
        return False
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one if isinstance(one, dict) else other
    whole = {**one, **other}
    if "properties" in one and "properties" in other:
        whole["properties"] = {**members(one), **members(other)}
    if "required" in one and "required" in other:
        whole["required"] = [*one["required"], *other["required"]]
    if "type" in one and "type" in other:
        whole["type"] = json_types(allowed_kinds(one) & allowed_kinds(other))
    return whole


def json_types(kinds: Iterable[str]) -> list[str]:
    return sorted({"number" if kind == "fraction" else kind for kind in kinds})


def with_definitions(root: Any, schema: Schema) -> Schema:
    """A part of a schema that can be compiled: its references still resolve."""
    whole = root if isinstance(root, dict) else {}
    defined = {key: whole[key] for key in ("$defs", "definitions") if key in whole}
    return {**defined, **schema}


def listed_values(schema: Schema) -> list[Any] | None:
    """All allowed values, where the schema lists them."""
    if "const" in schema:
        return [schema["const"]]
    return schema["enum"] if isinstance(schema.get("enum"), list) else None


def allowed_kinds(schema: Schema) -> frozenset[str]:
    said = schema.get("type")
    if said is None:
        return EVERY_KIND
    names = [said] if isinstance(said, str) else said
    return frozenset(kind for name in names for kind in OF_TYPE.get(name, (name,))) & EVERY_KIND


def value_kind(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "integer" if float(value).is_integer() else "fraction"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def kind_names(kinds: Iterable[str]) -> str:
    """Kinds as JSON Schema calls them: `string`, `number or null`."""
    names = set(kinds)
    if {"integer", "fraction"} <= names:
        names = names - {"integer", "fraction"} | {"number"}
    if "fraction" in names:
        names = names - {"fraction"} | {"a number with a fraction"}
    return " or ".join(sorted(names)) or "nothing"


def members(schema: Schema) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def child_pointer(path: str, name: str) -> str:
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def abbreviate(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= 60 else f"{said[:57]}…"
