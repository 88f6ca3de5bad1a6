"""JSON-RPC as MCP uses it, in both eras."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sandbox import untrusted_json
from tools.definitions.mcp.call_results import well_formed_error
from tools.mcpclient.errors import Answered, Unusable, quoted

MODERN = "2026-07-28"
HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")  # the latest first
METHOD_NOT_FOUND = -32601
UNSUPPORTED_VERSION = -32022
MOST_BYTES = 4 * 1024 * 1024  # of one message
LONG = 32 * 1024  # bytes that take a while to read
CLIENT = {"name": "toolcrib", "version": "1"}
_META = "io.modelcontextprotocol/"

Message = dict[str, Any]


def nobody(_params: Message) -> None:
    """Hears no progress."""


@dataclass
class Request:
    """One request of ours. `sent` says whether the server may have the whole of it."""

    method: str
    params: Message = field(default_factory=dict)
    headers: list[tuple[str, str]] = field(default_factory=list)
    progress: Callable[[Message], None] = nobody
    id: int = 0
    sent: bool = False


def request_bytes(request: Request, version: str) -> bytes:
    """`version` is empty before one was agreed on."""
    params = dict(request.params)
    meta: Message = {}
    if request.progress is not nobody:
        meta["progressToken"] = request.id
    if version == MODERN:
        meta |= {
            f"{_META}protocolVersion": version,
            f"{_META}clientInfo": CLIENT,
            f"{_META}clientCapabilities": {},
        }
    if meta:
        params["_meta"] = meta
    message: Message = {"jsonrpc": "2.0", "id": request.id, "method": request.method}
    return encoded(message | ({"params": params} if params else {}))


def notification_bytes(method: str, params: Message | None = None) -> bytes:
    message: Message = {"jsonrpc": "2.0", "method": method}
    return encoded(message | ({"params": params} if params else {}))


def encoded(message: Message) -> bytes:
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")  # an id of theirs may hold half a surrogate pair


def parsed(raw: bytes) -> Message:
    """As it was sent, not repaired. Raises Unusable."""
    try:
        message = untrusted_json.parse_repairable(raw)
    except untrusted_json.HostileJson as flaw:
        raise Unusable(f"The MCP server sent a message that cannot be read: {flaw}.") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise Unusable("The MCP server sent something that is no JSON-RPC message.")
    return message


async def parsed_aside(raw: bytes) -> Message:
    """As `parsed`. A long one is read in another thread: the loop is everybody's."""
    return await asyncio.to_thread(parsed, raw) if len(raw) > LONG else parsed(raw)


def is_answer(message: Message) -> bool:
    return "method" not in message and ("result" in message or "error" in message)


def answers(message: Message, request: Request) -> bool:
    """Whether it is the answer to this request; one without an id can be to no other."""
    own = message.get("id")
    if isinstance(own, bool) or not is_answer(message):
        return False
    return own == request.id or (own is None and "error" in message)


def result_of(message: Message) -> Message:
    """Raises Answered, Unusable."""
    if "error" in message:
        raise _error(message["error"])
    result = message.get("result")
    if result == [] and isinstance(result, list):  # an empty object of PHP
        result = {}
    if not isinstance(result, dict):
        raise Unusable("The MCP server answered with a result that is no object.")
    return result


def _error(error: object) -> Answered:
    number, message, data = well_formed_error(error)
    return Answered(number, quoted(message) or "no reason given", data)


def reply_to(message: Message) -> bytes | None:
    """What we answer to a request of the server's: a ping is answered, all else is not offered."""
    own = message.get("id")
    if "method" not in message or not isinstance(own, str | int) or isinstance(own, bool):
        return None
    if message["method"] == "ping":
        return encoded({"jsonrpc": "2.0", "id": own, "result": {}})
    error = {"code": METHOD_NOT_FOUND, "message": "Method not found"}
    return encoded({"jsonrpc": "2.0", "id": own, "error": error})
