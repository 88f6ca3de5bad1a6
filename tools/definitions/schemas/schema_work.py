"""Bounds the cost of a JSON Schema before it is ever used.

A few references can make a validator hold one value against a schema millions of times, and no
validator we know can be stopped while it does. So the count is made when the schema is written:
keywords that apply to the same value add up, and parts of a value that exclude each other (two
properties, a property and an item) do not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MAX_EXPANSION = 10_000
MAX_CHAIN = 100
MAX_WORK = 100_000
MAX_INSTANCE_DEPTH = 64  # nothing deeper passes the JSON reader

_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_IN_PLACE_MAPS = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_OF_OBJECTS = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_OF_ARRAYS = ("items", "contains", "additionalItems", "unevaluatedItems")


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
        reached = self._reached()
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

    def _reached(self) -> dict[int, "_SchemaPart"]:
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
