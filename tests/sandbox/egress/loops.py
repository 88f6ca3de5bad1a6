"""Playwright leaves a running loop in the tests' thread, so another one needs another thread."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor


def in_a_loop_of_its_own[T](work: Coroutine[object, object, T]) -> T:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
