"""Path prefixes that mean the same to us and to any server behind an allowed host.

Only used where a rule names prefixes. A path that some server might shorten, unescape twice or
read with another alphabet is refused, so that the path that is compared is the one that is sent and
used.
"""

import re
import unicodedata
from urllib.parse import unquote_to_bytes

_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
# An escaped slash, backslash, percent sign or dot, and escaped controls.
_ESCAPED_SYNTAX = re.compile(r"%(?:2[Ff]|5[Cc]|25|2[Ee]|[01][0-9A-Fa-f]|7[Ff])")
_SYNTAX = frozenset("/\\%.")


def is_plain(path: str) -> bool:
    """True for a path with one reading only."""
    if not path.startswith("/") or "\\" in path or _ESCAPE.search(path):
        return False
    if _ESCAPED_SYNTAX.search(path):
        return False
    try:
        text = unquote_to_bytes(path).decode("utf-8", "strict")
    except UnicodeDecodeError:
        return False
    return not (any(_climbs(segment) for segment in text.split("/")) or _looks_like_syntax(text))


def has_prefix(path: str, prefix: str) -> bool:
    """On the border of a segment: /v1 holds /v1 and /v1/a, but not /v10."""
    border = prefix if prefix.endswith("/") else f"{prefix}/"
    return path == prefix or path.startswith(border)


def _climbs(segment: str) -> bool:
    """Dots alone. Some servers first cut what follows a semicolon, or spaces at the end."""
    name = segment.partition(";")[0]
    return bool(name) and not name.strip(". ")


def _looks_like_syntax(text: str) -> bool:
    """Some servers fold a wide slash or dot into the plain one."""
    foreign = [letter for letter in text if not letter.isascii()]
    return any(_SYNTAX & set(unicodedata.normalize("NFKC", letter)) for letter in foreign)
