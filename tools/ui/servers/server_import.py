"""`/servers/<name>/import`: the tools that an MCP server lists are compared with the approved ones.
The user reviews the full definitions of the selected tools, then imports them. If the server's list
changed meanwhile, it is shown again and nothing is imported."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import require
from tools.catalog.mcp import mcp_import, mcp_servers
from tools.catalog.mcp.mcp_import import difference, local_name, suggested
from tools.definitions.mcp.listed_tools import review_digest
from tools.definitions.vocabulary import Delivery
from tools.errors import Malformed
from tools.models import McpServer, Tool
from tools.ui.display import DefinitionText, VisiblePiece, definition_text, pretty, visible_pieces
from tools.ui.inputs import (
    FormInput,
    Widget,
    choices,
    form_values,
    parse_name_choice,
    place_errors,
)
from tools.web.form_fields import GROUP_CHOICES, STATE_CHOICES, name_choice
from tools.web.pages import PageRequest, page
from tools.web.reauthentication import Proof, proof

TEMPLATE = "servers/server_import.html"
MOST_SELECTED = 50  # tools that a user can review at once
LONGEST_DESCRIPTION = 240
_ANNOTATION_TEXTS = {
    "pure": "says it only reads",
    "idempotent": "says it may be repeated",
    "requires_confirmation": "says it may destroy",
}


@dataclass(frozen=True)
class ListedTool:
    """A tool as its server lists it now; `ours` is its name in the catalog, if it is imported."""

    key: str  # prefix of its form fields: independent of the name that the server gives it
    tool: str
    ours: str
    change: str
    title: list[VisiblePiece]
    about: list[VisiblePiece]
    annotation: str
    suspicions: list[str]
    fields: list[tuple[str, list[VisiblePiece], list[VisiblePiece]]] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        return self.change in {"changed", "gone"}


@dataclass
class ToolSelection:
    """A selected tool, with its whole definition and the inputs of an import."""

    listed: ListedTool
    digest: str
    text: DefinitionText
    inputs: list[FormInput]
    flaws: list[dict[str, str]] = field(default_factory=list)


@proof(Proof.NOT_NEEDED)
@require_POST
@page
def import_tools(request: PageRequest, name: str) -> HttpResponseBase:
    require(request.caller, "add_tool")
    row = mcp_servers.find_server(request.user.organization, name)
    given = form_values(request.POST)
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


def listed_tools(row: McpServer) -> list[ListedTool]:
    """Changed tools first, then new ones, then the rest."""
    raws = {raw["name"]: raw for raw in row.snapshot or ()}
    entries = difference(row) if row.snapshot is not None else []
    found = [_listed_tool(one, raws.get(one["tool"])) for one in entries]
    rank = {"changed": 0, "gone": 1, "unpinned": 2, "new": 3, "same": 4}
    return sorted(found, key=lambda one: (rank[one.change], one.tool, one.ours))


def select_tool(row: McpServer, one: ListedTool, tool: Tool | None) -> ToolSelection:
    raw = next(raw for raw in row.snapshot or () if raw["name"] == one.tool)
    asked = _import_inputs(one, tool.version.definition if tool and tool.version else None)
    return ToolSelection(one, review_digest(raw), definition_text(raw, one.suspicions), asked)


def fill_inputs(picked: ToolSelection, given: Mapping[str, str]) -> None:
    for one in picked.inputs:
        one.value = given.get(one.key, "")


def import_item(picked: ToolSelection) -> dict[str, Any]:
    """The selected tool in the format of an import."""
    values = {one.answers: one.value.strip() for one in picked.inputs}
    return {
        "tool": picked.listed.tool,
        "digest": picked.digest,
        "name": values["name"],
        "group": parse_name_choice(values["group_kind"], values["group"]),
        "available_in_states": parse_name_choice(
            values["states_kind"], values["available_in_states"]
        ),
        "state": values["state"] or None,
        "delivery": values["delivery"],
        "requires_confirmation": bool(values["requires_confirmation"]),
    }


def _import_selected(
    request: PageRequest, row: McpServer, picks: list[ToolSelection]
) -> HttpResponseBase:
    """Import all selected tools, or none."""
    items, by = [import_item(one) for one in picks], actor_of(request.caller)
    tried = mcp_import.import_tools(row=row, items=items, by=by, dry_run=True)
    for one, said in zip(picks, tried, strict=True):
        one.flaws = place_errors(said.errors, one.inputs)
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


def _listed_tool(entry: dict[str, Any], raw: dict[str, Any] | None) -> ListedTool:
    raw, ours = raw or {}, entry["name"] or ""
    identity = f"{ours}\n{entry['tool']}".encode(errors="replace")
    about = str(raw.get("description") or "")
    cut = "…" if len(about) > LONGEST_DESCRIPTION else ""
    suggestions = suggested(raw)
    annotation = str(suggestions.get("delivery") or next(iter(suggestions), ""))
    return ListedTool(
        key=hashlib.sha256(identity).hexdigest()[:16],
        tool=entry["tool"],
        ours=ours,
        change=entry["change"],
        title=visible_pieces(entry["tool"]),
        about=visible_pieces(about[:LONGEST_DESCRIPTION] + cut),
        annotation=_ANNOTATION_TEXTS.get(annotation, ""),
        suspicions=entry["suspicions"],
        fields=[(one["field"], _value_pieces(one["before"]), _value_pieces(one["after"]))
                for one in entry["fields"] if entry["change"] == "changed"],
    )  # fmt: skip


def _value_pieces(value: Any) -> list[VisiblePiece]:
    return visible_pieces(
        "" if value is None else value if isinstance(value, str) else pretty(value)
    )


def _import_inputs(one: ListedTool, current: dict[str, Any] | None) -> list[FormInput]:
    """The inputs with the values of the imported tool, else with the defaults."""
    holds = current or {}

    def ask(name: str, label: str, widget: Widget = Widget.TEXT, **more: Any) -> FormInput:
        return FormInput(f"{name}-{one.key}", label, widget, place=name, **more)

    groups, states = holds.get("group"), holds.get("available_in_states")
    name = one.ours or local_name(one.tool)
    known = "As it is here already." if one.ours else ""
    return [
        ask("name", "Name here", value=name, required=True, help=known),
        ask("delivery", "Delivery", Widget.SELECT, options=choices(Delivery),
            value=holds.get("delivery", Delivery.EXTERNAL), help="external: at most once."),
        ask("group_kind", "Groups", Widget.SELECT, options=GROUP_CHOICES,
            value=name_choice(groups)[0]),
        ask("group", "Names of groups", value=", ".join(groups or ()),
            help="Separated by commas."),
        ask("states_kind", "States", Widget.SELECT, options=STATE_CHOICES,
            value=name_choice(states)[0]),
        ask("available_in_states", "Names of states", value=", ".join(states or ()),
            help="Separated by commas."),
        ask("state", "State after success", value=holds.get("state") or "",
            help="Empty: the state stays."),
        ask("requires_confirmation", "A person must confirm each call", Widget.CHECK,
            value="yes" if holds.get("requires_confirmation") else ""),
    ]  # fmt: skip
