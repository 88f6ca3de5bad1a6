"""The preview of an import for its page. It must not contain headers, environments or tokens."""

import json
import re
from typing import Any

from tools.catalog.imports.import_preview import (
    LEFT_OUT,
    UNREAD,
    Choices,
    ImportPreviewRow,
    open_part,
)
from tools.catalog.imports.importing_items import CREATED, REFUSED, REVIEW, UNCHANGED, UPDATED
from tools.definitions.dialects.import_entries import (
    ImportContents,
    ImportEntry,
    ImportFile,
    ImportItem,
    ImportItemKind,
    ImportSource,
)
from tools.definitions.differences import DefinitionDifference
from tools.definitions.servers import ServerTransport, read_server
from tools.definitions.texts.lookalikes import make_visible
from tools.errors import InvalidDefinition
from tools.ui.definition_text import definition_text

DIALECTS = {
    ImportSource.ITEMS: "TrustGraph items by key",
    ImportSource.DEFINITIONS: "definitions, or an export",
    ImportSource.MCP: "the tools/list of an MCP server",
    ImportSource.CLIENT: "MCP servers of a desktop client",
    ImportSource.OPENAPI: "OpenAPI",
}
_CHIPS = {  # words and colours
    CREATED: ("new", "success"), UPDATED: ("changed", "changed"), UNCHANGED: ("unchanged", ""),
    REVIEW: ("to be reviewed", "pending"), REFUSED: ("wrong", "failure"),
    LEFT_OUT: ("left out", "disabled"), UNREAD: ("to be read", "pending"),
}  # fmt: skip
_KINDS = {
    ImportItemKind.TOOL: "tool", ImportItemKind.SERVICE: "tool service",
    ImportItemKind.SERVER: "MCP server",
    ImportItemKind.PROMPT: "prompt",
}  # fmt: skip
MOST_CHANGES = 30
_LONGEST = 300
# In a text that cannot be parsed, each of these may be followed by a secret.
_SECRETIVE = re.compile(
    r"mcpservers|headers|\benv\b|auth.?token|authorization|bearer|secret|password|api.?key|\bmcp/",
    re.IGNORECASE,
)


def echo(given: tuple[ImportFile, ...], read: ImportContents) -> str | None:
    """The pasted text to show again; None where it may hold a secret."""
    text = next((one.text for one in given if not one.name), "")
    whole = any(not entry.place and entry.source for entry in read.entries)
    servers = any(entry.item and entry.item.kind == ImportItemKind.SERVER for entry in read.entries)
    odd = any(
        not entry.place and entry.item and entry.item.flaw and not entry.item.unread
        for entry in read.entries
    )
    if servers or ((odd or not whole) and _SECRETIVE.search(text)):
        return None
    return text


def shown_row(row: ImportPreviewRow, choices: Choices, written: bool) -> dict[str, Any]:
    entry = row.entry
    word, tone = _CHIPS[row.result]
    there = written and row.result in {CREATED, UPDATED, UNCHANGED, REVIEW}
    is_tool = entry.operation is not None or (entry.item and entry.item.kind == ImportItemKind.TOOL)
    return {
        "number": entry.number,
        "taken": choices.takes(entry),
        "name": make_visible(row.name or entry.key),
        "key": make_visible(entry.key),
        "place": entry.place,
        "kind": _kind(entry),
        "word": word,
        "tone": tone,
        "about": make_visible(_about(entry)),
        "errors": row.errors,
        "notes": row.notes,
        "changes": [_change(one) for one in row.changes[:MOST_CHANGES]],
        "more": max(0, len(row.changes) - MOST_CHANGES),
        "tool": row.name if there and is_tool else "",
        "review": _review(row),
    }


def _review(row: ImportPreviewRow) -> dict[str, Any] | None:
    """The suspicious parts of a definition that a user must review, or has reviewed."""
    review = row.entry.item.review if row.entry.item else None
    if review is None or row.result == LEFT_OUT:
        return None
    text = definition_text(review.raw, review.suspicions)
    return {"text": text, "digest": review.digest, "unread": row.result == UNREAD}


def _kind(entry: ImportEntry) -> str:
    if entry.operation:
        return "path" if entry.key.startswith("/") else "operation"
    return _KINDS.get(entry.item.kind, "") if entry.item and entry.item.kind else ""


def _change(one: DefinitionDifference) -> dict[str, str]:
    return {
        "path": one.path.lstrip("/").replace("/", "."),
        "before": _value(one.before),
        "after": _value(one.after),
        "warnings": "; ".join(one.warnings),
    }


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "–" if value is None else text
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _about(entry: ImportEntry) -> str:
    if entry.operation:
        return entry.operation.summary
    item = entry.item
    if item is None or not isinstance(item.value, dict):
        return ""
    if item.kind == ImportItemKind.SERVER:
        return _server(item)
    said = item.value.get("description")
    return said[:_LONGEST] if isinstance(said, str) else ""


def _server(item: ImportItem) -> str:
    """A server without its secrets: its address, and the names of its headers and variables."""
    try:
        server = read_server(item.value, item.id)
    except InvalidDefinition:
        return ""
    if server.transport == ServerTransport.STDIO:
        words = len(server.args)
        parts = [f"{server.command}, {words} argument{'' if words == 1 else 's'}"]
    else:
        parts = [open_part(server.url)]
    values = [*server.headers, *server.env]
    if values:
        parts.append(f"secret: {', '.join(values)}")
    return f"{server.transport} · {' · '.join(parts)}"
