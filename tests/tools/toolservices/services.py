"""Tool services for tests; each is named after its behavior."""

import asyncio
import os
import threading
from pathlib import Path

from tests.conditions import until
from toolcrib_service import DynamicToolService, ToolFailed

QUEUE = "non-persistent://tests/request"


class Echo(DynamicToolService):
    id, request_queue = "echo", QUEUE

    def invoke(self, user, config, arguments):
        return {"user": user, "config": config, "arguments": arguments}


class Async(Echo):
    async def invoke(self, user, config, arguments):
        await asyncio.sleep(0)
        return f"hello {user}"


class Streamed(Echo):
    def invoke(self, user, config, arguments):
        yield from ("one ", "two ", {"three": 3})


class AsyncStreamed(Echo):
    async def invoke(self, user, config, arguments):
        for text in ("a", "b", "c"):
            await asyncio.sleep(0)
            yield text


class Failing(Echo):
    def invoke(self, user, config, arguments):
        raise ToolFailed("out-of-jokes", "Come back\x1b[31m tomorrow.")


class Broken(Echo):
    def invoke(self, user, config, arguments):
        raise RuntimeError("the password is swordfish")


class BrokenMidStream(Echo):
    def invoke(self, user, config, arguments):
        yield "half"
        raise ToolFailed("tired", "No more.")


class Endless(Echo):
    """Yields text until the caller disconnects."""

    def __init__(self):
        self.closed = threading.Event()

    async def invoke(self, user, config, arguments):
        try:
            while True:
                yield "and on "
                await asyncio.sleep(0.05)
        finally:
            self.closed.set()


class Held(Echo):
    """Waits until the test releases it."""

    def __init__(self):
        self.begun, self.go = threading.Semaphore(0), threading.Event()

    def invoke(self, user, config, arguments):
        self.begun.release()
        self.go.wait(30)
        return arguments.get("n", "done")


class Slow(Echo):
    """For a separate process: it appends its pid to the file LOG at each start, and returns when
    the file with the suffix `.go` exists."""

    def invoke(self, user, config, arguments):
        log = Path(os.environ["SERVICE_LOG"])
        with log.open("a") as out:
            out.write(f"{os.getpid()}\n")
        until(log.with_suffix(".go").exists)
        return f"done by {os.getpid()}"


class Announced(DynamicToolService):
    id, request_queue = "announced", "non-persistent://tests/announced"
    default_groups = ("default",)
    tools = (
        {
            "name": "greet",
            "type": "tool-service",
            "description": "Greets.",
            "service": "announced",
            "delivery": "idempotent",
        },
    )

    def invoke(self, user, config, arguments):
        return "hello there"
