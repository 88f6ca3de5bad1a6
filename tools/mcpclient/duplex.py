"""A lasting stream of messages in both directions: answers find their requests by number."""

import asyncio
from abc import ABC, abstractmethod

from tools.mcpclient.channel import PROBE_TIMEOUT_S, MessageHandler
from tools.mcpclient.errors import (
    AnswerLost,
    InvalidAnswer,
    SessionExpired,
    UpstreamFailure,
    UpstreamUnavailable,
)
from tools.mcpclient.messages import (
    JsonRpcMessage,
    JsonRpcRequest,
    encode_notification,
    encode_reply,
    encode_request,
    is_answer,
)

MOST_PENDING_REQUESTS = 1_000
DISCOVER_METHOD = "server/discover"  # with the newest protocol the first thing that is asked


class StreamTransport(ABC):
    """`_connect` starts the stream and has `_take` called with what comes; when it ends, whoever
    did that calls `_ended`."""

    modern = False
    probe_s = PROBE_TIMEOUT_S

    def __init__(self) -> None:
        self._waiting: dict[
            int, tuple[JsonRpcRequest, MessageHandler, asyncio.Future[JsonRpcMessage]]
        ] = {}
        self._alive = False
        self._hear: MessageHandler | None = None

    @abstractmethod
    async def _connect(self) -> None:
        """Raises UpstreamFailure."""

    @abstractmethod
    async def _write(self, message: bytes) -> None:
        """Raises NeverBegan where the other side has not the whole of it."""

    @abstractmethod
    async def _hang_up(self) -> None:
        """Raises nothing."""

    async def ask(
        self, request: JsonRpcRequest, version: str, hear: MessageHandler
    ) -> JsonRpcMessage:
        if not self._alive:
            if version and request.method != DISCOVER_METHOD:
                raise SessionExpired("The MCP server ended the stream.")
            await self._connect()
            self._alive = True
        if len(self._waiting) >= MOST_PENDING_REQUESTS:
            raise UpstreamUnavailable("Too many calls wait for the MCP server.")
        answer: asyncio.Future[JsonRpcMessage] = asyncio.get_running_loop().create_future()
        self._hear, self._waiting[request.id] = hear, (request, hear, answer)
        request.sent = True
        try:
            await self._write(encode_request(request, version))
            return await answer
        except UpstreamUnavailable:
            request.sent = False
            raise
        finally:
            self._waiting.pop(request.id, None)

    async def tell(self, message: bytes, version: str) -> None:
        if self._alive:
            await self._write(message)

    async def abandon(self, request: JsonRpcRequest, version: str) -> None:
        params = {"requestId": request.id, "reason": "the caller gave the call up"}
        await self.tell(encode_notification("notifications/cancelled", params), version)

    def begin(self) -> None:
        """The next session has a stream of its own; `_connect` ends the one before."""
        self._alive = False

    async def close(self, version: str) -> None:
        self._ended(AnswerLost("The conversation with the MCP server was ended."))
        await self._hang_up()

    async def _take(self, message: JsonRpcMessage) -> bool:
        """One message from the other side; True for an answer that somebody waited for."""
        if is_answer(message):
            number = message.get("id")
            waiting = self._waiting.get(number) if type(number) is int else None
            if waiting is not None and not waiting[2].done():
                waiting[2].set_result(message)
            return waiting is not None
        hearers = [hear for _, hear, _ in self._waiting.values()]
        for hear in hearers or ([self._hear] if self._hear else []):
            hear(message)
        reply = encode_reply(message)
        if reply is not None:
            await self._write(reply)
        return False

    def _ended(self, problem: UpstreamFailure) -> None:
        self._alive = False
        for _, _, answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(problem)


def stream_error(problem: UpstreamFailure) -> UpstreamFailure:
    """What those who wait are told of a stream that ended so."""
    return problem if isinstance(problem, InvalidAnswer) else AnswerLost(str(problem))
