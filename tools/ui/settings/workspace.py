"""`/workspace/`: the files that tools read and write, as far as the user may read them.

A file is read as `read_file` reads it, with the same permissions and on record, but no call is
made: a page may be loaded again by anything.
"""

import base64
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.dateparse import parse_datetime
from django.utils.http import content_disposition_header

from tools.definitions.results import Status
from tools.errors import Malformed, ToolcribError
from tools.insight.workspace_reads import find_reader, read_workspace
from tools.policy.questions import EffectiveRequest
from tools.ui.display import VisiblePiece, visible_pieces
from tools.ui.playground.call_form import default_group, default_state
from tools.web.pages import PageRequest, page, snapshot_of

DIRECTORY_TEMPLATE, FILE_TEMPLATE = "settings/workspace.html", "settings/workspace_file.html"
PAGE_SIZE = 200
PIECE_BYTES = 32 * 1024
_UNREADABLE = "\ufffd"
_HTTP_STATUSES = {"FILE_NOT_FOUND": 404, "PATH_INVALID": 400, "NOT_A_FILE": 400}
_UNAVAILABLE = {Status.SANDBOX_ERROR, Status.TIMEOUT, Status.CANCELLED}


@dataclass(frozen=True)
class WorkspaceView:
    """What was read, or why nothing was."""

    output: dict[str, Any] | None = None
    code: str = ""
    flaw: str = ""
    status: int = 200

    @property
    def waits(self) -> bool:
        """Whether a call would wait for a person."""
        return self.code == "confirmation_needed"


@dataclass(frozen=True)
class DirectoryEntry:
    """An entry of a directory. `url` is empty for one that cannot be opened."""

    name: list[VisiblePiece]
    kind: str
    size: int
    modified: Any
    url: str


@page()
def directory_page(request: PageRequest) -> HttpResponse:
    path, offset = _parse_path(request), _parse_offset(request)
    file_view = _read_workspace(
        request, {"path": path or ".", "what": "listing", "offset": offset, "length": PAGE_SIZE}
    )
    output = file_view.output or {"entries": [], "count": 0, "next_offset": None}
    context = {
        "file_view": file_view,
        "trail": _breadcrumbs(path),
        "entries": [_directory_entry(path, one) for one in output["entries"]],
        "count": output["count"],
        "before": _page_url("workspace", path, max(0, offset - PAGE_SIZE)) if offset else "",
        "after": _next_url("workspace", path, output["next_offset"]),
        "organization": request.user.organization,
    }
    return render(request, DIRECTORY_TEMPLATE, context, status=file_view.status)


@page()
def file_page(request: PageRequest) -> HttpResponse:
    """A part of a file, if it is text."""
    path, offset = _parse_path(request), _parse_offset(request)
    file_view = _read_workspace(request, {"path": path, "offset": offset, "length": PIECE_BYTES})
    output = file_view.output or {"content": "", "next_offset": None}
    context = {
        "file_view": file_view,
        "trail": _breadcrumbs(path),
        "binary": file_view.code == "ENCODING_MISMATCH",
        "content": visible_pieces(output["content"]),
        "first": _page_url("workspace-file", path, 0) if offset else "",
        "after": _next_url("workspace-file", path, output["next_offset"]),
        "download": _page_url("workspace-download", path, 0),
    }
    return render(
        request, FILE_TEMPLATE, context, status=200 if context["binary"] else file_view.status
    )


@page()
def download_file(request: PageRequest) -> HttpResponseBase:
    """The whole file, as a download that a browser does not open."""
    path = _parse_path(request)
    file_view = _read_workspace(request, {"path": path, "encoding": "base64"})
    if file_view.output is None:
        context = {"file_view": file_view, "trail": _breadcrumbs(path), "download": ""}
        return render(request, FILE_TEMPLATE, context, status=file_view.status)
    raw = base64.b64decode(file_view.output["content"])
    response = HttpResponse(raw, content_type="application/octet-stream")
    name = "".join(one if one.isprintable() else "_" for one in path.rpartition("/")[2])
    response["Content-Disposition"] = content_disposition_header(as_attachment=True, filename=name)
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _read_workspace(request: PageRequest, parameters: dict[str, Any]) -> WorkspaceView:
    caller, snapshot = request.caller, snapshot_of(request)
    tool = find_reader(snapshot)
    asked = EffectiveRequest.from_options(
        default_group(tool, caller, snapshot), default_state(tool)
    )
    try:
        read = read_workspace(caller=caller, parameters=parameters, asked=asked, snapshot=snapshot)
    except ToolcribError as refusal:
        return WorkspaceView(None, refusal.code, _refusal_text(refusal), refusal.http_status)
    if read.status == Status.SUCCESS:
        return WorkspaceView(read.output)
    usual = 503 if read.status in _UNAVAILABLE else 409
    status = _HTTP_STATUSES.get(read.error_code, usual)
    return WorkspaceView(None, read.error_code, read.error_message, status)


def _refusal_text(refusal: ToolcribError) -> str:
    flaws = refusal.details.get("errors") or []
    return " ".join([refusal.message, *(one["message"] for one in flaws[:3])])


def _parse_path(request: HttpRequest) -> str:
    return request.GET.get("path", "").strip("/")


def _parse_offset(request: HttpRequest) -> int:
    """Raises `Malformed`."""
    given = request.GET.get("offset", "0")
    if not (given.isascii() and given.isdecimal() and len(given) <= 15):
        raise Malformed("offset must be a whole number.")
    return int(given)


def _breadcrumbs(path: str) -> list[tuple[list[VisiblePiece], str]]:
    """The breadcrumbs: each parent directory, and the last part without a link."""
    steps = path.split("/") if path else []
    above = [("/".join(steps[: end + 1]), step) for end, step in enumerate(steps)]
    return [
        (visible_pieces(step), _page_url("workspace", place, 0) if place != path else "")
        for place, step in above
    ]


def _directory_entry(path: str, said: dict[str, Any]) -> DirectoryEntry:
    name, kind = said["name"], said["kind"]
    views = {"directory": "workspace", "file": "workspace-file"}
    opens = kind in views and _UNREADABLE not in name
    below = f"{path}/{name}" if path else name
    url = _page_url(views[kind], below, 0) if opens else ""
    return DirectoryEntry(
        visible_pieces(name), kind, said["size"], parse_datetime(said["modified"]), url
    )


def _next_url(view: str, path: str, offset: int | None) -> str:
    return "" if offset is None else _page_url(view, path, offset)


def _page_url(view: str, path: str, offset: int) -> str:
    said = {**({"path": path} if path else {}), **({"offset": offset} if offset else {})}
    return f"{reverse(view)}?{urlencode(said)}" if said else reverse(view)
