"""The position of a value in a JSON, YAML or TOML text, by its path. Runs inside the sandbox.

Only wrong values are looked up, so the text is parsed again for each of them; parsers that keep the
position of every value are slow for the many that are right.

`tomllib` reports no positions. A TOML text that it has read is therefore cut into statements, a
header or a key with its value, and `tomllib` reads the names of each. Positions within a value are
not known.
"""

import json
import math
import re
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from json.decoder import scanstring
from typing import Any

import yaml

MOST_TOML_LINES = 20_000  # each statement is read once more: a second or so for so many

type Path = list[str | int]
type TomlPath = tuple[str | int, ...]

_BLANK = re.compile(r"[ \t\n\r]*")
_TOKEN = re.compile(
    r'"(?:[^"\\]++|\\.)*+"|[\[\]{}:]|NaN|-?Infinity'
    r"|-?[0-9]++(?:\.[0-9]++(?:[eE][+-]?[0-9]++)?|[eE][+-]?[0-9]++)",
    re.DOTALL,
)
_TOML_MARK = re.compile(
    r"""\"{3}(?:[^\\]|\\.)*?\"{3,5}|'{3}.*?'{3,5}|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*'|\#[^\n]*"""
    r"""|[\[\]{}=\n]""",
    re.DOTALL,
)
_DECODER = json.JSONDecoder(strict=False)


def json_position(text: str, path: Path) -> tuple[int, int] | None:
    """Line and column from 1."""
    try:
        place = _blank(text, 0)
        for step in path:
            place = _member(text, place, step) if text[place] == "{" else _item(text, place, step)
    except (ValueError, IndexError, RecursionError):
        return None
    return _line_and_column(text, place)


def ambiguity_position(text: str) -> tuple[int, int] | None:
    """Line and column of the first key that its object has already, or of the first number that
    JSON does not know. The text can be read up to there."""
    open_objects: list[set[str]] = []
    before: re.Match[str] | None = None
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark == ":" and before is not None:
            name = json.loads(before.group())
            if name in open_objects[-1]:
                return _line_and_column(text, before.start())
            open_objects[-1].add(name)
        elif mark in ("{", "["):
            open_objects.append(set())
        elif mark in ("}", "]"):
            open_objects.pop()
        elif mark[0] == '"':
            before = token
        elif not math.isfinite(float(mark)):
            return _line_and_column(text, token.start())
    return None


def yaml_position(text: str, path: Path) -> tuple[int, int] | None:
    """Line and column from 1, of the deepest value on the path that stands in the text itself."""
    try:
        node = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):
        return None
    for step in path:
        child = _child_node(node, step)
        if child is None:
            break
        node = child
    return (node.start_mark.line + 1, node.start_mark.column + 1) if node else None


def _line_and_column(text: str, place: int) -> tuple[int, int]:
    return text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)


def _child_node(node: Any, step: str | int) -> Any:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step]
    if isinstance(node, yaml.MappingNode):
        found = [value for key, value in node.value if key.value == str(step)]
        return found[-1] if found else None
    return None


def _blank(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return found.end() if found else place


def _member(text: str, place: int, name: str | int) -> int:
    """Of the value under a key of the object that begins here. Raises ValueError, IndexError."""
    found, place = -1, _blank(text, place + 1)
    while text[place] == '"':
        key, place = scanstring(text, place + 1, False)
        value = _blank(text, _blank(text, place) + 1)
        if key == name:
            found = value
        place = _next_item(text, value)
    if found < 0:
        raise ValueError(name)
    return found


def _item(text: str, place: int, number: str | int) -> int:
    """Of an item of the list that begins here. Raises ValueError, IndexError."""
    place = _blank(text, place + 1)
    for _ in range(int(number)):
        place = _next_item(text, place)
    return place


def _next_item(text: str, place: int) -> int:
    """What follows the value here and its comma."""
    _, end = _DECODER.raw_decode(text, place)
    end = _blank(text, end)
    return _blank(text, end + 1) if text[end] == "," else end


def toml_position(text: str, path: list[str | int]) -> tuple[int, int] | None:
    """Line and column from 1, of the deepest value on the path that a statement names; None for a
    text of more than `MOST_TOML_LINES`."""
    if text.count("\n") > MOST_TOML_LINES:
        return None
    known = _toml_positions(text)
    place = next(known[found] for end in range(len(path), -1, -1)
                 if (found := tuple(path[:end])) in known)  # fmt: skip
    return _line_and_column(text, place)


@lru_cache(maxsize=1)
def _toml_positions(text: str) -> dict[TomlPath, int]:
    """Where each path begins that a statement names, and those on the way to it."""
    known: dict[TomlPath, int] = {(): 0}
    lists: dict[TomlPath, int] = {}  # the number of the newest table in each
    table: TomlPath = ()
    for words, place in _toml_statements(text):
        header = words.startswith("[")
        names = _key_path(tomllib.loads(words if header else f"{words} = 0"))
        if header:
            path = table = _table_path(names, lists, begins=words.startswith("[["))
        else:
            path = table + names
        for end in range(1, len(path)):
            known.setdefault(path[:end], place)
        known[path] = place
    return known


def _toml_statements(text: str) -> Iterator[tuple[str, int]]:
    """The header, or the key, of each, and where the header or the value begins."""
    begin, depth, key_end = 0, 0, -1
    for found in _TOML_MARK.finditer(f"{text}\n"):
        mark = found.group()
        if mark in ("[", "{"):
            depth += 1
        elif mark in ("]", "}"):
            depth -= 1
        elif mark == "=" and depth == 0 and key_end < 0:
            key_end = found.start()
        elif mark == "\n" and depth == 0:
            yield from _toml_statement(text, begin, key_end, found.start())
            begin, key_end = found.end(), -1


def _toml_statement(text: str, begin: int, key_end: int, end: int) -> Iterator[tuple[str, int]]:
    if key_end >= 0:
        value = text[key_end + 1 : end]
        yield text[begin:key_end].strip(), end - len(value.lstrip())
    elif (words := text[begin:end].lstrip()).startswith("["):
        yield words, end - len(words)


def _key_path(parsed: Any) -> TomlPath:
    """Of what one statement says alone: each table on the way has one member."""
    names: TomlPath = ()
    while isinstance(parsed, dict) and parsed:
        ((name, parsed),) = parsed.items()
        names += (name,)
    return names


def _table_path(names: TomlPath, lists: dict[TomlPath, int], *, begins: bool) -> TomlPath:
    """What a header means: of lists on the way the newest table, at its end perhaps a new one."""
    path: TomlPath = ()
    for number, name in enumerate(names, 1):
        path += (name,)
        if begins and number == len(names):
            lists[path] = lists.get(path, -1) + 1
        if path in lists:
            path += (lists[path],)
    return path
