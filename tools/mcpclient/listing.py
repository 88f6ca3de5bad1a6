"""What a server lists, bounded, and what identifies a tool of it."""

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
from tools.mcpclient.messages import JsonRpcMessage

MOST_TOOLS = 1_000
MOST_PAGES = 50
LONGEST_LIST_BYTES = 8 * 1024 * 1024
MOST_FINDINGS = 1_000


@dataclass(frozen=True)
class UpstreamTool:
    """A tool as its server describes it; `raw` is what was read of it, `size` is how long that is
    as JSON."""

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
    """What is wrong with one tool of a list: it is refused, or was read as something else."""

    tool: str
    refused: bool
    message: str

    def as_dict(self) -> dict[str, Any]:
        result = "refused" if self.refused else "repaired"
        return {"tool": self.tool, "result": result, "message": self.message}


@dataclass(frozen=True)
class UpstreamToolList:
    """`good_for_s` is for how long the server says that it stands; None where it says nothing."""

    tools: dict[str, UpstreamTool]
    good_for_s: float | None = None
    findings: tuple[ListFinding, ...] = ()

    def refusal(self, name: str) -> str:
        """Why a tool that is listed cannot be used; empty where it is not refused."""
        return next((one.message for one in self.findings if one.refused and one.tool == name), "")


class ToolListReader:
    """Of one listing. What is wrong with a tool is a finding; the others are listed."""

    def __init__(self) -> None:
        self.tools: dict[str, UpstreamTool] = {}
        self.findings: list[ListFinding] = []
        self.cursor: str | None = None
        self.good_for_s: float | None = None
        self._count, self._seen, self._size, self._read = 0, set[str](), 0, 0
        self._twice: set[str] = set()

    def take(self, page: JsonRpcMessage) -> bool:
        """Whether there are more. Raises Unusable."""
        try:
            read = well_formed_page(page)
        except BadPage as flaw:
            message = f"The MCP server's list of tools cannot be read: {flaw}."
            raise InvalidAnswer(message) from None
        self._count += 1
        for repair in read.repairs:
            self._find("", str(repair))
        before = len(self.tools)
        for raw in read.tools:
            self._take(raw)
        if read.good_for_s is not None:
            self.good_for_s = min(self.good_for_s or 86_400.0, read.good_for_s)
        return self._goes_on(read.cursor, brought=len(self.tools) > before)

    def listing(self) -> UpstreamToolList:
        for name in self._twice:
            self.tools.pop(name, None)
        return UpstreamToolList(self.tools, self.good_for_s, tuple(self.findings))

    def _take(self, raw: Any) -> None:
        self._read += 1
        if self._read > 2 * MOST_TOOLS or len(self.tools) > MOST_TOOLS:
            raise InvalidAnswer(f"The MCP server lists more than {MOST_TOOLS} tools.")
        try:
            read = well_formed_tool(raw)
        except BadTool as flaw:
            self._find(flaw.name or f"#{self._read}", str(flaw), refused=True)
            return
        self._size += read.size
        if self._size > LONGEST_LIST_BYTES:
            raise InvalidAnswer(
                f"The MCP server lists tools of more than {LONGEST_LIST_BYTES} bytes."
            )
        self._keep(read)

    def _keep(self, read: ReadTool) -> None:
        """Two that differ are both refused; one that comes again alike is ignored."""
        tool = UpstreamTool(read.raw, read.size)
        known = self.tools.get(tool.name)
        if known is None:
            self.tools[tool.name] = tool
            for repair in read.repairs:
                self._find(tool.name, str(repair))
        elif known.raw != tool.raw and tool.name not in self._twice:
            self._twice.add(tool.name)
            self._find(tool.name, "is listed twice, and differently each time", refused=True)
        if len(self.tools) > MOST_TOOLS:
            raise InvalidAnswer(f"The MCP server lists more than {MOST_TOOLS} tools.")

    def _goes_on(self, cursor: str | None, *, brought: bool) -> bool:
        """A cursor that comes again with nothing new is the end of the list."""
        if cursor is None:
            return False
        if not brought and (cursor in self._seen or self._count >= MOST_PAGES):
            self._find("", "the list was ended: its last page names another, and brought no tool")
            return False
        if self._count >= MOST_PAGES:
            raise InvalidAnswer(f"The MCP server's list of tools has more than {MOST_PAGES} pages.")
        self._seen.add(cursor)
        self.cursor = cursor
        return True

    def _find(self, tool: str, message: str, *, refused: bool = False) -> None:
        if len(self.findings) < MOST_FINDINGS:
            shown = quote_text(tool, 2 * 128)
            self.findings.append(ListFinding(shown, refused, quote_text(message, LONGEST_MESSAGE)))
