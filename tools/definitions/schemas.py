"""JSON Schema, compiled once and never trusted.

A schema is code that others wrote: nothing it refers to is fetched, its patterns run on a linear
engine, and its size, depth and expansion are bounded when it is written, so that no instance can
make it slow.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_SUBSCHEMAS = 2_000
MAX_PROPERTIES = 200
MAX_PATTERN = 512
MAX_ENUM = 1_000
MAX_EXPANSION = 10_000
MAX_CHAIN = 100
MAX_ERRORS = 50

Schema = dict[str, Any]
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref", "$dynamicRef")
_PATTERNS = jsonschema_rs.RegexOptions(size_limit=1 << 20)


class BadSchema(ValueError):
    """The schema may not be used; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """One place of a document that does not fit."""

    place: str
    message: str

    def as_dict(self) -> dict[str, str]:
        return {"place": self.place, "message": self.message}


class Validator:
    """A compiled schema. Safe to share between threads."""

    def __init__(self, schema: Schema | bool) -> None:
        self._compiled = _compile(schema)

    def flaws(self, instance: Any) -> list[Flaw]:
        """Everything wrong with the instance, at most `MAX_ERRORS` places; [] when it fits."""
        if self._compiled.is_valid(instance):
            return []
        found = self._compiled.iter_errors(instance)
        return [
            Flaw(_pointer(error.instance_path), error.message[:500])
            for _, error in zip(range(MAX_ERRORS), found, strict=False)
        ]


def compiled(schema: Any) -> Validator:
    """A validator for a schema from outside. Raises `BadSchema`."""
    check_bounds(schema)
    return Validator(schema)


def check_bounds(schema: Any) -> None:
    """Refuse a schema that could fetch, hang or exhaust (reliability notes, 4.8)."""
    if not isinstance(schema, dict | bool):
        raise BadSchema("a schema is an object, or true or false")
    if len(json.dumps(schema)) > MAX_BYTES:
        raise BadSchema(f"the schema is larger than {MAX_BYTES} bytes")
    for count, (place, depth, part) in enumerate(_parts(schema), start=1):
        if count > MAX_SUBSCHEMAS * 8 or depth > MAX_DEPTH * 2:
            raise BadSchema(f"the schema nests or branches too far at {place}")
        if isinstance(part, dict):
            _check_part(place, part)
    _Expansion(schema).check()


def _parts(schema: Any) -> Iterator[tuple[str, int, Any]]:
    pending: list[tuple[str, int, Any]] = [("", 0, schema)]
    while pending:
        place, depth, part = pending.pop()
        yield place or "/", depth, part
        if isinstance(part, dict):
            pending += [(f"{place}/{key}", depth + 1, value) for key, value in part.items()]
        elif isinstance(part, list):
            pending += [(f"{place}/{at}", depth + 1, value) for at, value in enumerate(part)]


def _check_part(place: str, part: Schema) -> None:
    for keyword in ("$ref", "$dynamicRef"):
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


class _Expansion:
    """How many subschemas one value may have to be held against.

    Only keywords that apply to the same value are followed; what applies to a part of it is
    bounded by the instance. A cycle among them would never end.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[int, int] = {}
        self._open: set[int] = set()

    def check(self) -> None:
        for place, _, part in _parts(self._root):
            if isinstance(part, dict) and self._of(part, place) > MAX_EXPANSION:
                raise BadSchema(f"{place} expands to more than {MAX_EXPANSION} subschemas")

    def _of(self, part: Any, place: str) -> int:
        if not isinstance(part, dict):
            return 1
        if id(part) in self._known:
            return self._known[id(part)]
        if id(part) in self._open:
            raise BadSchema(f"{place} refers to itself without end")
        if len(self._open) > MAX_CHAIN:
            raise BadSchema(f"{place} stands on more than {MAX_CHAIN} references in a row")
        self._open.add(id(part))
        total = 1 + sum(self._of(child, place) for child in self._children(part, place))
        self._open.discard(id(part))
        self._known[id(part)] = min(total, MAX_EXPANSION + 1)
        return self._known[id(part)]

    def _children(self, part: Schema, place: str) -> Iterator[Any]:
        for keyword in _IN_PLACE:
            value = part.get(keyword)
            if isinstance(value, str) and keyword.endswith("ef"):
                yield self._target(value, place)
            elif isinstance(value, list):
                yield from value
            elif isinstance(value, dict):
                yield value
        dependent = part.get("dependentSchemas")
        yield from dependent.values() if isinstance(dependent, dict) else ()

    def _target(self, reference: str, place: str) -> Any:
        if reference.startswith("#") and "/" not in reference and reference != "#":
            return self._anchor(reference[1:], place)
        part = self._root
        for escaped in reference.removeprefix("#").split("/")[1:]:
            step = escaped.replace("~1", "/").replace("~0", "~")
            if isinstance(part, list) and step.isdigit() and int(step) < len(part):
                part = part[int(step)]
            elif isinstance(part, dict) and step in part:
                part = part[step]
            else:
                raise BadSchema(f"{place} refers to {reference}, which is not there")
        return part

    def _anchor(self, name: str, place: str) -> Any:
        for _, _, part in _parts(self._root):
            if isinstance(part, dict) and name in (part.get("$anchor"), part.get("$dynamicAnchor")):
                return part
        raise BadSchema(f"{place} refers to #{name}, which is not there")


def _compile(schema: Any) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(
            schema, offline=True, validate_formats=True, pattern_options=_PATTERNS
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        where = _pointer(getattr(error, "instance_path", []))
        raise BadSchema(f"{where}: {str(error).splitlines()[0][:300]}") from None


def _pointer(path: list[str | int]) -> str:
    """A JSON pointer (RFC 6901); the whole document is `/`."""
    return "/" + "/".join(str(step).replace("~", "~0").replace("/", "~1") for step in path)
