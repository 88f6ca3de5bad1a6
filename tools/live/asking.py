"""Runs database queries of the event loop in threads, without keeping connections in between."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import Error, connections
from psycopg_pool import PoolTimeout

from tools.live.readers import LiveReader, load_readers

DATABASE_ERRORS = (Error, PoolTimeout)
_BATCH_DELAY_S = 0.02
_MOST_KEYS = 500  # session keys per query
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="live")


async def run_query[T](question: Callable[[Iterable[Any]], T], of: Iterable[Any]) -> T:
    """Raises what the database raises."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, _run_in_thread, question, of)


def _run_in_thread[T](question: Callable[[Iterable[Any]], T], of: Iterable[Any]) -> T:
    try:
        return question(of)
    finally:
        connections.close_all()


class ReaderLookup:
    """Authenticates clients in batches, since a thousand pages reconnect at the same moment after
    this process was down."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[LiveReader | None]] = {}
        self._some = asyncio.Event()

    async def reader(self, key: str) -> LiveReader | None:
        """None where no user is logged in. Raises what the database raises."""
        if key not in self._waiting:
            self._waiting[key] = asyncio.get_running_loop().create_future()
            self._some.set()
        return await asyncio.shield(self._waiting[key])

    async def open(self) -> None:
        while True:
            await self._some.wait()
            await asyncio.sleep(_BATCH_DELAY_S)
            await self._answer()

    async def _answer(self) -> None:
        keys = list(self._waiting)[:_MOST_KEYS]
        asked = {key: self._waiting.pop(key) for key in keys}
        if not self._waiting:
            self._some.clear()
        try:
            told = await run_query(load_readers, keys)
        except DATABASE_ERRORS as problem:  # passed to the waiting requests; the loop continues
            for one in asked.values():
                one.set_exception(problem)
                one.exception()  # marks it as retrieved: the client may have disconnected
        else:
            for key, one in asked.items():
                one.set_result(told.get(key))
