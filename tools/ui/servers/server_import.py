"""`/servers/<name>/import`: the user reviews the full definitions of the selected tools, then
imports them. If the server's list changed meanwhile, it is shown again and nothing is imported."""

from collections.abc import Mapping

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from tools.accounts.callers import actor_of
from tools.accounts.people import require
from tools.catalog.mcp import mcp_import, mcp_servers
from tools.errors import Malformed
from tools.models import McpServer
from tools.ui.access import PageRequest, page
from tools.ui.inputs import placed, plain
from tools.ui.servers.picking import (
    ToolSelection,
    fill_inputs,
    import_item,
    listed_tools,
    select_tool,
)
from tools.web.reauthentication import Proof, proof

TEMPLATE = "servers/server_import.html"
MOST_SELECTED = 50  # tools that a user can review at once


@proof(Proof.NOT_NEEDED)
@require_POST
@page
def import_tools(request: PageRequest, name: str) -> HttpResponseBase:
    require(request.caller, "add_tool")
    row = mcp_servers.find_server(request.user.organization, name)
    given = plain(request.POST)
    picks = _selected_tools(row, request.POST.getlist("pick"))
    if not picks:
        messages.warning(request, "No tool was picked, or none that the server still lists.")
        return redirect("server", name=row.name)
    if given.get("do") != "import":
        return _render_selection(request, row, picks)
    for one in picks:
        fill_inputs(one, given)
    if _is_stale(picks, given):
        return _render_selection(request, row, picks, stale=True, status=409)
    return _import_selected(request, row, picks)


def _import_selected(
    request: PageRequest, row: McpServer, picks: list[ToolSelection]
) -> HttpResponseBase:
    """Import all selected tools, or none."""
    items, by = [import_item(one) for one in picks], actor_of(request.caller)
    tried = mcp_import.import_tools(row=row, items=items, by=by, dry_run=True)
    for one, said in zip(picks, tried, strict=True):
        one.flaws = placed(said.errors, one.inputs)
    if any(said.result == "refused" for said in tried):
        return _render_selection(request, row, picks, status=400)
    with transaction.atomic():
        done = mcp_import.import_tools(row=row, items=items, by=by)
        if mcp_import.has_changed(done):
            require(request.caller, "change_tool")
    refused = [said.name for said in done if said.result == "refused"]
    taken = len(done) - len(refused)
    messages.success(request, f"{taken} tool{'' if taken == 1 else 's'} imported as you read them.")
    if refused:
        messages.error(request, f"Not imported: {', '.join(refused)}. Pick them again.")
    return redirect("server", name=row.name)


def _selected_tools(row: McpServer, keys: list[str]) -> list[ToolSelection]:
    if len(keys) > MOST_SELECTED:
        raise Malformed(f"At most {MOST_SELECTED} tools are imported at once; pick fewer.")
    wanted = set(keys)
    found = [one for one in listed_tools(row) if one.key in wanted and one.change != "gone"]
    tools = mcp_servers.tools_of(row).select_related("version")
    ours = {tool.name: tool for tool in tools.filter(name__in=[one.ours for one in found])}
    return [select_tool(row, one, ours.get(one.ours)) for one in found]


def _is_stale(picks: list[ToolSelection], given: Mapping[str, str]) -> bool:
    return any(given.get(f"seen-{one.listed.key}") != one.digest for one in picks)


def _render_selection(
    request: PageRequest,
    row: McpServer,
    picks: list[ToolSelection],
    *,
    stale: bool = False,
    status: int = 200,
) -> HttpResponse:
    flawed = any(one.flaws or any(asked.errors for asked in one.inputs) for one in picks)
    context = {"row": row, "picks": picks, "stale": stale, "flawed": flawed}
    return render(request, TEMPLATE, context, status=status)
