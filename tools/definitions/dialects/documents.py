"""Parses JSON and YAML documents, one or several, with line numbers."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.dialects import yaml
from tools.definitions.dialects.lines import Lines, duplicate_key_line, json_lines
from tools.definitions.values import strict_json
from tools.errors import Malformed, TooLarge

MAX_BYTES = 4 * 1024 * 1024
_LINE_OF_ERROR = re.compile(r"at line (\d+)")
_JSON_STARTS = ("{", "[", "//", "/*")
# A JSON text is skipped as a whole; an unterminated one reaches to the document's end.
_JSON_TEXT = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_COMMENT = re.compile(rf"{_JSON_TEXT}|//[^\n\r]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/|\Z)", re.DOTALL)
# A comma without a value before it is kept, and is an error.
_COMMA = re.compile(rf"{_JSON_TEXT}|[\[{{:,]\s*+,|,(?=\s*+[}}\]])", re.DOTALL)
_VISIBLE = re.compile(r"[^\s]")


@dataclass(frozen=True)
class ImportDocument:
    value: Any
    lines: Lines = field(default_factory=Lines)


class UnreadableDocument(Malformed):
    """A document that cannot be parsed; nothing of it was read."""

    code = "invalid_document"


def unreadable_document(message: str, line: int | None = None) -> UnreadableDocument:
    where = "" if line is None else f" (line {line})"
    flaw = {"field": "document", "message": message, "line": line}
    return UnreadableDocument(f"The document {message}{where}.", errors=[flaw])


def parse_documents(source: Any, *, openapi: bool = False) -> list[ImportDocument]:
    """The documents of a text, or the one that a parsed value is. With `openapi` the numbers and
    texts of an OpenAPI document are left to the OpenAPI reader. Raises `Malformed`."""
    if not isinstance(source, str):
        return [ImportDocument(_check_value(source, openapi=openapi))]
    if len(source) > MAX_BYTES or len(source.encode("utf-8", "replace")) > MAX_BYTES:
        raise TooLarge(f"The document is larger than {MAX_BYTES} bytes; import it in parts.")
    text = source.removeprefix("\ufeff")
    if not text.strip():
        raise unreadable_document("is empty")
    if text.lstrip().startswith(_JSON_STARTS):
        return [_parse_json(text, openapi=openapi)]
    return _parse_yaml(text, openapi=openapi)


def decode_document(raw: bytes) -> str:
    """Raises `UnreadableDocument`, `TooLarge`."""
    if len(raw) > MAX_BYTES:
        raise TooLarge(f"The document is larger than {MAX_BYTES} bytes; import it in parts.")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise unreadable_document(f"is not UTF-8 at byte {error.start}") from None


def _check_value(value: Any, *, openapi: bool) -> Any:
    try:
        strict_json.check(value, scalars=not (openapi and is_openapi(value)))
    except strict_json.BadJson as error:
        raise unreadable_document(f"cannot be used: {error}") from None
    if len(json.dumps(value, ensure_ascii=False, default=str)) > MAX_BYTES:
        raise TooLarge(f"The document is larger than {MAX_BYTES} bytes; import it in parts.")
    return value


def _parse_json(text: str, *, openapi: bool) -> ImportDocument:
    try:
        value = strict_json.parse_repairable(text)
        strict_json.check(value, scalars=not (openapi and is_openapi(value)))
        return ImportDocument(value, json_lines(text))
    except strict_json.BadJson as error:
        if (found := _parse_with_comments(text)) is not None:
            return found
        said = _LINE_OF_ERROR.search(str(error))
        line = int(said.group(1)) if said else None
        if line is None and "stands twice" in str(error):
            line = duplicate_key_line(text)
        raise unreadable_document(f"cannot be used: {error}", line) from None


def _parse_with_comments(text: str) -> ImportDocument | None:
    """The configuration of a desktop client: these may have comments and trailing commas. Nothing
    else is parsed so."""
    plain = _COMMA.sub(_blank_out, _COMMENT.sub(_blank_out, text))  # every part keeps its position
    try:
        value = strict_json.parse(plain)
    except strict_json.BadJson:
        return None
    return ImportDocument(value, json_lines(plain)) if is_client_config(value) else None


def is_client_config(value: Any) -> bool:
    """Whether it is a desktop client's configuration of MCP servers."""
    names = ("mcpServers", "servers")
    return isinstance(value, dict) and any(isinstance(value.get(name), dict) for name in names)


def is_openapi(value: Any) -> bool:
    """Whether it declares itself as OpenAPI. Parts of such a document that no tool needs, such as
    examples, may have any number and text: the OpenAPI reader checks what it uses."""
    return isinstance(value, dict) and ("openapi" in value or "swagger" in value)


def _blank_out(found: re.Match[str]) -> str:
    said = found.group()
    return _VISIBLE.sub(" ", said) if said == "," or said.startswith("/") else said


def _parse_yaml(text: str, *, openapi: bool) -> list[ImportDocument]:
    lines: list[Lines] = []

    def noting() -> yaml.Note:
        lines.append(Lines())
        return lines[-1].note

    try:
        values = yaml.parse(text, noting)
    except yaml.BadYaml as error:
        raise unreadable_document(str(error), error.line) from None
    found = [ImportDocument(value, where) for value, where in zip(values, lines, strict=False)]
    for one in found:
        _check_value(one.value, openapi=openapi)
    return [one for one in found if one.value is not None]
