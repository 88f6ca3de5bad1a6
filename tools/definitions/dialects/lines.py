"""Finds the line of a JSON document where each of its parts begins."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.descriptors import canonical_key

Path = tuple[str | int, ...]
DEEPEST = 8  # no error names anything below
# An unterminated text reaches to the document's end: no document is read twice.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{},:]|[^\s\[\]{},:"]++|\n', re.DOTALL)
_STEP = re.compile(r"\[(\d+)\]|([^.\[]+)")


@dataclass(frozen=True)
class Lines:
    """Lines by path. Keys are found in whatever spelling they were written."""

    known: dict[Path, int] = field(default_factory=dict)
    base: Path = ()

    def at(self, place: Path) -> int | None:
        """The line of a part of the document, or else of the part around it."""
        path = (*self.base, *(_plain(step) for step in place))
        for length in range(len(path), -1, -1):
            if path[:length] in self.known:
                return self.known[path[:length]]
        return None

    def of(self, where: str) -> int | None:
        """The line of a field as errors name it, such as `arguments[0].type`."""
        steps = _STEP.findall(where)
        return self.at(tuple(int(index) if index else key for index, key in steps))

    def below(self, *place: str | int) -> "Lines":
        return Lines(self.known, (*self.base, *(_plain(step) for step in place)))

    def note(self, path: Path, line: int, is_key: bool = False) -> None:
        """A value has the line of its key; of two spellings of a key the later one counts."""
        if len(path) > DEEPEST:
            return
        place = tuple(_plain(step) for step in path)
        if is_key or place not in self.known:
            self.known[place] = line


def _plain(step: str | int) -> str | int:
    return canonical_key(step) if isinstance(step, str) else step


def json_lines(text: str) -> Lines:
    """Of a document that has been read already: nothing is checked here."""
    lines = Lines()
    for path, line, is_key in _parts(text):
        lines.note(path, line, is_key)
    return lines


def twice(text: str) -> int | None:
    """The line of the first duplicate key of an object."""
    seen: set[Path] = set()
    for path, line, is_key in _parts(text):
        if is_key and path in seen:
            return line
        if is_key:
            seen.add(path)
    return None


@dataclass
class _Open:
    """An object or a list that is being read."""

    path: Path
    is_list: bool
    index: int = 0
    key: str | None = None

    def here(self) -> Path:
        return (*self.path, self.index if self.is_list else self.key or "")


def _parts(text: str) -> Iterator[tuple[Path, int, bool]]:
    """(path, line, whether it is that of a key) of every value, and of every key."""
    line, stack = 1, list[_Open]()
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
            yield from _begun(stack, mark, line)


def _begun(stack: list[_Open], mark: str, line: int) -> Iterator[tuple[Path, int, bool]]:
    top = stack[-1] if stack else None
    if top is not None and not top.is_list and top.key is None:
        top.key = _text(mark)
        yield top.here(), line, True
        return
    path = top.here() if top else ()
    if top is None or top.is_list:
        yield path, line, False
    if mark in "[{":
        stack.append(_Open(path, mark == "["))


def _text(mark: str) -> Any:
    try:
        return str(json.loads(mark))
    except ValueError:
        return mark
