"""A pool of MCP clients for the threads of this process: one client for each server and holder of
credentials, with a circuit breaker for each server. Unused clients are closed."""

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
from tools.mcpclient.errors import AnswerLost, UpstreamBusy, UpstreamFailure, UpstreamUnavailable
from tools.mcpclient.json_rpc import JsonRpcRequest
from tools.mcpclient.mcp_client import McpClient
from tools.mcpclient.tool_answers import ToolAnswer
from tools.mcpclient.tool_lists import UpstreamTool, UpstreamToolList
from tools.mcpclient.transports import McpTransport

MOST_CLIENTS = 256
IDLE_S = 300.0
FAILURES_TO_OPEN = 5  # in a row
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0
_POLL_INTERVAL_S = 0.05
_CLOSE_TIMEOUT_S = 5.0
_CLEANUP_INTERVAL_S = 15.0
_MOST_QUEUED_MESSAGES = 1_000

StopCheck = Callable[[], bool]


class CircuitBreaker:
    """Blocks requests to a server after several failures of the transport in a row. When the pause
    is over, one request at a time is a probe.

    A tool that fails is no failure of the transport.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._failures, self._pause_s = 0, FIRST_PAUSE_S
        self._retry_at, self._probe_until = 0.0, 0.0
        self.untried = True  # the server has not answered yet

    @property
    def open(self) -> bool:
        return self._failures >= FAILURES_TO_OPEN

    def allows_request(self, probe_s: float = 30.0) -> bool:
        """Whether a request may be sent. The caller records its success or failure."""
        with self._lock:
            now = self._clock()
            if not self.open:
                return True
            if now < self._retry_at or now < self._probe_until:
                return False
            self._probe_until = now + probe_s  # also if the probe records no result
            return True

    def record_success(self) -> None:
        with self._lock:
            self._failures, self._pause_s, self.untried = 0, FIRST_PAUSE_S, False
            self._probe_until = 0.0

    def record_failure(self) -> None:
        with self._lock:
            self._failures += 1
            self._probe_until = 0.0
            if self.open:
                self._retry_at = self._clock() + self._pause_s
                self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)


@dataclass(frozen=True)
class McpEndpoint:
    """A server with the credentials of one holder.

    `key` identifies server, holder and configuration: an endpoint with another configuration
    replaces the earlier one of its `holder`. `make_transport` is called in the event loop.
    `secrets` are the values that are sent with calls and masked everywhere else; `token` is the
    OAuth access token among them.
    """

    server: str
    key: str
    make_transport: Callable[[], McpTransport] = field(repr=False, compare=False)
    last_version: str = ""
    list_max_age_s: float = 30.0
    secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)
    token: str = field(default="", repr=False, compare=False)
    holder: str = ""


class CallStopped(Exception):
    """The caller stopped waiting for the call, or its timeout expired. `sent`: the server may have
    started it."""

    def __init__(self, *, sent: bool, timed_out: bool) -> None:
        super().__init__("stopped")
        self.sent, self.timed_out = sent, timed_out


@dataclass
class _CallWaiter:
    """Waits in the calling thread for the result of a call: forwards progress messages, and stops
    when `should_stop` says so or the timeout expires."""

    request: JsonRpcRequest
    timeout_s: float
    should_stop: StopCheck = lambda: False
    progress: "queue.Queue[str]" = field(default_factory=queue.Queue)
    on_progress: Callable[[str], None] | None = None

    def result[Result](self, future: "Future[Result]") -> Result:
        deadline = time.monotonic() + self.timeout_s
        while True:
            timed_out = time.monotonic() >= deadline
            if timed_out or self.should_stop():
                _cancel_future(future)
                raise CallStopped(sent=False, timed_out=timed_out)
            try:
                return future.result(min(_POLL_INTERVAL_S, max(0.0, deadline - time.monotonic())))
            except TimeoutError:
                if future.done():
                    raise UpstreamUnavailable("The MCP server did not answer in time.") from None
            except CancelledError:
                raise AnswerLost("The call was ended with this process.") from None
            finally:
                self._forward_progress()

    def _forward_progress(self) -> None:
        """Only the messages that are queued now: later ones must not delay the timeout."""
        for _ in range(self.progress.qsize()):
            message = self.progress.get_nowait()
            if self.on_progress is not None:
                self.on_progress(message)


@dataclass
class _PooledClient:
    """A `retired` client is closed when its last user has finished."""

    client: McpClient
    used_at: float
    holder: str = ""
    users: int = 0
    retired: bool = False


class McpClientPool:
    """Runs the clients in an event loop of its own thread. Its methods block the calling thread."""

    def __init__(self) -> None:
        self._loop, self._lock = EventLoopThread(), threading.Lock()
        self._clients: dict[str, _PooledClient] = {}
        self._breakers: dict[str, CircuitBreaker] = {}
        self._cleanup_task: asyncio.Task[None] | None = None
        self._pid = os.getpid()

    def breaker(self, server: str) -> CircuitBreaker:
        with self._lock:
            return self._breakers.setdefault(server, CircuitBreaker())

    def version(self, endpoint: McpEndpoint) -> str:
        """The negotiated version of the protocol; empty before the negotiation."""
        pooled = self._clients.get(endpoint.key)
        return pooled.client.version if pooled else ""

    def list_tools(
        self, endpoint: McpEndpoint, timeout_s: float, *, refresh: bool = True
    ) -> UpstreamToolList:
        """Raises UpstreamFailure, CallStopped."""

        async def work(client: McpClient) -> UpstreamToolList:
            return await client.list_tools(refresh=refresh)

        request = JsonRpcRequest("tools/list")
        return self._run(endpoint, work, _CallWaiter(request, timeout_s))

    def call_tool(
        self,
        endpoint: McpEndpoint,
        name: str,
        arguments: dict[str, Any],
        *,
        timeout_s: float,
        pin: str = "",
        should_stop: StopCheck = lambda: False,
        on_progress: Callable[[str], None] | None = None,
    ) -> tuple[ToolAnswer, UpstreamTool | None]:
        """Raises UpstreamFailure, CallStopped. `on_progress` is called in the calling thread."""
        progress: queue.Queue[str] = queue.Queue(_MOST_QUEUED_MESSAGES)
        request = JsonRpcRequest("tools/call")

        async def work(client: McpClient) -> tuple[ToolAnswer, UpstreamTool | None]:
            enqueue = _queue_writer(progress) if on_progress else None
            return await client.call_tool(
                name, arguments, pin=pin, on_progress=enqueue, request=request
            )

        return self._run(
            endpoint, work, _CallWaiter(request, timeout_s, should_stop, progress, on_progress)
        )

    def close(self) -> None:
        """Ends every session and cancels the calls in progress."""
        with self._lock:
            pooled, self._clients = list(self._clients.values()), {}
        if pooled:
            try:
                self._loop.submit(_close_clients(pooled)).result(_CLOSE_TIMEOUT_S)
            except TimeoutError:
                pass  # closing the loop cancels them
        self._loop.close()

    def _run[Result](
        self,
        endpoint: McpEndpoint,
        work: Callable[[McpClient], Coroutine[Any, Any, Result]],
        waiter: "_CallWaiter",
    ) -> Result:
        self._reset_after_fork()
        breaker = self.breaker(endpoint.server)
        if not breaker.allows_request():
            raise UpstreamUnavailable(
                "The MCP server could not be reached recently; it is tried again soon."
            )
        future = self._loop.submit(self._use_client(endpoint, work))
        try:
            result = waiter.result(future)
        except CallStopped as stopped:
            stopped.sent = waiter.request.sent
            raise
        except AnswerLost as problem:
            breaker.record_failure()
            if waiter.request.sent:
                raise
            raise UpstreamUnavailable(str(problem)) from None
        except UpstreamUnavailable as problem:
            if isinstance(problem, UpstreamBusy):
                breaker.record_success()
            else:
                breaker.record_failure()
            raise
        except UpstreamFailure:
            breaker.record_success()
            raise
        breaker.record_success()
        return result

    def _reset_after_fork(self) -> None:
        """A child process must not use the connections of its parent."""
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._clients, self._cleanup_task = os.getpid(), {}, None

    async def _use_client[Result](
        self, endpoint: McpEndpoint, work: Callable[[McpClient], Coroutine[Any, Any, Result]]
    ) -> Result:
        pooled = await self._get_client(endpoint)
        pooled.users += 1
        try:
            return await work(pooled.client)
        finally:
            pooled.users -= 1
            pooled.used_at = time.monotonic()
            if pooled.retired and not pooled.users:
                await pooled.client.close()

    async def _get_client(self, endpoint: McpEndpoint) -> _PooledClient:
        with self._lock:
            pooled = self._clients.get(endpoint.key)
        if pooled is not None:
            return pooled
        await _close_clients(self._remove_idle_clients())
        with self._lock:
            pooled = self._clients.get(endpoint.key)
            if pooled is None:
                self._supersede(endpoint.holder)
                client = McpClient(
                    endpoint.make_transport(),
                    last_version=endpoint.last_version,
                    list_max_age_s=endpoint.list_max_age_s,
                )
                pooled = _PooledClient(client, time.monotonic(), endpoint.holder)
                self._clients[endpoint.key] = pooled
        if self._cleanup_task is None or self._cleanup_task.done():
            self._cleanup_task = asyncio.get_running_loop().create_task(self._run_cleanup())
        return pooled

    def _remove_idle_clients(self) -> list[_PooledClient]:
        """Removes the clients that were unused for `IDLE_S`, and the longest unused of too many."""
        now = time.monotonic()
        with self._lock:
            idle = sorted((one.used_at, key) for key, one in self._clients.items() if not one.users)
            excess = len(self._clients) - MOST_CLIENTS + 1
            keys = [
                key
                for index, (used_at, key) in enumerate(idle)
                if index < excess or now - used_at > IDLE_S
            ]
            return [self._clients.pop(key) for key in keys]

    def _supersede(self, holder: str) -> None:
        """Retires the client with the holder's earlier configuration. The caller has the lock."""
        keys = [key for key, one in self._clients.items() if holder and one.holder == holder]
        self._retire([self._clients.pop(key) for key in keys])

    def _retire(self, clients: list[_PooledClient]) -> None:
        for one in clients:
            one.retired = True
            if not one.users:
                self._loop.submit(one.client.close())

    async def _run_cleanup(self) -> None:
        """Runs as long as there is a client."""
        while self._clients:
            await asyncio.sleep(_CLEANUP_INTERVAL_S)
            await _close_clients(self._remove_idle_clients())

    def forget_server(self, server: str) -> None:
        """Closes its clients as soon as they are unused."""
        with self._lock:
            keys = [key for key in self._clients if key.startswith(f"{server}:")]
            removed = [self._clients.pop(key) for key in keys]
            self._breakers.pop(server, None)
        self._retire(removed)


def _cancel_future(future: "Future[Any]") -> None:
    """Waits a moment, so that the cancellation can be sent to the server."""
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    future.cancel()
    done.wait(_POLL_INTERVAL_S)


def _queue_writer(progress: "queue.Queue[str]") -> Callable[[str], None]:
    def put(text: str) -> None:
        try:
            progress.put_nowait(text)
        except queue.Full:
            pass  # a slow reader loses messages

    return put


async def _close_clients(clients: list[_PooledClient]) -> None:
    await asyncio.gather(*(one.client.close() for one in clients))
