"""Tasks that end together."""

import asyncio

from sandbox.egress.task_group import TaskGroup
from tests.sandbox.egress.loops import in_a_loop_of_its_own


def test_ending_ends_a_task_that_has_just_ended_by_itself():
    """It has not called back yet; waiting for it must not keep the loop from doing so."""

    async def scene() -> bool:
        go, ended = asyncio.Event(), []

        async def work() -> None:
            await go.wait()
            ended.append(True)

        async with TaskGroup() as task_group:
            task_group.begin(work())
            await asyncio.sleep(0)
            go.set()
            task_group.begin(work())
            await asyncio.sleep(0)
        return bool(ended)

    assert in_a_loop_of_its_own(asyncio.wait_for(scene(), 10))


def test_ending_waits_for_what_tasks_do_last():
    async def scene() -> list[str]:
        done: list[str] = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                done.append("tidied up")

        async with TaskGroup() as task_group:
            task_group.begin(work())
            await asyncio.sleep(0)
        return done

    assert in_a_loop_of_its_own(scene()) == ["tidied up"]


def test_a_crashed_task_is_logged_and_ends_no_other(capsys):
    async def scene() -> bool:
        async def broken() -> None:
            raise ValueError("holds a secret")

        async with TaskGroup() as task_group:
            broken_one = task_group.begin(broken())
            other = task_group.begin(asyncio.sleep(3600))
            await asyncio.wait([broken_one])
            return not other.done()

    assert in_a_loop_of_its_own(scene())
    stderr = capsys.readouterr().err
    assert '"kind": "ValueError"' in stderr and "secret" not in stderr
