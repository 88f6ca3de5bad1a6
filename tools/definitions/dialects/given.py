"""Splits files and pasted text into entries that a person may choose from before an import."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.definitions.dialects import documents, items
from tools.definitions.dialects.documents import MAX_BYTES, ImportDocument
from tools.definitions.dialects.items import MAX_ITEMS, ImportItem, ImportSelection, ImportSource
from tools.definitions.dialects.lines import Lines
from tools.definitions.openapi import BadOpenApiDocument
from tools.definitions.openapi.overview import OfferedOperation, read_overview
from tools.definitions.openapi.servers import ServerVariable
from tools.errors import Malformed, TooLarge

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
            return self.item.lines.at(()) if self.item else None
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
        return document.lines.at(("paths", key))
    method, _, path = key.partition(" ")
    return document.lines.at(("paths", path, method.lower()))


def decode_file(raw: bytes) -> str:
    """The text of a file. Raises `Unreadable`, `TooLarge`."""
    if raw.startswith(_ARCHIVES) or raw[_TAR_AT : _TAR_AT + len(_TAR_MARK)] == _TAR_MARK:
        raise documents.unreadable_document(
            "is an archive: unpack it, and give the files that were in it"
        )
    return documents.decode_document(raw)


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
    for document in documents.parse_documents(
        one.text, openapi=source in {None, ImportSource.OPENAPI}
    ):
        yield document, source or items.detect_source(document)


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
            split = items.split_document(document, kind, choice)
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
        raise documents.unreadable_document(
            f"cannot be used: {error}", document.lines.at(())
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
