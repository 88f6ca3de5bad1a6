"""One running call: its cancellation, and the conversion of what `invoke` returns to texts."""

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

from toolcrib_service.queue_protocol import Request, Response, pieces, text_of
from toolcrib_service.service import DynamicToolService, ToolFailed

log = logging.getLogger(__name__)
_END = object()
_GENERIC = Response(error_type="service-error", error_message="The service met a fault of its own.")


class Over(Exception):
    """The caller no longer waits for the call."""


class Call:
    """A request that this process has, until a time of the monotonic clock."""

    def __init__(self, request: Request, left_s: float) -> None:
        self.request = request
        self.until = time.monotonic() + left_s
        self._over = threading.Event()
        self._future: Future[Any] | None = None
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """Ends an async call where it waits; any other one with its next chunk."""
        self._over.set()
        with self._lock:
            if self._future is not None:
                self._future.cancel()

    def check(self) -> None:
        """Raises `Over`."""
        if self._over.is_set() or time.monotonic() > self.until:
            raise Over

    def wait(self, work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Any:
        """What `work` gives. Raises `Over`, and what `work` raises."""
        with self._lock:
            self._future = future = asyncio.run_coroutine_threadsafe(work, loop)
        if self._over.is_set():
            future.cancel()
        try:
            return future.result(max(0.0, self.until - time.monotonic()))
        except CancelledError:
            if self._over.is_set():
                raise Over from None
            raise RuntimeError("the service cancelled its own call") from None
        except TimeoutError:
            if future.done():  # it was the service's own
                raise
            future.cancel()
            raise Over from None


class Loop:
    """The event loop of all async calls of a process, in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loop", daemon=True)
        self._thread.start()

    def chunks(self, call: Call, answer: Any) -> Iterator[Any]:
        """Of an async generator, as they come."""
        try:
            while True:
                chunk = call.wait(_next(answer), self._loop)
                if chunk is _END:
                    return
                yield chunk
        finally:
            asyncio.run_coroutine_threadsafe(answer.aclose(), self._loop)

    def result(self, call: Call, answer: Any) -> Any:
        return call.wait(_awaited(answer), self._loop)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(_drain(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def texts(service: DynamicToolService, call: Call, loop: Loop) -> Iterator[tuple[str, bool]]:
    """The answer's texts, each with whether it is the last one."""
    request = call.request
    answer = service.invoke(request.user, request.config, request.arguments)
    if inspect.isasyncgen(answer):
        answer = loop.chunks(call, answer)
    if not inspect.isgenerator(answer):
        value = loop.result(call, answer) if inspect.isawaitable(answer) else answer
        yield text_of(value), True
        return
    try:
        for chunk in answer:
            yield text_of(chunk), False
    finally:
        answer.close()
    yield "", True


def responses(service: DynamicToolService, call: Call, loop: Loop) -> Iterator[Response]:
    """The answers, in order; a fault of the author's code is reported to the author alone.

    Raises `Over`.
    """
    try:
        for text, last in texts(service, call, loop):
            cut = pieces(text)
            for at, piece in enumerate(cut, 1):
                yield Response(piece, last and at == len(cut))
    except Over:
        raise
    except ToolFailed as failure:
        yield Response(error_type=text_of(failure.type), error_message=text_of(failure.message))
    except (Exception, SystemExit):  # the author's code
        log.exception("invoke failed")
        yield _GENERIC


async def _next(answer: Any) -> Any:
    return await anext(answer, _END)


async def _awaited(answer: Any) -> Any:
    return await answer


async def _drain() -> None:
    """What is left is cancelled, so that no task is destroyed while it waits."""
    left = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
