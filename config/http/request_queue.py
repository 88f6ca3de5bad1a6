"""Fair assignment of threads: owners in rotation, none of them with more than its share.

A request that waits (for an execution, an upstream, the next event) releases its slot and keeps its
thread, which costs memory alone. A wait for something in this product ends when its
client disconnects: its loop asks `disconnected`, and `on_disconnect` wakes it.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from threading import Event


class RequestQueueFull(Exception):
    """Too many requests of this owner wait for a slot already."""


class RequestQueue:
    """The slots for one kind of request. Used by one event loop."""

    def __init__(self, most: int, *, share: int, queue: int = 256) -> None:
        """`share` is what one owner has at most, `queue` what may wait for each."""
        self._free = most
        self._share, self._queue = share, queue
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def acquire(self, owner: str) -> "RequestSlot":
        """Returns once a slot is free for this request. Raises `RequestQueueFull`."""
        await self._wait_for_slot(owner)
        loop = asyncio.get_running_loop()
        return RequestSlot(lambda: loop.call_soon_threadsafe(self._release, owner))

    async def _wait_for_slot(self, owner: str) -> None:
        if self._free and owner not in self._waiting and self._held[owner] < self._share:
            self._assign(owner)
            return
        waiting = self._waiting.setdefault(owner, deque())
        if len(waiting) >= self._queue:
            raise RequestQueueFull
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._release(owner)
            raise

    def _release(self, owner: str) -> None:
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        for following in tuple(self._waiting):
            if not self._free:
                return
            if self._held[following] < self._share:
                self._assign_next(following)

    def _assign_next(self, owner: str) -> None:
        """Give a slot to the first request that waits; its owner goes last in the rotation."""
        waiting = self._waiting.pop(owner)
        while waiting:
            first = waiting.popleft()
            if not first.done():
                first.set_result(None)
                self._assign(owner)
                break
        if waiting:
            self._waiting[owner] = waiting

    def _assign(self, owner: str) -> None:
        self._free -= 1
        self._held[owner] += 1


class RequestSlot:
    """The slot of one request, in the thread that serves it."""

    def __init__(self, release: Callable[[], object]) -> None:
        self._release: Callable[[], object] | None = release
        self.organization: str | None = None  # known once the request is authenticated
        self.disconnected = Event()
        self.watch: Callable[[], object] | None = None  # watches the connection
        self._callbacks: list[Callable[[], object]] = []

    def release(self) -> None:
        """From any thread; once or more often."""
        release, self._release = self._release, None
        if release is not None:
            release()

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


current_slot: ContextVar[RequestSlot | None] = ContextVar("slot", default=None)


def set_organization(organization: object) -> None:
    """Count further requests with the same credential to this organization."""
    if (slot := current_slot.get()) is not None:
        slot.organization = str(organization)


def release_slot() -> None:
    """Call this before a request waits: another may run in its place."""
    if (slot := current_slot.get()) is not None:
        slot.release()


def on_disconnect(callback: Callable[[], object]) -> None:
    """Calls it once the client of this request has disconnected; never outside of a request."""
    if (slot := current_slot.get()) is not None:
        slot.on_disconnect(callback)


def disconnected() -> bool:
    """Whether the client has disconnected. Known for requests with a callback only."""
    slot = current_slot.get()
    return slot is not None and slot.disconnected.is_set()
