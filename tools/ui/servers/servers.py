"""`/servers/`: MCP servers, their health, and the tools imported from them."""

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may, require
from tools.catalog.mcp import mcp_import, mcp_servers
from tools.catalog.mcp.mcp_tokens import owner_text
from tools.catalog.mcp.upstreams import client_pool
from tools.definitions.mcp.listed_tools import approval_digest
from tools.definitions.vocabulary import ToolType
from tools.errors import Unavailable
from tools.models import CredentialScope, McpServer, Tool, ToolStatus, Transport
from tools.shapes.catalog import mcp_server_shape
from tools.ui.display import SourceStatus, VisiblePiece, visible_pieces
from tools.ui.servers.server_import import ListedTool, listed_tools
from tools.web.pages import PageRequest, page
from tools.web.reauthentication import Proof, proof

LIST_TEMPLATE, SERVER_TEMPLATE, REMOVE_TEMPLATE = (
    "servers/servers.html",
    "servers/server.html",
    "servers/server_remove.html",
)
PAGE_SIZE = 25
LONGEST_SHOWN = 64  # characters of a refused name
TRANSPORTS = {
    Transport.STREAMABLE_HTTP: "Streamable HTTP",
    Transport.SSE: "SSE",
    Transport.STDIO: "stdio",
}
_STATUS_CHIPS = {"alive": ("answers", "active"), "unknown": ("not asked yet", "pending")}


@dataclass(frozen=True)
class McpServerRow:
    """A server in the list."""

    row: McpServer
    transport: str
    status: SourceStatus
    error: list[VisiblePiece]
    breaker: bool
    listed: int | None
    imported: int
    waiting: int  # tools that differ from their approved definition


@require_safe
@page
def server_list(request: PageRequest) -> HttpResponse:
    require(request.caller, "view_mcpserver")
    rows = McpServer.objects.filter(organization_id=request.caller.organization_id)
    shown = Paginator(rows.prefetch_related("credentials"), PAGE_SIZE)
    here = shown.get_page(request.GET.get("page"))
    pins = _load_pins(request)
    context = {
        "lines": [_server_row(row, pins.get(row.name, [])) for row in here],
        "page": here,
        "dead": rows.filter(enabled=True, dead_since__isnull=False).count(),
        "may_add": may(request.caller, "add_mcpserver"),
    }
    part = request.htmx and request.htmx.target == "results"
    return render(request, f"{LIST_TEMPLATE}#results" if part else LIST_TEMPLATE, context)


@require_safe
@page
def server_page(request: PageRequest, name: str) -> HttpResponse:
    require(request.caller, "view_mcpserver")
    row = _find_server(request, name)
    tools: list[ListedTool] = listed_tools(row)
    caller = request.caller
    context = {
        "row": row,
        "transport": TRANSPORTS[Transport(row.transport)],
        "shape": mcp_server_shape(row),
        "source_status": server_status(row),
        "error": visible_pieces(row.last_error),
        "breaker": _is_breaker_open(row),
        "tools": tools,
        "differing": [one for one in tools if one.differs],
        "new": sum(one.change == "new" for one in tools),
        "refused": _tool_findings(row, "refused"),
        "repaired": _tool_findings(row, "repaired"),
        "may_change": may(caller, "change_mcpserver"),
        "may_delete": may(caller, "delete_mcpserver"),
        "may_import": may(caller, "add_tool"),
        "authorizations": [(one, owner_text(one.owner)) for one in row.authorizations.all()],
        "own_owner": f"user:{caller.name}",
        "may_connect": may(caller, "change_mcpserver")
        or row.credential_scope == CredentialScope.USER,
    }
    return render(request, SERVER_TEMPLATE, context)


@proof(Proof.NOT_NEEDED)
@require_POST
@page
def refresh_tools(request: PageRequest, name: str) -> HttpResponseBase:
    """Request the server's list of tools now. Without an answer, the known list stays."""
    require(request.caller, "change_mcpserver")
    row = _find_server(request, name)
    owner = request.POST.get("owner", "")[:200]
    try:
        row = mcp_import.refresh(row=row, by=actor_of(request.caller), owner=owner)
    except Unavailable as problem:
        # The server's message is shown on the page, with invisible characters made visible.
        said = (
            problem.message if problem.message.isascii() and problem.message.isprintable() else ""
        )
        messages.error(request, f"{row.name} gave no list. {said}".strip())
    else:
        count, refused = len(row.snapshot or ()), len(_tool_findings(row, "refused"))
        messages.success(request, f"{row.name} lists {count} tool{'' if count == 1 else 's'}.")
        if refused:
            tools = "1 tool cannot" if refused == 1 else f"{refused} tools cannot"
            messages.warning(request, f"{tools} be imported; see Refused tools.")
    return redirect("server", name=row.name)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def remove_server(request: PageRequest, name: str) -> HttpResponseBase:
    """Delete the server, after a confirmation page; refused while tools use it."""
    require(request.caller, "delete_mcpserver")
    row = _find_server(request, name)
    if request.method != "POST":
        tools = list(mcp_servers.tools_of(row).values_list("name", flat=True))
        return render(request, REMOVE_TEMPLATE, {"row": row, "tools": tools})
    mcp_servers.delete_server(row=row, by=actor_of(request.caller))
    messages.success(request, f"{row.name} is removed.")
    return redirect("servers")


def server_status(row: McpServer) -> SourceStatus:
    if not row.enabled:
        return SourceStatus("switched off", "disabled")
    if not row.url and not row.command:
        return SourceStatus("groups only", "disabled", about="it has no address")
    if row.dead_since is not None:
        return SourceStatus("dead", "denied", since=row.dead_since)
    word, tone = _STATUS_CHIPS["unknown" if row.last_seen_at is None else "alive"]
    return SourceStatus(word, tone)


def _tool_findings(
    row: McpServer, result: str
) -> list[tuple[list[VisiblePiece], list[VisiblePiece]]]:
    """Tools and their findings, with invisible characters made visible."""
    found = [one for one in row.findings if one["result"] == result]
    return [
        (visible_pieces(_shorten(one["tool"])), visible_pieces(one["message"])) for one in found
    ]


def _shorten(name: str) -> str:
    return name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}…"


def _find_server(request: PageRequest, name: str) -> McpServer:
    return mcp_servers.find_server(request.user.organization, name)


def _is_breaker_open(row: McpServer) -> bool:
    """Whether the circuit breaker is open: this process pauses requests after repeated failures."""
    return client_pool().breaker(str(row.pk)).open


def _server_row(row: McpServer, pins: list[tuple[str, str, str]]) -> McpServerRow:
    listed = {raw["name"]: raw for raw in row.snapshot or ()}
    waiting = [
        tool
        for tool, pin, status in pins
        if status == ToolStatus.QUARANTINED
        or (row.snapshot is not None and _differs_from_pin(listed.get(tool), pin))
    ]
    return McpServerRow(
        row=row,
        transport=TRANSPORTS[Transport(row.transport)],
        status=server_status(row),
        error=visible_pieces(row.last_error) if row.dead_since else [],
        breaker=_is_breaker_open(row),
        listed=None if row.snapshot is None else len(row.snapshot),
        imported=len(pins),
        waiting=len(waiting),
    )


def _differs_from_pin(raw: dict[str, Any] | None, pin: str) -> bool:
    return raw is None or bool(pin and approval_digest(raw) != pin)


def _load_pins(request: PageRequest) -> dict[str, list[tuple[str, str, str]]]:
    """By server: the upstream name, approved pin and status of each imported tool."""
    at = "version__definition__implementation__"
    rows = Tool.objects.present().filter(
        organization_id=request.caller.organization_id, type=ToolType.MCP
    )
    found: dict[str, list[tuple[str, str, str]]] = {}
    for server, tool, pin, status in rows.values_list(
        f"{at}server", f"{at}tool", f"{at}pin", "status"
    ):
        found.setdefault(server, []).append((tool, pin or "", status))
    return found
