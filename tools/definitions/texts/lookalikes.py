"""Makes invisible and look-alike characters of a text visible to a person.

A model reads every character; a person who compares two descriptions sees only visible ones.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from confusable_homoglyphs import confusables

_PLAIN_CONTROLS = frozenset("\n\t")
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5\u180b\u180c\u180d\u180f")
_WORD = re.compile(r"\w+")
_SEPARATORS = re.compile(r"[-_.\s]+")
# Pairs that TR39 lists among ASCII characters.
_ALIKE = (("rn", "m"), ("0", "o"), ("1", "l"), ("|", "l"))


@dataclass(frozen=True, slots=True)
class Lookalike:
    """A character that looks like a Latin one. `at` counts characters of the text."""

    at: int
    character: str
    name: str
    looks_like: str

    @property
    def description(self) -> str:
        return f"{code_point(self.character)} {self.name}, which looks like {self.looks_like!r}"


def code_point(character: str) -> str:
    return f"U+{ord(character):04X}"


def is_invisible(character: str) -> bool:
    """Whether it is invisible on a page, or looks like a plain space."""
    if character in _PLAIN_CONTROLS or character == " ":
        return False
    category = unicodedata.category(character)
    if category in _UNSEEN or category == "Zs" or character in _FILLERS:
        return True
    return 0xFE00 <= ord(character) <= 0xFE0F or 0xE0100 <= ord(character) <= 0xE01EF


def make_visible(text: str) -> str:
    """The text with each unseen character as `‹U+200B ZERO WIDTH SPACE›`."""
    return "".join(_character_label(one) if is_invisible(one) else one for one in text)


def find_invisible(text: str) -> list[str]:
    """Each unseen character of a text once, in the order in which they come."""
    return list(dict.fromkeys(_character_label(one)[1:-1] for one in text if is_invisible(one)))


def find_lookalikes(text: str) -> list[Lookalike]:
    """Characters that look like Latin ones, in words that have Latin letters too, or only such
    characters.

    A word of another script is fine, unless all its characters look like Latin ones.
    """
    found = []
    for word in _WORD.finditer(text):
        alike = [_lookalike(word.start() + at, one) for at, one in enumerate(word[0])]
        strange = [one for one in alike if one is not None]
        letters = [one for one in word[0] if one.isalpha()]
        latin = any(one.isascii() for one in letters)
        if strange and (latin or len(strange) == len(letters)):
            found += strange
    return found


@lru_cache(maxsize=20_000)
def skeleton(name: str) -> str:
    """What a name looks like (UTS 39, 4, with case and separators left out): two names that read
    alike have one skeleton."""
    parts = unicodedata.normalize("NFKD", name).replace("I", "l")
    seen = "".join(one for one in parts if not is_invisible(one) and not unicodedata.combining(one))
    latin = "".join(_latin_lookalike(one) or one for one in seen).casefold()
    bare = _SEPARATORS.sub("", latin)
    for pair, one in _ALIKE:
        bare = bare.replace(pair, one)
    return bare


def _character_label(character: str) -> str:
    name = unicodedata.name(character, "")
    return f"‹{code_point(character)} {name}›" if name else f"‹{code_point(character)}›"


def _lookalike(at: int, character: str) -> Lookalike | None:
    latin = _latin_lookalike(character)
    if not latin:
        return None
    return Lookalike(at, character, unicodedata.name(character, "?"), latin)


@lru_cache(maxsize=4096)
def _latin_lookalike(character: str) -> str:
    """The Latin letter or digit it looks like; empty for ASCII, and for what looks like none."""
    if character.isascii():
        return ""
    plain = unicodedata.normalize("NFKC", character)
    if plain.isascii() and plain.isalnum():
        return plain
    if unicodedata.normalize("NFD", character)[0].isascii():
        return ""  # é is é
    listed = confusables.confusables_data.get(character, [])
    return next((one["c"] for one in listed if one["c"].isascii() and one["c"].isalnum()), "")
