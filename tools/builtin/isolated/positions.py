"""Where in a text a value stands, by the path that leads to it. Runs inside the sandbox.

Asked for what is wrong only, so the text is gone through again for each; parsers that keep the
place of every value are slow for the many that are right.
"""

import json
import math
import re
from json.decoder import scanstring
from typing import Any

import yaml

type Path = list[str | int]

_BLANK = re.compile(r"[ \t\n\r]*")
_TOKEN = re.compile(
    r'"(?:[^"\\]++|\\.)*+"|[\[\]{}:]|NaN|-?Infinity'
    r"|-?[0-9]++(?:\.[0-9]++(?:[eE][+-]?[0-9]++)?|[eE][+-]?[0-9]++)",
    re.DOTALL,
)
_DECODER = json.JSONDecoder(strict=False)


def in_json(text: str, path: Path) -> tuple[int, int] | None:
    """Line and column from 1."""
    try:
        place = _blank(text, 0)
        for step in path:
            place = _member(text, place, step) if text[place] == "{" else _item(text, place, step)
    except (ValueError, IndexError, RecursionError):
        return None
    return _line_and_column(text, place)


def of_ambiguity(text: str) -> tuple[int, int] | None:
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


def in_yaml(text: str, path: Path) -> tuple[int, int] | None:
    """Line and column from 1, of the deepest value on the path that stands in the text itself."""
    try:
        node = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):
        return None
    for step in path:
        below = _below(node, step)
        if below is None:
            break
        node = below
    return (node.start_mark.line + 1, node.start_mark.column + 1) if node else None


def _line_and_column(text: str, place: int) -> tuple[int, int]:
    return text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)


def _below(node: Any, step: str | int) -> Any:
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
        place = _past(text, value)
    if found < 0:
        raise ValueError(name)
    return found


def _item(text: str, place: int, number: str | int) -> int:
    """Of an item of the list that begins here. Raises ValueError, IndexError."""
    place = _blank(text, place + 1)
    for _ in range(int(number)):
        place = _past(text, place)
    return place


def _past(text: str, place: int) -> int:
    """What follows the value here and its comma."""
    _, end = _DECODER.raw_decode(text, place)
    end = _blank(text, end)
    return _blank(text, end + 1) if text[end] == "," else end
