"""Splits a text into normalized words."""

import re
import unicodedata

_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # readFile is two words
_LONGEST = 40


def split_words(text: str) -> list[str]:
    """Words in one spelling: no case, no accents, no plural."""
    plain = _HUMP.sub(" ", text).casefold()
    if not plain.isascii():
        apart = unicodedata.normalize("NFKD", plain)
        plain = "".join(char for char in apart if not unicodedata.combining(char)).casefold()
    return [_singular(word[:_LONGEST]) for word in _WORD.findall(plain)]


def _singular(word: str) -> str:
    """Tables and table are one word, queries and query too: crude, but applied to both sides."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word
