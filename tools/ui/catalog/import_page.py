"""`/import/`: submit documents, preview the result of each item, and write exactly that. The
preview must not contain headers, environments or tokens.
"""

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may, require
from tools.catalog.imports.catalog_import import permissions
from tools.catalog.imports.import_preview import (
    LEFT_OUT,
    UNREAD,
    Choices,
    ImportPreviewRow,
    digest,
    open_part,
    perform,
)
from tools.catalog.imports.import_results import CREATED, REFUSED, REVIEW, UNCHANGED, UPDATED
from tools.definitions.dialects.import_documents import MAX_BYTES
from tools.definitions.dialects.import_entries import (
    ImportContents,
    ImportEntry,
    ImportFile,
    ImportItem,
    ImportItemKind,
    ImportSelection,
    ImportSource,
    parse_files,
)
from tools.definitions.differences import DefinitionDifference
from tools.definitions.servers import ServerTransport, read_server
from tools.definitions.texts.lookalikes import make_visible
from tools.errors import InvalidDefinition, ToolcribError
from tools.models import EgressCredential, McpServer
from tools.ui.catalog.import_form import (
    CREDENTIAL,
    VARIABLE,
    ImportFormInput,
    ImportFormState,
    read_form,
)
from tools.ui.display import definition_text
from tools.web.pages import PageRequest, page
from tools.web.reauthentication import Proof, proof

DIALECTS = {
    ImportSource.ITEMS: "TrustGraph items by key",
    ImportSource.DEFINITIONS: "definitions, or an export",
    ImportSource.MCP: "the tools/list of an MCP server",
    ImportSource.CLIENT: "MCP servers of a desktop client",
    ImportSource.OPENAPI: "OpenAPI",
}
MOST_CHANGES = 30
TEMPLATE = "catalog/import.html"
ALL, EACH = "all", "each"
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
# In a text that cannot be parsed, each of these may be followed by a secret.
_SECRET_WORDS = re.compile(
    r"mcpservers|headers|\benv\b|auth.?token|authorization|bearer|secret|password|api.?key|\bmcp/",
    re.IGNORECASE,
)
_RESULTS = (
    (CREATED, "new"), (UPDATED, "changed"), (REVIEW, "to be reviewed"), (UNCHANGED, "unchanged"),
    (UNREAD, "to be read"), (REFUSED, "wrong"), (LEFT_OUT, "left out"),
)  # fmt: skip
_NO_DOCUMENTS = "Give something to import: paste it, or choose files."
_SERVER_MISSING = "These are tools of an MCP server: say of which."
_FORM_CHANGED = "What you ask for is another than what was shown. Nothing was written; look again."
_CATALOG_CHANGED = "The catalog changed while you looked. Nothing was written; look again."
_ALL_OR_NOTHING = (
    "Nothing was written: some items are wrong or unread, and you asked for all or nothing."
)
_NOT_WRITTEN = frozenset({REFUSED, UNREAD})


@dataclass
class ImportPage:
    """What the page shows for a submitted form."""

    form: ImportFormInput
    read: ImportContents
    rows: list[ImportPreviewRow]
    notice: str = ""
    tone: str = "warn"
    written: bool = False
    digest: str = ""
    mode: str = ALL


def text_to_show(given: tuple[ImportFile, ...], read: ImportContents) -> str | None:
    """The pasted text to show again; None where it may hold a secret."""
    text = next((one.text for one in given if not one.name), "")
    whole = any(not entry.place and entry.source for entry in read.entries)
    servers = any(entry.item and entry.item.kind == ImportItemKind.SERVER for entry in read.entries)
    odd = any(
        not entry.place and entry.item and entry.item.flaw and not entry.item.unread
        for entry in read.entries
    )
    if servers or ((odd or not whole) and _SECRET_WORDS.search(text)):
        return None
    return text


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


@proof(Proof.NOT_NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def import_page(request: PageRequest) -> HttpResponseBase:
    require(request.caller, "add_tool")
    if request.method == "GET":
        return _render_page(request, ImportPage(ImportFormInput(), ImportContents(), []))
    form = read_form(request)
    try:
        shown = _handle_form(request, form)
    except ToolcribError as error:
        form.flaws.append(error.message)
        shown = ImportPage(form, ImportContents(), [])
    return _render_page(request, shown)


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


def _handle_form(request: PageRequest, form: ImportFormInput) -> ImportPage:
    if not form.given and not form.flaws:
        form.flaws.append(_NO_DOCUMENTS)
    source = ImportSource(form.source) if form.source else None
    choice = ImportSelection(form.choices.server, read=form.choices.read)
    found = parse_files(form.given, source, choice)
    if found.empty:
        form.flaws += [error.message for error in found.unreadable]
    if not form.choices.server and any(
        ImportSource.MCP in kinds for kinds in found.sources.values()
    ):
        form.flaws.append(_SERVER_MISSING)
    if found.empty or form.flaws:
        return ImportPage(form, found, [])
    mode = request.POST.get("mode", "")
    if request.POST.get("do") == "write":
        return _write(request, form, found, mode if mode in {ALL, EACH} else ALL)
    return _preview(request, form, found, "")


def _preview(
    request: PageRequest, form: ImportFormInput, found: ImportContents, notice: str, mode: str = ""
) -> ImportPage:
    rows = _run_import(request, form, found, lambda _: False)
    wrong = any(row.result in _NOT_WRITTEN for row in rows)
    mode = mode or (EACH if wrong else ALL)
    return ImportPage(form, found, rows, notice, digest=digest(rows), mode=mode)


def _write(
    request: PageRequest, form: ImportFormInput, found: ImportContents, mode: str
) -> ImportPage:
    kept = form.kept
    if kept is None or not form.is_unchanged or not kept.digest:
        return _preview(request, form, found, _FORM_CHANGED if kept else "", mode)
    reasons: list[str] = []

    def keep(rows: list[ImportPreviewRow]) -> bool:
        if digest(rows) != kept.digest:
            reasons.append(_CATALOG_CHANGED)
        elif mode == ALL and any(row.result in _NOT_WRITTEN for row in rows):
            reasons.append(_ALL_OR_NOTHING)
        return not reasons

    rows = _run_import(request, form, found, keep)
    if reasons:
        return ImportPage(form, found, rows, reasons[0], digest=digest(rows), mode=mode)
    return ImportPage(form, found, rows, written=True)


def _run_import(
    request: PageRequest, form: ImportFormInput, found: ImportContents, keep: Any
) -> list[ImportPreviewRow]:
    """Raises `Forbidden`, and saves nothing, where the user lacks a permission for an item."""
    taken = [one.item for one in found.entries if one.item and form.choices.takes(one)]
    for permission in permissions(request.user.organization, taken):
        require(request.caller, permission)

    def permitted(rows: list[ImportPreviewRow]) -> bool:
        if any(row.result in {UPDATED, REVIEW} and _is_tool(row.entry) for row in rows):
            require(request.caller, "change_tool")
        return bool(keep(rows))

    return perform(
        organization=request.user.organization,
        read=found,
        choices=form.choices,
        by=actor_of(request.caller),
        keep=permitted,
    )


def _is_tool(entry: ImportEntry) -> bool:
    return entry.item is None or entry.item.kind == ImportItemKind.TOOL


def _render_page(request: PageRequest, shown: ImportPage) -> HttpResponse:
    form = shown.form
    text = text_to_show(form.given, shown.read)
    if shown.rows:
        form.choices = _applied_choices(form.choices, shown)
    kept = ImportFormState(form.given, form.source, form.choices, shown.digest, text is not None)
    context = {
        "shown": shown,
        "form": form,
        "text": text or "",
        "hidden": text is None,
        "files": [one.name for one in form.given if one.name],
        "kept": kept.sealed(request.user) if form.given else "",
        "rows": [preview_row(row, form.choices, shown.written) for row in shown.rows],
        "totals": _totals(shown.rows),
        "wrong": sum(row.result in _NOT_WRITTEN for row in shown.rows),
        "unread": sum(row.result == UNREAD for row in shown.rows),
        "good": sum(row.result in {CREATED, UPDATED, REVIEW} for row in shown.rows),
        "written": sum(row.result in {CREATED, UPDATED} for row in shown.rows),
        "reviews": sum(row.result == REVIEW for row in shown.rows),
        "dialects": list(DIALECTS.items()),
        "most_mib": MAX_BYTES // 1024 // 1024,
        "may_export": may(request.caller, "view_tool"),
        "address": reverse("import"),
        **_form_options(request, shown),
    }
    name = f"{TEMPLATE}#work" if request.htmx else TEMPLATE
    status = 400 if form.flaws and not request.htmx else 200
    return render(request, name, context, status=status)


def _applied_choices(choices: Choices, shown: ImportPage) -> Choices:
    """The choices with the defaults that were applied, so that the form is shown unchanged."""
    taken = frozenset(one.number for one in shown.read.entries if choices.takes(one))
    credentials = {name: choices.credentials.get(name, "") for name in shown.read.schemes}
    variables = {name: choices.variables.get(name, "") for name in shown.read.variables}
    reviews = (one.item.review for one in shown.read.entries if one.item and one.item.review)
    approved = choices.read & {one.digest for one in reviews}
    return replace(
        choices, taken=taken, credentials=credentials, variables=variables, read=approved
    )


def _totals(rows: list[ImportPreviewRow]) -> list[tuple[str, str, int]]:
    counts = [
        (result, word, sum(row.result == result for row in rows)) for result, word in _RESULTS
    ]
    return [one for one in counts if one[2] or one[0] == REFUSED]


def _form_options(request: PageRequest, shown: ImportPage) -> dict[str, Any]:
    """The options of this organization."""
    place = request.user.organization
    sources = {kind for kinds in shown.read.sources.values() for kind in kinds}
    servers = McpServer.objects.filter(organization=place).order_by("name")
    coming = [
        one.key.partition("/")[2] for one in shown.read.entries
        if one.item and one.item.kind == ImportItemKind.SERVER
    ]  # fmt: skip
    return {
        "recognized": [
            (place, [DIALECTS[kind] for kind in dict.fromkeys(kinds)])
            for place, kinds in shown.read.sources.items()
        ],
        "servers": list(dict.fromkeys([*servers.values_list("name", flat=True), *coming])),
        "has_openapi": ImportSource.OPENAPI in sources,
        "has_mcp": ImportSource.MCP in sources,
        "placeholder": next((one for one in shown.read.addresses if one), ""),
        "variables": [
            {
                "key": f"{VARIABLE}{one.name}", "name": one.name, "default": one.default,
                "options": one.allowed, "help": one.description,
                "value": shown.form.choices.variables.get(one.name, ""),
            }
            for one in shown.read.variables.values()
        ],
        "credentials": [
            {
                "key": f"{CREDENTIAL}{name}", "name": name, "header": header,
                "value": shown.form.choices.credentials.get(name, ""),
                "options": list(
                    EgressCredential.objects.filter(organization=place, header__iexact=header)
                    .order_by("name").values_list("name", flat=True)
                ),
            }
            for name, header in shown.read.schemes.items()
        ],
    }  # fmt: skip
