"""The client of one MCP server with one set of credentials: negotiates the version of the protocol,
lists tools, calls them."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from tools.mcpclient.errors import (
    AnswerLost,
    InvalidAnswer,
    JsonRpcError,
    SessionExpired,
    ToolChanged,
    UpstreamFailure,
    UpstreamUnavailable,
    quote_text,
)
from tools.mcpclient.json_rpc import (
    CLIENT_INFO,
    HANDSHAKE_VERSIONS,
    LONG_MESSAGE_BYTES,
    MODERN_VERSION,
    UNSUPPORTED_VERSION,
    JsonRpcMessage,
    JsonRpcRequest,
    encode_notification,
    encode_reply,
    has_sendable_headers,
    ignore_progress,
    parameter_headers,
    read_result,
)
from tools.mcpclient.tool_answers import ToolAnswer, read_answer
from tools.mcpclient.tool_lists import ListFinding, ToolListReader, UpstreamTool, UpstreamToolList
from tools.mcpclient.transports import McpTransport

ProgressHandler = Callable[[str], None]
_CANCEL_TIMEOUT_S = 1.0
_FEW_PARTS = 100  # of an answer that is read in the event loop


class McpClient:
    """`last_version` is the version that was negotiated last, and is tried first; `list_max_age_s`
    is how old the tool list may be against which a call is checked."""

    def __init__(
        self, transport: McpTransport, *, last_version: str = "", list_max_age_s: float = 30.0
    ) -> None:
        self.version = ""
        self._transport, self._last_version = transport, last_version
        self._list_max_age_s = list_max_age_s
        self._ids = itertools.count(1)
        self._negotiation_lock, self._list_lock = asyncio.Lock(), asyncio.Lock()
        self._list: UpstreamToolList | None = None
        self._list_expires_at = 0.0

    async def list_tools(self, *, refresh: bool = False) -> UpstreamToolList:
        """Raises UpstreamFailure."""
        async with self._list_lock:
            if refresh or self._list is None or time.monotonic() >= self._list_expires_at:
                try:
                    self._list = await self._with_session(self._fetch_list)
                except AnswerLost:  # a list may be requested again
                    self._list = await self._with_session(self._fetch_list)
            return self._list

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        pin: str = "",
        on_progress: ProgressHandler | None = None,
        request: JsonRpcRequest | None = None,
    ) -> tuple[ToolAnswer, UpstreamTool | None]:
        """The answer, and the tool as the server lists it. With a `pin` the digest of the listed
        tool must equal it.

        Raises UpstreamFailure. `request.sent` says afterwards whether anything was sent.
        """
        tool = await self._find_approved_tool(name, pin)
        call = request or JsonRpcRequest("tools/call")
        call.params |= {"name": name, "arguments": arguments}
        call.headers = parameter_headers(tool.input_schema, arguments) if tool else []
        call.progress = _progress_handler(on_progress) if on_progress else ignore_progress
        answer = await self._with_session(lambda: self._request(call))
        if (
            "structuredContent" in answer
            or len(answer) > _FEW_PARTS
            or _has_many_parts(answer.get("content"))
        ):
            return await asyncio.to_thread(read_answer, answer), tool  # long in the event loop
        return read_answer(answer), tool

    async def close(self) -> None:
        await self._transport.close(self.version)

    async def _find_approved_tool(self, name: str, pin: str) -> UpstreamTool | None:
        try:
            tool_list = await self.list_tools()
        except (JsonRpcError, InvalidAnswer):
            if pin:
                raise
            return None  # a tool without a pin needs no list
        tool = tool_list.tools.get(name)
        if pin and tool is None:
            refusal, quoted = tool_list.refusal(quote_text(name, 256)), quote_text(name, 128)
            if refusal:
                raise ToolChanged(
                    f"The MCP server's tool {quoted} cannot be used now: it {refusal}."
                )
            raise ToolChanged(f"The MCP server has no tool {quoted} any more.")
        if pin and tool is not None and await _tool_digest(tool) != pin:
            message = "The MCP server describes the tool otherwise than when it was approved."
            raise ToolChanged(message, tool.raw)
        return tool

    async def _fetch_list(self) -> UpstreamToolList:
        reader = ToolListReader()
        more = True
        while more:
            params = {"cursor": reader.cursor} if reader.cursor is not None else {}
            page = await self._request(JsonRpcRequest("tools/list", params))
            more = await asyncio.to_thread(reader.read_page, page)
        tool_list = reader.tool_list()
        if self.version == MODERN_VERSION:  # earlier versions do not know x-mcp-header
            tool_list = await asyncio.to_thread(_refuse_unsendable_tools, tool_list)
        max_age_s = self._list_max_age_s
        if tool_list.max_age_s is not None:
            max_age_s = min(max_age_s, tool_list.max_age_s)
        self._list_expires_at = time.monotonic() + max_age_s
        return tool_list

    async def _with_session[Result](self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Runs `work` again with a new session if the server has forgotten ours."""
        await self._negotiate()
        try:
            return await work()
        except SessionExpired:
            self.version = ""
            self._transport.reset_session()
            self._list_expires_at = 0.0
        await self._negotiate()
        return await work()

    async def _request(self, request: JsonRpcRequest) -> JsonRpcMessage:
        request.id = next(self._ids)
        try:
            answer = await self._transport.send_request(
                request, self.version, self._message_handler(request)
            )
        except asyncio.CancelledError:
            if request.sent:
                await self._cancel_request(request)
            raise
        return read_result(answer)

    async def _cancel_request(self, request: JsonRpcRequest) -> None:
        try:
            async with asyncio.timeout(_CANCEL_TIMEOUT_S):
                await self._transport.cancel_request(request, self.version)
        except (UpstreamFailure, TimeoutError):
            pass  # an unreachable server cannot be stopped

    def _message_handler(self, request: JsonRpcRequest) -> Callable[[JsonRpcMessage], bytes | None]:
        def handle_message(message: JsonRpcMessage) -> bytes | None:
            method, params = message.get("method"), message.get("params")
            if method == "notifications/tools/list_changed":
                self._list_expires_at = 0.0
            if method == "notifications/progress" and isinstance(params, dict):
                token = params.get("progressToken")
                if token == request.id and not isinstance(token, bool):
                    request.progress(params)
            return encode_reply(message)

        return handle_message

    async def _negotiate(self) -> None:
        """Negotiates the version of the protocol, once. Raises UpstreamFailure."""
        async with self._negotiation_lock:
            if self.version:
                return
            if self._last_version in HANDSHAKE_VERSIONS or not self._transport.supports_modern:
                try:
                    await self._initialize()
                except JsonRpcError as error:
                    if not (
                        self._transport.supports_modern and error.number == UNSUPPORTED_VERSION
                    ):
                        raise
                else:
                    return
            if not await self._negotiate_modern():
                self._transport.reset_session()
                await self._initialize()
            self._last_version = self.version

    async def _negotiate_modern(self) -> bool:
        """Whether the server speaks the newest version."""
        self.version = MODERN_VERSION
        try:
            async with asyncio.timeout(self._transport.probe_timeout_s):
                result = await self._discover()
        except (JsonRpcError, InvalidAnswer, TimeoutError):
            self.version = ""
            return False
        except BaseException:
            self.version = ""
            raise
        versions = result.get("supportedVersions")
        if not isinstance(versions, list) or MODERN_VERSION not in versions:
            self.version = ""
            return False
        return True

    async def _discover(self) -> JsonRpcMessage:
        """Sends the request twice if the refusal of the version names it as supported."""
        try:
            return await self._request(JsonRpcRequest("server/discover"))
        except JsonRpcError as error:
            versions = error.data.get("supported") if isinstance(error.data, dict) else None
            supported = isinstance(versions, list) and MODERN_VERSION in versions
            if error.number != UNSUPPORTED_VERSION or not supported:
                raise
        return await self._request(JsonRpcRequest("server/discover"))

    async def _initialize(self) -> None:
        params = {
            "protocolVersion": HANDSHAKE_VERSIONS[0],
            "capabilities": {},
            "clientInfo": CLIENT_INFO,
        }
        result = await self._request(JsonRpcRequest("initialize", params))
        version = result.get("protocolVersion")
        if version not in HANDSHAKE_VERSIONS:
            raise InvalidAnswer("The MCP server speaks no version of the protocol that we know.")
        try:
            self.version = version
            await self._transport.send_message(
                encode_notification("notifications/initialized"), version
            )
        except BaseException as problem:
            self.version = ""
            if isinstance(problem, UpstreamFailure):
                raise UpstreamUnavailable("The MCP server broke off the handshake.") from None
            raise


def _refuse_unsendable_tools(tool_list: UpstreamToolList) -> UpstreamToolList:
    tools = {
        name: tool
        for name, tool in tool_list.tools.items()
        if has_sendable_headers(tool.input_schema)
    }
    reason = "marks parameters as headers (x-mcp-header) in a way that cannot be sent"
    refused = [ListFinding(name, True, reason) for name in tool_list.tools if name not in tools]
    return replace(tool_list, tools=tools, findings=(*tool_list.findings, *refused))


def _has_many_parts(content: object) -> bool:
    return isinstance(content, list | dict) and len(content) > _FEW_PARTS


async def _tool_digest(tool: UpstreamTool) -> str:
    if tool.size < LONG_MESSAGE_BYTES:
        return tool.digest
    return await asyncio.to_thread(lambda: tool.digest)


def _progress_handler(on_progress: ProgressHandler) -> Callable[[JsonRpcMessage], None]:
    def handle_progress(params: JsonRpcMessage) -> None:
        text = quote_text(params.get("message"), 1_000)
        done, total = params.get("progress"), params.get("total")
        if isinstance(done, int | float) and not isinstance(done, bool):
            suffix = f" of {total}" if isinstance(total, int | float) else ""
            text = f"{text} ({done}{suffix})".strip()
        on_progress(text)

    return handle_progress
