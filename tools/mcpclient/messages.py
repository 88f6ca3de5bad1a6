"""JSON-RPC as MCP uses it, in both eras."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sandbox import untrusted_json
from tools.definitions.mcp.call_results import well_formed_error
from tools.mcpclient.errors import InvalidAnswer, JsonRpcError, quote_text

MODERN_VERSION = "2026-07-28"
HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")  # the latest first
METHOD_NOT_FOUND = -32601
UNSUPPORTED_VERSION = -32022
MOST_MESSAGE_BYTES = 4 * 1024 * 1024  # of one message
LONG_MESSAGE_BYTES = 32 * 1024  # bytes that take a while to read
CLIENT_INFO = {"name": "toolcrib", "version": "1"}
_META_PREFIX = "io.modelcontextprotocol/"

JsonRpcMessage = dict[str, Any]


def ignore_progress(_params: JsonRpcMessage) -> None:
    """Hears no progress."""


@dataclass
class JsonRpcRequest:
    """One request of ours. `sent` says whether the server may have the whole of it."""

    method: str
    params: JsonRpcMessage = field(default_factory=dict)
    headers: list[tuple[str, str]] = field(default_factory=list)
    progress: Callable[[JsonRpcMessage], None] = ignore_progress
    id: int = 0
    sent: bool = False


def encode_request(request: JsonRpcRequest, version: str) -> bytes:
    """`version` is empty before one was agreed on."""
    params = dict(request.params)
    meta: JsonRpcMessage = {}
    if request.progress is not ignore_progress:
        meta["progressToken"] = request.id
    if version == MODERN_VERSION:
        meta |= {
            f"{_META_PREFIX}protocolVersion": version,
            f"{_META_PREFIX}clientInfo": CLIENT_INFO,
            f"{_META_PREFIX}clientCapabilities": {},
        }
    if meta:
        params["_meta"] = meta
    message: JsonRpcMessage = {"jsonrpc": "2.0", "id": request.id, "method": request.method}
    return encode_message(message | ({"params": params} if params else {}))


def encode_notification(method: str, params: JsonRpcMessage | None = None) -> bytes:
    message: JsonRpcMessage = {"jsonrpc": "2.0", "method": method}
    return encode_message(message | ({"params": params} if params else {}))


def encode_message(message: JsonRpcMessage) -> bytes:
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")  # an id of theirs may hold half a surrogate pair


def parse_message(raw: bytes) -> JsonRpcMessage:
    """As it was sent, not repaired. Raises Unusable."""
    try:
        message = untrusted_json.parse_repairable(raw)
    except untrusted_json.HostileJson as flaw:
        raise InvalidAnswer(f"The MCP server sent a message that cannot be read: {flaw}.") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise InvalidAnswer("The MCP server sent something that is no JSON-RPC message.")
    return message


async def parse_message_in_thread(raw: bytes) -> JsonRpcMessage:
    """As `parsed`. A long one is read in another thread: the loop is everybody's."""
    return (
        await asyncio.to_thread(parse_message, raw)
        if len(raw) > LONG_MESSAGE_BYTES
        else parse_message(raw)
    )


def is_answer(message: JsonRpcMessage) -> bool:
    return "method" not in message and ("result" in message or "error" in message)


def is_answer_to(message: JsonRpcMessage, request: JsonRpcRequest) -> bool:
    """Whether it is the answer to this request; one without an id can be to no other."""
    own = message.get("id")
    if isinstance(own, bool) or not is_answer(message):
        return False
    return own == request.id or (own is None and "error" in message)


def read_result(message: JsonRpcMessage) -> JsonRpcMessage:
    """Raises Answered, Unusable."""
    if "error" in message:
        raise _read_json_rpc_error(message["error"])
    result = message.get("result")
    if result == [] and isinstance(result, list):  # an empty object of PHP
        result = {}
    if not isinstance(result, dict):
        raise InvalidAnswer("The MCP server answered with a result that is no object.")
    return result


def _read_json_rpc_error(error: object) -> JsonRpcError:
    number, message, data = well_formed_error(error)
    return JsonRpcError(number, quote_text(message) or "no reason given", data)


def encode_reply(message: JsonRpcMessage) -> bytes | None:
    """What we answer to a request of the server's: a ping is answered, all else is not offered."""
    own = message.get("id")
    if "method" not in message or not isinstance(own, str | int) or isinstance(own, bool):
        return None
    if message["method"] == "ping":
        return encode_message({"jsonrpc": "2.0", "id": own, "result": {}})
    error = {"code": METHOD_NOT_FOUND, "message": "Method not found"}
    return encode_message({"jsonrpc": "2.0", "id": own, "error": error})
