"""The egress broker in a thread of this process, so that names mean what the attacks need."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network

from sandbox.daemon.privileges import SANDBOX_UID
from sandbox.egress.broker import EgressBroker, Users, listen
from sandbox.egress.dial import Dialer, Resolver, client_context
from sandbox.egress.rules.addresses import AddressGate
from tests.attacks.services import NAMES, WEB

_REBINDING = "rebinding.example"


class Names:
    """One of them changes its mind each time it is asked for."""

    def __init__(self) -> None:
        self._asked = 0

    def __call__(self, name: str) -> list[str]:
        if name == _REBINDING:
            self._asked += 1
            return [WEB if self._asked % 2 else "127.0.0.1"]
        if name not in NAMES:
            raise OSError("no such name")
        return [NAMES[name]]


@contextmanager
def brokering(path: str) -> Iterator[None]:
    """Serves the test and its sandboxd; one address of the loopback stands for the world."""
    sandboxd = SANDBOX_UID if os.geteuid() == 0 else os.geteuid()
    listener, loop = listen(path), asyncio.new_event_loop()
    dialer = Dialer(Resolver(Names()), AddressGate((ip_network(f"{WEB}/32"),)), client_context(""))
    serving = loop.create_task(
        EgressBroker(dialer, Users(frozenset({os.getuid()}), sandboxd)).serve(listener)
    )
    thread = threading.Thread(target=_serve, args=(loop, serving), daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join()
        listener.close()


def _serve(loop: asyncio.AbstractEventLoop, serving: asyncio.Task[None]) -> None:
    try:
        loop.run_until_complete(serving)
    except asyncio.CancelledError:
        pass
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
