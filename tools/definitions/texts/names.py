"""Rules for names and addresses that people and models read, and the words of a text."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches

from anyascii import anyascii

TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,31}")
WILDCARD = "*"
_ODD = re.compile(r"[^A-Za-z0-9_.-]+")
_MOST_READ = 1_000  # characters of a text that is to be a name
_DIGITS = 8  # of a digest in a name
_NEW = frozenset({"new"})
_TOOL = frozenset({
    ".", "..", "changes", "explain", "export", "graph", "import", "lint", "what-if",
})  # fmt: skip
# Reserved path segments of the API and the pages in place of a name: `/tools/explain`.
_ADDRESSES = {
    "tool": _TOOL, "chain": _TOOL | {"check", "new", "proposals"},
    "group": frozenset({"recommendations"}),
    "agent": _NEW, "channel": _NEW, "schema": _NEW, "server": _NEW, "service": _NEW | {".", ".."},
}  # fmt: skip

# Bidirectional controls, zero-width characters and the invisible "tag" block let a text show a
# person one thing and a model another.
_INVISIBLE = re.compile(
    "[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\U000e0000-\U000e007f]"
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # readFile is two words
_LONGEST = 40
LONGEST_ADDRESS = 254
# The subset that all mail servers parse alike: no quotes, comments, routes or line ends.
_LOCAL = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = rf"{_LABEL}(?:\.{_LABEL})*"
_ADDRESS = re.compile(rf"{_LOCAL}@{_DOMAIN}")
_WHOLE_DOMAIN = re.compile(rf"@{_DOMAIN}")
_NAME = re.compile(r"[\w.@+-]{1,150}")


def plain_name(text: str, *, longest: int, joint: str = "_") -> str:
    """A name of ASCII letters, digits, '_', '.' and '-' out of a text in any script; "" where no
    character can be used. Two texts that differ only beyond `longest` stay two names."""
    plain = _ODD.sub(joint, anyascii(text[:_MOST_READ])).strip("_.-")
    return with_digest(plain, text, longest=longest) if len(plain) > longest else plain


def with_digest(name: str, text: str, *, longest: int) -> str:
    """The name, truncated as needed, with a digest of the text."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{name[: longest - _DIGITS - 1].rstrip('_.-')}_{digest}"


def is_reserved_address(kind: str, name: str) -> bool:
    """Whether the URL of a thing with this name would be that of another page."""
    return name.lower() in _ADDRESSES[kind]


def suggestion(name: str, known: Iterable[str]) -> str:
    """A suggestion to append to an error about an unknown name; "" where none is similar."""
    near = similar_name(name[:60], known)
    return f"; is {near} meant?" if near else ""


def similar_name(name: str, known: Iterable[str], *, cutoff: float = 0.7) -> str | None:
    """The known name that is spelled most like this one, or None. Every pair is compared: only for
    a bounded number of short names."""
    near = get_close_matches(name, [*known], n=1, cutoff=cutoff)
    return near[0] if near else None


def join_names(names: Iterable[str], most: int) -> str:
    """The first of them for a sentence, with the number of the others."""
    every = list(names)
    more = len(every) - most
    return ", ".join(every[:most]) + (f" and {more} more" if more > 0 else "")


def flaw_in_text(text: str, *, longest: int) -> str | None:
    """What is wrong with a description, or None."""
    if len(text) > longest:
        return f"is longer than {longest} characters"
    if _CONTROL.search(text) or _INVISIBLE.search(text):
        return "holds invisible or control characters"
    return None


def flaw_in_group(name: str) -> str | None:
    """Group and state names match exactly: no trimming, no folding (ruling 3)."""
    if not name:
        return "is empty"
    if len(name) > 100:
        return "is longer than 100 characters"
    if name != unicodedata.normalize("NFC", name) or flaw_in_text(name, longest=100):
        return "holds invisible, control or unnormalised characters"
    return None


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


def flaw_in_address(text: str) -> str | None:
    fits = len(text) <= LONGEST_ADDRESS and _ADDRESS.fullmatch(text)
    return None if fits else "must be a plain e-mail address"


def flaw_in_mail_entry(text: str) -> str | None:
    """The error of an entry in the allowlist."""
    domain = len(text) <= LONGEST_ADDRESS and _WHOLE_DOMAIN.fullmatch(text)
    if domain or flaw_in_address(text) is None:
        return None
    return "must be an e-mail address, or a domain such as @example.com"


def flaw_in_person_entry(text: str) -> str | None:
    return None if _NAME.fullmatch(text) else "must be the name of a person"


def uncovered_recipients(recipients: Iterable[str], allowed: Iterable[str]) -> list[str]:
    """The recipients that no entry covers. A domain covers its own addresses, none of a
    subdomain."""
    entries = {entry.casefold() for entry in allowed}
    return [one for one in recipients if not _is_covered(one.casefold(), entries)]


def _is_covered(recipient: str, entries: set[str]) -> bool:
    _, at, domain = recipient.rpartition("@")
    return recipient in entries or bool(at and f"@{domain}" in entries)
