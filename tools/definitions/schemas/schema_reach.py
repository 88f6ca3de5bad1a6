"""Resolves a JSON Pointer against a schema: the schema of the value it points at."""

from dataclasses import dataclass
from typing import Any

from tools.definitions.chains import pointers
from tools.definitions.schemas.schema_parts import (
    allowed_kinds,
    intersect_schemas,
    members,
    resolve_local_reference,
    resolve_schema,
)
from tools.definitions.schemas.schemas import Schema

_DEEPEST = 12
_MOST_PARTS = 20_000
_AS_IS = frozenset({"const", "enum", "default", "examples", "required"})  # no schemas
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas"})
_APART = _AS_IS | _BY_NAME


@dataclass(frozen=True, slots=True)
class ReachedSchema:
    """`missing` says why there may be nothing; `never` that there is certainly nothing."""

    schema: Schema | bool
    missing: str = ""
    never: bool = False


def schema_at_pointer(schema: Any, pointer: str) -> ReachedSchema:
    """The schema of the value at the pointer, as far as it is known."""
    found = ReachedSchema(schema)
    for step in pointers.parse_pointer(pointer):
        below = _child_schema(schema, found.schema, step)
        missing = found.missing or below.missing
        found = ReachedSchema(below.schema, missing, found.never or below.never)
        if found.never:
            break
    return found


def inline_references(root: Any, schema: Any) -> Any:
    """Without references, so that it may be part of another schema; what is too deep is anything,
    and what comes after too many parts: a schema whose members are all like itself has no end."""
    return _ReferenceInliner(root).of(schema, 0)


class _ReferenceInliner:
    def __init__(self, root: Any) -> None:
        self._root, self._left = root, _MOST_PARTS

    def of(self, schema: Any, depth: int) -> Any:
        if isinstance(schema, list):
            return [self.of(one, depth + 1) for one in schema]
        if not isinstance(schema, dict):
            return schema
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            return True
        if "$ref" in schema:
            target = resolve_local_reference(self._root, schema["$ref"])
            return True if target is None else self.of(target, depth + 1)
        rest = {key: one for key, one in schema.items() if key not in {"$defs", "definitions"}}
        made = {key: self.of(one, depth + 1) for key, one in rest.items() if key not in _APART}
        for word in _AS_IS & rest.keys():
            made[word] = rest[word]
        for word in _BY_NAME & rest.keys():  # whose members may have any name
            if isinstance(rest[word], dict):
                made[word] = {name: self.of(one, depth + 1) for name, one in rest[word].items()}
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
    if "array" in allowed and pointers.is_index(step):
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
