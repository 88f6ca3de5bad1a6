"""DNS resolution: one lookup per request, in a thread, with a deadline."""

import asyncio
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from weakref import WeakValueDictionary

from sandbox.egress.rules.denials import Code, Denied
from sandbox.egress.rules.grammar import Address, Host

type Lookup = Callable[[str], list[str]]

DEADLINE_S = 5.0
MOST_ADDRESSES = 16
_THREADS = 32
# A server of names that never answers holds up its own run, and then its organization.
_PER_RUN, _PER_ORGANIZATION = 4, 8


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


class LookupLimit:
    """How many lookups a run may have under way, given up or not. Those of one organization share
    theirs; without a name, nothing is shared."""

    def __init__(self, organization: str = "") -> None:
        self.organization = organization
        self.places = asyncio.Semaphore(_PER_RUN)


class Resolver:
    def __init__(self, lookup: Lookup = system_lookup, deadline_s: float = DEADLINE_S) -> None:
        self._lookup, self._deadline_s = lookup, deadline_s
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="lookup")
        # By event loop too: a process may have several, and a semaphore belongs to one.
        self._places: WeakValueDictionary[tuple[int, str], asyncio.Semaphore] = (
            WeakValueDictionary()
        )

    async def addresses(self, host: Host, turns: LookupLimit) -> list[Address]:
        """An address is its own answer. Raises Denied: with LOOKUP_LIMIT where the name was not
        asked for in time, with NAME_NOT_RESOLVED where there was no answer."""
        if host.address is not None:
            return [host.address]
        try:
            texts = await self._ask(host, turns)
        except (OSError, UnicodeError):  # TimeoutError is an OSError
            texts = []
        if not texts:
            raise Denied(Code.NAME_NOT_RESOLVED, f"{host} has no address")
        return [ip_address(text) for text in dict.fromkeys(texts)][:MOST_ADDRESSES]

    async def _ask(self, host: Host, turns: LookupLimit) -> list[str]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._deadline_s
        taken = await self._take(host, turns, deadline)
        answer = self._threads.submit(self._lookup, host.text)
        answer.add_done_callback(lambda _: _in(loop, taken.close))
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            if answer.cancelled():
                raise _not_asked(host, "everybody's lookups") from None
            raise

    async def _take(self, host: Host, turns: LookupLimit, deadline: float) -> ExitStack:
        """A place of the run's and one of its organization's, to be closed where it was opened."""
        shares = {"the run's lookups": turns.places}
        if turns.organization:
            made = asyncio.Semaphore(_PER_ORGANIZATION)
            key = id(asyncio.get_running_loop()), turns.organization
            shared = self._places.setdefault(key, made)
            shares["the organization's lookups"] = shared
        with ExitStack() as undo:
            for whose, places in shares.items():
                try:
                    async with asyncio.timeout_at(deadline):
                        await places.acquire()
                except TimeoutError:
                    raise _not_asked(host, whose) from None
                undo.callback(places.release)
            return undo.pop_all()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _not_asked(host: Host, whose: str) -> Denied:
    return Denied(Code.LOOKUP_LIMIT, f"{host} was not looked up: {whose} do not end")


def _in(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    """Called in the thread that looked up."""
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(work)
