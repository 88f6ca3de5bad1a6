"""Parses JSON and YAML documents, one or several, and finds the line of each of their parts."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.descriptors import canonical_key
from tools.definitions.values import plain_yaml, strict_json
from tools.errors import Malformed, TooLarge

LinePath = tuple[str | int, ...]
DEEPEST_PATH = 8  # no error names anything below
# An unterminated text reaches to the document's end: no document is read twice.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{},:]|[^\s\[\]{},:"]++|\n', re.DOTALL)
_FIELD_STEP = re.compile(r"\[(\d+)\]|([^.\[]+)")
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
class Lines:
    """Lines by path. Keys are found in whatever spelling they were written."""

    known: dict[LinePath, int] = field(default_factory=dict)
    base: LinePath = ()

    def find_line(self, place: LinePath) -> int | None:
        """The line of a part of the document, or else of the part around it."""
        path = (*self.base, *(_canonical_step(step) for step in place))
        for length in range(len(path), -1, -1):
            if path[:length] in self.known:
                return self.known[path[:length]]
        return None

    def field_line(self, where: str) -> int | None:
        """The line of a field as errors name it, such as `arguments[0].type`."""
        steps = _FIELD_STEP.findall(where)
        return self.find_line(tuple(int(index) if index else key for index, key in steps))

    def nested_lines(self, *place: str | int) -> "Lines":
        return Lines(self.known, (*self.base, *(_canonical_step(step) for step in place)))

    def note(self, path: LinePath, line: int, is_key: bool = False) -> None:
        """A value has the line of its key; of two spellings of a key the later one counts."""
        if len(path) > DEEPEST_PATH:
            return
        place = tuple(_canonical_step(step) for step in path)
        if is_key or place not in self.known:
            self.known[place] = line


def _canonical_step(step: str | int) -> str | int:
    return canonical_key(step) if isinstance(step, str) else step


def json_lines(text: str) -> Lines:
    """Of a document that has been read already: nothing is checked here."""
    lines = Lines()
    for path, line, is_key in _scan_parts(text):
        lines.note(path, line, is_key)
    return lines


def duplicate_key_line(text: str) -> int | None:
    """The line of the first duplicate key of an object."""
    seen: set[LinePath] = set()
    for path, line, is_key in _scan_parts(text):
        if is_key and path in seen:
            return line
        if is_key:
            seen.add(path)
    return None


@dataclass
class _OpenContainer:
    """An object or a list that is being read."""

    path: LinePath
    is_list: bool
    index: int = 0
    key: str | None = None

    def current_path(self) -> LinePath:
        return (*self.path, self.index if self.is_list else self.key or "")


def _scan_parts(text: str) -> Iterator[tuple[LinePath, int, bool]]:
    """(path, line, whether it is that of a key) of every value, and of every key."""
    line, stack = 1, list[_OpenContainer]()
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark == "\n":
            line += 1
        elif mark in "]}" and stack:
            stack.pop()
        elif mark == "," and stack:
            stack[-1].index += 1
            stack[-1].key = None
        elif mark not in ",:]}":
            yield from _open_value(stack, mark, line)


def _open_value(
    stack: list[_OpenContainer], mark: str, line: int
) -> Iterator[tuple[LinePath, int, bool]]:
    top = stack[-1] if stack else None
    if top is not None and not top.is_list and top.key is None:
        top.key = _unquote(mark)
        yield top.current_path(), line, True
        return
    path = top.current_path() if top else ()
    if top is None or top.is_list:
        yield path, line, False
    if mark in "[{":
        stack.append(_OpenContainer(path, mark == "["))


def _unquote(mark: str) -> Any:
    try:
        return str(json.loads(mark))
    except ValueError:
        return mark


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

    def noting() -> plain_yaml.Note:
        lines.append(Lines())
        return lines[-1].note

    try:
        values = plain_yaml.parse(text, noting)
    except plain_yaml.BadYaml as error:
        raise unreadable_document(str(error), error.line) from None
    found = [ImportDocument(value, where) for value, where in zip(values, lines, strict=False)]
    for one in found:
        _check_value(one.value, openapi=openapi)
    return [one for one in found if one.value is not None]
