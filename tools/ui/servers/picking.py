"""The tools that an MCP server lists, compared with the approved ones, and the form to import
them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.catalog.mcp.mcp_import import difference, local_name, suggested
from tools.definitions.mcp.listed_tools import review_digest
from tools.definitions.vocabulary import Delivery
from tools.models import McpServer, Tool
from tools.ui.display import DefinitionText, VisiblePiece, definition_text, pieces, pretty
from tools.ui.inputs import DEFAULT, GROUPS, NONE, THESE, FormInput, Widget, choices, listed

LONGEST_LINE = 240
_STATES = ((DEFAULT, "every state"), (THESE, "these:"), (NONE, "never"))
_HINTS = {
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
    hint: str
    suspicions: list[str]
    fields: list[tuple[str, list[VisiblePiece], list[VisiblePiece]]] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        return self.change in {"changed", "gone"}


@dataclass
class Pick:
    """A selected tool, with its whole definition and the inputs of an import."""

    listed: ListedTool
    digest: str
    text: DefinitionText
    inputs: list[FormInput]
    flaws: list[dict[str, str]] = field(default_factory=list)


def listed_tools(row: McpServer) -> list[ListedTool]:
    """Changed tools first, then new ones, then the rest."""
    raws = {raw["name"]: raw for raw in row.snapshot or ()}
    entries = difference(row) if row.snapshot is not None else []
    found = [_listed(one, raws.get(one["tool"])) for one in entries]
    rank = {"changed": 0, "gone": 1, "unpinned": 2, "new": 3, "same": 4}
    return sorted(found, key=lambda one: (rank[one.change], one.tool, one.ours))


def pick(row: McpServer, one: ListedTool, tool: Tool | None) -> Pick:
    raw = next(raw for raw in row.snapshot or () if raw["name"] == one.tool)
    asked = _questions(one, tool.version.definition if tool and tool.version else None)
    return Pick(one, review_digest(raw), definition_text(raw, one.suspicions), asked)


def fill(picked: Pick, given: Mapping[str, str]) -> None:
    for one in picked.inputs:
        one.value = given.get(one.key, "")


def item_of(picked: Pick) -> dict[str, Any]:
    """The selected tool in the format of an import."""
    told = {one.answers: one.value.strip() for one in picked.inputs}
    return {
        "tool": picked.listed.tool,
        "digest": picked.digest,
        "name": told["name"],
        "group": listed(told["group_kind"], told["group"]),
        "available_in_states": listed(told["states_kind"], told["available_in_states"]),
        "state": told["state"] or None,
        "delivery": told["delivery"],
        "requires_confirmation": bool(told["requires_confirmation"]),
    }


def _listed(entry: dict[str, Any], raw: dict[str, Any] | None) -> ListedTool:
    raw, ours = raw or {}, entry["name"] or ""
    identity = f"{ours}\n{entry['tool']}".encode(errors="replace")
    about = str(raw.get("description") or "")
    hint = suggested(raw)
    return ListedTool(
        key=hashlib.sha256(identity).hexdigest()[:16],
        tool=entry["tool"],
        ours=ours,
        change=entry["change"],
        title=pieces(entry["tool"]),
        about=pieces(about[:LONGEST_LINE] + ("…" if len(about) > LONGEST_LINE else "")),
        hint=_HINTS.get(str(hint.get("delivery") or next(iter(hint), "")), ""),
        suspicions=entry["suspicions"],
        fields=[(one["field"], _shown(one["before"]), _shown(one["after"]))
                for one in entry["fields"] if entry["change"] == "changed"],
    )  # fmt: skip


def _shown(value: Any) -> list[VisiblePiece]:
    return pieces("" if value is None else value if isinstance(value, str) else pretty(value))


def _questions(one: ListedTool, current: dict[str, Any] | None) -> list[FormInput]:
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
        ask("group_kind", "Groups", Widget.SELECT, options=GROUPS, value=_kind(groups)),
        ask("group", "Names of groups", value=", ".join(groups or ()),
            help="Separated by commas."),
        ask("states_kind", "States", Widget.SELECT, options=_STATES, value=_kind(states)),
        ask("available_in_states", "Names of states", value=", ".join(states or ()),
            help="Separated by commas."),
        ask("state", "State after success", value=holds.get("state") or "",
            help="Empty: the state stays."),
        ask("requires_confirmation", "A person must confirm each call", Widget.CHECK,
            value="yes" if holds.get("requires_confirmation") else ""),
    ]  # fmt: skip


def _kind(names: list[str] | None) -> str:
    return DEFAULT if names is None else THESE if names else NONE
