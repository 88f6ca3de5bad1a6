"""The grammar of hosts, URLs and ports. Pure; accepted input has one interpretation only.

A name is ASCII in lower case without its last dot, an address is in its canonical spelling. Every
other spelling of an address that some resolver understands is refused, not translated.
"""

import re
import unicodedata
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Literal, Self, cast
from urllib.parse import unquote_to_bytes

import idna

type Address = IPv4Address | IPv6Address
LONGEST_NAME = 253
LONGEST_URL = 16_384
DEFAULT_PORTS = {"http": 80, "https": 443}
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
# inet_aton reads 127.1, 0177.0.0.1, 0x7f.1 and 2130706433 as addresses: all end like this.
_ENDS_IN_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
# Without dots: an IPv4 address inside one has two spellings, and no rule may list it anyway.
_IPV6_CHARACTERS = re.compile(r"[0-9a-f:]{2,39}")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_URL = re.compile(r"(https?)://([^/?]*)(/[^?]*)?(\?.*)?", re.IGNORECASE)
# Also keeps out spaces, controls, "#", backslashes and what is not ASCII.
_TARGET = re.compile(r"[!\"$-\[\]-~]*")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
# An escaped slash, backslash, percent sign or dot, and escaped controls.
_ESCAPED_SYNTAX = re.compile(r"%(?:2[Ff]|5[Cc]|25|2[Ee]|[01][0-9A-Fa-f]|7[Ff])")
_SYNTAX = frozenset("/\\%.")


class BrokenGrammar(ValueError):
    """The text says which rule was broken, without what broke it."""


class BadHost(BrokenGrammar):
    """A host that no run may request, regardless of its rules."""


@dataclass(frozen=True)
class Host:
    """`text` as it is compared, resolved, shown to the server and written down."""

    text: str
    address: Address | None = None

    def __str__(self) -> str:
        """As it is written in a URL."""
        return f"[{self.text}]" if isinstance(self.address, IPv6Address) else self.text


@dataclass(frozen=True)
class Url:
    """`target` is path and query, as the request line has them."""

    scheme: Literal["http", "https"]
    host: Host
    port: int
    target: str

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def authority(self) -> str:
        """What the Host header says: the port only when it is not the scheme's own."""
        plain = self.port == DEFAULT_PORTS[self.scheme]
        return str(self.host) if plain else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises Malformed; BadHost where the host is at fault."""
        scheme, authority, target = split_url(text)
        host, port = parse_authority(authority, DEFAULT_PORTS[scheme])
        return cls(scheme, host, port, target)


def parse_host(text: str) -> Host:
    """A name, an IPv4 address, or an IPv6 address in brackets. Raises BadHost."""
    if text.startswith("["):
        return _bracketed(text)
    spelt = _to_ascii(text)
    name = spelt.removesuffix(".")
    if _ENDS_IN_NUMBER.fullmatch(name):
        return _dotted(spelt)
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise BadHost("not a host name")
    return Host(name)


def parse_authority(text: str, default_port: int | None = None) -> tuple[Host, int]:
    """`host:port`; the port may be left out where there is a default."""
    if "@" in text:
        raise BadHost("a host with a user name")
    end = text.find("]") + 1 if text.startswith("[") else text.find(":")
    name, rest = (text, "") if end < 0 else (text[:end], text[end:])
    if rest == "" and default_port is not None:
        return parse_host(name), default_port
    if not rest.startswith(":"):
        raise BadHost("a host without its port")
    return parse_host(name), parse_port(rest[1:])


def parse_port(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise BadHost("not a port")
    return int(text)


def split_url(text: str) -> tuple[Literal["http", "https"], str, str]:
    """Scheme, authority and target. The target holds visible ASCII and no fragment."""
    found = _URL.fullmatch(text) if len(text) <= LONGEST_URL else None
    if found is None:
        raise BrokenGrammar("not an http or https URL")
    scheme, authority, path, query = found.groups()
    target = (path or "/") + (query or "")
    if not _TARGET.fullmatch(target):
        raise BrokenGrammar("a URL with characters that must be escaped")
    return cast('Literal["http", "https"]', scheme.lower()), authority, target


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


def _to_ascii(text: str) -> str:
    """ASCII letters in lower case; labels of other letters only as IDNA 2008 writes them."""
    if not text or len(text) > LONGEST_NAME + 1:
        raise BadHost("a host that is empty or too long")
    if text.isascii():
        return text.lower()
    # The library also splits at dots of other scripts; here a dot is a dot.
    labels = text.removesuffix(".").split(".")
    try:
        return ".".join(_label_to_ascii(label) for label in labels)
    except UnicodeError:
        raise BadHost("a host name with letters that no name may have") from None


def _label_to_ascii(label: str) -> str:
    return label.lower() if label.isascii() else idna.alabel(label).decode("ascii")


def _dotted(text: str) -> Host:
    try:
        return Host(text, IPv4Address(text))
    except AddressValueError:
        raise BadHost("an address in an odd spelling") from None


def _bracketed(text: str) -> Host:
    inner = text[1:-1].lower()
    if not text.endswith("]") or not _IPV6_CHARACTERS.fullmatch(inner):
        raise BadHost("not an IPv6 address in brackets")
    try:
        address = IPv6Address(inner)
    except AddressValueError:
        raise BadHost("not an IPv6 address in brackets") from None
    if address.compressed != inner:
        raise BadHost("an address in an odd spelling")
    return Host(inner, address)


def _climbs(segment: str) -> bool:
    """Dots alone. Some servers first cut what follows a semicolon, or spaces at the end."""
    name = segment.partition(";")[0]
    return bool(name) and not name.strip(". ")


def _looks_like_syntax(text: str) -> bool:
    """Some servers fold a wide slash or dot into the plain one."""
    foreign = [letter for letter in text if not letter.isascii()]
    return any(_SYNTAX & set(unicodedata.normalize("NFKC", letter)) for letter in foreign)
