"""JSON-RPC as MCP uses it, and the HTTP headers that repeat parts of a message (2026-07-28)."""

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sandbox import untrusted_json
from tools.definitions.mcp.call_results import well_formed_error
from tools.mcpclient.errors import InvalidAnswer, JsonRpcError, quote_text

MODERN_VERSION = "2026-07-28"
HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")  # the latest first
METHOD_NOT_FOUND = -32601
UNSUPPORTED_VERSION = -32022
MOST_MESSAGE_BYTES = 4 * 1024 * 1024
LONG_MESSAGE_BYTES = 32 * 1024  # takes too long to read in the event loop
CLIENT_INFO = {"name": "toolcrib", "version": "1"}
_META_PREFIX = "io.modelcontextprotocol/"
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_ENCODED_VALUE = re.compile(r"=\?base64\?.*\?=")
_HEADER_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_SCALAR_TYPES = ("string", "integer", "boolean")
_DEEPEST_PROPERTY = 16
_LONGEST_HEADER_VALUE = 4_096

JsonRpcMessage = dict[str, Any]


def ignore_progress(_params: JsonRpcMessage) -> None:
    """The default handler of progress notifications."""


@dataclass
class JsonRpcRequest:
    """A request to a server. `sent`: the server may have received it completely."""

    method: str
    params: JsonRpcMessage = field(default_factory=dict)
    headers: list[tuple[str, str]] = field(default_factory=list)
    progress: Callable[[JsonRpcMessage], None] = ignore_progress
    id: int = 0
    sent: bool = False


def encode_request(request: JsonRpcRequest, version: str) -> bytes:
    """`version` is empty before the negotiation."""
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
    return text.encode("utf-8", "replace")  # the id of a server's request may have a lone surrogate


def parse_message(raw: bytes) -> JsonRpcMessage:
    """Lenient, but without repairs of the content. Raises InvalidAnswer."""
    try:
        message = untrusted_json.parse_repairable(raw)
    except untrusted_json.HostileJson as flaw:
        raise InvalidAnswer(f"The MCP server sent a message that cannot be read: {flaw}.") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise InvalidAnswer("The MCP server sent something that is not a JSON-RPC message.")
    return message


async def parse_message_in_thread(raw: bytes) -> JsonRpcMessage:
    """As `parse_message`; a long message is read outside the event loop."""
    if len(raw) > LONG_MESSAGE_BYTES:
        return await asyncio.to_thread(parse_message, raw)
    return parse_message(raw)


def is_answer(message: JsonRpcMessage) -> bool:
    return "method" not in message and ("result" in message or "error" in message)


def is_answer_to(message: JsonRpcMessage, request: JsonRpcRequest) -> bool:
    """Whether it is the answer to this request; an error may have no id."""
    message_id = message.get("id")
    if isinstance(message_id, bool) or not is_answer(message):
        return False
    return message_id == request.id or (message_id is None and "error" in message)


def read_result(message: JsonRpcMessage) -> JsonRpcMessage:
    """Raises JsonRpcError, InvalidAnswer."""
    if "error" in message:
        number, text, data = well_formed_error(message["error"])
        raise JsonRpcError(number, quote_text(text) or "no reason given", data)
    result = message.get("result")
    if result == [] and isinstance(result, list):  # an empty object of PHP
        result = {}
    if not isinstance(result, dict):
        raise InvalidAnswer("The MCP server answered with a result that is not an object.")
    return result


def encode_reply(message: JsonRpcMessage) -> bytes | None:
    """The reply to a server's request: to a ping an empty result, to all others an error.

    None if the message is no request.
    """
    message_id = message.get("id")
    if "method" not in message or not isinstance(message_id, str | int):
        return None
    if isinstance(message_id, bool):
        return None
    if message["method"] == "ping":
        return encode_message({"jsonrpc": "2.0", "id": message_id, "result": {}})
    error = {"code": METHOD_NOT_FOUND, "message": "Method not found"}
    return encode_message({"jsonrpc": "2.0", "id": message_id, "error": error})


def encode_header_value(text: str) -> str:
    """Unchanged if a header can have it, else as base64."""
    if _PRINTABLE.fullmatch(text) and text == text.strip() and not _ENCODED_VALUE.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def parameter_headers(schema: Any, arguments: dict[str, Any]) -> list[tuple[str, str]]:
    """`Mcp-Param-…` for the properties whose schema says `x-mcp-header`."""
    headers: list[tuple[str, str]] = []
    for path, token in _sendable_header_properties(schema, ()):
        text = _scalar_text(_nested_value(arguments, path))
        if text is not None and len(text) <= _LONGEST_HEADER_VALUE:
            headers.append((f"Mcp-Param-{token}", encode_header_value(text)))
    return headers


def has_sendable_headers(schema: Any) -> bool:
    """Whether a tool's parameters can be sent as headers as its schema says. Others must not be
    offered."""
    properties = list(_header_properties(schema, ()))
    tokens = [one["x-mcp-header"] for _, one in properties]
    if not all(isinstance(token, str) and _HEADER_TOKEN.fullmatch(token) for token in tokens):
        return False
    scalar = all(_is_scalar_type(one.get("type")) for _, one in properties)
    return scalar and len({token.lower() for token in tokens}) == len(tokens)


def _is_scalar_type(kind: Any) -> bool:
    kinds = [one for one in kind if one != "null"] if isinstance(kind, list) else [kind]
    return bool(kinds) and all(one in _SCALAR_TYPES for one in kinds)


def _sendable_header_properties(
    schema: Any, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    for property_path, one in _header_properties(schema, path):
        token = one["x-mcp-header"]
        if isinstance(token, str) and _HEADER_TOKEN.fullmatch(token):
            yield property_path, token


def _header_properties(
    schema: Any, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(path) >= _DEEPEST_PROPERTY:
        return
    for name, subschema in properties.items():
        if isinstance(subschema, dict) and "x-mcp-header" in subschema:
            yield (*path, name), subschema
        yield from _header_properties(subschema, (*path, name))


def _nested_value(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _scalar_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None
