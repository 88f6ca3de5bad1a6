"""Splits documents, files and pasted text into items, every tool, service, server and prompt in
them, that a person may choose from before an import.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from tools.definitions.dialects import import_documents, tools_list
from tools.definitions.dialects.import_documents import (
    MAX_BYTES,
    ImportDocument,
    Lines,
    is_client_config,
    is_openapi,
    json_lines,
    unreadable_document,
)
from tools.definitions.openapi import BadOpenApiDocument
from tools.definitions.openapi.openapi_document import ServerVariable
from tools.definitions.openapi.operations import OfferedOperation, read_overview
from tools.definitions.values import strict_json
from tools.errors import Malformed, TooLarge

MAX_ITEMS = 1_000
_EXPORT_KEYS = frozenset({"left_out"})  # keys of an export beside its content
_ARCHIVES = (
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"\x1f\x8b",
    b"BZh",
    b"\xfd7zXZ\x00",
    b"7z\xbc\xaf",
    b"Rar!",
)
_TAR_MARK, _TAR_AT = b"ustar", 257


class ImportSource(StrEnum):
    ITEMS = "items"
    DEFINITIONS = "definitions"
    MCP = "mcp"
    OPENAPI = "openapi"
    CLIENT = "mcp-config"


class ImportItemKind(StrEnum):
    """The first part of a key."""

    TOOL = "tool"
    SERVICE = "tool-service"
    SERVER = "mcp"
    PROMPT = "prompt"


@dataclass(frozen=True)
class ImportItem:
    kind: ImportItemKind | None
    id: str
    value: Any
    lines: Lines = field(default_factory=Lines)
    flaw: str = ""  # why it cannot be read at all
    keyed: bool = False  # its identifier is the name; `name` in the value of a tool is a title
    review: tools_list.ToolReview | None = None

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.id}" if self.kind else self.id

    @property
    def unread(self) -> bool:
        """Whether a person must read it before it is imported."""
        return self.review is not None and self.flaw != ""


@dataclass(frozen=True)
class ImportSelection:
    """The importing user's choices beside the document."""

    server: str = ""
    pick: tuple[Any, ...] = ()
    read: frozenset[str] = frozenset()  # digests of definitions that a person has read


def split_document(
    document: ImportDocument, source: ImportSource, choice: ImportSelection | None = None
) -> list[ImportItem]:
    """Raises `Malformed` where a document is not of that source, `TooLarge`."""
    return limit_items(_READERS[source](document, choice or ImportSelection()))


def limit_items(items: Iterable[ImportItem]) -> list[ImportItem]:
    found: list[ImportItem] = []
    for one in items:
        found.append(one)
        if len(found) > MAX_ITEMS:
            raise TooLarge(f"More than {MAX_ITEMS} items; import them in parts.")
    return found


def detect_source(document: ImportDocument) -> ImportSource:
    """Detects the source of a document by its content. Raises `Malformed`."""
    value = document.value
    if is_openapi(value):
        return ImportSource.OPENAPI
    if isinstance(value, dict):
        if is_client_config(value):
            return ImportSource.CLIENT
        if tools_list.is_tools_list(value):
            return ImportSource.MCP
        return ImportSource.ITEMS if _has_keys(value) else ImportSource.DEFINITIONS
    if isinstance(value, list):
        first = value[0] if value else None
        keyed = isinstance(first, dict) and "key" in first and "value" in first
        return ImportSource.ITEMS if keyed else ImportSource.DEFINITIONS
    raise unreadable_document("holds neither an object nor a list", document.lines.find_line(()))


def parse_item(key: str, value: Any, lines: Lines | None = None) -> ImportItem:
    """Of a key such as `tool/x` or `mcp/y`. The value may be the JSON text of it."""
    kind, _, name = key.partition("/")
    lines = lines or Lines()
    if kind not in set(ImportItemKind) or not name:
        known = ", ".join(f"{one}/<id>" for one in ImportItemKind)
        return ImportItem(None, key[:200], value, lines, f"has a key that is none of {known}")
    read = ImportItem(ImportItemKind(kind), name[:200], value, lines, keyed=True)
    if not isinstance(value, str):
        return read
    try:
        parsed = strict_json.parse_exact(value)
    except strict_json.BadJson as error:
        plain = kind == ImportItemKind.PROMPT  # which may be plain text
        return read if plain else replace(read, flaw=f"cannot be used: {error}")
    return replace(read, value=parsed, lines=lines if lines.known else json_lines(value))


def _read_items(document: ImportDocument, _: ImportSelection) -> Iterator[ImportItem]:
    value, lines = document.value, document.lines
    value, lines = _unwrap(value, lines, "config")
    value, lines = _unwrap(value, lines, "items")
    if isinstance(value, dict) and {"key", "value"} <= set(value):
        yield _parse_keyed(0, value, lines)
        return
    if isinstance(value, dict):
        yield from _parse_mapping(value, lines)
        return
    if not isinstance(value, list):
        raise unreadable_document(
            "holds no items; they are objects of key and value", lines.find_line(())
        )
    for at, one in enumerate(value):
        yield _parse_keyed(at, one, lines.nested_lines(at))


def _unwrap(value: Any, lines: Lines, key: str) -> tuple[Any, Lines]:
    if isinstance(value, dict) and set(value) <= {key, "version", *_EXPORT_KEYS} and key in value:
        return value[key], lines.nested_lines(key)
    return value, lines


def _parse_keyed(at: int, one: Any, lines: Lines) -> ImportItem:
    fits = isinstance(one, dict) and isinstance(one.get("key"), str) and "value" in one
    if not fits or not set(one) <= {"key", "value", "type", "workspace"}:
        return ImportItem(None, f"#{at + 1}", one, lines, "is no object of key and value")
    kind = one.get("type")
    key = f"{kind}/{one['key']}" if isinstance(kind, str) else one["key"]
    return parse_item(key, one["value"], lines.nested_lines("value"))


def _parse_mapping(value: dict[str, Any], lines: Lines) -> Iterator[ImportItem]:
    """`{"tool/x": …}`, or `{"tool": {"x": …}}` as a whole configuration is shown."""
    for key, below in value.items():
        if "/" in key or not isinstance(below, dict):
            yield parse_item(key, below, lines.nested_lines(key))
            continue
        for name, one in below.items():
            yield parse_item(f"{key}/{name}", one, lines.nested_lines(key, name))


def _has_keys(value: dict[str, Any]) -> bool:
    if {"key", "value"} <= set(value):
        return True
    if value and set(value) <= {"items", "config", "version", *_EXPORT_KEYS}:
        return True
    kinds = set(ImportItemKind)
    return bool(value) and all(key.partition("/")[0] in kinds for key in value)


_LISTS = {
    "tools": ImportItemKind.TOOL,
    "services": ImportItemKind.SERVICE,
    "servers": ImportItemKind.SERVER,
}


def _read_definitions(document: ImportDocument, _: ImportSelection) -> Iterator[ImportItem]:
    """One definition, a list of them, or what an export holds."""
    value, lines = document.value, document.lines
    if isinstance(value, list):
        yield from _parse_definitions(value, lines, None)
    elif isinstance(value, dict) and value and set(value) <= {*_LISTS, *_EXPORT_KEYS}:
        for key, below in value.items():
            if key in _EXPORT_KEYS:
                continue
            if not isinstance(below, list):
                raise unreadable_document(f"has {key}, which is not a list", lines.field_line(key))
            yield from _parse_definitions(below, lines.nested_lines(key), _LISTS[key])
    else:
        yield _parse_definition(0, value, lines, None)


def _parse_definitions(
    values: list[Any], lines: Lines, kind: ImportItemKind | None
) -> Iterator[ImportItem]:
    for at, one in enumerate(values):
        yield _parse_definition(at, one, lines.nested_lines(at), kind)


def _parse_definition(at: int, one: Any, lines: Lines, kind: ImportItemKind | None) -> ImportItem:
    if not isinstance(one, dict):
        return ImportItem(None, f"#{at + 1}", one, lines, "is no JSON object")
    if kind is None:
        kind = (
            ImportItemKind.SERVICE
            if "request-queue" in one and "type" not in one
            else ImportItemKind.TOOL
        )
    name = one.get("id" if kind == ImportItemKind.SERVICE else "name")
    return ImportItem(
        kind, name[:200] if isinstance(name, str) and name else f"#{at + 1}", one, lines
    )


def _read_tools_list(document: ImportDocument, choice: ImportSelection) -> Iterator[ImportItem]:
    listed = tools_list.definitions_from_list(document, choice.server, choice.pick, choice.read)
    for name, raw, lines, review in listed:
        flaw = raw if isinstance(raw, str) else ""
        yield ImportItem(ImportItemKind.TOOL, name[:200], raw, lines, flaw, review=review)


def _read_client_config(document: ImportDocument, _: ImportSelection) -> Iterator[ImportItem]:
    value = document.value
    key = "mcpServers" if isinstance(value, dict) and "mcpServers" in value else "servers"
    servers = value.get(key) if isinstance(value, dict) else None
    if not isinstance(servers, dict):
        raise unreadable_document("holds no mcpServers", document.lines.find_line(()))
    for name, one in servers.items():
        yield ImportItem(
            ImportItemKind.SERVER, name[:200], one, document.lines.nested_lines(key, name)
        )


def _refuse_openapi(document: ImportDocument, _: ImportSelection) -> Iterator[ImportItem]:
    """An update of an OpenAPI document keeps people's settings of its tools, which has another
    entry point."""
    raise unreadable_document(
        "is an OpenAPI document: import it alone, with import_openapi or POST /tools/import",
        document.lines.find_line(()),
    )


_READERS = {
    ImportSource.ITEMS: _read_items,
    ImportSource.DEFINITIONS: _read_definitions,
    ImportSource.MCP: _read_tools_list,
    ImportSource.OPENAPI: _refuse_openapi,
    ImportSource.CLIENT: _read_client_config,
}


@dataclass(frozen=True)
class ImportFile:
    """`name` is that of the file; "" of what was pasted."""

    name: str
    text: str


@dataclass(frozen=True)
class ImportEntry:
    """One item, or one operation of an OpenAPI document; `number` is its place among all."""

    number: int
    place: str
    source: ImportSource | None
    key: str
    item: ImportItem | None = None
    document: ImportDocument | None = None
    operation: OfferedOperation | None = None

    @property
    def line(self) -> int | None:
        if self.document is None:
            return self.item.lines.find_line(()) if self.item else None
        return operation_line(self.document, self.key)

    @property
    def offered(self) -> bool:
        """Whether it is imported when no choice was made."""
        return not (self.operation and self.operation.deprecated)


@dataclass
class ImportContents:
    entries: list[ImportEntry] = field(default_factory=list)
    unreadable: list[Malformed | TooLarge] = field(default_factory=list)
    sources: dict[str, list[ImportSource]] = field(default_factory=dict)  # by the file
    schemes: dict[str, str] = field(default_factory=dict)  # of OpenAPI: name, and its header
    variables: dict[str, ServerVariable] = field(default_factory=dict)  # of the servers of OpenAPI
    addresses: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether nothing of it could be parsed."""
        return not any(entry.source for entry in self.entries)


def operation_line(document: ImportDocument, key: str) -> int | None:
    """The line of an operation, named as in `GET /path`, or of a path."""
    if key.startswith("/"):
        return document.lines.find_line(("paths", key))
    method, _, path = key.partition(" ")
    return document.lines.find_line(("paths", path, method.lower()))


def decode_file(raw: bytes) -> str:
    """The text of a file. Raises `Unreadable`, `TooLarge`."""
    if raw.startswith(_ARCHIVES) or raw[_TAR_AT : _TAR_AT + len(_TAR_MARK)] == _TAR_MARK:
        raise import_documents.unreadable_document(
            "is an archive: unpack it, and give the files that were in it"
        )
    return import_documents.decode_document(raw)


def parse_files(
    given: Sequence[ImportFile], source: ImportSource | None, choice: ImportSelection
) -> ImportContents:
    """A file that cannot be parsed is one item with the reason. Raises `TooLarge`."""
    if sum(len(one.text.encode("utf-8", "replace")) for one in given) > MAX_BYTES:
        raise TooLarge(f"Together that is more than {MAX_BYTES} bytes; import it in parts.")
    found = ImportContents()
    for one in given:
        try:
            parts = list(_parse_file(one, source))
        except (Malformed, TooLarge) as error:
            _add_unreadable(found, one, error)
            continue
        for document, kind in parts:
            _add_document(found, one, document, kind, choice)
    return found


def _parse_file(
    one: ImportFile, source: ImportSource | None
) -> Iterator[tuple[ImportDocument, ImportSource]]:
    for document in import_documents.parse_documents(
        one.text, openapi=source in {None, ImportSource.OPENAPI}
    ):
        yield document, source or detect_source(document)


def _add_document(
    found: ImportContents,
    one: ImportFile,
    document: ImportDocument,
    kind: ImportSource,
    choice: ImportSelection,
) -> None:
    try:
        if kind == ImportSource.OPENAPI:
            entries = _operation_entries(found, document, one.name)
        else:
            split = split_document(document, kind, choice)
            entries = [{"key": item.key, "item": item} for item in split]
    except (Malformed, TooLarge) as error:
        _add_unreadable(found, one, error)
        return
    found.sources.setdefault(one.name, []).append(kind)
    for entry in entries:
        _add_entry(found, place=one.name, source=kind, **entry)


def _operation_entries(
    found: ImportContents, document: ImportDocument, place: str
) -> list[dict[str, Any]]:
    try:
        seen = read_overview(document.value)
    except BadOpenApiDocument as error:
        raise import_documents.unreadable_document(
            f"cannot be used: {error}", document.lines.find_line(())
        ) from None
    found.schemes |= seen.schemes
    found.variables |= seen.variables
    found.addresses.append(seen.address)
    return [{"key": one.key, "document": document, "operation": one} for one in seen.operations]


def _add_unreadable(found: ImportContents, one: ImportFile, error: Malformed | TooLarge) -> None:
    listed = error.details.get("errors") or [{}]
    line = listed[0].get("line")
    name = one.name or "document"
    item = ImportItem(None, name, None, Lines({(): line} if line else {}), error.message)
    found.unreadable.append(error)
    _add_entry(found, place=one.name, source=None, key=name, item=item)


def _add_entry(found: ImportContents, **entry: Any) -> None:
    if len(found.entries) == MAX_ITEMS:
        raise TooLarge(f"More than {MAX_ITEMS} items; import them in parts.")
    found.entries.append(ImportEntry(number=len(found.entries), **entry))
