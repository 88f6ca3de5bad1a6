"""Fair assignment of threads: owners in rotation, none of them with more than its share.

A request that waits (for an execution, an upstream, the next event) gives its turn back meanwhile
and keeps its thread, which costs memory alone. A wait for something in this product ends when its
client disconnects: its loop asks `disconnected`, and `on_disconnect` wakes it.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from threading import Event


class Crowded(Exception):
    """So many requests of this owner wait for their turn that another would wait in vain."""


class RequestQueue:
    """Of one kind of request. Used by one event loop."""

    def __init__(self, most: int, *, share: int, queue: int = 256) -> None:
        """`share` is what one owner has at most, `queue` what may wait for each."""
        self._free = most
        self._share, self._queue = share, queue
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def take(self, owner: str) -> "RequestSlot":
        """Returns when it is this request's turn. Raises `Crowded`."""
        await self._taken(owner)
        loop = asyncio.get_running_loop()
        return RequestSlot(lambda: loop.call_soon_threadsafe(self._give_back, owner))

    async def _taken(self, owner: str) -> None:
        if self._free and owner not in self._waiting and self._held[owner] < self._share:
            self._hand_out(owner)
            return
        line = self._waiting.setdefault(owner, deque())
        if len(line) >= self._queue:
            raise Crowded
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._give_back(owner)
            raise

    def _give_back(self, owner: str) -> None:
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        for following in tuple(self._waiting):
            if not self._free:
                return
            if self._held[following] < self._share:
                self._next_of(following)

    def _next_of(self, owner: str) -> None:
        """Hands a turn to the first in line, and sends its owner to the end of the rotation."""
        line = self._waiting.pop(owner)
        while line:
            first = line.popleft()
            if not first.done():
                first.set_result(None)
                self._hand_out(owner)
                break
        if line:
            self._waiting[owner] = line

    def _hand_out(self, owner: str) -> None:
        self._free -= 1
        self._held[owner] += 1


class RequestSlot:
    """One request's, in the thread that serves it."""

    def __init__(self, give_back: Callable[[], object]) -> None:
        self._give_back: Callable[[], object] | None = give_back
        self.organization: str | None = None  # known once the request is authenticated
        self.disconnected = Event()
        self.watch: Callable[[], object] | None = None  # begins to look for it, when first wanted
        self._callbacks: list[Callable[[], object]] = []

    def end(self) -> None:
        """From any thread; once or more often."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()

    def on_disconnect(self, callback: Callable[[], object]) -> None:
        """Calls it once the client has disconnected, from any thread and perhaps twice."""
        self._callbacks.append(callback)
        self.watch_client()
        if self.disconnected.is_set():
            callback()

    def watch_client(self) -> None:
        watch, self.watch = self.watch, None
        if watch is not None:
            watch()

    def disconnect(self) -> None:
        self.disconnected.set()
        for callback in tuple(self._callbacks):
            callback()


current: ContextVar[RequestSlot | None] = ContextVar("turn", default=None)


def belongs_to(organization: object) -> None:
    """Says to whom further requests with the same credential are counted."""
    if (turn := current.get()) is not None:
        turn.organization = str(organization)


def waits() -> None:
    """The request waits from now on: another may run in its place."""
    if (turn := current.get()) is not None:
        turn.end()


def on_disconnect(callback: Callable[[], object]) -> None:
    """Calls it once the client of this request has disconnected; never outside of a request."""
    if (turn := current.get()) is not None:
        turn.on_disconnect(callback)


def disconnected() -> bool:
    """Whether the answer has no reader any longer. Known of requests with a callback."""
    turn = current.get()
    return turn is not None and turn.disconnected.is_set()
