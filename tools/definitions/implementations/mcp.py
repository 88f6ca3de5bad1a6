"""Tools of an MCP server: the server, and the tool's name there."""

from typing import Any

from tools.definitions.fields import Fields
from tools.definitions.names import TOOL_NAME


def read(fields: Fields, _definition: Fields) -> dict[str, Any]:
    fields.known(("server", "tool"))
    server = fields.text("server", "", longest=128)
    if server and not TOOL_NAME.fullmatch(server):
        fields.wrong("server", "may hold only letters, digits, '_', '.' and '-', at most 128")
    return {"server": server, "tool": fields.text("tool", longest=256)}
