"""`/servers/<name>/import`: the tools that an MCP server lists are compared with the approved ones.
The user reviews the full definitions of the selected tools, then imports them. If the server's list
changed meanwhile, it is shown again and nothing is imported."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import require
from tools.catalog.mcp import mcp_import, mcp_servers
from tools.catalog.mcp.mcp_import import (
    McpImportItem,
    ToolChange,
    difference,
    list_digests,
    local_name,
    suggested,
    tool_changes,
)
from tools.definitions.mcp.listed_tools import review_digest
from tools.definitions.texts.lookalikes import make_visible
from tools.definitions.vocabulary import Delivery
from tools.errors import Malformed
from tools.models import McpServer
from tools.ui.display import DefinitionText, VisiblePiece, definition_text, pretty, visible_pieces
from tools.web.form_fields import (
    GROUP_CHOICES,
    STATE_CHOICES,
    NamesField,
    choices,
    chosen_names,
    name_choice,
)
from tools.web.pages import PageRequest, action_page
from tools.web.previews import PreviewForm
from tools.web.reauthentication import Proof

TEMPLATE = "servers/server_import.html"
MOST_SELECTED = 50  # tools that a user can review at once
LONGEST_DESCRIPTION = 240
_COMMAS = "Separated by commas."
_FIELD = re.compile(r"(\w*)(.*)", re.DOTALL)
_ANNOTATION_TEXTS = {
    "pure": "says it only reads",
    "idempotent": "says it may be repeated",
    "requires_confirmation": "says it may destroy",
}
_RANKS = ("changed", "gone", "unpinned", "new", "same")
_MOST_READ = 200  # lists of tools that a process keeps


@dataclass(frozen=True)
class ServerToolList:
    """The tools that a server lists, each by its name with its digest."""

    count: int
    digests: dict[str, str]


_read: dict[tuple[UUID, datetime | None], ServerToolList | None] = {}


@dataclass(frozen=True)
class ListedTool:
    """A tool as its server lists it now; `ours` is its name in the catalog, if it is imported."""

    key: str  # prefix of its form fields
    tool: str
    ours: str
    change: str
    title: list[VisiblePiece]
    about: list[VisiblePiece]
    annotation: str
    suspicions: list[str]
    fields: list[tuple[str, list[VisiblePiece], list[VisiblePiece]]] = field(default_factory=list)


@dataclass(frozen=True)
class ToolSelection:
    """A selected tool, with its whole definition and the names of its fields."""

    listed: ListedTool
    digest: str
    text: DefinitionText
    names: tuple[str, ...]

    def item(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The selected tool in the format of an import."""
        given = {name.partition("-")[0]: values[name] for name in self.names}
        groups = chosen_names(given.pop("group_kind"), given.pop("group"))
        states = chosen_names(given.pop("states_kind"), given.pop("available_in_states"))
        given |= {"group": groups, "available_in_states": states, "state": given["state"] or None}
        return {"tool": self.listed.tool, "digest": self.digest, **given}

    def place(self, flaw: Mapping[str, str]) -> dict[str, str]:
        """The error of an imported item as one of the form."""
        field, inside = _FIELD.fullmatch(flaw["field"]).groups()  # type: ignore[union-attr]
        if f"{field}-{self.listed.key}" in self.names:
            return {"field": f"{field}-{self.listed.key}{inside}", "message": flaw["message"]}
        words = f"{self.listed.tool}: {flaw['field']} {flaw['message']}"
        return {"field": "", "message": words}


class ServerImportForm(PreviewForm):
    """The fields of each selected tool, below its definition. What is shown is the definitions."""

    row: McpServer
    details, title, leave = f"{TEMPLATE}#tools", "What the server says of each", "Leave it"

    def build(self) -> None:
        keys = self.request.POST.getlist("pick")
        self.selected = _selected_tools(self.row, keys, self.fields)
        self.back = reverse("server", args=[self.row.name])
        self.them = "it" if len(self.selected) == 1 else "them"
        self.submit = f"Import {self.them} as I read {self.them}"

    def premises(self, values: Mapping[str, Any]) -> None:
        """Nothing: what is typed says who may use a tool, and is shown as it is typed."""

    def look(self, values: dict[str, Any]) -> dict[str, Any]:
        self.tools = [(one, [self[name] for name in one.names]) for one in self.selected]
        return {
            f"{make_visible(one.listed.tool)} {one.listed.ours}": (one.listed.change, one.digest)
            for one in self.selected
        }

    def act(self, changes: dict[str, Any]) -> list[McpImportItem]:
        """Import all selected tools, or none."""
        items = [one.item(self.cleaned_data) for one in self.selected]
        by = actor_of(self.request.caller)
        tried = mcp_import.import_tools(row=self.row, items=items, by=by, dry_run=True)
        errors = [
            one.place(flaw)
            for one, said in zip(self.selected, tried, strict=True)
            for flaw in said.errors
            if said.result == "refused"
        ]
        if errors:
            raise Malformed("Some tools cannot be imported so.", errors=errors)
        done = mcp_import.import_tools(row=self.row, items=items, by=by)
        if mcp_import.has_changed(done):
            require(self.request.caller, "change_tool")
        return done


@action_page(Proof.NOT_NEEDED, "add_tool")
def import_tools(request: PageRequest, name: str) -> HttpResponseBase:
    row = mcp_servers.find_server(request.user.organization, name)
    writes = request.POST.get("do") in {"import", "write"}
    form = ServerImportForm(request, row, sent=writes)
    if not form.selected:
        messages.warning(request, "No tool was picked, or none that the server still lists.")
        return redirect("server", name=row.name)
    if not form.save():
        if not form.shown:
            form.preview({})
        return form.show(TEMPLATE, {"row": row})
    refused = [said.name for said in form.result if said.result == "refused"]
    taken = len(form.result) - len(refused)
    messages.success(request, f"{taken} tool{'' if taken == 1 else 's'} imported as you read them.")
    if refused:
        messages.error(request, f"Not imported: {', '.join(refused)}. Pick them again.")
    return redirect("server", name=row.name)


def find_changes(row: McpServer) -> list[ToolChange]:
    """Of each tool that the server lists; none of a server that was not asked yet."""
    listed = load_tool_lists([row])[row.pk]
    return [] if listed is None else tool_changes(row, listed.digests)


def listed_tools(row: McpServer, changes: Sequence[ToolChange]) -> list[ListedTool]:
    """These tools, as a page shows them."""
    raws = {raw["name"]: raw for raw in row.snapshot or ()}
    return [
        _listed_tool(one.key, entry, raws.get(one.tool))
        for one, entry in zip(changes, difference(row, changes), strict=True)
    ]


def load_tool_lists(rows: list[McpServer]) -> dict[UUID, ServerToolList | None]:
    """What each server lists. A process reads a list once, in one statement with the others, and
    not again before the server gave another."""
    unread = [row.pk for row in rows if row.snapshot_at and (row.pk, row.snapshot_at) not in _read]
    for pk, at, tools in McpServer.objects.filter(pk__in=unread).values_list(
        "pk", "snapshot_at", "snapshot"
    ):
        _read[pk, at] = None if tools is None else ServerToolList(len(tools), list_digests(tools))
    found = {row.pk: _read.get((row.pk, row.snapshot_at)) for row in rows if row.snapshot_at}
    while len(_read) > _MOST_READ:
        del _read[next(iter(_read))]
    return dict.fromkeys([row.pk for row in rows]) | found


def _selected_tools(
    row: McpServer, keys: list[str], fields: dict[str, forms.Field]
) -> list[ToolSelection]:
    """Those that the server lists, whose fields are added to `fields`."""
    if len(keys) > MOST_SELECTED:
        raise Malformed(f"At most {MOST_SELECTED} tools are imported at once; pick fewer.")
    picked = {*keys}
    changes = [one for one in find_changes(row) if one.change != "gone" and one.key in picked]
    found = listed_tools(row, sorted(changes, key=order_of))
    tools = mcp_servers.tools_of(row).select_related("version")
    ours = {tool.name: tool for tool in tools.filter(name__in=[one.ours for one in found])}
    raws = {raw["name"]: raw for raw in row.snapshot or ()}
    selected = []
    for one in found:
        tool, raw = ours.get(one.ours), raws[one.tool]
        asked = _import_fields(one, tool.version.definition if tool and tool.version else {})
        fields |= asked
        text = definition_text(raw, one.suspicions)
        selected.append(ToolSelection(one, review_digest(raw), text, tuple(asked)))
    return selected


def order_of(one: ToolChange) -> str:
    """Changed tools first, then new ones, then the rest."""
    return f"{_RANKS.index(one.change)} {one.tool}".strip()


def _listed_tool(key: str, entry: dict[str, Any], raw: dict[str, Any] | None) -> ListedTool:
    raw = raw or {}
    about = str(raw.get("description") or "")
    cut = "…" if len(about) > LONGEST_DESCRIPTION else ""
    suggestions = suggested(raw)
    annotation = str(suggestions.get("delivery") or next(iter(suggestions), ""))
    return ListedTool(
        key=key,
        tool=entry["tool"],
        ours=entry["name"] or "",
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


def _import_fields(one: ListedTool, ours: Mapping[str, Any]) -> dict[str, forms.Field]:
    """The fields with the values of the imported tool, else with the defaults."""
    group, states = name_choice(ours.get("group")), name_choice(ours.get("available_in_states"))
    known = "As it is here already." if one.ours else ""
    fields: dict[str, forms.Field] = {
        "name": forms.CharField(
            label="Name here", initial=one.ours or local_name(one.tool), help_text=known
        ),
        "delivery": forms.ChoiceField(
            label="Delivery",
            choices=choices(Delivery),
            initial=ours.get("delivery", Delivery.EXTERNAL),
            help_text="external: at most once.",
        ),
        "group_kind": forms.ChoiceField(label="Groups", choices=GROUP_CHOICES, initial=group[0]),
        "group": NamesField(label="Names of groups", initial=group[1], help_text=_COMMAS),
        "states_kind": forms.ChoiceField(label="States", choices=STATE_CHOICES, initial=states[0]),
        "available_in_states": NamesField(
            label="Names of states", initial=states[1], help_text=_COMMAS
        ),
        "state": forms.CharField(
            label="State after success",
            required=False,
            initial=ours.get("state") or "",
            help_text="Empty: the state stays.",
        ),
        "requires_confirmation": forms.BooleanField(
            label="A person must confirm each call",
            required=False,
            initial=ours.get("requires_confirmation"),
        ),
    }
    return {f"{name}-{one.key}": field for name, field in fields.items()}
