"""`/import/`: submit documents, preview the result of each item, and write exactly that."""

from dataclasses import dataclass, replace
from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may, require
from tools.catalog.imports.import_preview import (
    LEFT_OUT,
    UNREAD,
    Choices,
    ImportPreviewRow,
    digest,
    perform,
)
from tools.catalog.imports.importing import permissions
from tools.catalog.imports.importing_items import CREATED, REFUSED, REVIEW, UNCHANGED, UPDATED
from tools.definitions.dialects.import_documents import MAX_BYTES
from tools.definitions.dialects.import_entries import (
    ImportContents,
    ImportEntry,
    ImportItemKind,
    ImportSelection,
    ImportSource,
    parse_files,
)
from tools.errors import ToolcribError
from tools.models import EgressCredential, McpServer
from tools.ui.access import PageRequest, page
from tools.ui.catalog.import_form import (
    CREDENTIAL,
    VARIABLE,
    ImportFormInput,
    ImportFormState,
    asked,
)
from tools.ui.catalog.import_shown import DIALECTS, echo, shown_row
from tools.web.proof import Proof, proof

TEMPLATE = "catalog/import.html"
ALL, EACH = "all", "each"
_RESULTS = (
    (CREATED, "new"), (UPDATED, "changed"), (REVIEW, "to be reviewed"), (UNCHANGED, "unchanged"),
    (UNREAD, "to be read"), (REFUSED, "wrong"), (LEFT_OUT, "left out"),
)  # fmt: skip
_NOTHING = "Give something to import: paste it, or choose files."
_WHOSE = "These are tools of an MCP server: say of which."
_CHANGED_ASK = "What you ask for is another than what was shown. Nothing was written; look again."
_CHANGED_HERE = "The catalog changed while you looked. Nothing was written; look again."
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


@proof(Proof.NOT_NEEDED)
@require_http_methods(["GET", "POST"])
@page
def import_page(request: PageRequest) -> HttpResponseBase:
    require(request.caller, "add_tool")
    if request.method == "GET":
        return _page(request, ImportPage(ImportFormInput(), ImportContents(), []))
    form = asked(request)
    try:
        shown = _answered(request, form)
    except ToolcribError as error:
        form.flaws.append(error.message)
        shown = ImportPage(form, ImportContents(), [])
    return _page(request, shown)


def _answered(request: PageRequest, form: ImportFormInput) -> ImportPage:
    if not form.given and not form.flaws:
        form.flaws.append(_NOTHING)
    source = ImportSource(form.source) if form.source else None
    choice = ImportSelection(form.choices.server, read=form.choices.read)
    found = parse_files(form.given, source, choice)
    if found.empty:
        form.flaws += [error.message for error in found.unreadable]
    if not form.choices.server and any(
        ImportSource.MCP in kinds for kinds in found.sources.values()
    ):
        form.flaws.append(_WHOSE)
    if found.empty or form.flaws:
        return ImportPage(form, found, [])
    mode = request.POST.get("mode", "")
    if request.POST.get("do") == "write":
        return _written(request, form, found, mode if mode in {ALL, EACH} else ALL)
    return _looked(request, form, found, "")


def _looked(
    request: PageRequest, form: ImportFormInput, found: ImportContents, notice: str, mode: str = ""
) -> ImportPage:
    rows = _performed(request, form, found, lambda _: False)
    wrong = any(row.result in _NOT_WRITTEN for row in rows)
    mode = mode or (EACH if wrong else ALL)
    return ImportPage(form, found, rows, notice, digest=digest(rows), mode=mode)


def _written(
    request: PageRequest, form: ImportFormInput, found: ImportContents, mode: str
) -> ImportPage:
    kept = form.kept
    if kept is None or not form.same or not kept.digest:
        return _looked(request, form, found, _CHANGED_ASK if kept else "", mode)
    reasons: list[str] = []

    def keep(rows: list[ImportPreviewRow]) -> bool:
        if digest(rows) != kept.digest:
            reasons.append(_CHANGED_HERE)
        elif mode == ALL and any(row.result in _NOT_WRITTEN for row in rows):
            reasons.append(_ALL_OR_NOTHING)
        return not reasons

    rows = _performed(request, form, found, keep)
    if reasons:
        return ImportPage(form, found, rows, reasons[0], digest=digest(rows), mode=mode)
    return ImportPage(form, found, rows, written=True)


def _performed(
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


def _page(request: PageRequest, shown: ImportPage) -> HttpResponse:
    form = shown.form
    text = echo(form.given, shown.read)
    if shown.rows:
        form.choices = _settled(form.choices, shown)
    kept = ImportFormState(form.given, form.source, form.choices, shown.digest, text is not None)
    context = {
        "shown": shown,
        "form": form,
        "text": text or "",
        "hidden": text is None,
        "files": [one.name for one in form.given if one.name],
        "kept": kept.sealed(request.user) if form.given else "",
        "rows": [shown_row(row, form.choices, shown.written) for row in shown.rows],
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
        **_offered(request, shown),
    }
    name = f"{TEMPLATE}#work" if request.htmx else TEMPLATE
    status = 400 if form.flaws and not request.htmx else 200
    return render(request, name, context, status=status)


def _settled(choices: Choices, shown: ImportPage) -> Choices:
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


def _offered(request: PageRequest, shown: ImportPage) -> dict[str, Any]:
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
