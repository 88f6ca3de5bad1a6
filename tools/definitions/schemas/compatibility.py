"""Schema compatibility: whether every value that one schema allows fits another (shared tool
access: composition).

No result means that the second accepts every value that the first allows. At the place of a certain
mismatch the second accepts no value of the first; at that of an uncertain one it may reject some,
and the call validates them. Schemas that are not understood are never reported as compatible.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tools.definitions.schemas.json_schemas import Schema, Validator
from tools.definitions.schemas.schema_parts import (
    ANNOTATIONS,
    MAX_REFERENCE_DEPTH,
    OF_TYPE,
    abbreviate,
    allowed_kinds,
    intersect_schemas,
    is_number,
    kind_names,
    listed_values,
    members,
    resolve_schema,
    value_kind,
    with_definitions,
)
from tools.definitions.values.json_pointers import child_pointer

MAX_COMPARISONS = 5_000
_HANDLED = frozenset(
    {"type", "enum", "const", "allOf", "anyOf", "oneOf", "$ref", "properties", "required",
     "additionalProperties", "items"}
)  # fmt: skip
# Limits, by the kinds of value that they apply to. A higher minimum is narrower, as is a lower
# maximum.
_NUMBERS = frozenset(OF_TYPE["number"])
_LEAST = {"minimum": _NUMBERS, "exclusiveMinimum": _NUMBERS, "minLength": frozenset({"string"}),
          "minItems": frozenset({"array"}), "minProperties": frozenset({"object"})}  # fmt: skip
_MOST = {"maximum": _NUMBERS, "exclusiveMaximum": _NUMBERS, "maxLength": frozenset({"string"}),
         "maxItems": frozenset({"array"}), "maxProperties": frozenset({"object"})}  # fmt: skip
_BOUNDS = _LEAST | _MOST


@dataclass(frozen=True, slots=True)
class Misfit:
    """`path` is a JSON pointer into the value; `/*` stands for any item of an array.

    `bound`: only its length, size or format is uncertain.
    """

    path: str
    message: str
    certain: bool
    bound: bool = False


def find_misfits(source: Schema | bool, target: Schema | bool, path: str = "") -> list[Misfit]:
    """Where values of `source` do not fit `target`, each place once, certain ones first."""
    if source == target:
        return []
    found = dict.fromkeys(_Comparison(source, target).compare(source, target, path, 0))
    return sorted(found, key=lambda one: (not one.certain, one.path))


class _Comparison:
    def __init__(self, source: Any, target: Any) -> None:
        self._source, self._target = source, target
        self._left = MAX_COMPARISONS

    def compare(self, source: Any, target: Any, path: str, depth: int) -> list[Misfit]:
        self._left -= 1
        if depth > MAX_REFERENCE_DEPTH or self._left < 0:
            return [_uncertain(path, "nests or branches too far to be compared")]
        given, taken = resolve_schema(self._source, source), resolve_schema(self._target, target)
        if given is None or taken is None:
            return [_uncertain(path, "refers to something that cannot be compared")]
        if taken is True or given is False:
            return []
        if taken is False:
            return [Misfit(path, "nothing is taken there", True)]
        return self._compare_source({} if given is True else given, taken, path, depth)

    def _compare_source(self, given: Schema, taken: Schema, path: str, depth: int) -> list[Misfit]:
        """Each alternative of the source must fit."""
        listed = listed_values(given)
        if listed is not None:
            return _listed_value_misfits(listed, self._target, taken, path)
        for word in ("anyOf", "oneOf"):
            if isinstance(given.get(word), list):
                rest = {key: value for key, value in given.items() if key != word}
                branches = [
                    intersect_schemas(rest, resolve_schema(self._source, one))
                    for one in given[word]
                ]
                found = [self.compare(one, taken, path, depth + 1) for one in branches]
                return _source_alternatives(found, path)
        if isinstance(given.get("allOf"), list):
            return self._compare_intersection(given, taken, path, depth)
        return self._compare_target(given, taken, path, depth)

    def _compare_intersection(
        self, given: Schema, taken: Schema, path: str, depth: int
    ) -> list[Misfit]:
        """`allOf` of the source: constraints of one part apply to the value."""
        rest = {key: value for key, value in given.items() if key != "allOf"}
        whole: Any = rest
        for part in given["allOf"]:
            whole = intersect_schemas(whole, resolve_schema(self._source, part))
        pieces = [whole, rest, *given["allOf"]]
        found = [self.compare(piece, taken, path, depth + 1) for piece in pieces]
        return min(found, key=len)

    def _compare_target(self, given: Schema, taken: Schema, path: str, depth: int) -> list[Misfit]:
        """`given` has no alternatives any more; each constraint of the target must hold."""
        found = []
        for word in ("anyOf", "oneOf"):
            if isinstance(taken.get(word), list):
                branches = [self.compare(given, one, path, depth + 1) for one in taken[word]]
                found += _target_alternatives(branches, path, one_alone=word == "oneOf")
        for part in taken.get("allOf") or ():
            found += self.compare(given, part, path, depth + 1)
        choice = listed_values(taken)
        if choice is not None:
            found += _choice_misfits(given, choice, path)
        return found + self._compare_kinds(given, taken, path, depth)

    def _compare_kinds(self, given: Schema, taken: Schema, path: str, depth: int) -> list[Misfit]:
        gives, takes = allowed_kinds(given), allowed_kinds(taken)
        both = gives & takes
        if not both:
            return [Misfit(path, f"is {kind_names(gives)}, and {kind_names(takes)} is taken", True)]
        found = []
        if gives - takes:
            said = f"may be {kind_names(gives - takes)}, and {kind_names(takes)} is taken"
            found.append(_uncertain(path, said))
        found += _keyword_misfits(given, taken, both, path)
        if "object" in both:
            found += self._compare_members(given, taken, path, depth)
        if "array" in both and "items" in taken:
            items = given.get("items", True)
            found += self.compare(items, taken["items"], f"{path}/*", depth + 1)
        return found

    def _compare_members(self, given: Schema, taken: Schema, path: str, depth: int) -> list[Misfit]:
        gives, takes = members(given), members(taken)
        sure = set(given.get("required") or ())
        others = given.get("additionalProperties", True)
        found = []
        for name in set(taken.get("required") or ()) - sure:
            never = others is False and name not in gives
            said = "is needed and never there" if never else "is needed and may be missing"
            found.append(Misfit(child_pointer(path, name), said, never))
        for name, wanted in takes.items():
            if name in gives or others is not False:
                here = gives.get(name, others)
                found += self.compare(here, wanted, child_pointer(path, name), depth + 1)
        return found + self._compare_other_members(given, taken, path, depth)

    def _compare_other_members(
        self, given: Schema, taken: Schema, path: str, depth: int
    ) -> list[Misfit]:
        """Members that the other side does not name."""
        rest = taken.get("additionalProperties", True)
        if rest is True:
            return []
        found = []
        sure = set(given.get("required") or ())
        for name in members(given).keys() - members(taken).keys():
            place = child_pointer(path, name)
            if rest is not False:
                found += self.compare(members(given)[name], rest, place, depth + 1)
            else:
                found.append(Misfit(place, "is not taken", name in sure))
        others = given.get("additionalProperties", True)
        if others is not False:
            found += [
                replace(one, message=f"further members: {one.message}", certain=False)
                for one in self.compare(others, rest, path, depth + 1)
            ]
        return found


def _source_alternatives(found: list[list[Misfit]], path: str) -> list[Misfit]:
    """Alternatives of the source: certain only where no branch fits."""
    if found and all(_has_certain(one) for one in found):
        return min(found, key=lambda one: _never_fits(one, path))
    return [replace(one, certain=False) for branch in found for one in branch]


def _target_alternatives(found: list[list[Misfit]], path: str, *, one_alone: bool) -> list[Misfit]:
    """Alternatives of the target: a branch that accepts all values is enough.

    With `oneOf`, no value may pass the other branches.
    """
    others = sum(not _never_fits(one, path) for one in found) - 1
    if any(not one for one in found) and not (one_alone and others):
        return []
    if found and all(_has_certain(one) for one in found):
        if not all(_never_fits(one, path) for one in found):
            return next(one for one in found if not _never_fits(one, path))
        said = f"fits none of the {len(found)} that are taken: {min(found, key=len)[0].message}"
        return [Misfit(path, said, certain=True)]
    return [_uncertain(path, f"may fit none of the {len(found)} that are taken, or several")]


def _never_fits(found: list[Misfit], path: str) -> bool:
    """Whether no value fits: a mismatch of items is not certain, since an empty array would fit."""
    return any(one.certain and one.path == path for one in found)


def _listed_value_misfits(values: list[Any], root: Any, taken: Schema, path: str) -> list[Misfit]:
    check = Validator(with_definitions(root, taken))
    wrong = [value for value in values if check.flaws(value)]
    if not wrong:
        return []
    said = ", ".join(abbreviate(value) for value in wrong[:3])
    return [Misfit(path, f"{said} is not taken", len(wrong) == len(values))]


def _choice_misfits(given: Schema, choice: list[Any], path: str) -> list[Misfit]:
    said = ", ".join(abbreviate(value) for value in choice[:5])
    never = not {value_kind(value) for value in choice} & allowed_kinds(given)
    return [Misfit(path, f"only {said}{' and others' if choice[5:] else ''} is taken", never)]


def _keyword_misfits(
    given: Schema, taken: Schema, both: frozenset[str], path: str
) -> Iterator[Misfit]:
    """Limits are compared; other constraints hold only if they are equal."""
    for word, wanted in taken.items():
        if word in ANNOTATIONS or word in _HANDLED or given.get(word) == wanted:
            continue
        if word in _BOUNDS and not _BOUNDS[word] & both:
            continue
        if not _is_narrower(word, given.get(word), wanted):
            said = f"{word} {abbreviate(wanted)} is asked for and may not hold"
            yield Misfit(path, said, certain=False, bound=True)


def _is_narrower(word: str, has: Any, wanted: Any) -> bool:
    if word not in _BOUNDS or not is_number(has) or not is_number(wanted):
        return False
    return bool(has >= wanted if word in _LEAST else has <= wanted)


def _has_certain(found: list[Misfit]) -> bool:
    return any(one.certain for one in found)


def _uncertain(path: str, message: str) -> Misfit:
    return Misfit(path, message, certain=False)
