"""Finds the line of a JSON document where each of its parts begins."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.descriptors import canonical_key

LinePath = tuple[str | int, ...]
DEEPEST_PATH = 8  # no error names anything below
# An unterminated text reaches to the document's end: no document is read twice.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{},:]|[^\s\[\]{},:"]++|\n', re.DOTALL)
_FIELD_STEP = re.compile(r"\[(\d+)\]|([^.\[]+)")


@dataclass(frozen=True)
class Lines:
    """Lines by path. Keys are found in whatever spelling they were written."""

    known: dict[LinePath, int] = field(default_factory=dict)
    base: LinePath = ()

    def at(self, place: LinePath) -> int | None:
        """The line of a part of the document, or else of the part around it."""
        path = (*self.base, *(_canonical_step(step) for step in place))
        for length in range(len(path), -1, -1):
            if path[:length] in self.known:
                return self.known[path[:length]]
        return None

    def of(self, where: str) -> int | None:
        """The line of a field as errors name it, such as `arguments[0].type`."""
        steps = _FIELD_STEP.findall(where)
        return self.at(tuple(int(index) if index else key for index, key in steps))

    def below(self, *place: str | int) -> "Lines":
        return Lines(self.known, (*self.base, *(_canonical_step(step) for step in place)))

    def note(self, path: LinePath, line: int, is_key: bool = False) -> None:
        """A value has the line of its key; of two spellings of a key the later one counts."""
        if len(path) > DEEPEST_PATH:
            return
        place = tuple(_canonical_step(step) for step in path)
        if is_key or place not in self.known:
            self.known[place] = line


def _canonical_step(step: str | int) -> str | int:
    return canonical_key(step) if isinstance(step, str) else step


def json_lines(text: str) -> Lines:
    """Of a document that has been read already: nothing is checked here."""
    lines = Lines()
    for path, line, is_key in _scan_parts(text):
        lines.note(path, line, is_key)
    return lines


def duplicate_key_line(text: str) -> int | None:
    """The line of the first duplicate key of an object."""
    seen: set[LinePath] = set()
    for path, line, is_key in _scan_parts(text):
        if is_key and path in seen:
            return line
        if is_key:
            seen.add(path)
    return None


@dataclass
class _OpenContainer:
    """An object or a list that is being read."""

    path: LinePath
    is_list: bool
    index: int = 0
    key: str | None = None

    def here(self) -> LinePath:
        return (*self.path, self.index if self.is_list else self.key or "")


def _scan_parts(text: str) -> Iterator[tuple[LinePath, int, bool]]:
    """(path, line, whether it is that of a key) of every value, and of every key."""
    line, stack = 1, list[_OpenContainer]()
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark == "\n":
            line += 1
        elif mark in "]}" and stack:
            stack.pop()
        elif mark == "," and stack:
            stack[-1].index += 1
            stack[-1].key = None
        elif mark not in ",:]}":
            yield from _open_value(stack, mark, line)


def _open_value(
    stack: list[_OpenContainer], mark: str, line: int
) -> Iterator[tuple[LinePath, int, bool]]:
    top = stack[-1] if stack else None
    if top is not None and not top.is_list and top.key is None:
        top.key = _unquote(mark)
        yield top.here(), line, True
        return
    path = top.here() if top else ()
    if top is None or top.is_list:
        yield path, line, False
    if mark in "[{":
        stack.append(_OpenContainer(path, mark == "["))


def _unquote(mark: str) -> Any:
    try:
        return str(json.loads(mark))
    except ValueError:
        return mark
