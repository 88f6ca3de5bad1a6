"""Streamable HTTP: each request is a POST, its answer one message or a stream that ends with it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from sandbox.egress.dial import Dialer
from sandbox.egress.rules.grammar import Url
from tools.mcpclient.channel import PROBE_TIMEOUT_S, MessageHandler
from tools.mcpclient.errors import (
    LONGEST_QUOTE,
    AnswerLost,
    InvalidAnswer,
    JsonRpcError,
    SessionExpired,
    UpstreamBusy,
    UpstreamFailure,
    UpstreamUnavailable,
    quote_text,
)
from tools.mcpclient.headers import encode_header_value
from tools.mcpclient.http import (
    Headers,
    McpHttpResponse,
    OriginConnections,
    redirect_error,
    unauthorized_error,
)
from tools.mcpclient.messages import (
    MODERN_VERSION,
    JsonRpcMessage,
    JsonRpcRequest,
    encode_notification,
    encode_request,
    is_answer,
    is_answer_to,
    parse_message_in_thread,
    read_result,
)
from tools.mcpclient.sse import McpEventReader

_JSON_TYPE, _EVENT_STREAM_TYPE = "application/json", "text/event-stream"
_NAME_PARAMETERS = {"tools/call": "name"}  # which parameter is the header Mcp-Name
_LONGEST_SESSION_ID = 1_024
_MOST_RESUMPTIONS = 5
_DELETE_TIMEOUT_S = 2.0


class StreamableHttpTransport:
    modern = True
    probe_s = PROBE_TIMEOUT_S

    def __init__(self, url: Url, headers: Headers, dialer: Dialer) -> None:
        self._url, self._headers = url, headers
        self._origin = OriginConnections(url, dialer)
        self._session = ""

    def begin(self) -> None:
        self._session = ""

    async def ask(
        self, request: JsonRpcRequest, version: str, hear: MessageHandler
    ) -> JsonRpcMessage:
        request.sent = True  # taken back where it was not
        try:
            async with self._post(encode_request(request, version), request, version) as answer:
                await self._check(answer, request)
                if request.method == "initialize":
                    self._note_session(answer)
                found = await self._read(answer, request, version, hear)
                answer.done = True
        except UpstreamUnavailable:
            request.sent = False
            raise
        return found

    async def tell(self, message: bytes, version: str) -> None:
        async with self._post(message, None, version) as answer:
            await answer.whole()
            if answer.status == 404 and self._session:
                raise SessionExpired("The MCP server has forgotten the session.")

    async def abandon(self, request: JsonRpcRequest, version: str) -> None:
        """In the newest protocol the connection's end says it."""
        if version != MODERN_VERSION:
            params = {"requestId": request.id, "reason": "the caller gave the call up"}
            await self.tell(encode_notification("notifications/cancelled", params), version)

    async def close(self, version: str) -> None:
        try:
            if self._session:
                async with asyncio.timeout(_DELETE_TIMEOUT_S):
                    await self._farewell(version)
        except (UpstreamFailure, TimeoutError):
            pass  # a server that is gone has no session to end
        finally:
            self._origin.close()

    async def _farewell(self, version: str) -> None:
        headers = self._common(version)
        async with self._origin.exchange("DELETE", self._url.target, headers) as answer:
            await answer.whole()

    def _common(self, version: str) -> Headers:
        headers = [*self._headers, ("User-Agent", "toolcrib")]
        if version:
            headers.append(("MCP-Protocol-Version", version))
        if self._session:
            headers.append(("Mcp-Session-Id", self._session))
        return headers

    def _post(
        self, body: bytes, request: JsonRpcRequest | None, version: str
    ) -> AbstractAsyncContextManager[McpHttpResponse]:
        headers = [
            *self._common(version),
            ("Content-Type", _JSON_TYPE),
            ("Accept", f"{_JSON_TYPE}, {_EVENT_STREAM_TYPE}"),
        ]
        if request is not None and version == MODERN_VERSION:
            headers += [("Mcp-Method", request.method), *request.headers]
            if name := request.params.get(_NAME_PARAMETERS.get(request.method, "")):
                headers.append(("Mcp-Name", encode_header_value(name)))
        return self._origin.exchange("POST", self._url.target, headers, body)

    def _note_session(self, answer: McpHttpResponse) -> None:
        session = answer.headers.get("mcp-session-id", "")
        if len(session) > _LONGEST_SESSION_ID or not all("!" <= one <= "~" for one in session):
            raise InvalidAnswer(
                "The MCP server named its session in a way that no header can carry."
            )
        self._session = session

    async def _check(self, answer: McpHttpResponse, request: JsonRpcRequest) -> None:
        """Raises for every status but 200."""
        status = answer.status
        if status == 200:
            return
        error = await _read_error(answer, request)
        if self._session and (status == 404 or (status == 400 and _is_session_error(error))):
            raise SessionExpired("The MCP server has forgotten the session.")
        if status in {401, 403}:
            raise _with_details(unauthorized_error(answer), error)
        if status in {429, 503}:
            refusal = UpstreamBusy if status == 429 else UpstreamUnavailable
            problem = refusal(f"The MCP server takes no calls just now (status {status}).")
            raise _with_details(problem, error)
        if status in {502, 504}:
            raise AnswerLost(f"What is before the MCP server lost its answer (status {status}).")
        if isinstance(error, JsonRpcError):
            raise error
        if 300 <= status < 400:
            raise redirect_error(answer, self._url)
        raise JsonRpcError(0, f"status {status} of HTTP", error)

    async def _read(
        self, answer: McpHttpResponse, request: JsonRpcRequest, version: str, hear: MessageHandler
    ) -> JsonRpcMessage:
        if answer.kind == _JSON_TYPE:
            message = await parse_message_in_thread(await answer.whole())
            if not is_answer_to(message, request):
                raise InvalidAnswer("The MCP server answered something else than was asked.")
            return message
        if answer.kind != _EVENT_STREAM_TYPE:
            raise InvalidAnswer("The MCP server answered with neither JSON nor a stream of events.")
        events = McpEventReader()
        found = await self._first(answer.pieces(), events, request, version, hear)
        for _ in range(_MOST_RESUMPTIONS):
            if found is not None:
                return found
            if not events.last_id or version == MODERN_VERSION:
                break
            found = await self._resumed(events, request, version, hear)
        if found is None:
            raise AnswerLost("The MCP server ended the stream before its answer.")
        return found

    async def _resumed(
        self, events: McpEventReader, request: JsonRpcRequest, version: str, hear: MessageHandler
    ) -> JsonRpcMessage | None:
        """The server may close a stream and go on where it is asked to."""
        await asyncio.sleep(events.retry_ms / 1000)
        headers = [
            *self._common(version),
            ("Accept", _EVENT_STREAM_TYPE),
            ("Last-Event-ID", events.last_id),
        ]
        try:
            async with self._origin.exchange("GET", self._url.target, headers) as answer:
                if answer.status != 200 or answer.kind != _EVENT_STREAM_TYPE:
                    raise AnswerLost("The MCP server ended the stream before its answer.")
                return await self._first(answer.pieces(), events, request, version, hear)
        except UpstreamUnavailable as problem:
            raise AnswerLost(str(problem)) from None

    async def _first(
        self,
        pieces: AsyncIterator[bytes],
        events: McpEventReader,
        request: JsonRpcRequest,
        version: str,
        hear: MessageHandler,
    ) -> JsonRpcMessage | None:
        """The answer in a stream; None where it ends in order without one."""
        async for piece in pieces:
            for event in events.feed(piece):
                if event.kind != "message":
                    continue
                message = await parse_message_in_thread(event.data)
                if is_answer_to(message, request):
                    return message
                if is_answer(message):
                    raise InvalidAnswer("The MCP server answered something else than was asked.")
                reply = hear(message)
                if reply is not None and version != MODERN_VERSION:
                    await self.tell(reply, version)
        return None


async def _read_error(
    answer: McpHttpResponse, request: JsonRpcRequest
) -> JsonRpcError | str | None:
    """The details of a refusal: an error of JSON-RPC, or the text of its body."""
    raw = await answer.whole()
    if answer.kind != _JSON_TYPE:
        return _body_excerpt(raw) if answer.kind.startswith("text/") else None
    try:
        message = await parse_message_in_thread(raw)
        if is_answer_to(message, request):
            read_result(message)
    except JsonRpcError as error:
        return error
    except InvalidAnswer:
        return _body_excerpt(raw)
    return _body_excerpt(raw)


def _with_details(problem: UpstreamFailure, error: JsonRpcError | str | None) -> UpstreamFailure:
    """With what the server sent about it."""
    if isinstance(error, JsonRpcError):
        problem.data = {"message": error.text} | ({"data": error.data} if error.data else {})
    else:
        problem.data = error
    return problem


def _body_excerpt(raw: bytes) -> str | None:
    text = raw[: 4 * LONGEST_QUOTE].decode("utf-8", "replace")
    return quote_text(" ".join(text.split())) or None


def _is_session_error(error: JsonRpcError | str | None) -> bool:
    return isinstance(error, JsonRpcError) and "session" in error.text.lower()
