"""Streamable HTTP, and HTTP with server-sent events as servers of 2024 speak it.

In Streamable HTTP each request is a POST; its answer is one message, or a stream that ends with it.
In the older transport one lasting stream brings all messages of the server, and ours are posted to
an address that the stream begins with.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from urllib.parse import urljoin

from sandbox.egress.dial import Dialer
from sandbox.egress.rules.grammar import BrokenGrammar, Url
from tools.definitions.values.server_sent_events import EventReader, EventTooLong, StreamEvent
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
from tools.mcpclient.http_connections import (
    Headers,
    McpHttpResponse,
    OriginConnections,
    redirect_error,
    unauthorized_error,
)
from tools.mcpclient.json_rpc import (
    MODERN_VERSION,
    MOST_MESSAGE_BYTES,
    JsonRpcMessage,
    JsonRpcRequest,
    encode_header_value,
    encode_notification,
    encode_request,
    is_answer,
    is_answer_to,
    parse_message_in_thread,
    read_result,
)
from tools.mcpclient.transports import (
    PROBE_TIMEOUT_S,
    MessageHandler,
    StreamTransport,
    stream_error,
)

MOST_STREAM_BYTES = 16 * MOST_MESSAGE_BYTES
MOST_STREAM_LINES = 200_000
_ENDPOINT_TIMEOUT_S = 10.0
_DELETE_TIMEOUT_S = 2.0
_LONGEST_SESSION_ID = 1_024
_MOST_RESUMPTIONS = 5
_JSON_TYPE, _EVENT_STREAM_TYPE = "application/json", "text/event-stream"
_NAME_PARAMETERS = {"tools/call": "name"}  # by method: the value of the header Mcp-Name


class McpEventReader(EventReader):
    """Reads the events of a stream that have data, up to a limit for each and for the stream."""

    def __init__(self) -> None:
        super().__init__(MOST_MESSAGE_BYTES + 1024)
        self._total = self._lines = 0

    def feed(self, piece: bytes) -> Iterator[StreamEvent]:
        """Raises InvalidAnswer beyond the limits."""
        self._total += len(piece)
        self._lines += piece.count(b"\n") + piece.count(b"\r")
        if self._total > MOST_STREAM_BYTES or self._lines > MOST_STREAM_LINES:
            raise InvalidAnswer("The MCP server's stream is longer than is read of one.")
        try:
            yield from (event for event in super().feed(piece) if event.data)
        except EventTooLong:
            raise InvalidAnswer("The MCP server sent a longer message than is read.") from None

    def reset_limits(self) -> None:
        """Counts the stream's length from here, after it brought an answer."""
        self._total = self._lines = 0


class HttpSseTransport(StreamTransport):
    """The HTTP transport of the version 2024-11-05."""

    def __init__(self, url: Url, headers: Headers, dialer: Dialer) -> None:
        super().__init__()
        self._url, self._headers = url, [*headers, ("User-Agent", "toolcrib")]
        self._origin = OriginConnections(url, dialer)
        self._endpoint: asyncio.Future[str] | None = None
        self._reader: asyncio.Task[None] | None = None

    async def _connect(self) -> None:
        await self._stop_reading()
        loop = asyncio.get_running_loop()
        self._endpoint = loop.create_future()
        self._reader = loop.create_task(self._read_stream(self._endpoint))
        try:
            async with asyncio.timeout(_ENDPOINT_TIMEOUT_S):
                await asyncio.shield(self._endpoint)
        except TimeoutError:
            raise UpstreamUnavailable("The MCP server did not begin its stream.") from None
        except AnswerLost as problem:
            raise UpstreamUnavailable(str(problem)) from None

    async def _write(self, message: bytes) -> None:
        if self._endpoint is None or not self._endpoint.done():
            raise UpstreamUnavailable("The MCP server's stream has not begun.")
        headers = [*self._headers, ("Content-Type", _JSON_TYPE)]
        async with self._origin.exchange(
            "POST", self._endpoint.result(), headers, message
        ) as answer:
            await answer.read_body()
            if answer.status in {401, 403}:
                raise unauthorized_error(answer)
            if 300 <= answer.status < 400:
                raise redirect_error(answer, self._url)
            if not 200 <= answer.status < 300:
                raise UpstreamUnavailable(
                    f"The MCP server took no message (status {answer.status})."
                )

    async def _disconnect(self) -> None:
        await self._stop_reading()
        self._origin.close()

    async def _stop_reading(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        if self._endpoint is not None and self._endpoint.done():
            self._endpoint.exception()  # marks it as retrieved

    async def _read_stream(self, endpoint: asyncio.Future[str]) -> None:
        problem: UpstreamFailure = AnswerLost("The MCP server ended the stream.")
        try:
            await self._read_events(endpoint)
        except UpstreamFailure as failure:
            problem = failure
        finally:
            if not endpoint.done():
                endpoint.set_exception(problem)
                endpoint.exception()
            elif endpoint is self._endpoint:
                self._fail_pending(stream_error(problem))

    async def _read_events(self, endpoint: asyncio.Future[str]) -> None:
        headers = [*self._headers, ("Accept", _EVENT_STREAM_TYPE)]
        async with self._origin.exchange("GET", self._url.target, headers) as answer:
            if answer.status in {401, 403}:
                raise unauthorized_error(answer)
            if 300 <= answer.status < 400:
                raise redirect_error(answer, self._url)
            if answer.status != 200 or answer.content_type != _EVENT_STREAM_TYPE:
                raise InvalidAnswer("The MCP server has no stream of events at this address.")
            reader = McpEventReader()
            async for piece in answer.iter_body():
                for event in reader.feed(piece):
                    if event.kind == "endpoint" and not endpoint.done():
                        endpoint.set_result(self._endpoint_target(event.data))
                    elif event.kind == "message" and await self._handle_message(
                        await parse_message_in_thread(event.data)
                    ):
                        reader.reset_limits()

    def _endpoint_target(self, data: bytes) -> str:
        """The path to post to. It must be of the same origin, since credentials are sent to it.

        Raises InvalidAnswer.
        """
        base = f"{self._url.scheme}://{self._url.authority}{self._url.target}"
        try:
            endpoint = Url.parse(urljoin(base, data.decode("ascii").strip()))
        except (BrokenGrammar, ValueError):
            raise InvalidAnswer("The MCP server named an address that cannot be called.") from None
        origin = (self._url.scheme, self._url.host, self._url.port)
        if (endpoint.scheme, endpoint.host, endpoint.port) != origin:
            raise InvalidAnswer("The MCP server named an address of another host.")
        return endpoint.target


class StreamableHttpTransport:
    """The HTTP transport of all versions since 2025-03-26."""

    supports_modern = True
    probe_timeout_s = PROBE_TIMEOUT_S

    def __init__(self, url: Url, headers: Headers, dialer: Dialer) -> None:
        self._url, self._headers = url, headers
        self._origin = OriginConnections(url, dialer)
        self._session_id = ""

    def reset_session(self) -> None:
        self._session_id = ""

    async def send_request(
        self, request: JsonRpcRequest, version: str, handler: MessageHandler
    ) -> JsonRpcMessage:
        request.sent = True  # until we know that it was not
        try:
            async with self._post(encode_request(request, version), request, version) as answer:
                await self._check_status(answer, request)
                if request.method == "initialize":
                    self._store_session_id(answer)
                message = await self._read_answer(answer, request, version, handler)
                answer.complete = True
        except UpstreamUnavailable:
            request.sent = False
            raise
        return message

    async def send_message(self, message: bytes, version: str) -> None:
        async with self._post(message, None, version) as answer:
            await answer.read_body()
            if answer.status == 404 and self._session_id:
                raise SessionExpired("The MCP server has forgotten the session.")

    async def cancel_request(self, request: JsonRpcRequest, version: str) -> None:
        """In the newest version the end of the connection cancels the request."""
        if version != MODERN_VERSION:
            params = {"requestId": request.id, "reason": "the caller gave the call up"}
            await self.send_message(encode_notification("notifications/cancelled", params), version)

    async def close(self, version: str) -> None:
        try:
            if self._session_id:
                async with asyncio.timeout(_DELETE_TIMEOUT_S):
                    await self._delete_session(version)
        except (UpstreamFailure, TimeoutError):
            pass  # a server that is gone has no session to end
        finally:
            self._origin.close()

    async def _delete_session(self, version: str) -> None:
        headers = self._common_headers(version)
        async with self._origin.exchange("DELETE", self._url.target, headers) as answer:
            await answer.read_body()

    def _common_headers(self, version: str) -> Headers:
        headers = [*self._headers, ("User-Agent", "toolcrib")]
        if version:
            headers.append(("MCP-Protocol-Version", version))
        if self._session_id:
            headers.append(("Mcp-Session-Id", self._session_id))
        return headers

    def _post(
        self, body: bytes, request: JsonRpcRequest | None, version: str
    ) -> AbstractAsyncContextManager[McpHttpResponse]:
        headers = [
            *self._common_headers(version),
            ("Content-Type", _JSON_TYPE),
            ("Accept", f"{_JSON_TYPE}, {_EVENT_STREAM_TYPE}"),
        ]
        if request is not None and version == MODERN_VERSION:
            headers += [("Mcp-Method", request.method), *request.headers]
            if name := request.params.get(_NAME_PARAMETERS.get(request.method, "")):
                headers.append(("Mcp-Name", encode_header_value(name)))
        return self._origin.exchange("POST", self._url.target, headers, body)

    def _store_session_id(self, answer: McpHttpResponse) -> None:
        session_id = answer.headers.get("mcp-session-id", "")
        if len(session_id) > _LONGEST_SESSION_ID or not all(
            "!" <= one <= "~" for one in session_id
        ):
            message = "The MCP server named its session in a way that no header can carry."
            raise InvalidAnswer(message)
        self._session_id = session_id

    async def _check_status(self, answer: McpHttpResponse, request: JsonRpcRequest) -> None:
        """Raises UpstreamFailure for every status but 200."""
        status = answer.status
        if status == 200:
            return
        error = await _read_error(answer, request)
        if self._session_id and (status == 404 or (status == 400 and _is_session_error(error))):
            raise SessionExpired("The MCP server has forgotten the session.")
        if status in {401, 403}:
            raise _with_details(unauthorized_error(answer), error)
        if status in {429, 503}:
            refusal = UpstreamBusy if status == 429 else UpstreamUnavailable
            problem = refusal(f"The MCP server takes no calls at the moment (status {status}).")
            raise _with_details(problem, error)
        if status in {502, 504}:
            raise AnswerLost(f"A proxy of the MCP server lost its answer (status {status}).")
        if isinstance(error, JsonRpcError):
            raise error
        if 300 <= status < 400:
            raise redirect_error(answer, self._url)
        raise JsonRpcError(0, f"status {status} of HTTP", error)

    async def _read_answer(
        self,
        answer: McpHttpResponse,
        request: JsonRpcRequest,
        version: str,
        handler: MessageHandler,
    ) -> JsonRpcMessage:
        if answer.content_type == _JSON_TYPE:
            whole = await parse_message_in_thread(await answer.read_body())
            if not is_answer_to(whole, request):
                raise InvalidAnswer("The MCP server answered something else than was asked.")
            return whole
        if answer.content_type != _EVENT_STREAM_TYPE:
            raise InvalidAnswer("The MCP server answered with neither JSON nor a stream of events.")
        reader = McpEventReader()
        message = await self._find_answer(answer.iter_body(), reader, request, version, handler)
        for _ in range(_MOST_RESUMPTIONS):
            if message is not None:
                return message
            if not reader.last_id or version == MODERN_VERSION:
                break
            message = await self._resume(reader, request, version, handler)
        if message is None:
            raise AnswerLost("The MCP server ended the stream before its answer.")
        return message

    async def _resume(
        self, reader: McpEventReader, request: JsonRpcRequest, version: str, handler: MessageHandler
    ) -> JsonRpcMessage | None:
        """Continues a stream that the server closed, after the last event that was received."""
        await asyncio.sleep(reader.retry_ms / 1000)
        headers = [
            *self._common_headers(version),
            ("Accept", _EVENT_STREAM_TYPE),
            ("Last-Event-ID", reader.last_id),
        ]
        try:
            async with self._origin.exchange("GET", self._url.target, headers) as answer:
                if answer.status != 200 or answer.content_type != _EVENT_STREAM_TYPE:
                    raise AnswerLost("The MCP server ended the stream before its answer.")
                return await self._find_answer(
                    answer.iter_body(), reader, request, version, handler
                )
        except UpstreamUnavailable as problem:
            raise AnswerLost(str(problem)) from None

    async def _find_answer(
        self,
        pieces: AsyncIterator[bytes],
        reader: McpEventReader,
        request: JsonRpcRequest,
        version: str,
        handler: MessageHandler,
    ) -> JsonRpcMessage | None:
        """The answer in a stream; None if the stream ends without one."""
        async for piece in pieces:
            for event in reader.feed(piece):
                if event.kind != "message":
                    continue
                message = await parse_message_in_thread(event.data)
                if is_answer_to(message, request):
                    return message
                if is_answer(message):
                    raise InvalidAnswer("The MCP server answered something else than was asked.")
                reply = handler(message)
                if reply is not None and version != MODERN_VERSION:
                    await self.send_message(reply, version)
        return None


async def _read_error(
    answer: McpHttpResponse, request: JsonRpcRequest
) -> JsonRpcError | str | None:
    """The details of a refusal: an error of JSON-RPC, or an excerpt of the body."""
    raw = await answer.read_body()
    if answer.content_type != _JSON_TYPE:
        return _body_excerpt(raw) if answer.content_type.startswith("text/") else None
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
    """Adds the details that the server sent."""
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
