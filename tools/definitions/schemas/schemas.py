"""Compiles JSON Schema from untrusted authors.

A schema is code that others wrote: nothing it refers to is fetched, its patterns run on a linear
engine, and its size, depth and expansion are bounded when it is written, so that no instance can
make it slow.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from tools.definitions.schemas.patterns import unsupported_feature
from tools.definitions.schemas.schema_work import BadSchema, SchemaWork, schema_parts

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_SUBSCHEMAS = 2_000
MAX_PROPERTIES = 200
MAX_PATTERN = 512
MAX_ENUM = 1_000
MAX_ERRORS = 50
__all__ = ["BadSchema", "SchemaFlaw", "Validator", "check_bounds", "check_schema", "compile_schema"]

Schema = dict[str, Any]
_MOST_CHECKED = 20_000
_checked_digests = set[bytes]()  # digests of schemas that passed the check
_PATTERNS = jsonschema_rs.RegexOptions(size_limit=1 << 20)


@dataclass(frozen=True, slots=True)
class SchemaFlaw:
    """One error in a document, with its place."""

    place: str
    message: str

    def as_dict(self) -> dict[str, str]:
        return {"place": self.place, "message": self.message}


class Validator:
    """A compiled schema. Safe to share between threads."""

    def __init__(self, schema: Schema | bool) -> None:
        self._schema = schema
        self._compiled = _build_validator(schema)

    def flaws(self, instance: Any, *, masked: bool = False) -> list[SchemaFlaw]:
        """Everything wrong with the instance, at most `MAX_ERRORS` places; [] when it fits.

        With `masked`, messages contain no values, which may be secrets of another execution.
        """
        if self._compiled.is_valid(instance):
            return []
        telling = _build_validator(self._schema, mask="the value") if masked else self._compiled
        found = telling.iter_errors(instance)
        return [
            SchemaFlaw(_instance_pointer(error.instance_path), error.message[:500])
            for _, error in zip(range(MAX_ERRORS), found, strict=False)
        ]


def compile_schema(schema: Any) -> Validator:
    """A validator for a schema from outside. Raises `BadSchema`."""
    check_bounds(schema)
    return Validator(schema)


def check_schema(schema: Any) -> None:
    """Raises `BadSchema` as `compiled` does. A schema that passed once is not counted again: an
    import reads each definition several times, and hundreds that share their parts."""
    digest = hashlib.sha256(json.dumps(schema).encode()).digest()
    if digest in _checked_digests:
        return
    compile_schema(schema)
    if len(_checked_digests) >= _MOST_CHECKED:
        _checked_digests.clear()
    _checked_digests.add(digest)


def check_bounds(schema: Any) -> None:
    """Refuse a schema that could fetch, hang or exhaust (reliability notes, 4.8)."""
    if not isinstance(schema, dict | bool):
        raise BadSchema("a schema is an object, or true or false")
    if len(json.dumps(schema)) > MAX_BYTES:
        raise BadSchema(f"the schema is larger than {MAX_BYTES} bytes")
    for count, (place, depth, part) in enumerate(schema_parts(schema), start=1):
        if count > MAX_SUBSCHEMAS * 8 or depth > MAX_DEPTH * 2:
            raise BadSchema(f"the schema nests or branches too far at {place}")
        if isinstance(part, dict):
            _check_part(place, part)
    SchemaWork(schema).check()


def _check_part(place: str, part: Schema) -> None:
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        target = part.get(keyword)
        if isinstance(target, str) and not target.startswith("#"):
            raise BadSchema(f"{place}/{keyword} points outside the schema; nothing is fetched")
    for keyword in ("pattern", "$id", "$anchor", "$dynamicAnchor"):
        text = part.get(keyword)
        if isinstance(text, str) and len(text) > MAX_PATTERN:
            raise BadSchema(f"{place}/{keyword} is longer than {MAX_PATTERN} characters")
    for keyword, most in (("properties", MAX_PROPERTIES), ("enum", MAX_ENUM)):
        if isinstance(part.get(keyword), dict | list) and len(part[keyword]) > most:
            raise BadSchema(f"{place}/{keyword} has more than {most} entries")


def _build_validator(schema: Any, mask: str | None = None) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(
            schema, offline=True, validate_formats=True, pattern_options=_PATTERNS, mask=mask
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        where = _instance_pointer(getattr(error, "instance_path", []))
        pattern = getattr(error, "instance", None)
        reason = unsupported_feature(pattern) if isinstance(pattern, str) else None
        raise BadSchema(f"{where}: {reason or str(error).splitlines()[0][:300]}") from None


def _instance_pointer(path: list[str | int]) -> str:
    """A JSON pointer (RFC 6901); the whole document is `/`."""
    return "/" + "/".join(str(step).replace("~", "~0").replace("/", "~1") for step in path)
