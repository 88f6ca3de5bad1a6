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
        turns = RequestQueue(4, share=3)
        asked = [asyncio.ensure_future(turns.take("loud")) for _ in range(10)]
        await settled()
        assert sum(one.done() for one in asked) == 3
        await turns.take("quiet")  # at once
        for one in asked:
            one.cancel()

    run(work())


def test_those_who_wait_are_served_in_rotation() -> None:
    async def work() -> None:
        turns, order = RequestQueue(1, share=1), []

        async def ask(owner: str) -> None:
            turn = await turns.take(owner)
            order.append(owner)
            turn.end()
            turn.end()  # once is enough

        first = await turns.take("loud")
        asked = [asyncio.ensure_future(ask(owner)) for owner in ["loud"] * 3 + ["quiet"] * 2]
        await settled()
        first.end()
        await asyncio.gather(*asked)
        assert order == ["loud", "quiet", "loud", "quiet", "loud"]

    run(work())


def test_who_left_the_line_costs_no_turn() -> None:
    async def work() -> None:
        turns = RequestQueue(1, share=1)
        first = await turns.take("a")
        gone, next_ = (asyncio.ensure_future(turns.take("b")) for _ in range(2))
        await settled()
        gone.cancel()
        first.end()
        await asyncio.wait_for(next_, 5)

    run(work())


def test_a_line_has_an_end() -> None:
    async def work() -> None:
        turns = RequestQueue(1, share=1, queue=1)
        await turns.take("a")
        waiting = asyncio.ensure_future(turns.take("a"))
        await settled()
        with pytest.raises(RequestQueueFull):
            await turns.take("a")
        waiting.cancel()

    run(work())
