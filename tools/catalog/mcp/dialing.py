"""This process's dialer for addresses that tenants chose, for connections of its own."""

import atexit
from collections.abc import Coroutine
from functools import cache, lru_cache
from typing import Any

from django.conf import settings

from sandbox.egress.dial import Dialer
from sandbox.egress.resolve import Resolver
from sandbox.egress.rules.addresses import AddressGate, read_network
from sandbox.egress.trust import client_context
from tools.httpclient.outbound import EventLoopThread, OperatorNetworkGate
from tools.mcpclient.fetching import Fetcher


def dialer(scheme: str, organization: str) -> Dialer:
    """By the rules of tools/httpclient/outbound.py: unencrypted only into networks that the
    operator opened."""
    return _dialer(scheme, tuple(settings.EGRESS_ALLOW_PRIVATE)).of(organization)


def fetcher(organization: str) -> Fetcher:
    return Fetcher(lambda scheme: dialer(scheme, organization))


def wait_for[Got](work: Coroutine[Any, Any, Got], timeout_s: float) -> Got:
    """The result of a few requests over one connection. Raises what it raises, `TimeoutError`."""
    future = _loop().submit(work)
    try:
        return future.result(timeout_s)
    except TimeoutError:
        future.cancel()
        raise


@cache
def _loop() -> EventLoopThread:
    made = EventLoopThread()
    atexit.register(made.close)
    return made


@lru_cache(maxsize=4)
def _dialer(scheme: str, opened: tuple[str, ...]) -> Dialer:
    networks = [read_network(text) for text in opened]
    gate = AddressGate(networks) if scheme == "https" else OperatorNetworkGate(networks)
    return Dialer(Resolver(), gate, client_context(settings.EGRESS_CA_FILE))
