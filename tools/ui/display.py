"""Formats values and untrusted texts for pages: JSON, outputs, durations and differences.

A user who must decide about a text sees all of it: invisible characters, and characters that
change the direction of text, are shown by name; words that mix alphabets, as look-alike names
do, are reported.
"""

import difflib
import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tools.definitions.results import Status
from tools.definitions.texts.lookalikes import make_visible
from tools.models import Execution

MOST_CHARACTERS = 20_000
MOST_LINES = 4_000
_UNUSUAL = re.compile(r"[^\x20-\x7e\n]")
_WORD = re.compile(r"\w+")
_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
# Invisible letters and marks: fillers, the blank of Braille, joiners, variation selectors.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
_ALPHABETS = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"})
_MOST_WORDS = 10
_LINE_KINDS = {"+": "added", "-": "removed", "@": "place"}


@dataclass(frozen=True, slots=True)
class VisiblePiece:
    """A part of a text. For a hidden character, `text` is its code point and `name` its name."""

    text: str
    name: str = ""


@dataclass(frozen=True)
class DefinitionText:
    """`hidden` is the number of invisible characters; each is a piece of `whole`."""

    whole: list[VisiblePiece]
    hidden: int
    mixed: list[str]
    signs: list[list[VisiblePiece]]  # of a poisoned definition


@dataclass(frozen=True)
class DiffLine:
    kind: str
    text: str


@dataclass(frozen=True)
class SourceStatus:
    """The status of a source of tools: a word, the color of its chip, and since or until when."""

    word: str
    tone: str
    since: datetime | None = None
    until: datetime | None = None
    about: str = ""


def definition_text(raw: dict[str, Any], suspicions: Iterable[str]) -> DefinitionText:
    text = pretty(raw)
    whole = visible_pieces(text)
    hidden = sum(bool(piece.name) for piece in whole)
    return DefinitionText(
        whole, hidden, mixed_words(text), [visible_pieces(one) for one in suspicions]
    )


def visible_pieces(text: str) -> list[VisiblePiece]:
    """The whole of the text, each hidden character as a piece of its own."""
    found, begun = [], 0
    for match in _UNUSUAL.finditer(text):
        if _is_hidden(match[0]):
            if match.start() > begun:
                found.append(VisiblePiece(text[begun : match.start()]))
            found.append(_hidden_character(match[0]))
            begun = match.end()
    if begun < len(text):
        found.append(VisiblePiece(text[begun:]))
    return found


def mixed_words(text: str) -> list[str]:
    """The first words whose letters are of several alphabets."""
    if text.isascii():
        return []
    found = (match[0] for match in _WORD.finditer(text))
    return list(dict.fromkeys(word for word in found if _mixes_alphabets(word)))[:_MOST_WORDS]


def pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def json_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def truncate(text: str) -> str:
    """A text cut to what a page can show; the API has the whole text."""
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}\n… {len(text) - MOST_CHARACTERS:,} more characters"


def format_duration(length_ms: float | None) -> str:
    if length_ms is None:
        return "–"
    if length_ms >= 60_000:
        return f"{int(length_ms // 60_000)} min {length_ms % 60_000 / 1000:.0f} s"
    if length_ms >= 1_000:
        return f"{length_ms / 1000:.2f} s"
    return f"{length_ms:.1f} ms" if length_ms < 100 else f"{length_ms:.0f} ms"


def output_text(status: str, output: Any) -> str:
    """A text as it is, anything else as JSON; empty for a call that did not succeed."""
    if status != Status.SUCCESS:
        return ""
    return truncate(output if isinstance(output, str) else pretty(output))


def impersonator_name(execution: Execution) -> str:
    """The user who made a call by impersonation; empty for other calls."""
    another = execution.made_by if execution.made_by_id != execution.user_id else None
    return another.username if another else ""


def diff_definitions(old: dict[str, Any] | None, new: dict[str, Any]) -> list[DiffLine] | None:
    """The diff of two definitions; None where they are too long to compare."""
    return diff_texts(_definition_lines(old) if old else [], _definition_lines(new))


def diff_texts(before: list[str], after: list[str]) -> list[DiffLine] | None:
    """The diff of any two texts."""
    if len(before) + len(after) > MOST_LINES:
        return None
    changes = difflib.unified_diff(before, after, n=3, lineterm="")
    return [
        DiffLine(_LINE_KINDS.get(text[:1], "same"), make_visible(text))
        for text in list(changes)[2:]
    ]


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN or bool(_BLANK.match(character))


def _hidden_character(character: str) -> VisiblePiece:
    return VisiblePiece(f"U+{ord(character):04X}", unicodedata.name(character, "no name"))


def _mixes_alphabets(word: str) -> bool:
    if word.isascii():
        return False
    alphabets = {unicodedata.name(letter, "?").partition(" ")[0] for letter in word}
    return len(alphabets & _ALPHABETS) > 1


def _definition_lines(definition: dict[str, Any]) -> list[str]:
    """JSON with the source below it: within JSON, changes of the source would be unreadable."""
    implementation = dict(definition.get("implementation") or {})
    source = implementation.pop("source", None)
    lines = pretty(definition | {"implementation": implementation}).splitlines()
    return [*lines, "", "# source", *source.splitlines()] if isinstance(source, str) else lines
