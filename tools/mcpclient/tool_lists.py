"""The tools that a server lists, up to a limit, and the digest that identifies a tool."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tools.definitions.mcp.listed_tools import (
    BadPage,
    BadTool,
    ReadTool,
    approval_digest,
    well_formed_page,
    well_formed_tool,
)
from tools.definitions.mcp.repairs import LONGEST_MESSAGE
from tools.mcpclient.errors import InvalidAnswer, quote_text
from tools.mcpclient.json_rpc import JsonRpcMessage

MOST_TOOLS = 1_000
MOST_PAGES = 50
LONGEST_LIST_BYTES = 8 * 1024 * 1024
MOST_FINDINGS = 1_000


@dataclass(frozen=True)
class UpstreamTool:
    """A tool as its server describes it; `size` is the length of `raw` as JSON."""

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
        return approval_digest(self.raw)


@dataclass(frozen=True, slots=True)
class ListFinding:
    """An error in one tool of a list: the tool is refused, or was repaired."""

    tool: str
    refused: bool
    message: str

    def as_dict(self) -> dict[str, Any]:
        result = "refused" if self.refused else "repaired"
        return {"tool": self.tool, "result": result, "message": self.message}


@dataclass(frozen=True)
class UpstreamToolList:
    """`max_age_s` is how long the list is valid; None if the server does not say it."""

    tools: dict[str, UpstreamTool]
    max_age_s: float | None = None
    findings: tuple[ListFinding, ...] = ()

    def refusal(self, name: str) -> str:
        """Why a listed tool cannot be used; empty if it is not refused."""
        return next((one.message for one in self.findings if one.refused and one.tool == name), "")


class ToolListReader:
    """Reads the pages of one list. An invalid tool becomes a finding; the others are listed."""

    def __init__(self) -> None:
        self.tools: dict[str, UpstreamTool] = {}
        self.findings: list[ListFinding] = []
        self.cursor: str | None = None
        self.max_age_s: float | None = None
        self._page_count, self._cursors, self._total_bytes, self._tool_count = 0, set[str](), 0, 0
        self._duplicates: set[str] = set()

    def read_page(self, page: JsonRpcMessage) -> bool:
        """Whether there are more pages. Raises InvalidAnswer."""
        try:
            read = well_formed_page(page)
        except BadPage as flaw:
            message = f"The MCP server's list of tools cannot be read: {flaw}."
            raise InvalidAnswer(message) from None
        self._page_count += 1
        for repair in read.repairs:
            self._add_finding("", str(repair))
        count = len(self.tools)
        for raw in read.tools:
            self._read_tool(raw)
        if read.max_age_s is not None:
            self.max_age_s = min(self.max_age_s or 86_400.0, read.max_age_s)
        return self._has_next_page(read.cursor, has_new_tools=len(self.tools) > count)

    def tool_list(self) -> UpstreamToolList:
        for name in self._duplicates:
            self.tools.pop(name, None)
        return UpstreamToolList(self.tools, self.max_age_s, tuple(self.findings))

    def _read_tool(self, raw: Any) -> None:
        self._tool_count += 1
        if self._tool_count > 2 * MOST_TOOLS or len(self.tools) > MOST_TOOLS:
            raise InvalidAnswer(f"The MCP server lists more than {MOST_TOOLS} tools.")
        try:
            read = well_formed_tool(raw)
        except BadTool as flaw:
            self._add_finding(flaw.name or f"#{self._tool_count}", str(flaw), refused=True)
            return
        self._total_bytes += read.size
        if self._total_bytes > LONGEST_LIST_BYTES:
            raise InvalidAnswer(
                f"The MCP server lists tools of more than {LONGEST_LIST_BYTES} bytes."
            )
        self._add_tool(read)

    def _add_tool(self, read: ReadTool) -> None:
        """Two different tools of one name are both refused; an exact duplicate is ignored."""
        tool = UpstreamTool(read.raw, read.size)
        known = self.tools.get(tool.name)
        if known is None:
            self.tools[tool.name] = tool
            for repair in read.repairs:
                self._add_finding(tool.name, str(repair))
        elif known.raw != tool.raw and tool.name not in self._duplicates:
            self._duplicates.add(tool.name)
            self._add_finding(tool.name, "is listed twice, and differently each time", refused=True)
        if len(self.tools) > MOST_TOOLS:
            raise InvalidAnswer(f"The MCP server lists more than {MOST_TOOLS} tools.")

    def _has_next_page(self, cursor: str | None, *, has_new_tools: bool) -> bool:
        """A repeated cursor on a page without new tools is the end of the list."""
        if cursor is None:
            return False
        if not has_new_tools and (cursor in self._cursors or self._page_count >= MOST_PAGES):
            self._add_finding(
                "", "the list was ended: its last page names another, and brought no tool"
            )
            return False
        if self._page_count >= MOST_PAGES:
            raise InvalidAnswer(f"The MCP server's list of tools has more than {MOST_PAGES} pages.")
        self._cursors.add(cursor)
        self.cursor = cursor
        return True

    def _add_finding(self, tool: str, message: str, *, refused: bool = False) -> None:
        if len(self.findings) < MOST_FINDINGS:
            name = quote_text(tool, 2 * 128)
            self.findings.append(ListFinding(name, refused, quote_text(message, LONGEST_MESSAGE)))
