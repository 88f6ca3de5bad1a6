"""The ports of a tool, what it consumes and what it produces, read from its two schemas.

What it consumes is each property of its input schema: needed where the schema asks for it and has
no default. What it produces is each property that its output schema promises, those of objects
within it and of the first item of a list too. Of an output without a schema nothing is known.
"""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tools.definitions.schemas.schema_parts import (
    ANNOTATIONS,
    intersect_schemas,
    listed_values,
    members,
    resolve_schema,
    with_definitions,
)
from tools.definitions.texts.names import split_words
from tools.definitions.values.json_pointers import child_pointer

MEANING_KEYWORD = (
    "x-means"  # in a schema: the meaning of the value, regardless of its property's name
)
MOST_INPUTS, MOST_OUTPUTS = 60, 80
_DEEPEST = 4
_MOST_BRANCHES = 20
_LONGEST_QUEUE = 500
_NESTING = frozenset({"properties", "items", "anyOf", "oneOf"})
_LONGEST_KEY = 100
LARGEST_SCHEMA = 4_000  # characters of a schema that is compared while looking for edges
TOO_LARGE = "-"  # stands for any that is larger
# Property names that half of all tools use: an equal name is weak evidence.
VAGUE_NAMES = frozenset(
    split_words(
        "code count data date format id input item key kind length limit message mode name number "
        "object offset ok option output page parameter position result size state status success "
        "time total type value version"
    )
)

PortKeys = tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class Port:
    """One value that goes in or comes out.

    `pointer` leads to it in the parameters or in the output. It matches other ports by each of its
    `keys`, which say whether they are strong evidence. `schema` is JSON, the same text for the same
    schema, `TOO_LARGE`, or "" for an unknown one. `sure` means required, of an input; always
    present, of an output. `only` is the one value, as JSON, that an input may have; `free` marks a
    value that will be given in whatever form is required. `cataloged` marks a port of a tool, not
    of a caller.
    """

    name: str
    pointer: str
    keys: PortKeys
    means: str
    schema: str
    sure: bool
    only: str = ""
    free: bool = False
    cataloged: bool = False

    @property
    def deep(self) -> bool:
        return self.pointer.count("/") > 1


def input_ports(schema: Any) -> tuple[Port, ...]:
    """In the order in which they are written."""
    whole = _merge_parts(schema, schema)
    needed = frozenset(whole.get("required") or ())
    found = []
    for name, raw in list(members(whole).items())[:MOST_INPUTS]:
        part = _merge_parts(schema, raw)
        only = _only_value(part) if name in needed else ""
        sure = name in needed and not only and "default" not in part
        made = build_port(name, child_pointer("", name), schema, part, sure=sure, cataloged=True)
        found.append(replace(made, only=only) if only else made)
    return tuple(found)


def output_ports(schema: Any) -> tuple[Port, ...]:
    """Outer values come first. A list is represented by its first item."""
    if not schema or not isinstance(schema, dict):
        return ()
    found: list[Port] = []
    ahead: deque[tuple[str, str, str, Any, bool]] = deque([("", "", "", schema, True)])
    while ahead and len(found) < MOST_OUTPUTS:
        pointer, name, within, raw, sure = ahead.popleft()
        part = _merge_parts(schema, raw)
        made = build_port(name, pointer, schema, part, sure=sure, within=within, cataloged=True)
        if made.keys:
            found.append(made)
        nests = not _NESTING.isdisjoint(part)
        if nests and pointer.count("/") < _DEEPEST and len(ahead) < _LONGEST_QUEUE:
            ahead.extend(_nested_values(schema, part, pointer, name, within, sure=sure))
    return tuple(found)


def build_port(
    name: str,
    pointer: str,
    root: Any,
    part: dict[str, Any],
    *,
    sure: bool,
    within: str = "",
    cataloged: bool = False,
) -> Port:
    said = (
        name,
        within,
        _text_keyword(part, "title"),
        _text_keyword(part, "format"),
        normalize_key(_text_keyword(part, MEANING_KEYWORD)),
    )
    read = _port_keys if cataloged else _port_keys.__wrapped__  # names of callers are not cached
    keys = read(*(text[:_LONGEST_KEY] for text in said))
    return Port(name, pointer, keys, said[-1], _schema_text(root, part), sure, cataloged=cataloged)


def normalize_key(text: str) -> str:
    """A name as it is compared: its words in one spelling; "" where there are none."""
    return " ".join(split_words(text[:_LONGEST_KEY]))


@lru_cache(maxsize=16_384)
def _port_keys(name: str, within: str, title: str, declared: str, means: str) -> PortKeys:
    """The property's name, with the name of the object around it, its title, its declared meaning;
    and its format, which alone is never enough."""
    own = normalize_key(name)
    keys = {key: key not in VAGUE_NAMES for key in (own, normalize_key(title)) if key}
    if within and own:
        keys[f"{normalize_key(within)} {own}"] = True
    if declared:
        keys[f"format:{declared}"] = False
    if means:
        keys[means] = True
    return tuple(keys.items())


def _only_value(part: dict[str, Any]) -> str:
    listed = listed_values(part)
    return json.dumps(listed[0]) if listed is not None and len(listed) == 1 else ""


def _text_keyword(part: dict[str, Any], word: str) -> str:
    value = part.get(word)
    return value[:_LONGEST_KEY] if isinstance(value, str) else ""


def _merge_parts(root: Any, raw: Any) -> dict[str, Any]:
    """As one object; {} for what is anything or unknown."""
    meant = resolve_schema(root, raw)
    if not isinstance(meant, dict):
        return {}
    for part in meant.get("allOf") or ():
        whole = intersect_schemas(meant, resolve_schema(root, part))
        meant = whole if isinstance(whole, dict) else meant
    return meant


def _nested_values(
    root: Any, part: dict[str, Any], pointer: str, name: str, within: str, *, sure: bool
) -> Iterator[tuple[str, str, str, Any, bool]]:
    for shape, always in _schema_alternatives(root, part):
        needed = frozenset(shape.get("required") or ())
        for key, raw in members(shape).items():
            there = sure and always and key in needed
            yield child_pointer(pointer, key), key, name or within, raw, there
        if isinstance(shape.get("items"), dict):
            yield f"{pointer}/0", name, within, shape["items"], False


def _schema_alternatives(root: Any, part: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bool]]:
    """The schemas that a value may have; and whether it always has one of them."""
    yield part, True
    for word in ("anyOf", "oneOf"):
        branches = part.get(word)
        for branch in branches[:_MOST_BRANCHES] if isinstance(branches, list) else ():
            yield _merge_parts(root, branch), False


def _schema_text(root: Any, part: dict[str, Any]) -> str:
    rest = {
        word: said
        for word, said in part.items()
        if word not in ANNOTATIONS and word != MEANING_KEYWORD
    }
    text = _canonical_json(rest)
    if '"$ref"' in text and len(text) <= LARGEST_SCHEMA:
        text = _canonical_json(with_definitions(root, rest))
    return ("" if text == "{}" else text) if len(text) <= LARGEST_SCHEMA else TOO_LARGE


def _canonical_json(schema: dict[str, Any]) -> str:
    return json.dumps(schema, sort_keys=True, separators=(",", ":"))
