"""A lasting stream of messages in both directions: answers find their requests by number."""

import asyncio
from abc import ABC, abstractmethod

from tools.mcpclient.channel import PROBE_S, Hear
from tools.mcpclient.errors import Lost, NeverBegan, SessionGone, Unusable, UpstreamFailure
from tools.mcpclient.messages import (
    Message,
    Request,
    is_answer,
    notification_bytes,
    reply_to,
    request_bytes,
)

MOST_WAITING = 1_000
DISCOVER = "server/discover"  # with the newest protocol the first thing that is asked


class Duplex(ABC):
    """`_connect` starts the stream and has `_take` called with what comes; when it ends, whoever
    did that calls `_ended`."""

    modern = False
    probe_s = PROBE_S

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[Request, Hear, asyncio.Future[Message]]] = {}
        self._alive = False
        self._hear: Hear | None = None

    @abstractmethod
    async def _connect(self) -> None:
        """Raises UpstreamFailure."""

    @abstractmethod
    async def _write(self, message: bytes) -> None:
        """Raises NeverBegan where the other side has not the whole of it."""

    @abstractmethod
    async def _hang_up(self) -> None:
        """Raises nothing."""

    async def ask(self, request: Request, version: str, hear: Hear) -> Message:
        if not self._alive:
            if version and request.method != DISCOVER:
                raise SessionGone("The MCP server ended the stream.")
            await self._connect()
            self._alive = True
        if len(self._waiting) >= MOST_WAITING:
            raise NeverBegan("Too many calls wait for the MCP server.")
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._hear, self._waiting[request.id] = hear, (request, hear, answer)
        request.sent = True
        try:
            await self._write(request_bytes(request, version))
            return await answer
        except NeverBegan:
            request.sent = False
            raise
        finally:
            self._waiting.pop(request.id, None)

    async def tell(self, message: bytes, version: str) -> None:
        if self._alive:
            await self._write(message)

    async def abandon(self, request: Request, version: str) -> None:
        params = {"requestId": request.id, "reason": "the caller gave the call up"}
        await self.tell(notification_bytes("notifications/cancelled", params), version)

    def begin(self) -> None:
        """The next session has a stream of its own; `_connect` ends the one before."""
        self._alive = False

    async def close(self, version: str) -> None:
        self._ended(Lost("The conversation with the MCP server was ended."))
        await self._hang_up()

    async def _take(self, message: Message) -> bool:
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
        reply = reply_to(message)
        if reply is not None:
            await self._write(reply)
        return False

    def _ended(self, problem: UpstreamFailure) -> None:
        self._alive = False
        for _, _, answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(problem)


def never_usable(problem: UpstreamFailure) -> UpstreamFailure:
    """What those who wait are told of a stream that ended so."""
    return problem if isinstance(problem, Unusable) else Lost(str(problem))
