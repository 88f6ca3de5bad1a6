"""Compares two definitions field by field, in a form that hides nothing.

Parameters are matched by name, so that one that moved is not two that changed.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Any

from tools.definitions.texts.lookalikes import find_invisible, find_lookalikes, make_visible
from tools.definitions.values.json_pointers import child_pointer

Json = Any
_NAMED_LISTS = frozenset({"parameters"})  # lists whose members have names
MOST_DIFFERENCES = 500  # differences that are listed individually


class DifferenceKind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class DefinitionDifference:
    """`path` is a JSON pointer; invisible characters of texts are named.

    `warnings` name invisible and look-alike characters in the change.
    """

    path: str
    kind: DifferenceKind
    before: Json
    after: Json
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"kind": str(self.kind), "warnings": list(self.warnings)}


def compare_definitions(before: Json, after: Json) -> list[DefinitionDifference]:
    """At most `MOST_DIFFERENCES`, in the order of the fields of the later definition."""
    return [
        found
        for _, found in zip(range(MOST_DIFFERENCES), _compare(before, after, ""), strict=False)
    ]


def character_warnings(text: str) -> list[str]:
    """Names the invisible characters of a text."""
    hidden = [f"holds {one}, which cannot be seen" for one in find_invisible(text)]
    alike = dict.fromkeys(f"holds {one.description}" for one in find_lookalikes(text))
    return [*hidden, *alike]


def diff_words(before: str, after: str) -> list[tuple[str, str]]:
    """Two texts as pieces, each `same`, `removed` or `added`, for a page to mark."""
    old, new = make_visible(before).split(" "), make_visible(after).split(" ")
    pieces: list[tuple[str, str]] = []
    for what, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            pieces.append(("same", " ".join(old[a:b])))
            continue
        if a < b:
            pieces.append(("removed", " ".join(old[a:b])))
        if c < d:
            pieces.append(("added", " ".join(new[c:d])))
    return pieces


def _compare(before: Json, after: Json, path: str) -> Iterator[DefinitionDifference]:
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _compare_members(before, after, path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _compare_lists(before, after, path)
    elif before != after or isinstance(before, bool) != isinstance(after, bool):
        yield _difference(path, DifferenceKind.CHANGED, before, after)


def _compare_members(
    before: dict[str, Json], after: dict[str, Json], path: str
) -> Iterator[DefinitionDifference]:
    gone = [key for key in before if key not in after]
    for key in [*after, *gone]:
        place = child_pointer(path, make_visible(key))
        if key not in after:
            yield _difference(place, DifferenceKind.REMOVED, before[key], None)
        elif key not in before:
            yield _difference(place, DifferenceKind.ADDED, None, after[key])
        elif key in _NAMED_LISTS:
            yield from _compare_named(before[key], after[key], place)
        else:
            yield from _compare(before[key], after[key], place)


def _compare_named(before: Json, after: Json, path: str) -> Iterator[DefinitionDifference]:
    old, new = _by_name(before), _by_name(after)
    if old is None or new is None:
        yield from _compare(before, after, path)
        return
    yield from _compare_members(old, new, path)
    if [name for name in old if name in new] != [name for name in new if name in old]:
        yield _difference(f"{path}/order", DifferenceKind.CHANGED, list(old), list(new))


def _by_name(items: Json) -> dict[str, Json] | None:
    if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        return None
    named = {str(one.get("name")): one for one in items}
    return named if len(named) == len(items) else None


def _compare_lists(
    before: list[Json], after: list[Json], path: str
) -> Iterator[DefinitionDifference]:
    for at in range(max(len(before), len(after))):
        place = f"{path}/{at}"
        if at >= len(after):
            yield _difference(place, DifferenceKind.REMOVED, before[at], None)
        elif at >= len(before):
            yield _difference(place, DifferenceKind.ADDED, None, after[at])
        else:
            yield from _compare(before[at], after[at], place)


def _difference(path: str, kind: DifferenceKind, before: Json, after: Json) -> DefinitionDifference:
    warnings = [one for one in _warnings(after) if one not in set(_warnings(before))]
    return DefinitionDifference(
        path,
        kind,
        make_value_visible(before),
        make_value_visible(after),
        tuple(dict.fromkeys(warnings)),
    )


def _warnings(value: Json) -> list[str]:
    if isinstance(value, str):
        return character_warnings(value)
    if isinstance(value, dict):
        return [one for pair in value.items() for part in pair for one in _warnings(part)]
    return [one for part in value for one in _warnings(part)] if isinstance(value, list) else []


def make_value_visible(value: Json) -> Json:
    """The same value with its texts made visible."""
    if isinstance(value, str):
        return make_visible(value)
    if isinstance(value, dict):
        return {make_visible(key): make_value_visible(one) for key, one in value.items()}
    return [make_value_visible(one) for one in value] if isinstance(value, list) else value
