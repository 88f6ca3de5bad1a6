"""`/import/`: submit documents, preview the result of each item, and write exactly that. The
preview must not contain headers, environments or tokens.
"""

import json
from collections import Counter
from typing import Any

from django.http.response import HttpResponseBase

from tools.accounts.user_permissions import may
from tools.catalog.imports.import_preview import (
    LEFT_OUT,
    UNREAD,
    Choices,
    ImportPreviewRow,
    open_part,
)
from tools.catalog.imports.import_results import CREATED, REFUSED, REVIEW, UNCHANGED, UPDATED
from tools.definitions.dialects.import_documents import MAX_BYTES
from tools.definitions.dialects.import_entries import ImportEntry, ImportItem, ImportItemKind
from tools.definitions.differences import DefinitionDifference
from tools.definitions.servers import ServerTransport, read_server
from tools.definitions.texts.lookalikes import make_visible
from tools.errors import InvalidDefinition
from tools.models import McpServer
from tools.ui.catalog.import_form import DIALECTS, NOT_WRITTEN, TEMPLATE, ImportForm
from tools.ui.display import definition_text
from tools.web.pages import PageRequest, form_page
from tools.web.reauthentication import Proof

MOST_CHANGES = 30
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
_LONGEST = 300
_RESULTS = (
    (CREATED, "new"), (UPDATED, "changed"), (REVIEW, "to be reviewed"), (UNCHANGED, "unchanged"),
    (UNREAD, "to be read"), (REFUSED, "wrong"), (LEFT_OUT, "left out"),
)  # fmt: skip


def preview_row(row: ImportPreviewRow, choices: Choices, written: bool) -> dict[str, Any]:
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
        "kind": _entry_kind(entry),
        "word": word,
        "tone": tone,
        "about": make_visible(_entry_description(entry)),
        "errors": row.errors,
        "notes": row.notes,
        "changes": [_change_row(one) for one in row.changes[:MOST_CHANGES]],
        "more": max(0, len(row.changes) - MOST_CHANGES),
        "tool": row.name if there and is_tool else "",
        "review": _review_parts(row),
    }


@form_page(Proof.NOT_NEEDED, "add_tool")
def import_page(request: PageRequest) -> HttpResponseBase:
    form = ImportForm(request)
    written = form.save()
    results = Counter(row.result for row in form.rows)
    rows = [preview_row(row, form.choices, written) for row in form.rows]
    context = {
        "written": written,
        "rows": rows,
        "totals": [
            (one, word, results[one]) for one, word in _RESULTS if results[one] or one == REFUSED
        ],
        "wrong": sum(results[one] for one in NOT_WRITTEN),
        "unread": results[UNREAD],
        "imported": results[CREATED] + results[UPDATED],
        "reviews": results[REVIEW],
        "recognized": [
            (place, [DIALECTS[kind] for kind in dict.fromkeys(kinds)])
            for place, kinds in form.found.sources.items()
        ],
        "servers": _server_names(request, form),
        "most_mib": MAX_BYTES // 1024 // 1024,
        "may_export": may(request.caller, "view_tool"),
    }
    return form.show(TEMPLATE, context)


def _review_parts(row: ImportPreviewRow) -> dict[str, Any] | None:
    """The suspicious parts of a definition that a user must review, or has reviewed."""
    review = row.entry.item.review if row.entry.item else None
    if review is None or row.result == LEFT_OUT:
        return None
    text = definition_text(review.raw, review.suspicions)
    return {"text": text, "digest": review.digest, "unread": row.result == UNREAD}


def _entry_kind(entry: ImportEntry) -> str:
    if entry.operation:
        return "path" if entry.key.startswith("/") else "operation"
    return _KINDS.get(entry.item.kind, "") if entry.item and entry.item.kind else ""


def _change_row(one: DefinitionDifference) -> dict[str, str]:
    return {
        "path": one.path.lstrip("/").replace("/", "."),
        "before": _value_text(one.before),
        "after": _value_text(one.after),
        "warnings": "; ".join(one.warnings),
    }


def _value_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "–" if value is None else text
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _entry_description(entry: ImportEntry) -> str:
    if entry.operation:
        return entry.operation.summary
    item = entry.item
    if item is None or not isinstance(item.value, dict):
        return ""
    if item.kind == ImportItemKind.SERVER:
        return _server_description(item)
    said = item.value.get("description")
    return said[:_LONGEST] if isinstance(said, str) else ""


def _server_description(item: ImportItem) -> str:
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


def _server_names(request: PageRequest, form: ImportForm) -> list[str]:
    """Those that the reader may view, and those of the documents."""
    rows = McpServer.objects.filter(organization=request.user.organization).order_by("name")
    known = rows.values_list("name", flat=True) if may(request.caller, "view_mcpserver") else ()
    coming = [
        one.key.partition("/")[2] for one in form.found.entries
        if one.item and one.item.kind == ImportItemKind.SERVER
    ]  # fmt: skip
    return list(dict.fromkeys([*known, *coming]))
