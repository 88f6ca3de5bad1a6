"""Streamable HTTP: each request is a POST, its answer one message or a stream that ends with it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from sandbox.egress.dial import Dialer
from sandbox.egress.rules.grammar import Url
from tools.mcpclient.channel import PROBE_S, Hear
from tools.mcpclient.errors import (
    LONGEST_QUOTE,
    Answered,
    Busy,
    Lost,
    NeverBegan,
    SessionGone,
    Unusable,
    UpstreamFailure,
    quoted,
)
from tools.mcpclient.headers import header_value
from tools.mcpclient.http import Answer, Headers, Origin, redirected, refused
from tools.mcpclient.messages import (
    MODERN,
    Message,
    Request,
    answers,
    is_answer,
    notification_bytes,
    parsed_aside,
    request_bytes,
    result_of,
)
from tools.mcpclient.sse import Events

_JSON, _STREAM = "application/json", "text/event-stream"
_NAMED = {"tools/call": "name"}  # which parameter is the header Mcp-Name
_LONGEST_SESSION = 1_024
_MOST_RESUMED = 5
_FAREWELL_S = 2.0


class Streamable:
    modern = True
    probe_s = PROBE_S

    def __init__(self, url: Url, headers: Headers, dialer: Dialer) -> None:
        self._url, self._headers = url, headers
        self._origin = Origin(url, dialer)
        self._session = ""

    def begin(self) -> None:
        self._session = ""

    async def ask(self, request: Request, version: str, hear: Hear) -> Message:
        request.sent = True  # taken back where it was not
        try:
            async with self._post(request_bytes(request, version), request, version) as answer:
                await self._check(answer, request)
                if request.method == "initialize":
                    self._note_session(answer)
                found = await self._read(answer, request, version, hear)
                answer.done = True
        except NeverBegan:
            request.sent = False
            raise
        return found

    async def tell(self, message: bytes, version: str) -> None:
        async with self._post(message, None, version) as answer:
            await answer.whole()
            if answer.status == 404 and self._session:
                raise SessionGone("The MCP server has forgotten the session.")

    async def abandon(self, request: Request, version: str) -> None:
        """In the newest protocol the connection's end says it."""
        if version != MODERN:
            params = {"requestId": request.id, "reason": "the caller gave the call up"}
            await self.tell(notification_bytes("notifications/cancelled", params), version)

    async def close(self, version: str) -> None:
        try:
            if self._session:
                async with asyncio.timeout(_FAREWELL_S):
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
        self, body: bytes, request: Request | None, version: str
    ) -> AbstractAsyncContextManager[Answer]:
        headers = [
            *self._common(version),
            ("Content-Type", _JSON),
            ("Accept", f"{_JSON}, {_STREAM}"),
        ]
        if request is not None and version == MODERN:
            headers += [("Mcp-Method", request.method), *request.headers]
            if name := request.params.get(_NAMED.get(request.method, "")):
                headers.append(("Mcp-Name", header_value(name)))
        return self._origin.exchange("POST", self._url.target, headers, body)

    def _note_session(self, answer: Answer) -> None:
        session = answer.headers.get("mcp-session-id", "")
        if len(session) > _LONGEST_SESSION or not all("!" <= one <= "~" for one in session):
            raise Unusable("The MCP server named its session in a way that no header can carry.")
        self._session = session

    async def _check(self, answer: Answer, request: Request) -> None:
        """Raises for every status but 200."""
        status = answer.status
        if status == 200:
            return
        error = await _error_in(answer, request)
        if self._session and (status == 404 or (status == 400 and _of_session(error))):
            raise SessionGone("The MCP server has forgotten the session.")
        if status in {401, 403}:
            raise _with_words(refused(answer), error)
        if status in {429, 503}:
            refusal = Busy if status == 429 else NeverBegan
            problem = refusal(f"The MCP server takes no calls just now (status {status}).")
            raise _with_words(problem, error)
        if status in {502, 504}:
            raise Lost(f"What is before the MCP server lost its answer (status {status}).")
        if isinstance(error, Answered):
            raise error
        if 300 <= status < 400:
            raise redirected(answer, self._url)
        raise Answered(0, f"status {status} of HTTP", error)

    async def _read(self, answer: Answer, request: Request, version: str, hear: Hear) -> Message:
        if answer.kind == _JSON:
            message = await parsed_aside(await answer.whole())
            if not answers(message, request):
                raise Unusable("The MCP server answered something else than was asked.")
            return message
        if answer.kind != _STREAM:
            raise Unusable("The MCP server answered with neither JSON nor a stream of events.")
        events = Events()
        found = await self._first(answer.pieces(), events, request, version, hear)
        for _ in range(_MOST_RESUMED):
            if found is not None:
                return found
            if not events.last_id or version == MODERN:
                break
            found = await self._resumed(events, request, version, hear)
        if found is None:
            raise Lost("The MCP server ended the stream before its answer.")
        return found

    async def _resumed(
        self, events: Events, request: Request, version: str, hear: Hear
    ) -> Message | None:
        """The server may close a stream and go on where it is asked to."""
        await asyncio.sleep(events.retry_ms / 1000)
        headers = [*self._common(version), ("Accept", _STREAM), ("Last-Event-ID", events.last_id)]
        try:
            async with self._origin.exchange("GET", self._url.target, headers) as answer:
                if answer.status != 200 or answer.kind != _STREAM:
                    raise Lost("The MCP server ended the stream before its answer.")
                return await self._first(answer.pieces(), events, request, version, hear)
        except NeverBegan as problem:
            raise Lost(str(problem)) from None

    async def _first(
        self,
        pieces: AsyncIterator[bytes],
        events: Events,
        request: Request,
        version: str,
        hear: Hear,
    ) -> Message | None:
        """The answer in a stream; None where it ends in order without one."""
        async for piece in pieces:
            for event in events.feed(piece):
                if event.kind != "message":
                    continue
                message = await parsed_aside(event.data)
                if answers(message, request):
                    return message
                if is_answer(message):
                    raise Unusable("The MCP server answered something else than was asked.")
                reply = hear(message)
                if reply is not None and version != MODERN:
                    await self.tell(reply, version)
        return None


async def _error_in(answer: Answer, request: Request) -> Answered | str | None:
    """The details of a refusal: an error of JSON-RPC, or the text of its body."""
    raw = await answer.whole()
    if answer.kind != _JSON:
        return _words(raw) if answer.kind.startswith("text/") else None
    try:
        message = await parsed_aside(raw)
        if answers(message, request):
            result_of(message)
    except Answered as error:
        return error
    except Unusable:
        return _words(raw)
    return _words(raw)


def _with_words(problem: UpstreamFailure, error: Answered | str | None) -> UpstreamFailure:
    """With what the server sent about it."""
    if isinstance(error, Answered):
        problem.data = {"message": error.text} | ({"data": error.data} if error.data else {})
    else:
        problem.data = error
    return problem


def _words(raw: bytes) -> str | None:
    text = raw[: 4 * LONGEST_QUOTE].decode("utf-8", "replace")
    return quoted(" ".join(text.split())) or None


def _of_session(error: Answered | str | None) -> bool:
    return isinstance(error, Answered) and "session" in error.text.lower()
