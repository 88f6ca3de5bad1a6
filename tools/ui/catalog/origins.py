"""Whom a tool's definition was had from, in words."""

from dataclasses import dataclass

from tools.definitions.vocabulary import ToolType
from tools.models import Tool


@dataclass(frozen=True)
class Source:
    kind: str
    name: str


def source_of(tool: Tool) -> Source | None:
    """None where a tool is what its organization wrote: nobody else can change it."""
    implementation = tool.version.definition.get("implementation") or {} if tool.version else {}
    if tool.type == ToolType.MCP:
        return Source("MCP server", str(implementation.get("server") or tool.name))
    if tool.type == ToolType.SERVICE:
        return Source("tool service", str(implementation.get("service") or ""))
    return None
