"""Builds the one request of an http tool from its arguments. Pure.

An argument is a value and never more than that: not another segment of the path, not another
header, not another entry of the query. What could be read otherwise is encoded or refused.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from tools.definitions.implementations.http import Style, split_url
from tools.definitions.texts.http_templates import (
    PLACEHOLDER,
    Absent,
    Arguments,
    UnusableArgument,
    alone,
    filled_json,
    filled_text,
    given,
    text_of,
)

LONGEST_URL = 16_000
MOST_BODY = 8 * 1024 * 1024
_ACCEPT = "application/json, text/*;q=0.9, */*;q=0.5"
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_MOST_BRACKETS = 8
_FORM = "application/x-www-form-urlencoded"
_HEADER = re.compile(r"[!-~](?:[\t -~]{0,7998}[!-~])?")
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_MOST_READINGS = 4
_SLASHES = re.compile(r"[/\\]")


@dataclass(frozen=True, slots=True)
class ToolHttpRequest:
    method: str
    url: str
    headers: dict[str, str]
    body: bytes


def request_of(implementation: dict[str, Any], arguments: Arguments) -> ToolHttpRequest:
    """Raises `UnusableArgument`; the text names the argument."""
    kind, body = _body(implementation, arguments)
    headers = {"Accept": _ACCEPT} | ({"Content-Type": kind} if kind else {})
    own = dict(_present(implementation.get("headers", {}), arguments, _header))
    named = {name.lower() for name in own}
    headers = {name: text for name, text in headers.items() if name.lower() not in named} | own
    cookies = dict(_present(implementation.get("cookies", {}), arguments, filled_text))
    if cookies:
        pairs = (f"{name}={quote(text, safe='')}" for name, text in cookies.items())
        headers["Cookie"] = "; ".join(pairs)
    return ToolHttpRequest(implementation["method"], _url(implementation, arguments), headers, body)


def _present(
    entries: dict[str, str], arguments: Arguments, fill: Callable[[str, Arguments], str]
) -> Iterator[tuple[str, str]]:
    """The entries whose argument is given."""
    for name, template in entries.items():
        try:
            yield name, fill(template, arguments)
        except Absent:
            continue


def _header(template: str, arguments: Arguments) -> str:
    text = filled_text(template, arguments)
    if text and not _HEADER.fullmatch(text):
        names = ", ".join(PLACEHOLDER.findall(template))
        raise UnusableArgument(
            f"The argument {names} goes into a header: printable ASCII characters, none of them a "
            "line break, no space at an end."
        )
    return text


def _url(implementation: dict[str, Any], arguments: Arguments) -> str:
    place, target = split_url(implementation["url"])
    path, _, literal = target.partition("?")
    segments = [_segment(one, arguments) for one in path.split("/")]
    query = "&".join(
        [*filter(None, [literal]), *_pairs(implementation.get("query", {}), arguments, literal)]
    )
    url = place + "/".join(segments) + (f"?{query}" if query else "")
    if len(url) > LONGEST_URL:
        raise UnusableArgument(f"The arguments make a URL of more than {LONGEST_URL} characters.")
    return url


def _segment(template: str, arguments: Arguments) -> str:
    """Stays one path segment in every decoder."""
    if not PLACEHOLDER.search(template):
        return template
    try:
        plain = PLACEHOLDER.sub(lambda found: _part(found[1], arguments), template)
    except Absent as name:
        raise UnusableArgument(
            f"The argument {name} is part of the path: it cannot be left out."
        ) from None
    if any(_climbs(part) for text in _readings(plain) for part in _SLASHES.split(text)):
        names = ", ".join(PLACEHOLDER.findall(template))
        raise UnusableArgument(
            f"The argument {names} is part of the path: '.' and '..' would change it."
        )
    return PLACEHOLDER.sub(lambda found: _encoded(found[1], arguments), template)


def _readings(text: str) -> Iterator[str]:
    """The text itself, and as read by servers that unescape a path more than once."""
    for _ in range(_MOST_READINGS):
        yield unicodedata.normalize("NFKC", text)
        text = unquote(text)


def _climbs(part: str) -> bool:
    """Whether it is a dot segment. Some servers first cut what follows a semicolon, or trailing
    spaces."""
    name = part.partition(";")[0]
    return bool(name) and not name.strip(". ")


def _part(name: str, arguments: Arguments) -> str:
    text = text_of(name, given(name, arguments))
    if not text or _CONTROL.search(text):
        raise UnusableArgument(
            f"The argument {name} is part of the path: it must not be empty, nor hold control "
            "characters."
        )
    return text


def _encoded(name: str, arguments: Arguments) -> str:
    """The commas between the items of a list stay, those within are escaped."""
    value = arguments[name]
    items = value if isinstance(value, list) else [value]
    return ",".join(quote(text_of(name, item), safe="") for item in items)


def _pairs(entries: dict[str, Any], arguments: Arguments, literal: str = "") -> Iterator[str]:
    """The entries of a query or a form, in addition to literal ones. Raises `UnusableArgument`."""
    taken = {unquote(one.partition("=")[0]) for one in literal.split("&")}
    taken |= {name for name, entry in entries.items() if not _spreads(entry)}
    for name, entry in entries.items():
        try:
            pairs = [*_entries(name, entry, arguments)]
        except Absent:
            continue
        if _spreads(entry):
            own = {one for one, _ in pairs}
            if twice := sorted(own & taken):
                raise UnusableArgument(
                    f"The argument {alone(entry['value'])} has the member {twice[0][:60]!r}, which "
                    "is another entry of the request."
                )
            taken |= own
        yield from (f"{quote(one, safe='')}={value}" for one, value in pairs)


def _spreads(entry: Any) -> bool:
    """Whether the names of its entries are the argument's."""
    return isinstance(entry, dict) and entry.get("style") == Style.FORM


def _entries(name: str, entry: Any, arguments: Arguments) -> Iterator[tuple[str, str]]:
    """Names, and values as they are sent. Raises `Absent`, `UnusableArgument`."""
    if isinstance(entry, str):
        yield from ((name, quote(text, safe="")) for text in _values(entry, arguments))
        return
    argument = alone(entry["value"]) or ""
    if entry.get("style") == Style.JSON:
        text = json.dumps(given(argument, arguments), ensure_ascii=False, separators=(",", ":"))
        yield name, quote(text, safe="")
    elif entry.get("style") == Style.DEEP_OBJECT:
        yield from _deep(name, argument, given(argument, arguments), 0)
    elif _spreads(entry):
        yield from _members(name, argument, given(argument, arguments))
    else:
        value, separator = given(argument, arguments) if argument else None, entry["separator"]
        texts = (
            [text for member, part in value.items() for text in (member, text_of(argument, part))]
            if isinstance(value, dict)
            else _values(entry["value"], arguments)
        )
        if encoded := [quote(text, safe="") for text in texts]:
            yield name, (separator if separator == "," else quote(separator)).join(encoded)


def _members(name: str, argument: str, value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield from _deep(name, argument, value, 0)
        return
    for member, part in value.items():
        if isinstance(part, dict):
            raise UnusableArgument(
                f"The argument {argument} has the member {member[:60]!r}, an object: only texts, "
                "numbers, booleans and lists of them can be sent here."
            )
        yield from _deep(member, argument, part, 0)


def _deep(name: str, argument: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Null is nothing; a list repeats its entry, one of objects counts them; a member is in
    brackets."""
    if depth > _MOST_BRACKETS:
        raise UnusableArgument(f"The argument {argument} is deeper than {_MOST_BRACKETS} objects.")
    if isinstance(value, dict):
        for member, part in value.items():
            yield from _deep(f"{name}[{member}]", argument, part, depth + 1)
    elif isinstance(value, list):
        nested = any(isinstance(part, dict | list) for part in value)
        for at, part in enumerate(value):
            yield from _deep(f"{name}[{at}]" if nested else name, argument, part, depth + 1)
    elif value is not None:
        yield name, quote(text_of(argument, value), safe="")


def _values(template: str, arguments: Arguments) -> list[str]:
    """Several values, or none, where the argument is a list."""
    name = alone(template)
    if name is None:
        return [filled_text(template, arguments)]
    value = given(name, arguments)
    return [text_of(name, item) for item in (value if isinstance(value, list) else [value])]


def _body(implementation: dict[str, Any], arguments: Arguments) -> tuple[str, bytes]:
    """The kind of the body, and its bytes; "" without a body."""
    kind, body = "", b""
    if "form" in implementation:
        kind, body = _FORM, "&".join(_pairs(implementation["form"], arguments)).encode("ascii")
    elif "text" in implementation:
        try:
            kind, body = _TEXT, filled_text(implementation["text"], arguments).encode()
        except Absent:
            kind = ""  # the text is an argument that may be left out
    elif "body" in implementation:
        try:
            value = filled_json(implementation["body"], arguments)
            kind, body = _JSON, json.dumps(value, ensure_ascii=False).encode()
        except Absent:
            pass  # the whole body is an argument that may be left out
    if len(body) > MOST_BODY:
        raise UnusableArgument(f"The arguments make a body of more than {MOST_BODY} bytes.")
    return kind, body
