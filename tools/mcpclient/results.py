"""What a tool's answer is to whoever called it."""

from dataclasses import dataclass
from typing import Any

from tools.mcpclient.errors import InputRequired, Unusable, quoted
from tools.mcpclient.messages import Message

MOST_PARTS = 1_000
_KINDS = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource": ("resource",),
    "resource_link": ("uri",),
}


@dataclass(frozen=True)
class ToolAnswer:
    """`failed` with the server's words for it, else the output."""

    output: Any
    failed: bool = False
    message: str = ""
    structured: bool = False


def read_answer(result: Message) -> ToolAnswer:
    """Structured content if there is any, else the text if there is only text, else the parts.

    Raises InputRequired, Unusable.
    """
    kind = result.get("resultType", "complete")
    if kind == "input_required":
        raise InputRequired(
            "The MCP server asks for more input before it answers (elicitation or sampling); "
            "calls through this system cannot give any.",
            result.get("inputRequests"),
            result.get("requestState"),
        )
    if kind != "complete":
        raise Unusable("The MCP server answered with a kind of result that we did not ask for.")
    parts = _parts(result)
    text = _text(parts)
    if result.get("isError") is True:
        return ToolAnswer(None, failed=True, message=quoted(text) or "The tool failed.")
    structured = result.get("structuredContent")
    if structured is not None:
        return ToolAnswer(structured, structured=True)
    return ToolAnswer(text if all(part["type"] == "text" for part in parts) else parts)


def _text(parts: list[dict[str, Any]]) -> str:
    return "\n".join(part["text"] for part in parts if part["type"] == "text")


def _parts(result: Message) -> list[dict[str, Any]]:
    content = result.get("content", [])
    if not isinstance(content, list) or len(content) > MOST_PARTS:
        raise Unusable(f"The MCP server's answer has no list of at most {MOST_PARTS} parts.")
    for part in content:
        needed = _KINDS.get(str(part.get("type"))) if isinstance(part, dict) else None
        if needed is None or not all(_fits(name, part.get(name)) for name in needed):
            raise Unusable("The MCP server's answer has a part that no protocol knows.")
    return content


def _fits(name: str, value: Any) -> bool:
    return isinstance(value, dict if name == "resource" else str)
