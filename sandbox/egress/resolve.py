"""Names to addresses: one question per request, in a thread, with a deadline."""

import asyncio
import os
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from ipaddress import ip_address

from sandbox.egress.denials import Code, Denied
from sandbox.egress.grammar import Address, Host

type Lookup = Callable[[str], list[str]]

DEADLINE_S = 5.0
MOST_ADDRESSES = 16
_THREADS = 32
_PER_RUN = 4  # of the threads: a server of names that never answers holds up its own run alone


def system_lookup(name: str) -> list[str]:
    """Addresses in the system's order of preference. Raises OSError."""
    # Bytes, so that Python does not apply its older IDNA rules.
    found = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
    return [str(place[0]) for *_, place in found]


def prepare_system_lookup() -> None:
    """Before the first lookup: only the name that was asked for, and a slow server is given up.

    A search list would turn an allowed `api` into `api.corp.example`, which no rule allowed.
    """
    os.environ["LOCALDOMAIN"] = ""
    os.environ["RES_OPTIONS"] = "timeout:2 attempts:2"


class Turns:
    """How many lookups a run may have under way, given up or not."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(_PER_RUN)
        self._loop = asyncio.get_running_loop()

    async def take(self) -> None:
        await self._free.acquire()

    def give_back(self, _: Future[list[str]]) -> None:
        """Called in the thread that looked up."""
        try:
            self._loop.call_soon_threadsafe(self._free.release)
        except RuntimeError:
            return  # the loop has ended


class Resolver:
    def __init__(self, lookup: Lookup = system_lookup) -> None:
        self._lookup = lookup
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="lookup")

    async def addresses(self, host: Host, turns: Turns) -> list[Address]:
        """Raises Denied with NAME_NOT_RESOLVED. An address is its own answer."""
        if host.address is not None:
            return [host.address]
        try:
            async with asyncio.timeout(DEADLINE_S):
                texts = await self._ask(host.text, turns)
        except (OSError, UnicodeError):  # TimeoutError is an OSError
            texts = []
        if not texts:
            raise Denied(Code.NAME_NOT_RESOLVED, f"{host} has no address")
        return [ip_address(text) for text in dict.fromkeys(texts)][:MOST_ADDRESSES]

    async def _ask(self, name: str, turns: Turns) -> list[str]:
        await turns.take()
        answer = self._threads.submit(self._lookup, name)
        answer.add_done_callback(turns.give_back)
        return await asyncio.wrap_future(answer)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
