"""Parses the tools that a server lists, each by itself, so that an error in one affects no
other."""

import json
from dataclasses import dataclass, field
from typing import Any

from audit.canonical import commitment
from tools.definitions.mcp.repairs import Repair, clean_value
from tools.definitions.mcp.schemas import well_formed_schema

LONGEST_NAME = 128
LONGEST_TEXT = 100_000
LONGEST_TOOL = 512 * 1024
LONGEST_REASON = 500
# The fields that an approval covers: what an agent reads, the inputs, and the outputs.
APPROVED_FIELDS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
# Further fields that are kept for clients that show tools to people.
CLIENT_FIELDS = ("_meta", "icons")
_DAY_S = 86_400.0
_OTHER_NAMES = {"input_schema": "inputSchema", "output_schema": "outputSchema"}


class BadTool(ValueError):
    """A tool that cannot be used. `name` is its name on the server; empty where it has none."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


@dataclass(frozen=True)
class ReadTool:
    """`raw` has the fields of APPROVED and SHOWN that were given, `size` is its length as JSON."""

    raw: dict[str, Any]
    size: int
    repairs: list[Repair] = field(default_factory=list)


@dataclass(frozen=True)
class ToolListPage:
    tools: list[Any]
    cursor: str | None
    good_for_s: float | None
    repairs: list[Repair] = field(default_factory=list)


def approval_digest(raw: dict[str, Any]) -> str:
    """The digest of what is approved."""
    return _sha256({key: raw[key] for key in APPROVED_FIELDS if key in raw})


def review_digest(raw: dict[str, Any]) -> str:
    """The digest of all that is shown to the reviewing person."""
    return _sha256(raw)


def _sha256(raw: dict[str, Any]) -> str:
    return "sha256:" + commitment(raw)


class BadPage(ValueError):
    """No list of tools at all; the message is the reason."""


def well_formed_page(message: dict[str, Any]) -> ToolListPage:
    """Raises `BadPage`."""
    repairs: list[Repair] = []
    tools = message.get("tools")
    if (tools is None and "tools" in message) or tools == {}:
        repairs.append(Repair("/tools", f"is {json.dumps(tools)}, which is read as []"))
        tools = []
    if not isinstance(tools, list):
        raise BadPage("its tools are no list")
    cursor = message.get("nextCursor")
    if cursor is False:  # a library of PHP sends it with the last page
        repairs.append(Repair("/nextCursor", "is false, which is read as the end of the list"))
        cursor = None
    if cursor is not None and (not isinstance(cursor, str) or len(cursor) > LONGEST_TEXT):
        raise BadPage("its nextCursor is no text, or too long")
    return ToolListPage(tools, cursor, _ttl_seconds(message.get("ttlMs")), repairs)


def _ttl_seconds(ms: Any) -> float | None:
    if not isinstance(ms, int | float) or isinstance(ms, bool) or not ms >= 0:
        return None
    return min(ms / 1000, _DAY_S)


def well_formed_tool(raw: Any) -> ReadTool:
    """Raises `BadTool`."""
    repairs: list[Repair] = []
    if not isinstance(raw, dict):
        raise BadTool("", "is no object")
    raw = clean_value(_rename_keys(raw, repairs), repairs)
    kept = {key: raw[key] for key in (*APPROVED_FIELDS, *CLIENT_FIELDS) if raw.get(key) is not None}
    name = kept.get("name")
    shown = name[: LONGEST_NAME * 2] if isinstance(name, str) else ""
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
        raise BadTool(shown, f"its name must be a text of 1 to {LONGEST_NAME} letters")
    _check_texts(kept, repairs, shown)
    kept["inputSchema"] = _repair_input_schema(kept.get("inputSchema"), repairs, shown)
    _repair_output_schema(kept, repairs)
    _repair_objects(kept, repairs)
    _repair_icons(kept, repairs)
    size = len(json.dumps(kept))
    if size > LONGEST_TOOL:
        raise BadTool(shown, f"it is longer than {LONGEST_TOOL} bytes")
    return ReadTool(kept, size, repairs)


def _rename_keys(raw: dict[str, Any], repairs: list[Repair]) -> dict[str, Any]:
    found = dict(raw)
    for other, proper in _OTHER_NAMES.items():
        if other in found and found.get(proper) is None:
            repairs.append(Repair(f"/{other}", f"is read as {proper}"))
            found[proper] = found[other]
    return found


def _check_texts(kept: dict[str, Any], repairs: list[Repair], name: str) -> None:
    if not isinstance(kept.get("title", ""), str):
        repairs.append(Repair("/title", "is no text; it is left out"))
        del kept["title"]
    for key in ("title", "description"):
        text = kept.get(key, "")
        if not isinstance(text, str):
            raise BadTool(name, f"its {key} must be a text")
        if len(text) > LONGEST_TEXT:
            raise BadTool(name, f"its {key} is longer than {LONGEST_TEXT} letters")


def _repair_input_schema(schema: Any, repairs: list[Repair], name: str) -> dict[str, Any]:
    if schema is None:
        return {"type": "object"}
    if schema is True:
        repairs.append(Repair("/inputSchema", 'is true, which is read as {"type": "object"}'))
        return {"type": "object"}
    read = well_formed_schema(schema, repairs, "/inputSchema")
    if not isinstance(read, dict):
        raise BadTool(name, "its inputSchema must be an object")
    return read if read or schema == {} else {"type": "object"}


def _repair_output_schema(kept: dict[str, Any], repairs: list[Repair]) -> None:
    if "outputSchema" not in kept:
        return
    read = well_formed_schema(kept["outputSchema"], repairs, "/outputSchema")
    if isinstance(read, dict):
        kept["outputSchema"] = read
    else:
        repairs.append(Repair("/outputSchema", "is no object; it is left out"))
        del kept["outputSchema"]


def _repair_objects(kept: dict[str, Any], repairs: list[Repair]) -> None:
    for key in ("annotations", "_meta"):
        value = kept.get(key, {})
        if value == [] and isinstance(value, list):
            repairs.append(Repair(f"/{key}", "is [], which is read as {}"))
            kept[key] = {}
        elif not isinstance(value, dict):
            repairs.append(Repair(f"/{key}", "is no object; it is left out"))
            del kept[key]


def _repair_icons(kept: dict[str, Any], repairs: list[Repair]) -> None:
    icons = kept.get("icons", [])
    if icons == {}:
        icons = kept["icons"] = []
        repairs.append(Repair("/icons", "is {}, which is read as []"))
    good = isinstance(icons, list) and all(
        isinstance(one, dict) and isinstance(one.get("src"), str) for one in icons
    )
    if not good:
        repairs.append(Repair("/icons", "is no list of icons with a src; it is left out"))
        del kept["icons"]
