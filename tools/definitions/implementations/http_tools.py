"""HTTP tools: one request and how to read its response.

The target is literal: no argument can change scheme, host, port or method. `http_requests`
defines what an argument may be part of. A placeholder `{name}` is replaced by an argument: as text,
or, where it is alone, with its type.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from sandbox.egress.rules.grammar import BrokenGrammar, Url, is_plain
from sandbox.egress.rules.host_rules import HEADER_NAME, OF_THE_CONNECTION
from tools.definitions.fields import DefinitionFields
from tools.definitions.texts.names import PARAMETER_NAME, flaw_in_text

PLACEHOLDER = re.compile(rf"\{{({PARAMETER_NAME.pattern})\}}")
Arguments = Mapping[str, Any]
LONGEST_URL_TEMPLATE = 4_096
LONGEST_VALUE = 2_000
MOST_ENTRIES = 100
MOST_SELECTED = 50
CREDENTIAL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
COOKIE_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_HEADER_TEXT = re.compile(r"[\t -~]*")
_FIELDS = (
    *("method", "url", "headers", "query", "cookies", "body", "form", "text", "select"),
    "credential",
)
# Credentials add secrets; the broker and the program handle framing and decompression.
_RESERVED = OF_THE_CONNECTION | {"authorization", "cookie", "cookie2", "accept-encoding"}
BODIES = ("body", "form", "text")


class AbsentArgument(Exception):
    """An argument the text needs was not given: the element with the text is left out."""


class UnusableArgument(ValueError):
    """An argument cannot be used at its placeholder. The text is for the caller."""


def placeholder_names(template: Any) -> Iterator[str]:
    """The placeholders of every text in a template, keys aside."""
    if isinstance(template, str):
        yield from PLACEHOLDER.findall(template)
    elif isinstance(template, dict):
        for part in template.values():
            yield from placeholder_names(part)
    elif isinstance(template, list):
        for part in template:
            yield from placeholder_names(part)


def sole_placeholder(template: str) -> str | None:
    """The name where a text is one placeholder and nothing else."""
    found = PLACEHOLDER.fullmatch(template)
    return found[1] if found else None


def argument_text(name: str, value: Any) -> str:
    """A value in a URL, a header or a form; a list with commas. Raises `UnusableArgument`."""
    if isinstance(value, list):
        return ",".join(_item_text(name, item) for item in value)
    return _item_text(name, value)


def _item_text(name: str, value: Any) -> str:
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if not isinstance(value, str):
        raise UnusableArgument(
            f"The argument {name} must be a text, a number, a boolean or a list of them here."
        )
    return value


def require_argument(name: str, arguments: Arguments) -> Any:
    """Outside JSON, null is nothing. Raises `AbsentArgument`."""
    if arguments.get(name) is None:
        raise AbsentArgument(name)
    return arguments[name]


def fill_text(template: str, arguments: Arguments) -> str:
    """Raises `AbsentArgument` and `UnusableArgument`."""
    return PLACEHOLDER.sub(
        lambda found: argument_text(found[1], require_argument(found[1], arguments)), template
    )


def fill_json(template: Any, arguments: Arguments) -> Any:
    """A JSON template with its values; members and items whose argument is absent are left out.

    Raises `AbsentArgument` where the whole of it is.
    """
    if isinstance(template, dict):
        pairs = ((key, _fill_or_absent(part, arguments)) for key, part in template.items())
        return {key: value for key, value in pairs if value is not AbsentArgument}
    if isinstance(template, list):
        items = (_fill_or_absent(part, arguments) for part in template)
        return [value for value in items if value is not AbsentArgument]
    if not isinstance(template, str):
        return template
    name = sole_placeholder(template)
    if name is None:
        return PLACEHOLDER.sub(lambda found: _embedded_text(found[1], arguments), template)
    if name not in arguments:
        raise AbsentArgument(name)
    return arguments[name]


def _fill_or_absent(part: Any, arguments: Arguments) -> Any:
    try:
        return fill_json(part, arguments)
    except AbsentArgument:
        return AbsentArgument


def _embedded_text(name: str, arguments: Arguments) -> str:
    """Inside other text of a body: lists and objects as JSON."""
    value = require_argument(name, arguments)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class Method(StrEnum):
    GET = "GET"
    HEAD = "HEAD"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class Separator(StrEnum):
    """Between the items of a list that is one value of the query."""

    COMMA = ","
    SPACE = " "
    PIPE = "|"


class Style(StrEnum):
    """How an argument with parts is one entry or several, in a query or a form."""

    FORM = "form"  # each member is an entry of its own name
    DEEP_OBJECT = "deepObject"  # each member is an entry: name[member]
    JSON = "json"  # one entry, of which the value is JSON


BODILESS = frozenset({Method.GET, Method.HEAD})


def read_http(fields: DefinitionFields, definition: DefinitionFields) -> dict[str, Any]:
    """Parts that are not given have no key."""
    fields.reject_unknown(_FIELDS)
    written: dict[str, Any] = {"method": fields.choice("method", Method), "url": _read_url(fields)}
    for name, reader in _OPTIONAL_READERS.items():
        if fields.has_value(name):
            written[name] = reader(fields)
    bodies = [name for name in BODIES if name in written]
    for name in bodies[1:]:
        fields.wrong(name, f"excludes {bodies[0]}")
    for name in bodies:
        if written["method"] in BODILESS:
            fields.wrong(name, f"is not sent with {written['method']}")
    _check_placeholders(fields, definition, written)
    return written


def flaw_in_header(name: str) -> str | None:
    """Why a definition may not set a header, or None."""
    likened = name.lower().replace("_", "-")
    if not HEADER_NAME.fullmatch(name):
        return "is no name of a header"
    if likened in _RESERVED or likened.startswith(("proxy-", "sec-")):
        return "is not a definition's to set; secrets are added by credentials"
    return None


def _read_url(fields: DefinitionFields) -> str:
    url = fields.text("url", longest=LONGEST_URL_TEMPLATE)
    if url and (flaw := _flaw_in_url(url)):
        fields.wrong("url", flaw)
    return url


def _flaw_in_url(url: str) -> str | None:
    place, target = split_url(url)
    if "{" in place or "}" in place:
        return "must name scheme, host and port; placeholders stand behind them, in the path"
    if "{" in target.partition("?")[2]:
        return "may have placeholders in its path; those of the query belong into query"
    plain = PLACEHOLDER.sub("x", target)
    if "{" in plain or "}" in plain:
        return "has a brace that belongs to no placeholder"
    try:
        read = Url.parse(place + plain)
    except BrokenGrammar as error:
        return f"cannot be asked for: {error}"
    return None if is_plain(read.path) else "has a path with '.', '..' or an odd escape"


def split_url(url: str) -> tuple[str, str]:
    """Scheme with authority, and the rest: from the first character that can end an authority."""
    start = url.find("://") + 3
    end = next((at for at in range(start, len(url)) if url[at] in "/?#\\"), len(url))
    return url[:end], url[end:]


def _read_headers(fields: DefinitionFields) -> dict[str, str]:
    headers = _read_texts(fields, "headers")
    for name, value in headers.items():
        if flaw := flaw_in_header(name):
            fields.wrong(f"headers.{name[:64]}", flaw)
        if not _HEADER_TEXT.fullmatch(value):
            fields.wrong(f"headers.{name[:64]}", "may hold only printable ASCII characters")
    if len({name.lower() for name in headers}) != len(headers):
        fields.wrong("headers", "names a header twice")
    return headers


def _read_entries(fields: DefinitionFields, member: str) -> dict[str, Any]:
    """Of a query or a form: texts, or objects of a text and how its argument's parts are sent."""
    raw = _read_object(fields, member)
    return {name: _read_entry(fields, f"{member}.{name}", value) for name, value in raw.items()}


def _read_entry(fields: DefinitionFields, place: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return _read_text(fields, place, value)
    inner = DefinitionFields(value, fields.flaws, f"{fields.prefix}{place}.")
    inner.reject_unknown(("value", "separator", "style"))
    text = _read_text(inner, "value", value.get("value"))
    if not inner.has_value("style"):
        return {"value": text, "separator": inner.choice("separator", Separator)}
    if inner.has_value("separator"):
        inner.wrong("separator", "excludes style")
    if sole_placeholder(text) is None:
        inner.wrong("value", "must be one placeholder and nothing else where a style is given")
    return {"value": text, "style": inner.choice("style", Style)}


def _read_cookies(fields: DefinitionFields) -> dict[str, str]:
    cookies = _read_texts(fields, "cookies")
    for name in cookies:
        if not COOKIE_NAME.fullmatch(name):
            fields.wrong(f"cookies.{name[:64]}", "is no name of a cookie")
    return cookies


def _read_texts(fields: DefinitionFields, member: str) -> dict[str, str]:
    raw = _read_object(fields, member)
    return {name: _read_text(fields, f"{member}.{name}", value) for name, value in raw.items()}


def _read_object(fields: DefinitionFields, member: str) -> dict[str, Any]:
    raw = fields.object(member, {})
    if len(raw) > MOST_ENTRIES:
        fields.wrong(member, f"may have at most {MOST_ENTRIES} entries")
        return {}
    for name in raw:
        if not name or flaw_in_text(name, longest=200):
            fields.wrong(member, "has a name that is empty, too long or not printable")
    return raw


def _read_text(fields: DefinitionFields, place: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_VALUE:
        fields.wrong(place, f"must be a text of at most {LONGEST_VALUE} characters")
        return ""
    return value


def _read_select(fields: DefinitionFields) -> Any:
    """One JSON pointer, a list of them, or an object of names and pointers."""
    select = fields.raw["select"]
    several = list(select.values()) if isinstance(select, dict) else select
    pointers = several if isinstance(several, list) else [several]
    if not pointers or len(pointers) > MOST_SELECTED or not all(map(_is_pointer, pointers)):
        fields.wrong(
            "select",
            f"must be a JSON pointer such as /data/0/name, or 1 to {MOST_SELECTED} of them in a "
            "list or an object",
        )
    return select


def _is_pointer(text: Any) -> bool:
    return isinstance(text, str) and len(text) <= LONGEST_VALUE and bool(_POINTER.fullmatch(text))


def _read_credential(fields: DefinitionFields) -> str:
    name = fields.text("credential", longest=63)
    if name and not CREDENTIAL_NAME.fullmatch(name):
        fields.wrong("credential", "may hold only letters, digits, '_', '.' and '-'")
    return name


_OPTIONAL_READERS = {
    "headers": _read_headers,
    "query": lambda fields: _read_entries(fields, "query"),
    "cookies": _read_cookies,
    "body": lambda fields: fields.raw["body"],
    "form": lambda fields: _read_entries(fields, "form"),
    "text": lambda fields: _read_text(fields, "text", fields.raw["text"]),
    "select": _read_select,
    "credential": _read_credential,
}


def _check_placeholders(
    fields: DefinitionFields, definition: DefinitionFields, written: dict[str, Any]
) -> None:
    known, required = _declared_parameters(definition.raw)
    used: set[str] = set()
    for place, name in _find_placeholders(written):
        used.add(name)
        if name not in known:
            fields.wrong(place, f"has the placeholder {{{name}}}, which is no parameter")
        elif place == "url" and name not in required and not known[name]:
            fields.wrong(place, f"needs {{{name}}}: make the parameter required")
    if unused := sorted(required - used):
        names = ", ".join(unused)[:200]
        definition.wrong("parameters", f"required, but no part of the request: {names}")


def _find_placeholders(written: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for part in ("url", "headers", "query", "cookies", *BODIES):
        for name in placeholder_names(written.get(part)):
            yield part, name


def _declared_parameters(raw: dict[str, Any]) -> tuple[dict[str, bool], set[str]]:
    """Every parameter and whether it has a default; and the required ones. Nothing is trusted."""
    if parameters := raw.get("parameters"):
        objects = [one for one in _as_list(parameters) if isinstance(one, dict)]
        known = {str(one.get("name")): one.get("default") is not None for one in objects}
        return known, {str(one.get("name")) for one in objects if one.get("required") is True}
    schema = raw.get("input_schema")
    schema = schema if isinstance(schema, dict) else {}
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    known = {name: isinstance(one, dict) and "default" in one for name, one in properties.items()}
    return known, {one for one in _as_list(schema.get("required")) if isinstance(one, str)}


def _as_list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()
