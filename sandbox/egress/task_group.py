"""A task group: asyncio tasks that belong together and end together."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self

from sandbox.daemon.daemon_log import log_crash


class TaskGroup:
    """On leaving the block every task is cancelled, and gone when the block is left."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._log_crashed_task)
        return task

    async def end(self) -> None:
        """Also of tasks that others begin while they end."""
        while self._tasks:
            # Taken out here: one that has just ended has not called back yet, and to wait for it
            # again would let nothing happen in between.
            tasks, self._tasks = list(self._tasks), set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    def _log_crashed_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            where = error.__traceback__
            log_crash(threading.ExceptHookArgs((type(error), error, where, None)))
