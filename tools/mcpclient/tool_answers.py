"""Reads the answer of a server to the call of a tool."""

import json
from dataclasses import dataclass
from typing import Any

from sandbox import untrusted_json
from tools.definitions.mcp.call_results import (
    CallResult,
    NotAToolResult,
    failure_message,
    has_bytes,
    well_formed_result,
)
from tools.definitions.mcp.repairs import clean_value
from tools.mcpclient.errors import InputRequired, InvalidAnswer, quote_text
from tools.mcpclient.json_rpc import JsonRpcMessage

EXTRA_CONTENT_KEY = "_content"  # in the output: images and audio beside structured content
MOST_WARNINGS = 20


@dataclass(frozen=True)
class ToolAnswer:
    """The output, or for a `failed` call the server's `message` and `data`.

    `structured`: the output is structured content, or the message is its JSON. `extra_content` are
    parts that the output does not contain; `warnings` name the repairs of the answer.
    """

    output: Any
    failed: bool = False
    message: str = ""
    structured: bool = False
    data: Any = None
    extra_content: tuple[Any, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def parsed(self) -> Any:
        """The text output, read as JSON. Raises ValueError."""
        if not isinstance(self.output, str):
            raise ValueError("the output is not a text")
        return clean_value(untrusted_json.parse_repairable(self.output.encode()), [])


def read_answer(result: JsonRpcMessage) -> ToolAnswer:
    """Structured content if there is any, else the text if there is only text, else the parts.

    Raises InputRequired, InvalidAnswer.
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
        message = "The MCP server answered with a kind of result that we did not ask for."
        raise InvalidAnswer(message, result)
    try:
        read = well_formed_result(result)
    except NotAToolResult as flaw:
        raise InvalidAnswer(f"The MCP server's answer {flaw}.", result) from None
    return _failure(read) if read.failed else _success(read)


def _failure(read: CallResult) -> ToolAnswer:
    """The content beside the text is kept as data."""
    text = quote_text(_text(read)) or quote_text(failure_message(read.structured))
    others = [_without_bytes(part) for part in read.content if part["type"] != "text"]
    data = read.structured
    if others or read.unknown:
        data = {} if data is None else {"structuredContent": data}
        data = data | {"content": [*others, *read.unknown]}
    return ToolAnswer(
        None,
        failed=True,
        message=text or _json_excerpt(read.structured),
        structured=not text,
        data=data,
        warnings=_warnings(read),
    )


def _without_bytes(part: dict[str, Any]) -> dict[str, Any]:
    """A failure has no output that could contain the bytes."""
    if not has_bytes(part):
        return part
    return {key: part[key] for key in ("type", "mimeType") if key in part}


def _success(read: CallResult) -> ToolAnswer:
    warnings = _warnings(read)
    if read.structured is not None:
        return ToolAnswer(
            read.structured, structured=True, extra_content=_extra_content(read), warnings=warnings
        )
    if not read.content and read.unknown:
        return ToolAnswer(read.unknown, warnings=warnings)
    texts = all(part["type"] == "text" for part in read.content)
    output = _text(read) if texts else read.content
    beside = (*read.content, *read.unknown) if read.unknown else ()
    return ToolAnswer(output, extra_content=beside, warnings=warnings)


def _extra_content(read: CallResult) -> tuple[Any, ...]:
    """The parts beside structured content, unless they are one text with the same JSON."""
    parts = (*read.content, *read.unknown)
    if len(parts) == 1 and read.content and read.content[0]["type"] == "text":
        try:
            same = (
                untrusted_json.parse_repairable(read.content[0]["text"].encode()) == read.structured
            )
        except untrusted_json.HostileJson:
            same = False
        return () if same else parts
    return parts


def _warnings(read: CallResult) -> tuple[str, ...]:
    found = [f"The MCP server's answer: {repair}" for repair in read.repairs]
    more = len(found) - MOST_WARNINGS
    return (*found[:MOST_WARNINGS], *([f"… and {more} more like these"] if more > 0 else []))


def _text(read: CallResult) -> str:
    return "\n".join(part["text"] for part in read.content if part["type"] == "text")


def _json_excerpt(structured: Any) -> str:
    return "" if structured is None else quote_text(json.dumps(structured, ensure_ascii=False))
