"""Threads go round: no owner keeps the others waiting."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from config.http.request_queue import RequestQueue, RequestQueueFull


def run(work: Coroutine[Any, Any, None]) -> None:
    """In a thread of its own: in that of the tests Playwright may have a loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_one_owner_never_has_more_than_its_share() -> None:
    async def work() -> None:
        slots = RequestQueue(4, share=3)
        waiters = [asyncio.ensure_future(slots.acquire("loud")) for _ in range(10)]
        await settled()
        assert sum(one.done() for one in waiters) == 3
        await slots.acquire("quiet")  # at once
        for one in waiters:
            one.cancel()

    run(work())


def test_those_who_wait_are_served_in_rotation() -> None:
    async def work() -> None:
        slots, order = RequestQueue(1, share=1), []

        async def ask(owner: str) -> None:
            slot = await slots.acquire(owner)
            order.append(owner)
            slot.release()
            slot.release()  # once is enough

        first = await slots.acquire("loud")
        waiters = [asyncio.ensure_future(ask(owner)) for owner in ["loud"] * 3 + ["quiet"] * 2]
        await settled()
        first.release()
        await asyncio.gather(*waiters)
        assert order == ["loud", "quiet", "loud", "quiet", "loud"]

    run(work())


def test_a_cancelled_request_costs_no_slot() -> None:
    async def work() -> None:
        slots = RequestQueue(1, share=1)
        first = await slots.acquire("a")
        gone, next_ = (asyncio.ensure_future(slots.acquire("b")) for _ in range(2))
        await settled()
        gone.cancel()
        first.release()
        await asyncio.wait_for(next_, 5)

    run(work())


def test_the_queue_of_an_owner_is_bounded() -> None:
    async def work() -> None:
        slots = RequestQueue(1, share=1, queue=1)
        await slots.acquire("a")
        waiting = asyncio.ensure_future(slots.acquire("a"))
        await settled()
        with pytest.raises(RequestQueueFull):
            await slots.acquire("a")
        waiting.cancel()

    run(work())
