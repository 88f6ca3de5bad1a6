"""What a server lists, bounded, and what identifies a tool of it."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from audit.canonical import commitment
from tools.mcpclient.errors import Unusable
from tools.mcpclient.messages import Message

MOST_TOOLS = 1_000
MOST_PAGES = 50
LONGEST_NAME = 128
LONGEST_TEXT = 100_000
LONGEST_TOOL = 512 * 1024
LONGEST_LIST = 8 * 1024 * 1024
# What an approval is of: what an agent is told, what may be passed, and what is promised.
APPROVED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


@dataclass(frozen=True)
class UpstreamTool:
    """A tool as its server describes it; `raw` has the fields of APPROVED that were given, `size`
    is how long they are as JSON."""

    raw: dict[str, Any]
    size: int = 0

    @property
    def name(self) -> str:
        return str(self.raw["name"])

    @property
    def input_schema(self) -> dict[str, Any]:
        return self.raw["inputSchema"]

    @property
    def output_schema(self) -> dict[str, Any] | None:
        return self.raw.get("outputSchema")

    @cached_property
    def digest(self) -> str:
        return digest_of(self.raw)


@dataclass(frozen=True)
class Listing:
    """`good_for_s` is for how long the server says that it stands; None where it says nothing."""

    tools: dict[str, UpstreamTool]
    good_for_s: float | None = None


def digest_of(raw: dict[str, Any]) -> str:
    return "sha256:" + commitment(raw)


def read_tool(raw: Any) -> UpstreamTool:
    """Raises Unusable."""
    if not isinstance(raw, dict):
        raise Unusable("The MCP server lists a tool that is no object.")
    kept = {key: raw[key] for key in APPROVED if raw.get(key) is not None}
    name = kept.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
        raise Unusable(
            f"The MCP server lists a tool without a name of 1 to {LONGEST_NAME} letters."
        )
    for key in ("title", "description"):
        if not isinstance(kept.get(key, ""), str) or len(kept.get(key, "")) > LONGEST_TEXT:
            raise Unusable(f"The MCP server lists a tool whose {key} is no text, or too long.")
    kept.setdefault("inputSchema", {"type": "object"})
    for key in ("inputSchema", "outputSchema", "annotations"):
        if not isinstance(kept.get(key, {}), dict):
            raise Unusable(f"The MCP server lists a tool whose {key} is no object.")
    size = len(json.dumps(kept))
    if size > LONGEST_TOOL:
        raise Unusable(f"The MCP server lists a tool of more than {LONGEST_TOOL} bytes.")
    return UpstreamTool(kept, size)


class Pages:
    """Of one listing."""

    def __init__(self) -> None:
        self.tools: dict[str, UpstreamTool] = {}
        self.cursor: str | None = None
        self.good_for_s: float | None = None
        self._count, self._seen, self._size = 0, set[str](), 0

    def take(self, page: Message) -> bool:
        """Whether there are more. Raises Unusable."""
        tools, cursor, ttl = page.get("tools"), page.get("nextCursor"), page.get("ttlMs")
        if not isinstance(tools, list):
            raise Unusable("The MCP server's list of tools is no list.")
        self._count += 1
        for raw in tools:
            tool = read_tool(raw)
            if tool.name in self.tools:
                raise Unusable("The MCP server lists two tools of one name.")
            self.tools[tool.name] = tool
            self._size += tool.size
            if self._size > LONGEST_LIST:
                raise Unusable(f"The MCP server lists tools of more than {LONGEST_LIST} bytes.")
            if len(self.tools) > MOST_TOOLS:
                raise Unusable(f"The MCP server lists more than {MOST_TOOLS} tools.")
        if isinstance(ttl, int | float) and not isinstance(ttl, bool) and ttl >= 0:
            self.good_for_s = min(self.good_for_s or 86_400.0, ttl / 1000)
        if cursor is None:
            return False
        if not isinstance(cursor, str) or len(cursor) > LONGEST_TEXT or cursor in self._seen:
            raise Unusable("The MCP server's list of tools never ends.")
        if self._count >= MOST_PAGES:
            raise Unusable(f"The MCP server's list of tools has more than {MOST_PAGES} pages.")
        self._seen.add(cursor)
        self.cursor = cursor
        return True

    def listing(self) -> Listing:
        return Listing(self.tools, self.good_for_s)
