"""Tool definitions of what MCP servers list: made for an import, renewed with what was changed by
hand kept."""

from typing import Any

from tools.catalog.actions import amended
from tools.catalog.signatures.version_signatures import check_current
from tools.definitions.mcp.listed_tools import approval_digest
from tools.definitions.texts.tool_formats import UPSTREAM
from tools.definitions.vocabulary import Category, ToolType
from tools.errors import Malformed
from tools.models import Tool


def mcp_definition(server: str, raw: dict[str, Any], name: Any) -> dict[str, Any]:
    """As the server describes it; its schemas are kept whole."""
    definition = {
        "name": name,
        "type": ToolType.MCP,
        "title": (raw.get("title") or "")[:200] or None,
        "description": raw.get("description") or raw["name"],
        "category": Category.EXTERNAL_API,
        "input_schema": raw["inputSchema"],
        "output_schema": raw.get("outputSchema") or {},
        "implementation": {"server": server, "tool": raw["name"], "pin": approval_digest(raw)},
        "metadata": {UPSTREAM: raw},
    }
    return {key: value for key, value in definition.items() if value is not None}


def renew_definition(server: str, tool: Tool, raw: dict[str, Any], wanted: Any) -> dict[str, Any]:
    """Updates the server's fields to its current description; fields written by hand are kept.

    Raises `Conflict` where the tool's signature is invalid.
    """
    check_current(tool)
    assert tool.version is not None
    current = tool.version.definition
    implementation = current["implementation"]
    if implementation["server"] != server or implementation["tool"] != raw["name"]:
        flaw = {"field": "name", "message": "is another tool's; choose another"}
        raise Malformed("The tool was not accepted.", errors=[flaw])
    fresh = mcp_definition(server, raw, tool.name)
    approved = current["metadata"].get(UPSTREAM)
    old = mcp_definition(server, approved, tool.name) if approved else {}
    theirs = {
        key: fresh.get(key, {} if key == "output_schema" else None)
        for key in ("title", "description", "input_schema", "output_schema")
        if old and current.get(key) == old.get(key, {} if key == "output_schema" else None)
    }
    if current["parameters"] or wanted.get("parameters"):
        theirs.pop("input_schema", None)
    own = {
        "implementation": fresh["implementation"],
        "metadata": current["metadata"] | fresh["metadata"],
    }
    return amended(current, theirs | own | wanted)
