"""Converts an MCP server's `tools/list` to definitions to be reviewed.

A server's own statements never loosen anything: its annotations are kept for information, a schema
is kept whole, and a user's choice overrides the server.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tools.definitions.dialects.import_documents import ImportDocument, Lines, unreadable_document
from tools.definitions.mcp.listed_tools import (
    APPROVED_FIELDS,
    CLIENT_FIELDS,
    BadTool,
    find_suspicions,
    review_digest,
    well_formed_tool,
)
from tools.definitions.services import is_reserved_key
from tools.definitions.vocabulary import ToolType

_KNOWN_FIELDS = frozenset({*APPROVED_FIELDS, *CLIENT_FIELDS})
type ListedDefinition = tuple[str, dict[str, Any] | str, Lines, "ToolReview | None"]


@dataclass(frozen=True)
class ToolReview:
    """A tool with signs of a poisoned definition, which a person must read before it is imported.
    `digest` is of all of `raw`."""

    raw: dict[str, Any]
    suspicions: list[str]
    digest: str


def is_tools_list(value: dict[str, Any]) -> bool:
    tools = value.get("tools")
    if not isinstance(tools, list) or not tools:
        return False
    return all(isinstance(tool, dict) and "inputSchema" in tool for tool in tools)


def definitions_from_list(
    document: ImportDocument, server: str, pick: tuple[Any, ...], read: frozenset[str] = frozenset()
) -> Iterator[ListedDefinition]:
    """(name, definition or errors of the item, lines, review) of each picked tool. `read` are
    digests of definitions that a person has read."""
    value, lines = document.value, document.lines
    if isinstance(value, dict):
        value, lines = value.get("tools"), lines.nested_lines("tools")
    if not isinstance(value, list):
        raise unreadable_document("holds no list of tools", lines.find_line(()))
    wanted, seen = _parse_picks(pick), set()
    for at, tool in enumerate(value):
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not name:
            yield f"#{at + 1}", "is no tool with a name", lines.nested_lines(at), None
        elif not wanted or name in wanted:
            seen.add(name)
            changes = wanted.get(name, {})
            definition, review = _draft_definition(tool, server, changes, read)
            yield changes.get("name", name), definition, lines.nested_lines(at), review
    for name in wanted.keys() - seen:
        yield name, "is picked, but the server has no tool of that name", Lines(), None


def _parse_picks(pick: tuple[Any, ...]) -> dict[str, dict[str, Any]]:
    """By the name on the server: overrides by hand. `as` renames it."""
    found: dict[str, dict[str, Any]] = {}
    for one in pick:
        said = {"name": one} if isinstance(one, str) else one
        name = said.get("name") if isinstance(said, dict) else None
        if not isinstance(name, str) or not name:
            raise unreadable_document("has an entry under pick that names no tool")
        changes = {key: value for key, value in said.items() if key not in {"name", "as"}}
        if not isinstance(changes.get("digest", ""), str):
            raise unreadable_document(f"has under pick for {name[:100]!r} a digest that is no text")
        renamed = said.get("as", name)
        if not isinstance(renamed, str):
            raise unreadable_document(
                f"has under pick for {name[:100]!r} another name that is no text"
            )
        found[name] = changes | {"name": renamed}
    return found


def _draft_definition(
    tool: dict[str, Any], server: str, changes: dict[str, Any], approved: frozenset[str]
) -> tuple[dict[str, Any] | str, ToolReview | None]:
    odd = sorted(key for key in tool if key not in _KNOWN_FIELDS and is_reserved_key(str(key)))
    if odd:
        return f"has {', '.join(odd)[:200]}, which a server may not say of its tools", None
    try:
        tool = well_formed_tool(tool).raw
    except BadTool as flaw:
        return f"cannot be used: {flaw}", None
    read, changes = changes.get("digest"), {k: v for k, v in changes.items() if k != "digest"}
    suspicions, digest = find_suspicions(tool), review_digest(tool)
    review = ToolReview(tool, suspicions, digest) if suspicions else None
    if read is None and digest in approved:
        read = digest
    if read not in (None, digest) or (suspicions and read is None):
        why = "; ".join(suspicions)[:400] or "is not what was read"
        return f"{why}: read it, and pick it with its digest {digest}", review
    annotations = tool.get("annotations", {})
    kept = {key: tool[key] for key in ("annotations", *CLIENT_FIELDS) if tool.get(key)}
    title = tool.get("title") or annotations.get("title")
    raw = {
        "name": tool["name"],
        "type": ToolType.MCP.value,
        "title": title,
        "description": tool.get("description") or title or tool["name"],
        "implementation": {"server": server, "tool": tool["name"]},
        "metadata": {"mcp": kept} if kept else {},
    }
    schemas = {"input_schema": tool.get("inputSchema"), "output_schema": tool.get("outputSchema")}
    if "arguments" in changes or "parameters" in changes:
        del schemas["input_schema"]
    return raw | schemas | changes, review
