"""Import with a preview: a person confirms the exact result that was shown, or nothing is imported.

The import is done both times, in one transaction that keeps others from the catalog; the
transaction commits only if the caller accepts its very rows.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import Q

from audit.actions import Actor
from tools.catalog.imports.catalog_export import written
from tools.catalog.imports.catalog_import import ImportOptions, import_items
from tools.catalog.imports.import_results import (
    REFUSED,
    ItemImportResult,
    kept_server,
    name_of,
    service_descriptor,
)
from tools.catalog.imports.openapi_import import import_openapi
from tools.definitions.dialects.import_entries import (
    ImportContents,
    ImportEntry,
    ImportItem,
    ImportItemKind,
)
from tools.definitions.differences import DefinitionDifference, DifferenceKind, compare_definitions
from tools.definitions.openapi.operations import read_overview
from tools.models import McpServer, Organization, Tool, ToolService

LEFT_OUT = "left out"
UNREAD = "unread"  # a person must read its definition first
HIDDEN = "•••"
# Of a server: what may hold a secret is compared, and never shown.
_SECRET = frozenset({"headers", "env", "args"})
States = Mapping[tuple[ImportItemKind, str], dict[str, Any]]


@dataclass(frozen=True)
class Choices:
    """A person's choices beside the documents. `taken`: the numbers of chosen entries; None: no
    choice was made, and all offered entries are taken."""

    group: list[str] | None = None
    server: str = ""  # of the tools of an MCP server that name none
    address: str = ""  # in place of an OpenAPI document's own server
    variables: Mapping[str, str] = field(default_factory=dict)  # in the address of that server
    credentials: Mapping[str, str] = field(default_factory=dict)
    taken: frozenset[int] | None = None
    read: frozenset[str] = frozenset()  # digests of suspicious definitions that the person has read

    def takes(self, entry: ImportEntry) -> bool:
        return entry.offered if self.taken is None else entry.number in self.taken


@dataclass(frozen=True)
class ImportPreviewRow:
    """The result of one entry."""

    entry: ImportEntry
    name: str
    result: str
    errors: list[dict[str, Any]] = field(default_factory=list)
    changes: list[DefinitionDifference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "number": self.entry.number, "key": self.entry.key, "name": self.name,
            "result": self.result, "errors": self.errors, "notes": self.notes,
            "changes": [one.as_dict() for one in self.changes],
        }  # fmt: skip


def perform(
    *,
    organization: Organization,
    read: ImportContents,
    choices: Choices,
    by: Actor,
    keep: Callable[[list[ImportPreviewRow]], bool],
) -> list[ImportPreviewRow]:
    """A row for every entry, in their order. Raises `Malformed`, and what `keep` raises."""
    with transaction.atomic():
        # Every change of the catalog increments this row first, and waits here.
        Organization.objects.select_for_update(no_key=True).get(pk=organization.pk)
        rows = _performed(organization, read, choices, by)
        if not keep(rows):
            transaction.set_rollback(True)
    return rows


def digest(rows: Iterable[ImportPreviewRow]) -> str:
    """A digest of all that the person was shown."""
    text = json.dumps([row.as_dict() for row in rows], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _performed(
    organization: Organization, read: ImportContents, choices: Choices, by: Actor
) -> list[ImportPreviewRow]:
    taken = [entry for entry in read.entries if choices.takes(entry)]
    unread = [entry for entry in taken if entry.item and entry.item.unread]
    rows = {
        entry.number: ImportPreviewRow(entry, _name(entry), LEFT_OUT)
        for entry in read.entries
        if not choices.takes(entry)
    }
    rows |= {entry.number: ImportPreviewRow(entry, _name(entry), UNREAD) for entry in unread}
    rows |= _preview_items(organization, [one for one in taken if one not in unread], choices, by)
    rows |= _preview_operations(organization, taken, choices, by)
    return [rows[entry.number] for entry in read.entries]


def _name(entry: ImportEntry) -> str:
    return name_of(entry.item) if entry.item else ""


def _preview_items(
    organization: Organization, taken: list[ImportEntry], choices: Choices, by: Actor
) -> dict[int, ImportPreviewRow]:
    entries = [entry for entry in taken if entry.item]
    items = [entry.item for entry in entries if entry.item]
    way = ImportOptions(group=choices.group, server=choices.server)
    before = _states(organization, items)
    done = import_items(organization=organization, items=items, by=by, way=way)
    after = _states(organization, items)
    return {
        entry.number: _row(entry, one, before, after)
        for entry, one in zip(entries, done, strict=True)
    }


def _row(
    entry: ImportEntry, done: ItemImportResult, before: States, after: States
) -> ImportPreviewRow:
    item = entry.item
    assert item is not None
    key = (item.kind or ImportItemKind.TOOL, done.name)
    changes = [] if done.result == REFUSED else _changes(key, before, after)
    notes = [_note(finding) for finding in done.findings]
    return ImportPreviewRow(entry, done.name, done.result, done.errors, changes, notes)


def _note(finding: dict[str, Any]) -> str:
    """With the field before what is not a sentence of its own."""
    message = finding["message"]
    return message if message[:1].isupper() else f"{finding['field']} {message}"


def _changes(
    key: tuple[ImportItemKind, str], before: States, after: States
) -> list[DefinitionDifference]:
    if key not in before or key not in after:
        return []
    found = compare_definitions(before[key], after[key])
    return [_masked(one) for one in found] if key[0] == ImportItemKind.SERVER else found


def _masked(one: DefinitionDifference) -> DefinitionDifference:
    part = one.path.split("/")[1]
    if part == "url":  # what comes after the question mark may be a key
        return DefinitionDifference(one.path, one.kind, open_part(one.before), open_part(one.after))
    if part not in _SECRET:
        return one
    hidden = {DifferenceKind.ADDED: (None, HIDDEN), DifferenceKind.REMOVED: (HIDDEN, None)}
    was, now = hidden.get(one.kind, (HIDDEN, f"{HIDDEN} another value"))
    return DefinitionDifference(one.path, one.kind, was, now)


def open_part(address: Any) -> str:
    """An address without what may be a key in it."""
    base, mark, _ = str(address or "").partition("?")
    return f"{base}{mark}{HIDDEN}" if mark else base


def _states(
    organization: Organization, items: list[ImportItem]
) -> dict[tuple[ImportItemKind, str], Any]:
    """As they are now, by kind and name."""
    names = {name_of(item) for item in items}
    here = {"organization": organization, "name__in": names}
    said = {item.value.get("name") for item in items if isinstance(item.value, dict)}
    old = {name for name in said if isinstance(name, str)}
    tools = (
        Tool.objects.present()
        .select_related("version", "organization")
        .filter(Q(name__in=names | old) | Q(config_key__in=names), organization=organization)
    )
    found: dict[tuple[ImportItemKind, str], Any] = {
        (ImportItemKind.TOOL, one.name): written(one) for one in tools if one.version
    }
    for service in ToolService.objects.filter(**here):
        found[ImportItemKind.SERVICE, service.name] = service_descriptor(service)
    for server in McpServer.objects.filter(**here):
        found[ImportItemKind.SERVER, server.name] = kept_server(server)
    return found


def _preview_operations(
    organization: Organization, taken: list[ImportEntry], choices: Choices, by: Actor
) -> dict[int, ImportPreviewRow]:
    documents: dict[int, list[ImportEntry]] = {}
    for entry in taken:
        if entry.document is not None:
            documents.setdefault(id(entry.document), []).append(entry)
    found: dict[int, ImportPreviewRow] = {}
    for entries in documents.values():
        found |= _preview_document(organization, entries, choices, by)
    return found


def _preview_document(
    organization: Organization, entries: list[ImportEntry], choices: Choices, by: Actor
) -> dict[int, ImportPreviewRow]:
    document = entries[0].document
    assert document is not None
    rows = import_openapi(
        organization=organization,
        document=document.value,
        by=by,
        pick=[entry.key for entry in entries],
        group=choices.group,
        server=choices.address or None,
        variables={} if choices.address else _document_variables(document.value, choices.variables),
        credentials={ours: name for ours, name in choices.credentials.items() if name},
    )
    by_key = {row["key"]: row for row in rows}
    return {entry.number: _operation(entry, by_key[entry.key]) for entry in entries}


def _document_variables(document: Any, variables: Mapping[str, str]) -> dict[str, str]:
    """Those that this document has: several may be imported together."""
    known = read_overview(document).variables
    return {name: value for name, value in variables.items() if value and name in known}


def _operation(entry: ImportEntry, row: dict[str, Any]) -> ImportPreviewRow:
    errors = [error | {"line": entry.line} for error in row["errors"]]
    changes = [
        DefinitionDifference(
            "/" + one["field"].replace(".", "/"), DifferenceKind.CHANGED,
            one["before"], one["after"]
        )
        for one in row["changes"] if row["errors"] == []
    ]  # fmt: skip
    return ImportPreviewRow(entry, row["name"], row["result"], errors, changes, row["notes"])
