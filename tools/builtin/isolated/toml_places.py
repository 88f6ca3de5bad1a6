"""Where the values of a TOML text stand, by the path that leads to them. Runs inside the sandbox.

Its reader names no places. So a text that it has read is cut into statements, a header or a key
with its value, and the reader says of each what it names. Within a value nothing is looked for.
"""

import re
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

MOST_LINES = 20_000  # each statement is read once more: a second or so for so many

type Path = tuple[str | int, ...]

_MARK = re.compile(
    r"""\"{3}(?:[^\\]|\\.)*?\"{3,5}|'{3}.*?'{3,5}|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*'|\#[^\n]*"""
    r"""|[\[\]{}=\n]""",
    re.DOTALL,
)


def in_toml(text: str, path: list[str | int]) -> tuple[int, int] | None:
    """Line and column from 1, of the deepest value on the path that a statement names; None for a
    text of more than `MOST_LINES`."""
    if text.count("\n") > MOST_LINES:
        return None
    known = _places(text)
    place = next(known[found] for end in range(len(path), -1, -1)
                 if (found := tuple(path[:end])) in known)  # fmt: skip
    return text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)


@lru_cache(maxsize=1)
def _places(text: str) -> dict[Path, int]:
    """Where each path begins that a statement names, and those on the way to it."""
    known: dict[Path, int] = {(): 0}
    lists: dict[Path, int] = {}  # the number of the newest table in each
    table: Path = ()
    for words, place in _statements(text):
        header = words.startswith("[")
        names = _names(tomllib.loads(words if header else f"{words} = 0"))
        if header:
            path = table = _table(names, lists, begins=words.startswith("[["))
        else:
            path = table + names
        for end in range(1, len(path)):
            known.setdefault(path[:end], place)
        known[path] = place
    return known


def _statements(text: str) -> Iterator[tuple[str, int]]:
    """The header, or the key, of each, and where the header or the value begins."""
    begin, depth, key_end = 0, 0, -1
    for found in _MARK.finditer(f"{text}\n"):
        mark = found.group()
        if mark in ("[", "{"):
            depth += 1
        elif mark in ("]", "}"):
            depth -= 1
        elif mark == "=" and depth == 0 and key_end < 0:
            key_end = found.start()
        elif mark == "\n" and depth == 0:
            yield from _statement(text, begin, key_end, found.start())
            begin, key_end = found.end(), -1


def _statement(text: str, begin: int, key_end: int, end: int) -> Iterator[tuple[str, int]]:
    if key_end >= 0:
        value = text[key_end + 1 : end]
        yield text[begin:key_end].strip(), end - len(value.lstrip())
    elif (words := text[begin:end].lstrip()).startswith("["):
        yield words, end - len(words)


def _names(parsed: Any) -> Path:
    """Of what one statement says alone: each table on the way has one member."""
    names: Path = ()
    while isinstance(parsed, dict) and parsed:
        ((name, parsed),) = parsed.items()
        names += (name,)
    return names


def _table(names: Path, lists: dict[Path, int], *, begins: bool) -> Path:
    """What a header means: of lists on the way the newest table, at its end perhaps a new one."""
    path: Path = ()
    for number, name in enumerate(names, 1):
        path += (name,)
        if begins and number == len(names):
            lists[path] = lists.get(path, -1) + 1
        if path in lists:
            path += (lists[path],)
    return path
