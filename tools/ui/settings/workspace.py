"""`/workspace/`: the files that tools read and write, as far as the user may read them.

Files are read by a call of `read_file` inside the sandbox in the user's name: it needs the same
permissions and is recorded like any call.
"""

import base64
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_safe

from tools.definitions.results import OPEN, Status
from tools.errors import Malformed, NotFound, ToolcribError
from tools.execution import answer, outputs
from tools.execution.call import Call
from tools.models import Execution
from tools.ui.display import VisiblePiece, visible_pieces
from tools.ui.playground.call_form import default_group, default_state
from tools.web.pages import PageRequest, page, snapshot_of

DIRECTORY_TEMPLATE, FILE_TEMPLATE = "settings/workspace.html", "settings/workspace_file.html"
READ_TOOL = "read_file"
WAIT_S = 20.0
PAGE_SIZE = 200
PIECE_BYTES = 32 * 1024
_UNREADABLE = "\ufffd"


@dataclass(frozen=True)
class WorkspaceRead:
    """A call of `read_file`: its output, or why it failed."""

    execution: Execution | None
    output: dict[str, Any] | None = None
    code: str = ""
    flaw: str = ""
    status: int = 200

    @property
    def waits(self) -> bool:
        return self.execution is not None and self.execution.status in OPEN


_HTTP_STATUSES = {"FILE_NOT_FOUND": 404, "PATH_INVALID": 400, "NOT_A_FILE": 400}


@dataclass(frozen=True)
class DirectoryEntry:
    """An entry of a directory. `url` is empty for one that cannot be opened."""

    name: list[VisiblePiece]
    kind: str
    size: int
    modified: str
    url: str


@require_safe
@page
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


@require_safe
@page
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


@require_safe
@page
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


def _read_workspace(request: PageRequest, parameters: dict[str, Any]) -> WorkspaceRead:
    snapshot = snapshot_of(request)
    tool = snapshot.tool(READ_TOOL)
    if tool is None:
        raise NotFound(f"There is no tool {READ_TOOL} here to read with.", code="tool_not_found")
    group = default_group(tool, request.caller, snapshot)
    call = Call(READ_TOOL, parameters, group=group, state=default_state(tool))
    try:
        begun = answer.execute(caller=request.caller, call=call, wait_s=WAIT_S)
    except ToolcribError as refusal:
        recorded = refusal.details.get("execution_id")
        refused = Execution.objects.filter(pk=recorded).first() if recorded else None
        return WorkspaceRead(
            refused, None, refusal.code, _refusal_text(refusal), refusal.http_status
        )
    done = Execution.objects.get(pk=begun.pk)
    if done.status == Status.SUCCESS:
        return WorkspaceRead(done, outputs.load_output(done))
    if done.status in OPEN:
        return WorkspaceRead(done)
    code = done.error_code or ""
    return WorkspaceRead(done, None, code, done.error_message or "", _HTTP_STATUSES.get(code, 409))


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
    return DirectoryEntry(visible_pieces(name), kind, said["size"], said["modified"], url)


def _next_url(view: str, path: str, offset: int | None) -> str:
    return "" if offset is None else _page_url(view, path, offset)


def _page_url(view: str, path: str, offset: int) -> str:
    said = {**({"path": path} if path else {}), **({"offset": offset} if offset else {})}
    return f"{reverse(view)}?{urlencode(said)}" if said else reverse(view)
