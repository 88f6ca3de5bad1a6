"""Compiles JSON Schema from untrusted authors, and bounds its cost before it is ever used.

A schema is code that others wrote: nothing it refers to is fetched, its patterns run on a linear
engine, and its size, depth and expansion are bounded when it is written. A few references can make
a validator hold one value against a schema millions of times, and no validator we know can be
stopped while it does. So the count is made when the schema is written: keywords that apply to the
same value add up, and parts of a value that exclude each other (two properties, a property and an
item) do not.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs

from tools.definitions.schemas.patterns import unsupported_feature
from tools.definitions.values.json_pointers import format_pointer, parse_pointer

MAX_EXPANSION = 10_000
MAX_CHAIN = 100
MAX_WORK = 100_000
MAX_INSTANCE_DEPTH = 64  # nothing deeper passes the JSON reader

_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_IN_PLACE_MAPS = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_OF_OBJECTS = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_OF_ARRAYS = ("items", "contains", "additionalItems", "unevaluatedItems")
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


class BadSchema(ValueError):
    """The schema may not be used; the message says where and why."""


@dataclass
class _ValueCost:
    """What one value costs: here, per property, in any property, in any item."""

    here: int = 1
    keys: dict[str, int] = field(default_factory=dict)
    members: int = 0
    items: int = 0

    @property
    def total(self) -> int:
        return self.here + max(max(self.keys.values(), default=0) + self.members, self.items)

    def add(self, other: "_ValueCost") -> None:
        self.here += other.here
        self.members += other.members
        self.items += other.items
        for key, cost in other.keys.items():
            self.keys[key] = self.keys.get(key, 0) + cost


@dataclass(frozen=True, slots=True)
class _SchemaPart:
    """A schema, by what it applies to the parts of a value and to the value itself."""

    below: list[tuple[str, str, int]]
    in_place: list[int]

    def stands_on(self, dearer: set[int], fresh: set[int]) -> bool:
        return any(key in fresh for key in self.in_place) or any(
            key in dearer for _, _, key in self.below
        )

    def load(self, costs: dict[int, int], loads: dict[int, _ValueCost]) -> _ValueCost:
        """`costs` are those of values one level less deep."""
        load = _ValueCost()
        for kind, name, child in self.below:
            cost = costs.get(child, 1)
            if kind == "key":
                load.keys[name] = load.keys.get(name, 0) + cost
            elif kind == "member":
                load.members += cost
            else:
                load.items += cost
        for key in self.in_place:
            load.add(loads[key])
        return load


class SchemaWork:
    """The work of one schema. `check` raises `BadSchema` for one that is too much."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._sizes: dict[int, int] = {}
        self._open: set[int] = set()

    def check(self) -> None:
        for place, _, part in schema_parts(self._root):
            if isinstance(part, dict) and self._size(part, place) > MAX_EXPANSION:
                raise BadSchema(f"{place} expands to more than {MAX_EXPANSION} subschemas")
        self._check_depths()

    def _check_depths(self) -> None:
        """The cost of values that are 0, 1, 2 … levels deep, until it no longer grows.

        Most schemas are not recursive: at each level only those are summed again whose parts became
        more expensive at the level before.
        """
        reached = self._reachable_parts()
        costs, loads, dearer = dict.fromkeys(reached, 0), dict[int, _ValueCost](), set(reached)
        for _ in range(MAX_INSTANCE_DEPTH):
            fresh = set[int]()
            for key, part in reached.items():
                if key not in loads or part.stands_on(dearer, fresh):
                    loads[key] = part.load(costs, loads)
                    fresh.add(key)
            totals = {key: loads[key].total for key in fresh}
            if max(totals.values(), default=0) > MAX_WORK:
                raise BadSchema("the schema refers to itself, or to others, in too many ways")
            dearer = {key for key, total in totals.items() if total != costs[key]}
            if not dearer:
                return
            costs |= totals

    def _reachable_parts(self) -> dict[int, "_SchemaPart"]:
        """Each after those that apply to the same value."""
        found: dict[int, _SchemaPart] = {}
        pending = [self._root] if isinstance(self._root, dict) else []
        while pending:
            pending += self._note(pending.pop(), found)
        return found

    def _note(
        self, part: dict[str, Any], found: dict[int, "_SchemaPart"]
    ) -> Iterator[dict[str, Any]]:
        """The parts below that are still to be noted. As deep as `_size` has let pass."""
        if id(part) in found:
            return
        below = [*_child_schemas(part)]
        in_place = [one for one in self._in_place(part, "the schema") if isinstance(one, dict)]
        for one in in_place:
            yield from self._note(one, found)
        found[id(part)] = _SchemaPart(
            [(kind, key, id(child)) for kind, key, child in below], [id(one) for one in in_place]
        )
        yield from (child for _, _, child in below if isinstance(child, dict))

    def _size(self, part: Any, place: str) -> int:
        """How many subschemas apply to one value. A cycle among them would never end."""
        if not isinstance(part, dict):
            return 1
        if id(part) in self._sizes:
            return self._sizes[id(part)]
        if id(part) in self._open:
            raise BadSchema(f"{place} refers to itself without end")
        if len(self._open) > MAX_CHAIN:
            raise BadSchema(f"{place} stands on more than {MAX_CHAIN} references in a row")
        self._open.add(id(part))
        total = 1 + sum(self._size(child, place) for child in self._in_place(part, place))
        self._open.discard(id(part))
        self._sizes[id(part)] = min(total, MAX_EXPANSION + 1)
        return self._sizes[id(part)]

    def _in_place(self, part: dict[str, Any], place: str) -> Iterator[Any]:
        for keyword in _REFERENCES:
            if isinstance(part.get(keyword), str):
                yield self._target(part[keyword], place)
        for keyword in _IN_PLACE:
            value = part.get(keyword)
            yield from value if isinstance(value, list) else [value] if value is not None else []
        for keyword in _IN_PLACE_MAPS:
            value = part.get(keyword)
            yield from value.values() if isinstance(value, dict) else ()

    def _target(self, reference: str, place: str) -> Any:
        if reference.startswith("#") and "/" not in reference and reference != "#":
            return self._anchor(reference[1:], place)
        part = self._root
        for step in parse_pointer(reference):
            if isinstance(part, list) and step.isdigit() and int(step) < len(part):
                part = part[int(step)]
            elif isinstance(part, dict) and step in part:
                part = part[step]
            else:
                raise BadSchema(f"{place} refers to {reference}, which is not there")
        return part

    def _anchor(self, name: str, place: str) -> Any:
        for _, _, part in schema_parts(self._root):
            if isinstance(part, dict) and name in (part.get("$anchor"), part.get("$dynamicAnchor")):
                return part
        raise BadSchema(f"{place} refers to #{name}, which is not there")


def schema_parts(schema: Any) -> Iterator[tuple[str, int, Any]]:
    """Every part of a schema with its place and depth."""
    pending: list[tuple[str, int, Any]] = [("", 0, schema)]
    while pending:
        place, depth, part = pending.pop()
        yield place or "/", depth, part
        if isinstance(part, dict):
            pending += [(f"{place}/{key}", depth + 1, value) for key, value in part.items()]
        elif isinstance(part, list):
            pending += [(f"{place}/{at}", depth + 1, value) for at, value in enumerate(part)]


def _child_schemas(part: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """The schemas for the parts of a value: for one property, for any member, for the items."""
    properties = part.get("properties")
    for key, child in properties.items() if isinstance(properties, dict) else ():
        yield "key", key, child
    patterns = part.get("patternProperties")
    for child in patterns.values() if isinstance(patterns, dict) else ():
        yield "member", "", child
    for keyword in _OF_OBJECTS:
        if keyword in part:
            yield "member", "", part[keyword]
    for keyword in _OF_ARRAYS:
        value = part.get(keyword)
        for child in value if isinstance(value, list) else [value] if value is not None else []:
            yield "item", "", child
    prefix = part.get("prefixItems")
    for child in prefix if isinstance(prefix, list) else ():
        yield "item", "", child


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
    return format_pointer(path) or "/"
