"""Masks credentials in text that a server echoes.

A host may answer with the request it got. The caller must not see what was added to that request:
it is removed, as sent and in the encodings that programs commonly use.
"""

import base64
import binascii
import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

CREDENTIAL_MASK = "[credential]"
CUT = "…"
SHORTEST_PART = 6  # of a value; a shorter word occurs in too many innocent texts
_SPARE = 3  # characters of base64 around a text that depend on its neighbors


class Mask:
    """Of the values of some credentials."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for part in _parts(value) for form in _forms(part)}
        ordered = sorted(forms, key=len, reverse=True)
        self.longest = len(ordered[0]) if ordered else 0
        pattern = "|".join(map(re.escape, ordered))
        self._pattern = re.compile(pattern, re.IGNORECASE) if pattern else None

    def text(self, text: str) -> str:
        return self._pattern.sub(CREDENTIAL_MASK, text) if self._pattern else text

    def quotation(self, text: str) -> str:
        """Masks a quoted text. The end of one that was cut with an ellipsis may be half a
        credential, and is dropped."""
        cut = self.longest and text.endswith(CUT)
        return self.text(text[: max(0, len(text) - 1 - self.longest)] + CUT if cut else text)

    def value(self, value: Any) -> Any:
        """A JSON value with every text in it masked, keys too; a number that contains a credential
        becomes the mask."""
        if self._pattern is None or value is None or isinstance(value, bool):
            return value
        if isinstance(value, dict):
            return {self.text(key): self.value(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self.value(part) for part in value]
        if isinstance(value, str):
            return self.text(value)
        return CREDENTIAL_MASK if self._pattern.search(json.dumps(value)) else value


def mask_of_values(values: Iterable[str]) -> Mask:
    """The mask of values of which some may be no secrets: very short ones are ignored."""
    return Mask(value for value in values if len(value) >= SHORTEST_PART)


def _parts(value: str) -> Iterator[str]:
    """The whole value, what follows the scheme's name, and the decoded text of Basic."""
    yield value
    scheme, _, rest = value.partition(" ")
    if len(rest) >= SHORTEST_PART:
        yield rest
    if scheme.lower() == "basic":
        yield from _basic(rest)


def _basic(encoded: str) -> Iterator[str]:
    try:
        pair = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return
    password = pair.partition(":")[2]
    yield from (part for part in (pair, password) if len(part) >= SHORTEST_PART)


def _forms(part: str) -> Iterator[str]:
    yield part
    yield from (quote(part, safe=""), quote(part), quote_plus(part))
    yield "".join(f"%{byte:02X}" for byte in part.encode())
    yield from (
        html.escape(part),
        json.dumps(part)[1:-1],
        json.dumps(part)[1:-1].replace("/", r"\/"),
    )
    yield part.encode().hex()
    for offset in range(_SPARE):
        yield from _in_base64(part.encode(), offset)


def _in_base64(part: bytes, offset: int) -> Iterator[str]:
    """The characters of it in the base64 of any text that contains it at this offset."""
    coded = base64.b64encode(b"\0" * offset + part).decode().rstrip("=")
    begin = -(-offset * 4 // 3)
    end = (offset + len(part)) * 4 // 3
    for text in (coded[begin:end], coded[begin:end].translate(str.maketrans("+/", "-_"))):
        if len(text) >= SHORTEST_PART:
            yield text
