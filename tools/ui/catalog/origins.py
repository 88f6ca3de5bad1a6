"""The source of a tool's definition, in words."""

from dataclasses import dataclass

from tools.definitions.vocabulary import ToolType
from tools.models import Tool


@dataclass(frozen=True)
class ToolOrigin:
    kind: str
    name: str


def source_of(tool: Tool) -> ToolOrigin | None:
    """None for a tool that its organization wrote: it has no upstream."""
    implementation = tool.version.definition.get("implementation") or {} if tool.version else {}
    if tool.type == ToolType.MCP:
        return ToolOrigin("MCP server", str(implementation.get("server") or tool.name))
    if tool.type == ToolType.SERVICE:
        return ToolOrigin("tool service", str(implementation.get("service") or ""))
    return None
