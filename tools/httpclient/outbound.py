"""Connections to addresses that a tenant chose, protected against SSRF.

The rules are those of tool runs: the name is resolved once, an address that is not public is
refused, the connection goes to exactly that address, no redirect is followed. Unencrypted
connections are allowed only into networks that the operator opened.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.conf import settings

from audit.alerts.alert_channels import DeliveryFailed
from sandbox.egress.dial import Dialer, Resolver, client_context
from sandbox.egress.egress_checks import HELPER, RunEgress
from sandbox.egress.entry_points.messages import EgressRequest, EgressResponse
from sandbox.egress.rules.addresses import AddressGate, read_network
from sandbox.egress.rules.egress_policy import Denied, EgressLimits, EgressPolicy, HostRule
from sandbox.egress.rules.grammar import Address, BrokenGrammar, Url
from sandbox.errors import SpecInvalid

_SHUTDOWN_S = 5.0
_MOST_BYTES = 262_144
_MOST_BODY_BYTES = 500


class EventLoopThread:
    """Starts with the first task, and again in a forked process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    def submit[Got](self, work: Coroutine[Any, Any, Got]) -> Future[Got]:
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def close(self) -> None:
        """Running tasks are cancelled."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None or self._pid != os.getpid():
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_SHUTDOWN_S)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._pid, self._loop = os.getpid(), asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="conversations", daemon=True
                )
                self._thread.start()
            return self._loop


class OperatorNetworkGate(AddressGate):
    """Allows only the networks that the operator opened."""

    def refusal(self, address: Address) -> str:
        return "" if self.is_opened(address) else "a network that takes https alone"


@dataclass(frozen=True)
class Receipt:
    """The response of a receiver, with the beginning of its body."""

    status: int
    words: bytes


def post(
    url: str, headers: list[tuple[str, str]], body: bytes, timeout_s: float, organization: str
) -> int:
    """The status of the response, also of an error. Raises `NotTold`."""
    return _LOOP.submit(send(url, headers, body, timeout_s, organization)).result().status


async def send(
    url: str, headers: list[tuple[str, str]], body: bytes, timeout_s: float, organization: str
) -> Receipt:
    """The response with any status. Raises `NotTold`, which says whether anything was sent."""
    try:
        target = Url.parse(url)
        dialer = _dialer(target.scheme, tuple(settings.EGRESS_ALLOW_PRIVATE))
        reach = RunEgress(_egress_policy(target, timeout_s), dialer, organization)
    except (BrokenGrammar, SpecInvalid) as flaw:
        raise DeliveryFailed(f"The address cannot be called: {flaw}.") from None
    try:
        async with reach.request(HELPER, _egress_request(url, headers, body, timeout_s)) as answer:
            return Receipt(answer.status, await _body_beginning(answer))
    except Denied as refusal:
        raise DeliveryFailed(f"{refusal.code}: {refusal}.", begun=_anything_sent(reach)) from None
    except OSError as problem:
        words = f"The receiver could not be reached ({type(problem).__name__})."
        raise DeliveryFailed(words, begun=_anything_sent(reach)) from None


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


async def _body_beginning(answer: EgressResponse) -> bytes:
    """The status decides, so a body that does not arrive is no error."""
    words = b""
    try:
        async for piece in answer.body:
            words += piece
            if len(words) >= _MOST_BODY_BYTES:
                break
    except (Denied, OSError):
        return words[:_MOST_BODY_BYTES]
    return words[:_MOST_BODY_BYTES]


def _anything_sent(reach: RunEgress) -> bool:
    return any(one.bytes_sent for one in reach.ledger.tally().attempts)


def _egress_policy(target: Url, timeout_s: float) -> EgressPolicy:
    rule = HostRule(host=str(target.host), ports=(target.port,), methods=("POST",))
    limits = EgressLimits(
        requests=1,
        connections=1,
        request_bytes=_MOST_BYTES,
        response_bytes=_MOST_BYTES,
        request_s=timeout_s,
    )
    return EgressPolicy((rule,), limits)


def _egress_request(
    url: str, headers: list[tuple[str, str]], body: bytes, timeout_s: float
) -> EgressRequest:
    return EgressRequest("POST", url, headers, len(body), _body_stream(body), timeout_s)


async def _body_stream(body: bytes) -> AsyncIterator[bytes]:
    yield body


@lru_cache(maxsize=4)
def _dialer(scheme: str, opened: tuple[str, ...]) -> Dialer:
    networks = [read_network(text) for text in opened]
    gate = AddressGate(networks) if scheme == "https" else OperatorNetworkGate(networks)
    return Dialer(Resolver(), gate, client_context(settings.EGRESS_CA_FILE))


_LOOP = EventLoopThread()
