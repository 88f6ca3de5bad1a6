"""The side-by-side difference of two definitions for a page.

Invisible characters are shown by name, and look-alikes of Latin letters with their code point.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tools.definitions.differences import (
    MOST_DIFFERENCES,
    DefinitionDifference,
    DifferenceKind,
    diff_words,
)
from tools.definitions.texts.lookalikes import code_point, find_lookalikes
from tools.ui.shown import pretty

_NAMED = re.compile(r"‹(U\+[0-9A-F]{4,6}[^‹›]*)›")
_EFFORT = 40_000  # pairs of words that one page compares, so that no upstream can slow it down


@dataclass(frozen=True, slots=True)
class DiffPiece:
    """A part of a text. `name` is the name of an invisible or look-alike character."""

    text: str
    changed: bool = False
    name: str = ""


@dataclass(frozen=True)
class FieldDiffRow:
    """One field. A side is None where it lacks the field."""

    path: list[DiffPiece]
    kind: DifferenceKind
    before: list[DiffPiece] | None
    after: list[DiffPiece] | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Drawn:
    rows: list[FieldDiffRow]
    cut: bool

    @property
    def warned(self) -> bool:
        return any(row.warnings for row in self.rows)


def draw_difference(found: list[DefinitionDifference]) -> Drawn:
    effort, rows = _EFFORT, []
    for one in found:
        before, after = _text(one.before), _text(one.after)
        pairs = (before.count(" ") + 1) * (after.count(" ") + 1)
        words = _words(before, after) if pairs <= effort else _ends(before, after)
        effort -= pairs if pairs <= effort else 0
        old, new = (
            words if one.kind == DifferenceKind.CHANGED else ([(before, False)], [(after, False)])
        )
        rows.append(
            FieldDiffRow(
                path=_marked([(one.path.lstrip("/") or "the whole of it", False)]),
                kind=one.kind,
                before=None if one.kind == DifferenceKind.ADDED else _marked(old),
                after=None if one.kind == DifferenceKind.REMOVED else _marked(new),
                warnings=one.warnings,
            )
        )
    return Drawn(rows, cut=len(found) >= MOST_DIFFERENCES)


def fields_of(found: Iterable[DefinitionDifference]) -> list[str]:
    """The distinct fields of a definition that differ."""
    return list(dict.fromkeys(one.path.split("/")[1] for one in found if "/" in one.path))


Stretches = list[tuple[str, bool]]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else pretty(value)


def _words(before: str, after: str) -> tuple[Stretches, Stretches]:
    """Both sides, with the words that differ marked."""
    sides: dict[str, Stretches] = {"removed": [], "added": []}
    for what, text in diff_words(before, after):
        for side in sides if what == "same" else [what]:
            between = " " if sides[side] else ""
            sides[side] += [(between, False), (text, what != "same")]
    return sides["removed"], sides["added"]


def _ends(before: str, after: str) -> tuple[Stretches, Stretches]:
    """The same for longer texts: everything between their common ends is marked."""
    shorter = min(len(before), len(after))
    start = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    rest = shorter - start
    end = next((at for at in range(rest) if before[-1 - at] != after[-1 - at]), rest)
    return _between(before, start, end), _between(after, start, end)


def _between(text: str, start: int, end: int) -> Stretches:
    stop = len(text) - end
    return [(text[:start], False), (text[start:stop], True), (text[stop:], False)]


def _marked(stretches: Stretches) -> list[DiffPiece]:
    return [piece for text, changed in stretches if text for piece in _pieces(text, changed)]


def _pieces(text: str, changed: bool) -> Iterator[DiffPiece]:
    done = 0
    for start, end, shown, name in sorted(_marks(text)):
        if start > done:
            yield DiffPiece(text[done:start], changed)
        yield DiffPiece(shown, changed, name)
        done = end
    if done < len(text):
        yield DiffPiece(text[done:], changed)


def _marks(text: str) -> Iterator[tuple[int, int, str, str]]:
    for match in _NAMED.finditer(text):
        yield match.start(), match.end(), match[1], "cannot be seen"
    for one in find_lookalikes(text):
        yield one.at, one.at + 1, f"{one.character} {code_point(one.character)}", one.description
