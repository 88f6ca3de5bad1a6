"""A broker in a thread of this process, so that names can be resolved as a test wants it."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

import pytest

from sandbox.egress.broker import EgressBroker, Users, listen
from sandbox.egress.dial import Dialer, Resolver, client_context
from sandbox.egress.rules.addresses import AddressGate
from sandbox.egress.rules.egress_policy import (
    EgressAttempt,
    EgressLimits,
    EgressPolicy,
    EgressSummary,
    HostRule,
)
from sandbox.egress.ticket_client import EgressClient, Ticket, attach
from sandbox.inside import sandbox_http
from tests.crib import CHECKOUT
from tests.stubs.web import Authority, Web, serving

NAME = "good.example"
LOOPBACK = ip_network("127.0.0.0/8")


class Names:
    """What a resolver knows. Several answers for one name are given one after the other."""

    def __init__(self) -> None:
        self.answers: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []
        self.hold = threading.Event()
        self.hold.set()

    def __call__(self, name: str) -> list[str]:
        self.asked.append(name)
        assert self.hold.wait(30)
        known = self.answers.get(name)
        if known is None:
            raise OSError("no such name")
        return known.pop(0) if len(known) > 1 else known[0]


@dataclass
class Place:
    """A broker, and the names it can resolve."""

    path: str
    names: Names
    client: EgressClient

    @contextmanager
    def run(self, *rules: HostRule, **limits: Any) -> Iterator["Visit"]:
        """A run with these rules whose helper is this process."""
        ticket = self.client.open(EgressPolicy(rules, EgressLimits(**limits)), "acme")
        near, far = socket.socketpair()
        with socket.create_server(("127.0.0.1", 0)) as listener, far:
            lifeline = attach(self.path, ticket.name, helper=far, proxy=listener)
            port = int(listener.getsockname()[1])
        sandbox_http.open_door(near.fileno())
        with near, lifeline, ticket:
            try:
                yield Visit(ticket, lifeline, port)
            finally:
                sandbox_http._door._channel.detach()


@dataclass
class Visit:
    ticket: Ticket
    lifeline: socket.socket
    proxy_port: int

    def tally(self) -> EgressSummary:
        """Ends the run."""
        return self.ticket.close()

    def only_attempt(self) -> EgressAttempt:
        (attempt,) = self.tally().attempts
        return attempt

    def knock(self) -> socket.socket:
        """A connection to the proxy, as a program inside would make it."""
        return socket.create_connection(("127.0.0.1", self.proxy_port), timeout=10)


@contextmanager
def brokering(
    names: Names,
    *,
    opened: tuple[Any, ...] = (LOOPBACK,),
    ca: str = "",
    users: Users | None = None,
) -> Iterator[str]:
    """The path of a broker that runs in a thread."""
    with tempfile.TemporaryDirectory(prefix="tc") as directory:
        path = f"{directory}/s"
        listener = listen(path)
        loop = asyncio.new_event_loop()
        dialer = Dialer(Resolver(names), AddressGate(opened), client_context(ca))
        broker = EgressBroker(dialer, users or Users(frozenset({os.getuid()}), os.getuid()))
        serving = loop.create_task(broker.serve(listener))
        thread = threading.Thread(target=_until_cancelled, args=(loop, serving), daemon=True)
        thread.start()
        try:
            yield path
        finally:
            names.hold.set()
            loop.call_soon_threadsafe(serving.cancel)
            thread.join()
            listener.close()


def _until_cancelled(loop: asyncio.AbstractEventLoop, serving: asyncio.Task[None]) -> None:
    try:
        loop.run_until_complete(serving)
    except asyncio.CancelledError:
        pass
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@contextmanager
def placed(**options: Any) -> Iterator[Place]:
    names = Names()
    names.answers[NAME] = [["127.0.0.1"]]
    with brokering(names, **options) as path:
        client = EgressClient(path)
        yield Place(path, names, client)
        client.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), NAME, "127.0.0.1")


@pytest.fixture
def place(authority: Authority) -> Iterator[Place]:
    with placed(ca=authority.file) as one:
        yield one


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as one:
        yield one


@pytest.fixture
def secure_web(authority: Authority) -> Iterator[Web]:
    with serving(authority) as one:
        yield one


@pytest.fixture
def rule() -> Callable[..., HostRule]:
    """A rule for the name that is at 127.0.0.1."""
    return lambda web, **parts: HostRule(NAME, ports=(web.port,), **parts)


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def refused(code: str, *arguments: Any, **options: Any) -> sandbox_http.EgressError:
    """Ask for something that must be refused with this code."""
    with pytest.raises(sandbox_http.EgressError) as caught:
        sandbox_http.request(*(arguments if len(arguments) > 1 else ("GET", *arguments)), **options)
    assert caught.value.code == code, caught.value.message
    return caught.value
