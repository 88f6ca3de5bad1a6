"""MCP tools: the server, the name of the tool there, and what was approved of it."""

import re
from typing import Any

from tools.definitions.fields import DefinitionFields
from tools.definitions.texts import names

PIN = re.compile(r"sha256:[0-9a-f]{64}")


def read_mcp(fields: DefinitionFields, _definition: DefinitionFields) -> dict[str, Any]:
    """Without a server it is the one configured under `mcp/<tool>` (S5)."""
    fields.known(("server", "tool", "pin"))
    tool = fields.text("tool", longest=128)
    server = fields.text("server", tool, longest=128)
    if server and not names.TOOL_NAME.fullmatch(server):
        fields.wrong("server", "may hold only letters, digits, '_', '.' and '-', at most 128")
    read = {"server": server, "tool": tool}
    if fields.given("pin"):
        pin = fields.text("pin", longest=71)
        if not PIN.fullmatch(pin):
            fields.wrong("pin", "must be sha256: and 64 hexadecimal digits")
        read["pin"] = pin
    return read
