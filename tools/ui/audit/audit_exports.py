"""`/audit/exports/`: exports of audit records, which users request by filters and download."""

from dataclasses import dataclass
from datetime import UTC
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import FileResponse, Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from audit.errors import AuditFlaw
from audit.export import background_exports, export
from audit.models import AuditExport, ExportState
from audit.records import record_access, record_search
from tools.accounts.callers import actor_of
from tools.errors import Malformed
from tools.ui.audit.audit_records import (
    LABELS,
    PERMISSION,
    codes_by_family,
    count_open,
    event_outcomes,
    query_value,
)
from tools.web.form_fields import choices
from tools.web.forms import ActionForm
from tools.web.listing import Column, Listing
from tools.web.pages import PageRequest, action_page, form_page, page
from tools.web.reauthentication import Proof

TEMPLATE = "audit/exports.html"
FORMATS = (
    ("jsonl", "JSONL", "the sealed lines, byte for byte: the one to verify"),
    ("csv", "CSV", "for spreadsheets; no cell begins a formula"),
    ("ocsf", "OCSF", "events as a SIEM reads them"),
)
_FILTERS = tuple(name for name in record_search.SEARCH_FIELDS if name not in {"agent", "request"})


def _code_choices() -> list[Any]:
    """A family is searched by its name."""
    families = [
        (family, [(family, f"{family}*"), *choices(names)]) for family, names in codes_by_family()
    ]
    return [("", "All"), *families]


def _filter(label: str, widget: forms.Widget | None = None) -> forms.CharField:
    return forms.CharField(label=label, required=False, max_length=200, widget=widget)


class ExportForm(ActionForm):
    """Filters as the list of records has them, and the format of the file."""

    format = forms.ChoiceField(
        label="Format",
        choices=[(name, label) for name, label, _ in FORMATS],
        initial="jsonl",
        widget=forms.RadioSelect,
        error_messages=dict.fromkeys(("required", "invalid_choice"), "Choose a format."),
    )
    since = _filter("Since (UTC)", forms.TextInput({"type": "datetime-local", "step": "1"}))
    until = _filter("Until (UTC)", forms.TextInput({"type": "datetime-local", "step": "1"}))
    code = _filter("Code", forms.Select(choices=_code_choices()))
    outcome = _filter("Outcome", forms.Select(choices=[("", "All"), *choices(event_outcomes())]))
    actor = _filter("Who")
    tool = _filter("Tool")
    q = _filter("Words")
    reason = _filter("Reason")
    execution = _filter("Execution")

    def __init__(self, request: PageRequest) -> None:
        asked = {name: query_value(request.GET, name) for name in (*_FILTERS, "request")}
        asked |= {name: _time_value(asked[name]) for name in ("since", "until")}
        super().__init__(request, initial=asked)

    def build(self) -> None:
        self.opened = self.request.user.has_perm(record_access.MAY_OPEN)
        self.fields["request"] = _filter("Request")  # which is an attribute of the form, too
        where = "in records and payloads" if self.opened else "in records"
        self.fields["q"].widget.attrs["placeholder"] = where

    def act(self, changes: dict[str, Any]) -> AuditExport:
        by = actor_of(self.request.caller)
        asked = {name: changes[name] for name in (*_FILTERS, "request")}
        wanted = record_search.read_search(by.organization, asked, opened=self.opened, zone=UTC)
        if flaws := wanted.flaws.items():
            errors = [{"field": field, "message": f"{flaw}."} for field, flaw in flaws]
            raise Malformed("A filter cannot be used.", errors=errors)
        try:
            return background_exports.request_export(
                wanted=wanted, format_name=changes["format"], by=by
            )
        except AuditFlaw as flaw:
            errors = [{"field": flaw.field, "message": str(flaw)}]
            raise Malformed(str(flaw), errors=errors) from None


@form_page(Proof.NEEDED, PERMISSION)
def export_list(request: PageRequest) -> HttpResponseBase:
    """GET shows the form and the user's own exports; POST requests one."""
    if request.GET.get("part") == "list" or request.headers.get("HX-Target") == "results":
        listing = ExportListing(request)
        return render(request, listing.results, {"listing": listing})
    form = ExportForm(request)
    if form.save():
        return form.redirect(
            "It is being written. It stands below when it is ready.", "audit-exports"
        )
    context = {
        "formats": FORMATS,
        "alerts": count_open(request.caller.organization),
        "most": background_exports.MOST_EXPORTS,
        "listing": ExportListing(request),
    }
    return form.show(TEMPLATE, context)


@page(proof=Proof.ALWAYS)
def export_file(request: PageRequest, export_id: UUID) -> HttpResponseBase:
    """The file, or with `?part=manifest` its signed manifest."""
    row = _find_export(request, export_id)
    if row.opened and not request.user.has_perm(record_access.MAY_OPEN):
        raise PermissionDenied
    if row.state != ExportState.READY or (row.expires_at or row.created_at) <= timezone.now():
        raise Http404
    part = request.GET.get("part") == "manifest"
    path = background_exports.manifest_path(row) if part else background_exports.export_path(row)
    name = background_exports.download_name(row) + (".manifest" if part else "")
    kind = "text/plain; charset=utf-8" if part else export.FORMATS[row.format].content_type
    try:
        content = path.open("rb")
    except OSError:
        raise Http404 from None
    if not part:
        background_exports.record_download(row=row, by=actor_of(request.caller))
    return FileResponse(content, as_attachment=True, filename=name, content_type=kind)


@action_page(Proof.NOT_NEEDED)
def export_remove(request: PageRequest, export_id: UUID) -> HttpResponse:
    background_exports.remove_export(
        row=_find_export(request, export_id), by=actor_of(request.caller)
    )
    messages.success(request, "It is removed.")
    return redirect("audit-exports")


def _time_value(text: str) -> str:
    """A time in the format of a form's field, in UTC."""
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        return text
    try:
        return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"
    except OverflowError:
        return ""


@dataclass(frozen=True)
class ExportListRow:
    export: AuditExport
    words: str


class ExportListing(Listing):
    """The user's own exports, the newest first."""

    view, template, noun, order = "audit-exports", TEMPLATE, "export", "-asked"
    exported, results = False, f"{TEMPLATE}#list"
    columns = [
        Column("export", "Export"),
        Column("state", "State"),
        Column("records", "Records", css="number", sort="records"),
        Column("size", "Size", css="number", sort="size"),
        Column("until", "Until"),
        Column("asked", "Asked", sort="created_at", css="number"),
        Column("actions", "What to do", hidden=True),
    ]

    def rows(self) -> QuerySet[AuditExport]:
        found: QuerySet[AuditExport] = _find_exports(self.request)
        return found

    def prepare(self, rows: list[AuditExport]) -> list[ExportListRow]:
        return [ExportListRow(row, _filter_words(row)) for row in rows]

    @property
    def unfinished(self) -> bool:
        open_states = (ExportState.WAITING, ExportState.RUNNING)
        return any(row.state in open_states for row in self.page.rows)


def _filter_words(row: AuditExport) -> str:
    """The filters of the export in words."""
    said = [f"{LABELS.get(name, name).lower()} {value}" for name, value in row.filters.items()]
    return ", ".join(said) or "every record"


def _find_exports(request: PageRequest) -> Any:
    by = actor_of(request.caller)
    return AuditExport.objects.requested_by(by.organization, by.id)


def _find_export(request: PageRequest, export_id: UUID) -> AuditExport:
    """An export of the user, who must still be allowed to read evidence; 404 for any other."""
    found: AuditExport | None = _find_exports(request).filter(pk=export_id).first()
    if found is None:
        raise Http404
    if not request.user.has_perm(PERMISSION):
        raise PermissionDenied
    return found
