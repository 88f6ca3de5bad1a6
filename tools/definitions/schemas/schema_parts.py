"""Parts of a JSON Schema: resolved references, allowed kinds of value, members, and the schema of
the value at a JSON Pointer.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tools.definitions.schemas.json_schemas import Schema
from tools.definitions.values.json_pointers import is_index, parse_pointer

MAX_REFERENCE_DEPTH = 24
KINDS = ("null", "boolean", "integer", "fraction", "string", "array", "object")
EVERY_KIND = frozenset(KINDS)
OF_TYPE = {"number": ("integer", "fraction")}
# Keywords without effect on validation, or handled separately.
ANNOTATIONS = frozenset(
    {"description", "title", "examples", "default", "$comment", "$schema", "$id", "$defs",
     "definitions", "deprecated", "readOnly", "writeOnly", "$anchor"}
)  # fmt: skip
_DEEPEST = 12
_MOST_PARTS = 20_000
_AS_IS = frozenset({"const", "enum", "default", "examples", "required"})  # no schemas
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas"})
_APART = _AS_IS | _BY_NAME


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
    for name in parse_pointer(str(reference)):
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


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def abbreviate(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= 60 else f"{said[:57]}…"


@dataclass(frozen=True, slots=True)
class ReachedSchema:
    """`missing` says why there may be nothing; `never` that there is certainly nothing."""

    schema: Schema | bool
    missing: str = ""
    never: bool = False


def schema_at_pointer(schema: Any, pointer: str) -> ReachedSchema:
    """The schema of the value at the pointer, as far as it is known."""
    found = ReachedSchema(schema)
    for step in parse_pointer(pointer):
        below = _child_schema(schema, found.schema, step)
        missing = found.missing or below.missing
        found = ReachedSchema(below.schema, missing, found.never or below.never)
        if found.never:
            break
    return found


def inline_references(root: Any, schema: Any) -> Any:
    """Without references, so that it may be part of another schema; what is too deep is anything,
    and what comes after too many parts: a schema whose members are all like itself has no end."""
    return _ReferenceInliner(root).inline(schema, 0)


class _ReferenceInliner:
    def __init__(self, root: Any) -> None:
        self._root, self._left = root, _MOST_PARTS

    def inline(self, schema: Any, depth: int) -> Any:
        if isinstance(schema, list):
            return [self.inline(one, depth + 1) for one in schema]
        if not isinstance(schema, dict):
            return schema
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            return True
        if "$ref" in schema:
            target = resolve_local_reference(self._root, schema["$ref"])
            return True if target is None else self.inline(target, depth + 1)
        rest = {key: one for key, one in schema.items() if key not in {"$defs", "definitions"}}
        made = {key: self.inline(one, depth + 1) for key, one in rest.items() if key not in _APART}
        for word in _AS_IS & rest.keys():
            made[word] = rest[word]
        for word in _BY_NAME & rest.keys():  # whose members may have any name
            if isinstance(rest[word], dict):
                made[word] = {name: self.inline(one, depth + 1) for name, one in rest[word].items()}
        return made


def _child_schema(root: Any, schema: Any, step: str) -> ReachedSchema:
    meant = resolve_schema(root, schema)
    if meant is None or meant is True:
        return ReachedSchema(True)
    if meant is False:
        return ReachedSchema(False, "there is nothing", never=True)
    for word in ("anyOf", "oneOf"):
        if isinstance(meant.get(word), list):
            return _child_of_any(root, meant, word, step)
    for part in meant.get("allOf") or ():
        meant = intersect_schemas(meant, resolve_schema(root, part))
    if not isinstance(meant, dict):
        return ReachedSchema(True)
    return _child_of_one(meant, step)


def _child_of_any(root: Any, schema: Schema, word: str, step: str) -> ReachedSchema:
    """Certain only where no branch has it."""
    found = [_child_schema(root, one, step) for one in schema[word]]
    left = [one for one in found if not one.never]
    if not left:
        return found[0] if found else ReachedSchema(True)
    missing = next((one.missing for one in found if one.missing), "")
    return ReachedSchema({"anyOf": [one.schema for one in left]}, missing)


def _child_of_one(schema: Schema, step: str) -> ReachedSchema:
    allowed = allowed_kinds(schema)
    if "array" in allowed and is_index(step):
        return ReachedSchema(schema.get("items", True), f"there may be no item {step}")
    if "object" not in allowed:
        word = "array" if "array" in allowed else "value"
        return ReachedSchema(True, f"there is no {step} in a {word} of this kind", never=True)
    known, others = members(schema), schema.get("additionalProperties", True)
    if step not in known and others is False:
        return ReachedSchema(True, f"there is no {step}", never=True)
    here = known.get(step)
    given = step in (schema.get("required") or ()) or (isinstance(here, dict) and "default" in here)
    sure = given and allowed == {"object"}
    missing = "" if sure else f"{step} may be missing"
    below: Schema | bool = others if here is None else here
    return ReachedSchema(below, missing)
