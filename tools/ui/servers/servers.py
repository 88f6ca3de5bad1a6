"""`/servers/`: MCP servers, their health, and the tools imported from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import Q, QuerySet
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may
from tools.catalog.mcp import mcp_import, mcp_servers
from tools.catalog.mcp.mcp_import import ToolChange
from tools.catalog.mcp.mcp_tokens import owner_text
from tools.catalog.mcp.upstreams import client_pool
from tools.definitions.callers import Caller
from tools.definitions.vocabulary import ToolType
from tools.errors import Unavailable
from tools.models import CredentialScope, McpServer, Tool, ToolStatus, Transport
from tools.shapes.catalog import mcp_server_shape
from tools.ui.display import SourceStatus, VisiblePiece, visible_pieces
from tools.ui.servers.server_import import (
    ListedTool,
    ServerToolList,
    find_changes,
    listed_tools,
    load_tool_lists,
    order_of,
)
from tools.web.listing import Column, Filters, Listing, choice_field, search_field
from tools.web.pages import PageRequest, action_page, form_page, page
from tools.web.reauthentication import Proof

LIST_TEMPLATE, SERVER_TEMPLATE, REMOVE_TEMPLATE = (
    "servers/servers.html",
    "servers/server.html",
    "servers/server_remove.html",
)
LONGEST_SHOWN = 64  # characters of a refused name
MOST_SHOWN = 25  # differences and findings; the list has all tools, by state
TRANSPORTS = {
    Transport.STREAMABLE_HTTP: "Streamable HTTP",
    Transport.SSE: "SSE",
    Transport.STDIO: "stdio",
}
TOOL_CHANGES = {
    "changed": "changed",
    "gone": "gone",
    "unpinned": "never approved",
    "new": "new",
    "same": "as approved",
}
_MOST_COUNTED = 1_000  # servers of which a process keeps the counts
_STATUS_CHIPS = {"alive": ("answers", "active"), "unknown": ("not asked yet", "pending")}


@dataclass(frozen=True)
class ServerToolCounts:
    imported: int = 0
    waiting: int = 0  # tools that differ from their approved definition


_counted: dict[tuple[UUID, int], ServerToolCounts] = {}  # by server and revision of the catalog


@dataclass(frozen=True)
class McpServerRow:
    """A server in the list."""

    row: McpServer
    transport: str
    status: SourceStatus
    error: list[VisiblePiece]
    breaker: bool
    listed: int | None
    tools: ServerToolCounts


class ServerFilters(Filters):
    q = search_field("Name or address")


class ServerListing(Listing):
    view, template, css, noun = "servers", LIST_TEMPLATE, "servers", "server"
    filters, order, place, live, above = ServerFilters, "server", "name", "", True
    columns = [
        Column("server", "Server", lambda row: row.row.name, sort="name"),
        Column("address", "", lambda row: row.row.url or row.row.command),
        Column("state", "State", lambda row: row.status.word),
        Column("transport", "Transport", lambda row: row.transport, sort="transport"),
        Column("lists", "Lists", lambda row: row.listed, css="number"),
        Column("imported", "Imported", lambda row: row.tools.imported, css="number"),
        Column("to_review", "Changed upstream", lambda row: row.tools.waiting),
    ]

    def rows(self) -> QuerySet[McpServer]:
        rows = _servers(self.request)
        if words := self.values.get("q"):
            rows = rows.filter(Q(name__icontains=words) | Q(url__icontains=words))
        return rows.defer("snapshot", "findings")

    def prepare(self, rows: list[McpServer]) -> list[McpServerRow]:
        lists = load_tool_lists(rows)
        counts = _count_tools(self.caller, rows, lists)
        return [_server_row(row, counts[row.pk], lists[row.pk]) for row in rows]

    def mark(self, row: McpServer) -> str:
        moments = (row.dead_since, row.last_seen_at, row.snapshot_at)
        return f"{row.pk}{row.enabled}{moments}{_is_breaker_open(row)}"

    def context(self) -> dict[str, Any]:
        dead = _servers(self.request).filter(enabled=True, dead_since__isnull=False)
        return {"dead": dead.count(), "may_add": may(self.caller, "add_mcpserver")}


@page("view_mcpserver")
def server_list(request: PageRequest) -> HttpResponseBase:
    return ServerListing(request).respond()


def _servers(request: PageRequest) -> QuerySet[McpServer]:
    return McpServer.objects.filter(organization_id=request.caller.organization_id)


class ServerToolFilters(Filters):
    q = search_field("Name here or there")
    change = choice_field("State", TOOL_CHANGES.items())


class ServerToolListing(Listing):
    """What a server lists, on its page. Only the tools that are shown are read whole."""

    view, template, noun, order = "server", SERVER_TEMPLATE, "tool", "state"
    filters, page_size, place = ServerToolFilters, 50, "key"
    results = f"{SERVER_TEMPLATE}#results"

    def __init__(self, request: PageRequest, server: McpServer) -> None:
        self.server, self.may_import = server, may(request.caller, "add_tool")
        self.changes = find_changes(server)
        super().__init__(request)

    def build(self) -> None:
        self.css = "picks" if self.may_import else ""
        pick = [Column("pick", "Pick all on this page")] if self.may_import else []
        self.columns = [
            *pick,
            Column("tool", "Tool", lambda one: one.tool, sort=lambda one: one.tool.strip()),
            Column("here", "Here", lambda one: one.ours, sort=lambda one: one.name or ""),
            Column("state", "State", lambda one: one.change, sort=order_of),
        ]

    def rows(self) -> list[ToolChange]:
        words, change = self.values.get("q", "").lower(), self.values.get("change", "")
        return [
            one
            for one in self.changes
            if change in ("", one.change) and words in f"{one.tool} {one.name or ''}".lower()
        ]

    def prepare(self, rows: list[ToolChange]) -> list[ListedTool]:
        return listed_tools(self.server, rows)

    def context(self) -> dict[str, Any]:
        return _server_context(self.request, self.server, self.changes)


@page("view_mcpserver")
def server_page(request: PageRequest, name: str) -> HttpResponseBase:
    return ServerToolListing(request, _find_server(request, name)).respond()


def _server_context(
    request: PageRequest, row: McpServer, changes: list[ToolChange]
) -> dict[str, Any]:
    caller = request.caller
    differing = sorted((one for one in changes if one.differs), key=order_of)
    return {
        "row": row,
        "transport": TRANSPORTS[Transport(row.transport)],
        "shape": mcp_server_shape(row),
        "source_status": server_status(row),
        "error": visible_pieces(row.last_error),
        "breaker": _is_breaker_open(row),
        "differing": listed_tools(row, differing[:MOST_SHOWN]),
        "more_differing": len(differing) - len(differing[:MOST_SHOWN]),
        "new": sum(one.change == "new" for one in changes),
        "refused": _tool_findings(row, "refused"),
        "repaired": _tool_findings(row, "repaired"),
        "most_shown": MOST_SHOWN,
        "shown_findings": f":{MOST_SHOWN}",
        "may_change": may(caller, "change_mcpserver"),
        "may_delete": may(caller, "delete_mcpserver"),
        "may_import": may(caller, "add_tool"),
        "authorizations": [(one, owner_text(one.owner)) for one in row.authorizations.all()],
        "own_owner": f"user:{caller.name}",
        "may_connect": may(caller, "change_mcpserver")
        or row.credential_scope == CredentialScope.USER,
    }


@action_page(Proof.NOT_NEEDED, "change_mcpserver")
def refresh_tools(request: PageRequest, name: str) -> HttpResponseBase:
    """Request the server's list of tools now. Without an answer, the known list stays."""
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


@form_page(Proof.NEEDED, "delete_mcpserver")
def remove_server(request: PageRequest, name: str) -> HttpResponseBase:
    """Delete the server, after a confirmation page; refused while tools use it."""
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


def _server_row(
    row: McpServer, tools: ServerToolCounts, listed: ServerToolList | None
) -> McpServerRow:
    return McpServerRow(
        row=row,
        transport=TRANSPORTS[Transport(row.transport)],
        status=server_status(row),
        error=visible_pieces(row.last_error) if row.dead_since else [],
        breaker=_is_breaker_open(row),
        listed=None if listed is None else listed.count,
        tools=tools,
    )


def _count_tools(
    caller: Caller, rows: list[McpServer], lists: Mapping[UUID, ServerToolList | None]
) -> dict[UUID, ServerToolCounts]:
    """By server. A process counts once for each revision of the catalog: an import, a decision and
    a refreshed list make another."""
    uncounted = [row for row in rows if (row.pk, caller.revision) not in _counted]
    pins = _load_pins(caller, uncounted) if uncounted else {}
    for row in uncounted:
        own, listed = pins.get(row.name, []), lists[row.pk]
        waiting = sum(_waits(listed, *pin) for pin in own)
        _counted[row.pk, caller.revision] = ServerToolCounts(len(own), waiting)
    found = {row.pk: _counted[row.pk, caller.revision] for row in rows}
    while len(_counted) > _MOST_COUNTED:
        del _counted[next(iter(_counted))]
    return found


def _waits(listed: ServerToolList | None, tool: str, pin: str, status: str) -> bool:
    if status == ToolStatus.QUARANTINED:
        return True
    digest = listed.digests.get(tool) if listed else None
    return listed is not None and (digest is None or bool(pin and digest != pin))


def _load_pins(caller: Caller, servers: list[McpServer]) -> dict[str, list[tuple[str, str, str]]]:
    """By server: the upstream name, approved pin and status of each imported tool."""
    at = "version__definition__implementation__"
    rows = Tool.objects.present().filter(
        organization_id=caller.organization_id,
        type=ToolType.MCP,
        **{f"{at}server__in": [one.name for one in servers]},
    )
    found: dict[str, list[tuple[str, str, str]]] = {}
    for server, tool, pin, status in rows.values_list(
        f"{at}server", f"{at}tool", f"{at}pin", "status"
    ):
        found.setdefault(server, []).append((tool, pin or "", status))
    return found
