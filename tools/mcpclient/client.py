"""One server as one holder of credentials sees it: the protocol agreed on, its tools, its calls."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from tools.mcpclient.channel import McpTransport
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
from tools.mcpclient.headers import has_sendable_headers, parameter_headers
from tools.mcpclient.listing import ListFinding, ToolListReader, UpstreamTool, UpstreamToolList
from tools.mcpclient.messages import (
    CLIENT_INFO,
    HANDSHAKE_VERSIONS,
    LONG_MESSAGE_BYTES,
    MODERN_VERSION,
    UNSUPPORTED_VERSION,
    JsonRpcMessage,
    JsonRpcRequest,
    encode_notification,
    encode_reply,
    ignore_progress,
    read_result,
)
from tools.mcpclient.results import ToolAnswer, read_answer

ProgressHandler = Callable[[str], None]
_CANCEL_TIMEOUT_S = 1.0
_FEW_PARTS = 100  # parts of an answer that are read in no time


class McpClient:
    """`remembered` is the protocol that was agreed on lately; `fresh_s` how old a list may be by
    which a call is judged."""

    def __init__(
        self, channel: McpTransport, *, remembered: str = "", fresh_s: float = 30.0
    ) -> None:
        self.version = ""
        self._channel, self._remembered, self._fresh_s = channel, remembered, fresh_s
        self._ids = itertools.count(1)
        self._opening, self._listing_lock = asyncio.Lock(), asyncio.Lock()
        self._listing: UpstreamToolList | None = None
        self._stale_at = 0.0

    async def tools(self, *, fresh: bool = False) -> UpstreamToolList:
        """Raises UpstreamFailure."""
        async with self._listing_lock:
            if fresh or self._listing is None or time.monotonic() >= self._stale_at:
                try:
                    self._listing = await self._again(self._list)
                except AnswerLost:  # asking again for a list does no harm
                    self._listing = await self._again(self._list)
            return self._listing

    async def call(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        pin: str = "",
        tell: ProgressHandler | None = None,
        request: JsonRpcRequest | None = None,
    ) -> tuple[ToolAnswer, UpstreamTool | None]:
        """The answer, and the tool as it is listed. With a `pin` the tool must be that one.

        Raises UpstreamFailure. `request` says afterwards whether anything was sent.
        """
        tool = await self._approved(name, pin)
        wanted = request or JsonRpcRequest("tools/call")
        wanted.params |= {"name": name, "arguments": arguments}
        wanted.headers = parameter_headers(tool.input_schema, arguments) if tool else []
        wanted.progress = _format_progress(tell) if tell else ignore_progress
        answer = await self._again(lambda: self._ask(wanted))
        if (
            "structuredContent" in answer
            or len(answer) > _FEW_PARTS
            or _has_many_parts(answer.get("content"))
        ):
            return await asyncio.to_thread(read_answer, answer), tool  # the loop is everybody's
        return read_answer(answer), tool

    async def close(self) -> None:
        await self._channel.close(self.version)

    async def _approved(self, name: str, pin: str) -> UpstreamTool | None:
        try:
            listing = await self.tools()
        except (JsonRpcError, InvalidAnswer):
            if pin:
                raise
            return None  # a tool written by hand needs no list
        tool = listing.tools.get(name)
        if pin and tool is None:
            refusal, shown = listing.refusal(quote_text(name, 256)), quote_text(name, 128)
            if refusal:
                raise ToolChanged(
                    f"The MCP server's tool {shown} cannot be used now: it {refusal}."
                )
            raise ToolChanged(f"The MCP server has no tool {shown} any more.")
        if pin and tool is not None and await _tool_digest(tool) != pin:
            message = "The MCP server describes the tool otherwise than when it was approved."
            raise ToolChanged(message, tool.raw)
        return tool

    async def _list(self) -> UpstreamToolList:
        pages = ToolListReader()
        more = True
        while more:
            params = {"cursor": pages.cursor} if pages.cursor is not None else {}
            page = await self._ask(JsonRpcRequest("tools/list", params))
            more = await asyncio.to_thread(pages.take, page)  # the loop is everybody's
        listing = pages.listing()
        if self.version == MODERN_VERSION:  # before it the mark meant nothing
            listing = await asyncio.to_thread(_refuse_unsendable_tools, listing)
        told = listing.good_for_s
        good_s = self._fresh_s if told is None else min(self._fresh_s, told)
        self._stale_at = time.monotonic() + good_s
        return listing

    async def _again[Got](self, work: Callable[[], Awaitable[Got]]) -> Got:
        """Once more with a new session, where the server has forgotten ours."""
        await self._open()
        try:
            return await work()
        except SessionExpired:
            self.version = ""
            self._channel.begin()
            self._stale_at = 0.0
        await self._open()
        return await work()

    async def _ask(self, request: JsonRpcRequest) -> JsonRpcMessage:
        request.id = next(self._ids)
        try:
            answer = await self._channel.ask(request, self.version, self._hearer(request))
        except asyncio.CancelledError:
            if request.sent:
                await self._abandon(request)
            raise
        return read_result(answer)

    async def _abandon(self, request: JsonRpcRequest) -> None:
        try:
            async with asyncio.timeout(_CANCEL_TIMEOUT_S):
                await self._channel.abandon(request, self.version)
        except (UpstreamFailure, TimeoutError):
            pass  # who cannot be told cannot be stopped either

    def _hearer(self, request: JsonRpcRequest) -> Callable[[JsonRpcMessage], bytes | None]:
        def hear(message: JsonRpcMessage) -> bytes | None:
            method, params = message.get("method"), message.get("params")
            if method == "notifications/tools/list_changed":
                self._stale_at = 0.0
            if method == "notifications/progress" and isinstance(params, dict):
                token = params.get("progressToken")
                if token == request.id and not isinstance(token, bool):
                    request.progress(params)
            return encode_reply(message)

        return hear

    async def _open(self) -> None:
        """Agree on a protocol, once. Raises UpstreamFailure."""
        async with self._opening:
            if self.version:
                return
            if self._remembered in HANDSHAKE_VERSIONS or not self._channel.modern:
                try:
                    await self._shake_hands()
                except JsonRpcError as error:
                    if not (self._channel.modern and error.number == UNSUPPORTED_VERSION):
                        raise
                else:
                    return
            if not await self._discovered():
                self._channel.begin()
                await self._shake_hands()
            self._remembered = self.version

    async def _discovered(self) -> bool:
        """Whether the server speaks the newest protocol."""
        self.version = MODERN_VERSION
        try:
            async with asyncio.timeout(self._channel.probe_s):
                found = await self._discover()
        except (JsonRpcError, InvalidAnswer, TimeoutError):
            self.version = ""
            return False
        except BaseException:
            self.version = ""
            raise
        versions = found.get("supportedVersions")
        if not isinstance(versions, list) or MODERN_VERSION not in versions:
            self.version = ""
            return False
        return True

    async def _discover(self) -> JsonRpcMessage:
        """Once more where the version is refused and named as known in one breath."""
        try:
            return await self._ask(JsonRpcRequest("server/discover"))
        except JsonRpcError as error:
            known = error.data.get("supported") if isinstance(error.data, dict) else None
            supported = isinstance(known, list) and MODERN_VERSION in known
            if error.number != UNSUPPORTED_VERSION or not supported:
                raise
        return await self._ask(JsonRpcRequest("server/discover"))

    async def _shake_hands(self) -> None:
        params = {
            "protocolVersion": HANDSHAKE_VERSIONS[0],
            "capabilities": {},
            "clientInfo": CLIENT_INFO,
        }
        found = await self._ask(JsonRpcRequest("initialize", params))
        version = found.get("protocolVersion")
        if version not in HANDSHAKE_VERSIONS:
            raise InvalidAnswer("The MCP server speaks no version of the protocol that we know.")
        try:
            self.version = version
            await self._channel.tell(encode_notification("notifications/initialized"), version)
        except BaseException as problem:
            self.version = ""
            if isinstance(problem, UpstreamFailure):
                raise UpstreamUnavailable("The MCP server broke off the handshake.") from None
            raise


def _refuse_unsendable_tools(listing: UpstreamToolList) -> UpstreamToolList:
    tools = {
        name: tool
        for name, tool in listing.tools.items()
        if has_sendable_headers(tool.input_schema)
    }
    reason = "marks parameters as headers (x-mcp-header) in a way that cannot be sent"
    refused = [ListFinding(name, True, reason) for name in listing.tools if name not in tools]
    return replace(listing, tools=tools, findings=(*listing.findings, *refused))


def _has_many_parts(content: object) -> bool:
    return isinstance(content, list | dict) and len(content) > _FEW_PARTS


async def _tool_digest(tool: UpstreamTool) -> str:
    return (
        tool.digest
        if tool.size < LONG_MESSAGE_BYTES
        else await asyncio.to_thread(lambda: tool.digest)
    )


def _format_progress(tell: ProgressHandler) -> Callable[[JsonRpcMessage], None]:
    def told(params: JsonRpcMessage) -> None:
        words = quote_text(params.get("message"), 1_000)
        done, total = params.get("progress"), params.get("total")
        if isinstance(done, int | float) and not isinstance(done, bool):
            of = f" of {total}" if isinstance(total, int | float) else ""
            words = f"{words} ({done}{of})".strip()
        tell(words)

    return told
