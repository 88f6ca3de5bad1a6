"""`/audit/exports/`: exports of audit records, which users request by filters and download."""

from datetime import UTC
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required, permission_required
from django.core.exceptions import PermissionDenied
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from audit.alerts import alerts
from audit.errors import AuditFlaw
from audit.export import background_exports, export
from audit.models import AuditExport, ExportState
from audit.records import record_access, record_search
from tools.ui.audit.audit_records import (
    LABELS,
    PERMISSION,
    actor_of,
    codes_by_family,
    event_outcomes,
    query_value,
)
from tools.web.reauthentication import Proof, proof

TEMPLATE = "audit/exports.html"
MOST_LISTED = 50
FORMATS = (
    ("jsonl", "JSONL", "the sealed lines, byte for byte: the one to verify"),
    ("csv", "CSV", "for spreadsheets; no cell begins a formula"),
    ("ocsf", "OCSF", "events as a SIEM reads them"),
)
_FILTERS = tuple(name for name in record_search.SEARCH_FIELDS if name != "agent")


@proof(Proof.NEEDED)
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@permission_required(PERMISSION, raise_exception=True)
def export_list(request: HttpRequest) -> HttpResponse:
    """GET shows the form and the user's own exports; POST requests one."""
    if request.method == "POST":
        return _request_export(request)
    if request.GET.get("part") == "list":
        return render(request, f"{TEMPLATE}#list", _exports_context(request))
    asked = {name: query_value(request.GET, name) for name in _FILTERS}
    return _render_exports(
        request, asked | {name: _time_value(asked[name]) for name in ("since", "until")}
    )


@proof(Proof.ALWAYS)
@never_cache
@require_safe
@login_required
def export_file(request: HttpRequest, export_id: UUID) -> HttpResponseBase:
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
        background_exports.record_download(row=row, by=actor_of(request))
    return FileResponse(content, as_attachment=True, filename=name, content_type=kind)


@proof(Proof.NOT_NEEDED)
@require_POST
@login_required
def export_remove(request: HttpRequest, export_id: UUID) -> HttpResponse:
    background_exports.remove_export(row=_find_export(request, export_id), by=actor_of(request))
    messages.success(request, "It is removed.")
    return redirect("audit-exports")


def _request_export(request: HttpRequest) -> HttpResponse:
    asked = {name: query_value(request.POST, name) for name in _FILTERS}
    by, name = actor_of(request), request.POST.get("format", "")
    opened = request.user.has_perm(record_access.MAY_OPEN)
    wanted = record_search.read_search(by.organization, asked, opened=opened, zone=UTC)
    flaws = {field: f"{LABELS.get(field, field)} {flaw}." for field, flaw in wanted.flaws.items()}
    if name not in export.FORMATS:
        flaws["format"] = "Choose a format."
    if not flaws:
        try:
            background_exports.request_export(wanted=wanted, format_name=name, by=by)
        except AuditFlaw as flaw:
            flaws[flaw.field] = str(flaw)
    if flaws:
        return _render_exports(request, asked, flaws=flaws, chosen=name, status=400)
    messages.success(request, "It is being written. It stands below when it is ready.")
    return redirect("audit-exports")


def _render_exports(
    request: HttpRequest,
    asked: dict[str, str],
    *,
    flaws: dict[str, str] | None = None,
    chosen: str = "",
    status: int = 200,
) -> HttpResponse:
    context = {
        "asked": asked,
        "flaws": flaws or {},
        "formats": FORMATS,
        "chosen": chosen if chosen in export.FORMATS else "jsonl",
        "codes": codes_by_family(),
        "outcomes": event_outcomes(),
        "opened": request.user.has_perm(record_access.MAY_OPEN),
        "alerts": alerts.alerts_of(actor_of(request).organization).open().count(),
        "most": background_exports.MOST_EXPORTS,
    }
    return render(request, TEMPLATE, context | _exports_context(request), status=status)


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


def _exports_context(request: HttpRequest) -> dict[str, Any]:
    rows = list(_find_exports(request)[:MOST_LISTED])
    unfinished = any(row.state in (ExportState.WAITING, ExportState.RUNNING) for row in rows)
    return {"exports": [(row, _filter_words(row)) for row in rows], "unfinished": unfinished}


def _filter_words(row: AuditExport) -> str:
    """The filters of the export in words."""
    said = [f"{LABELS.get(name, name).lower()} {value}" for name, value in row.filters.items()]
    return ", ".join(said) or "every record"


def _find_exports(request: HttpRequest) -> Any:
    by = actor_of(request)
    return AuditExport.objects.requested_by(by.organization, by.id)


def _find_export(request: HttpRequest, export_id: UUID) -> AuditExport:
    """An export of the user, who must still be allowed to read evidence; 404 for any other."""
    found: AuditExport | None = _find_exports(request).filter(pk=export_id).first()
    if found is None:
        raise Http404
    if not request.user.has_perm(PERMISSION):
        raise PermissionDenied
    return found
