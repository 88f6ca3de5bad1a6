"""One running call: its cancellation, and the conversion of what `invoke` returns to texts."""

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

from toolcrib_service.queue_protocol import Request, Response, as_text, split_text
from toolcrib_service.service import DynamicToolService, ToolFailed

log = logging.getLogger(__name__)
_END_OF_CHUNKS = object()
_SERVICE_ERROR = Response(
    error_type="service-error", error_message="The service met a fault of its own."
)


class CallAbandoned(Exception):
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
        """Raises `CallAbandoned`."""
        if self._over.is_set() or time.monotonic() > self.until:
            raise CallAbandoned

    def wait(self, work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Any:
        """What `work` gives. Raises `CallAbandoned`, and what `work` raises."""
        with self._lock:
            self._future = future = asyncio.run_coroutine_threadsafe(work, loop)
        if self._over.is_set():
            future.cancel()
        try:
            return future.result(max(0.0, self.until - time.monotonic()))
        except CancelledError:
            if self._over.is_set():
                raise CallAbandoned from None
            raise RuntimeError("the service cancelled its own call") from None
        except TimeoutError:
            if future.done():  # it was the service's own
                raise
            future.cancel()
            raise CallAbandoned from None


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
                chunk = call.wait(_next_chunk(answer), self._loop)
                if chunk is _END_OF_CHUNKS:
                    return
                yield chunk
        finally:
            asyncio.run_coroutine_threadsafe(answer.aclose(), self._loop)

    def result(self, call: Call, answer: Any) -> Any:
        return call.wait(_await_answer(answer), self._loop)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(_cancel_tasks(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def answer_texts(service: DynamicToolService, call: Call, loop: Loop) -> Iterator[tuple[str, bool]]:
    """The answer's texts, each with whether it is the last one."""
    request = call.request
    answer = service.invoke(request.user, request.config, request.arguments)
    if inspect.isasyncgen(answer):
        answer = loop.chunks(call, answer)
    if not inspect.isgenerator(answer):
        value = loop.result(call, answer) if inspect.isawaitable(answer) else answer
        yield as_text(value), True
        return
    try:
        for chunk in answer:
            yield as_text(chunk), False
    finally:
        answer.close()
    yield "", True


def answer_responses(service: DynamicToolService, call: Call, loop: Loop) -> Iterator[Response]:
    """The answers, in order; a fault of the author's code is reported to the author alone.

    Raises `CallAbandoned`.
    """
    try:
        for text, last in answer_texts(service, call, loop):
            cut = split_text(text)
            for at, piece in enumerate(cut, 1):
                yield Response(piece, last and at == len(cut))
    except CallAbandoned:
        raise
    except ToolFailed as failure:
        yield Response(error_type=as_text(failure.type), error_message=as_text(failure.message))
    except (Exception, SystemExit):  # the author's code
        log.exception("invoke failed")
        yield _SERVICE_ERROR


async def _next_chunk(answer: Any) -> Any:
    return await anext(answer, _END_OF_CHUNKS)


async def _await_answer(answer: Any) -> Any:
    return await answer


async def _cancel_tasks() -> None:
    """What is left is cancelled, so that no task is destroyed while it waits."""
    left = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
