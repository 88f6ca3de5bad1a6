"""The servers this process talks to, for threads that call: one client for each server and holder
of credentials, kept while it is used, never more than so many."""

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any

from tools.httpclient.outbound import EventLoopThread
from tools.mcpclient.breaker import CircuitBreaker
from tools.mcpclient.channel import McpTransport
from tools.mcpclient.client import McpClient
from tools.mcpclient.errors import AnswerLost, UpstreamBusy, UpstreamFailure, UpstreamUnavailable
from tools.mcpclient.listing import UpstreamTool, UpstreamToolList
from tools.mcpclient.messages import JsonRpcRequest
from tools.mcpclient.results import ToolAnswer

MOST_CLIENTS = 256
IDLE_S = 300.0
_POLL_INTERVAL_S = 0.05
_CLOSE_TIMEOUT_S = 5.0
_CLEANUP_INTERVAL_S = 15.0
_MOST_QUEUED_MESSAGES = 1_000

StopCheck = Callable[[], bool]


@dataclass(frozen=True)
class McpEndpoint:
    """A server as one holder of credentials reaches it. `key` names server, holder and all that
    was configured: with another configuration it is another endpoint, and takes the place of the
    one that `holder` had before. `make` is called in the loop. `secrets` are what it is called
    with, and nobody may be shown; `token` is the one of them that consent brought."""

    server: str
    key: str
    make: Callable[[], McpTransport] = field(repr=False, compare=False)
    remembered: str = ""
    fresh_s: float = 30.0
    secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)
    token: str = field(default="", repr=False, compare=False)
    holder: str = ""


class CallStopped(Exception):
    """The caller gave the call up, or its time ran out. `sent`: the server may have begun."""

    def __init__(self, *, sent: bool, late: bool) -> None:
        super().__init__("stopped")
        self.sent, self.late = sent, late


def _never_stop() -> bool:
    return False


@dataclass
class _CallWaiter:
    """What a calling thread does while it waits: it passes words on and looks whether to go on."""

    request: JsonRpcRequest
    timeout_s: float
    over: StopCheck = _never_stop
    words: "queue.Queue[str]" = field(default_factory=queue.Queue)
    tell: Callable[[str], None] | None = None

    def result[Got](self, future: "Future[Got]") -> Got:
        deadline = time.monotonic() + self.timeout_s
        while True:
            late = time.monotonic() >= deadline
            if late or self.over():
                _cancel_future(future)
                raise CallStopped(sent=False, late=late)
            try:
                return future.result(min(_POLL_INTERVAL_S, max(0.0, deadline - time.monotonic())))
            except TimeoutError:
                if future.done():
                    raise UpstreamUnavailable("The MCP server did not answer in time.") from None
            except CancelledError:
                raise AnswerLost("The call was ended with this process.") from None
            finally:
                self._pass_on()

    def _pass_on(self) -> None:
        """What is there now: who talks on meanwhile does not keep us from looking at the time."""
        for _ in range(self.words.qsize()):
            words = self.words.get_nowait()
            if self.tell is not None:
                self.tell(words)


@dataclass
class _PooledClient:
    client: McpClient
    used_at: float
    holder: str = ""
    users: int = 0
    worn: bool = False


class McpClientPool:
    def __init__(self) -> None:
        self._loop, self._lock = EventLoopThread(), threading.Lock()
        self._clients: dict[str, _PooledClient] = {}
        self._breakers: dict[str, CircuitBreaker] = {}
        self._house: asyncio.Task[None] | None = None
        self._pid = os.getpid()

    def breaker(self, server: str) -> CircuitBreaker:
        with self._lock:
            return self._breakers.setdefault(server, CircuitBreaker())

    def version(self, endpoint: McpEndpoint) -> str:
        """The protocol that was agreed on; empty when none was yet."""
        kept = self._clients.get(endpoint.key)
        return kept.client.version if kept else ""

    def tools(
        self, endpoint: McpEndpoint, timeout_s: float, *, fresh: bool = True
    ) -> UpstreamToolList:
        """Raises UpstreamFailure, Stopped."""

        async def work(client: McpClient) -> UpstreamToolList:
            return await client.tools(fresh=fresh)

        request = JsonRpcRequest("tools/list")
        return self._wait(endpoint, work, _CallWaiter(request, timeout_s))

    def call(
        self,
        endpoint: McpEndpoint,
        name: str,
        arguments: dict[str, Any],
        *,
        timeout_s: float,
        pin: str = "",
        over: StopCheck = _never_stop,
        tell: Callable[[str], None] | None = None,
    ) -> tuple[ToolAnswer, UpstreamTool | None]:
        """Raises UpstreamFailure, Stopped. `tell` is called in the calling thread."""
        words: queue.Queue[str] = queue.Queue(_MOST_QUEUED_MESSAGES)
        request = JsonRpcRequest("tools/call")

        async def work(client: McpClient) -> tuple[ToolAnswer, UpstreamTool | None]:
            heard = _queue_writer(words) if tell else None
            return await client.call(name, arguments, pin=pin, tell=heard, request=request)

        return self._wait(endpoint, work, _CallWaiter(request, timeout_s, over, words, tell))

    def close(self) -> None:
        """Ends every session; what is under way is cancelled."""
        with self._lock:
            kept, self._clients = list(self._clients.values()), {}
        if kept:
            try:
                self._loop.submit(_close_clients([one.client for one in kept])).result(
                    _CLOSE_TIMEOUT_S
                )
            except TimeoutError:
                pass  # the loop's end takes them along
        self._loop.close()

    def _wait[Got](
        self,
        endpoint: McpEndpoint,
        work: Callable[[McpClient], Coroutine[Any, Any, Got]],
        watch: "_CallWaiter",
    ) -> Got:
        self._notice_fork()
        breaker = self.breaker(endpoint.server)
        if not breaker.admits():
            raise UpstreamUnavailable(
                "The MCP server could not be reached lately; it is tried again soon."
            )
        future = self._loop.submit(self._with_client(endpoint, work))
        try:
            got = watch.result(future)
        except CallStopped as stopped:
            stopped.sent = watch.request.sent
            raise
        except AnswerLost as problem:
            breaker.failed()
            if watch.request.sent:
                raise
            raise UpstreamUnavailable(str(problem)) from None
        except UpstreamUnavailable as problem:
            if isinstance(problem, UpstreamBusy):
                breaker.succeeded()
            else:
                breaker.failed()
            raise
        except UpstreamFailure:
            breaker.succeeded()
            raise
        breaker.succeeded()
        return got

    def _notice_fork(self) -> None:
        """Conversations are the process's that began them."""
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._clients, self._house = os.getpid(), {}, None

    async def _with_client[Got](
        self, endpoint: McpEndpoint, work: Callable[[McpClient], Coroutine[Any, Any, Got]]
    ) -> Got:
        kept = await self._kept(endpoint)
        kept.users += 1
        try:
            return await work(kept.client)
        finally:
            kept.users -= 1
            kept.used_at = time.monotonic()
            if kept.worn and not kept.users:
                await kept.client.close()

    async def _kept(self, endpoint: McpEndpoint) -> _PooledClient:
        with self._lock:
            kept = self._clients.get(endpoint.key)
        if kept is not None:
            return kept
        await _close_clients([one.client for one in self._worn()])
        with self._lock:
            kept = self._clients.get(endpoint.key)
            if kept is None:
                self._supersede(endpoint.holder)
                client = McpClient(
                    endpoint.make(), remembered=endpoint.remembered, fresh_s=endpoint.fresh_s
                )
                kept = _PooledClient(client, time.monotonic(), endpoint.holder)
                self._clients[endpoint.key] = kept
        if self._house is None or self._house.done():
            self._house = asyncio.get_running_loop().create_task(self._keep_house())
        return kept

    def _worn(self) -> list[_PooledClient]:
        """Those to close: idle for long, or with too many the one that was idle longest."""
        now = time.monotonic()
        with self._lock:
            idle = sorted((one.used_at, key) for key, one in self._clients.items() if not one.users)
            excess = len(self._clients) - MOST_CLIENTS + 1
            worn = [
                key
                for at, (used_at, key) in enumerate(idle)
                if at < excess or now - used_at > IDLE_S
            ]
            return [self._clients.pop(key) for key in worn]

    def _supersede(self, holder: str) -> None:
        """What was configured before is not talked to any more. The lock is held."""
        keys = [key for key, one in self._clients.items() if holder and one.holder == holder]
        self._let_go([self._clients.pop(key) for key in keys])

    def _let_go(self, gone: "list[_PooledClient]") -> None:
        for one in gone:
            one.worn = True
            if not one.users:
                self._loop.submit(one.client.close())

    async def _keep_house(self) -> None:
        """As long as there is a client."""
        while self._clients:
            await asyncio.sleep(_CLEANUP_INTERVAL_S)
            await _close_clients([one.client for one in self._worn()])

    def forget(self, server: str) -> None:
        """Its clients are closed as soon as nobody uses them."""
        with self._lock:
            keys = [key for key in self._clients if key.startswith(f"{server}:")]
            gone = [self._clients.pop(key) for key in keys]
            self._breakers.pop(server, None)
        self._let_go(gone)


def _cancel_future(future: "Future[Any]") -> None:
    """And wait until the server was told, but not for long."""
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    future.cancel()
    done.wait(_POLL_INTERVAL_S)


def _queue_writer(words: "queue.Queue[str]") -> Callable[[str], None]:
    def put(text: str) -> None:
        try:
            words.put_nowait(text)
        except queue.Full:
            pass  # a reader who cannot follow misses some

    return put


async def _close_clients(clients: list[McpClient]) -> None:
    await asyncio.gather(*(one.close() for one in clients))
