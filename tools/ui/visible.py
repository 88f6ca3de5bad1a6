"""Shows untrusted texts to users who must decide about them, with hidden characters made visible.

Invisible characters, and characters that change the direction of text, are shown by name; words
that mix alphabets, as look-alike names do, are reported.
"""

import re
import unicodedata
from dataclasses import dataclass

_UNUSUAL = re.compile(r"[^\x20-\x7e\n]")
_WORD = re.compile(r"\w+")
_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
# Invisible letters and marks: fillers, the blank of Braille, joiners, variation selectors.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
_ALPHABETS = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"})
_MOST_WORDS = 10


@dataclass(frozen=True, slots=True)
class VisiblePiece:
    """A part of a text. For a hidden character, `text` is its code point and `name` its name."""

    text: str
    name: str = ""


def pieces(text: str) -> list[VisiblePiece]:
    """The whole of the text, each hidden character as a piece of its own."""
    found, begun = [], 0
    for match in _UNUSUAL.finditer(text):
        if _hides(match[0]):
            if match.start() > begun:
                found.append(VisiblePiece(text[begun : match.start()]))
            found.append(_named(match[0]))
            begun = match.end()
    if begun < len(text):
        found.append(VisiblePiece(text[begun:]))
    return found


def mixed_words(text: str) -> list[str]:
    """The first words whose letters are of several alphabets."""
    if text.isascii():
        return []
    found = (match[0] for match in _WORD.finditer(text))
    return list(dict.fromkeys(word for word in found if _mixes(word)))[:_MOST_WORDS]


def _hides(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN or bool(_BLANK.match(character))


def _named(character: str) -> VisiblePiece:
    return VisiblePiece(f"U+{ord(character):04X}", unicodedata.name(character, "no name"))


def _mixes(word: str) -> bool:
    if word.isascii():
        return False
    alphabets = {unicodedata.name(letter, "?").partition(" ")[0] for letter in word}
    return len(alphabets & _ALPHABETS) > 1
