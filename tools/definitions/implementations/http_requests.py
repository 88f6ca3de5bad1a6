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

from tools.definitions.implementations.http_tools import (
    PLACEHOLDER,
    AbsentArgument,
    Arguments,
    Style,
    UnusableArgument,
    argument_text,
    fill_json,
    fill_text,
    require_argument,
    sole_placeholder,
    split_url,
)

LONGEST_REQUEST_URL = 16_000
MOST_BODY = 8 * 1024 * 1024
_ACCEPT = "application/json, text/*;q=0.9, */*;q=0.5"
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_MOST_BRACKETS = 8
_FORM = "application/x-www-form-urlencoded"
_HEADER = re.compile(r"[!-~](?:[\t -~]{0,7998}[!-~])?")
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_MOST_DECODINGS = 4
_SLASHES = re.compile(r"[/\\]")


@dataclass(frozen=True, slots=True)
class ToolHttpRequest:
    method: str
    url: str
    headers: dict[str, str]
    body: bytes


def build_request(implementation: dict[str, Any], arguments: Arguments) -> ToolHttpRequest:
    """Raises `UnusableArgument`; the text names the argument."""
    kind, body = _build_body(implementation, arguments)
    headers = {"Accept": _ACCEPT} | ({"Content-Type": kind} if kind else {})
    own = dict(_fill_entries(implementation.get("headers", {}), arguments, _fill_header))
    named = {name.lower() for name in own}
    headers = {name: text for name, text in headers.items() if name.lower() not in named} | own
    cookies = dict(_fill_entries(implementation.get("cookies", {}), arguments, fill_text))
    if cookies:
        pairs = (f"{name}={quote(text, safe='')}" for name, text in cookies.items())
        headers["Cookie"] = "; ".join(pairs)
    return ToolHttpRequest(
        implementation["method"], _build_url(implementation, arguments), headers, body
    )


def _fill_entries(
    entries: dict[str, str], arguments: Arguments, fill: Callable[[str, Arguments], str]
) -> Iterator[tuple[str, str]]:
    """The entries whose argument is given."""
    for name, template in entries.items():
        try:
            yield name, fill(template, arguments)
        except AbsentArgument:
            continue


def _fill_header(template: str, arguments: Arguments) -> str:
    text = fill_text(template, arguments)
    if text and not _HEADER.fullmatch(text):
        names = ", ".join(PLACEHOLDER.findall(template))
        raise UnusableArgument(
            f"The argument {names} goes into a header: printable ASCII characters, none of them a "
            "line break, no space at an end."
        )
    return text


def _build_url(implementation: dict[str, Any], arguments: Arguments) -> str:
    place, target = split_url(implementation["url"])
    path, _, literal = target.partition("?")
    segments = [_fill_segment(one, arguments) for one in path.split("/")]
    query = "&".join(
        [
            *filter(None, [literal]),
            *_encode_entries(implementation.get("query", {}), arguments, literal),
        ]
    )
    url = place + "/".join(segments) + (f"?{query}" if query else "")
    if len(url) > LONGEST_REQUEST_URL:
        raise UnusableArgument(
            f"The arguments make a URL of more than {LONGEST_REQUEST_URL} characters."
        )
    return url


def _fill_segment(template: str, arguments: Arguments) -> str:
    """Stays one path segment in every decoder."""
    if not PLACEHOLDER.search(template):
        return template
    try:
        plain = PLACEHOLDER.sub(lambda found: _path_value(found[1], arguments), template)
    except AbsentArgument as name:
        raise UnusableArgument(
            f"The argument {name} is part of the path: it cannot be left out."
        ) from None
    if any(_is_dot_segment(part) for text in _decodings(plain) for part in _SLASHES.split(text)):
        names = ", ".join(PLACEHOLDER.findall(template))
        raise UnusableArgument(
            f"The argument {names} is part of the path: '.' and '..' would change it."
        )
    return PLACEHOLDER.sub(lambda found: _encode_argument(found[1], arguments), template)


def _decodings(text: str) -> Iterator[str]:
    """The text itself, and as read by servers that unescape a path more than once."""
    for _ in range(_MOST_DECODINGS):
        yield unicodedata.normalize("NFKC", text)
        text = unquote(text)


def _is_dot_segment(part: str) -> bool:
    """Whether it is a dot segment. Some servers first cut what follows a semicolon, or trailing
    spaces."""
    name = part.partition(";")[0]
    return bool(name) and not name.strip(". ")


def _path_value(name: str, arguments: Arguments) -> str:
    text = argument_text(name, require_argument(name, arguments))
    if not text or _CONTROL.search(text):
        raise UnusableArgument(
            f"The argument {name} is part of the path: it must not be empty, nor hold control "
            "characters."
        )
    return text


def _encode_argument(name: str, arguments: Arguments) -> str:
    """The commas between the items of a list stay, those within are escaped."""
    value = arguments[name]
    items = value if isinstance(value, list) else [value]
    return ",".join(quote(argument_text(name, item), safe="") for item in items)


def _encode_entries(
    entries: dict[str, Any], arguments: Arguments, literal: str = ""
) -> Iterator[str]:
    """The entries of a query or a form, in addition to literal ones. Raises `UnusableArgument`."""
    taken = {unquote(one.partition("=")[0]) for one in literal.split("&")}
    taken |= {name for name, entry in entries.items() if not _spreads_members(entry)}
    for name, entry in entries.items():
        try:
            pairs = [*_entry_pairs(name, entry, arguments)]
        except AbsentArgument:
            continue
        if _spreads_members(entry):
            own = {one for one, _ in pairs}
            if twice := sorted(own & taken):
                raise UnusableArgument(
                    f"The argument {sole_placeholder(entry['value'])} has the member "
                    f"{twice[0][:60]!r}, which is another entry of the request."
                )
            taken |= own
        yield from (f"{quote(one, safe='')}={value}" for one, value in pairs)


def _spreads_members(entry: Any) -> bool:
    """Whether the names of its entries are the argument's."""
    return isinstance(entry, dict) and entry.get("style") == Style.FORM


def _entry_pairs(name: str, entry: Any, arguments: Arguments) -> Iterator[tuple[str, str]]:
    """Names, and values as they are sent. Raises `AbsentArgument`, `UnusableArgument`."""
    if isinstance(entry, str):
        yield from ((name, quote(text, safe="")) for text in _entry_values(entry, arguments))
        return
    argument = sole_placeholder(entry["value"]) or ""
    if entry.get("style") == Style.JSON:
        text = json.dumps(
            require_argument(argument, arguments), ensure_ascii=False, separators=(",", ":")
        )
        yield name, quote(text, safe="")
    elif entry.get("style") == Style.DEEP_OBJECT:
        yield from _nested_pairs(name, argument, require_argument(argument, arguments), 0)
    elif _spreads_members(entry):
        yield from _member_pairs(name, argument, require_argument(argument, arguments))
    else:
        value, separator = (
            require_argument(argument, arguments) if argument else None,
            entry["separator"],
        )
        texts = (
            [
                text
                for member, part in value.items()
                for text in (member, argument_text(argument, part))
            ]
            if isinstance(value, dict)
            else _entry_values(entry["value"], arguments)
        )
        if encoded := [quote(text, safe="") for text in texts]:
            yield name, (separator if separator == "," else quote(separator)).join(encoded)


def _member_pairs(name: str, argument: str, value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield from _nested_pairs(name, argument, value, 0)
        return
    for member, part in value.items():
        if isinstance(part, dict):
            raise UnusableArgument(
                f"The argument {argument} has the member {member[:60]!r}, an object: only texts, "
                "numbers, booleans and lists of them can be sent here."
            )
        yield from _nested_pairs(member, argument, part, 0)


def _nested_pairs(name: str, argument: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Null is nothing; a list repeats its entry, one of objects counts them; a member is in
    brackets."""
    if depth > _MOST_BRACKETS:
        raise UnusableArgument(f"The argument {argument} is deeper than {_MOST_BRACKETS} objects.")
    if isinstance(value, dict):
        for member, part in value.items():
            yield from _nested_pairs(f"{name}[{member}]", argument, part, depth + 1)
    elif isinstance(value, list):
        nested = any(isinstance(part, dict | list) for part in value)
        for at, part in enumerate(value):
            yield from _nested_pairs(f"{name}[{at}]" if nested else name, argument, part, depth + 1)
    elif value is not None:
        yield name, quote(argument_text(argument, value), safe="")


def _entry_values(template: str, arguments: Arguments) -> list[str]:
    """Several values, or none, where the argument is a list."""
    name = sole_placeholder(template)
    if name is None:
        return [fill_text(template, arguments)]
    value = require_argument(name, arguments)
    return [argument_text(name, item) for item in (value if isinstance(value, list) else [value])]


def _build_body(implementation: dict[str, Any], arguments: Arguments) -> tuple[str, bytes]:
    """The kind of the body, and its bytes; "" without a body."""
    kind, body = "", b""
    if "form" in implementation:
        kind, body = (
            _FORM,
            "&".join(_encode_entries(implementation["form"], arguments)).encode("ascii"),
        )
    elif "text" in implementation:
        try:
            kind, body = _TEXT, fill_text(implementation["text"], arguments).encode()
        except AbsentArgument:
            kind = ""  # the text is an argument that may be left out
    elif "body" in implementation:
        try:
            value = fill_json(implementation["body"], arguments)
            kind, body = _JSON, json.dumps(value, ensure_ascii=False).encode()
        except AbsentArgument:
            pass  # the whole body is an argument that may be left out
    if len(body) > MOST_BODY:
        raise UnusableArgument(f"The arguments make a body of more than {MOST_BODY} bytes.")
    return kind, body
