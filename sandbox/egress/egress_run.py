"""One egress ticket: what a run may reach, and its open connections."""

import asyncio
import secrets
import socket

from sandbox.egress.egress_checks import RunEgress
from sandbox.egress.entry_points.frames_entry_point import EgressEntryPoint
from sandbox.egress.entry_points.proxy import Proxy
from sandbox.egress.rules.egress_policy import EgressSummary
from sandbox.egress.task_group import TaskGroup

_PROXY_ADDRESS = "127.0.0.1"


class RunRejected(Exception):
    """A ticket that is used up, or a descriptor that is not an egress socket; the text says
    which."""


class EgressRun:
    """Its name is the only key to it: 128 random bits that the worker gives to sandboxd."""

    def __init__(self, reach: RunEgress) -> None:
        self.name = secrets.token_hex(16)
        self._reach = reach
        self._task_group = TaskGroup()
        self._channels: list[socket.socket] = []
        self._attached = False
        self._ending = asyncio.Lock()

    def attach(self, helper: socket.socket, proxy: socket.socket | None) -> None:
        """Once. From now on the two are the run's. Raises Unfit."""
        if self._attached:
            raise RunRejected("the ticket was used before")
        _check_helper(helper)
        if proxy is not None:
            _check_proxy(proxy)
        self._attached = True
        self._channels.append(helper)
        self._task_group.begin(EgressEntryPoint(helper, self._reach).serve())
        if proxy is not None:
            self._channels.append(proxy)
            self._task_group.begin(Proxy(proxy, self._reach).serve())

    async def end(self) -> EgressSummary:
        """Every connection of the run is closed when this returns. May be called again."""
        self._attached = True
        async with self._ending:  # sandboxd's end of it and the worker's come at the same time
            await self._task_group.end()
            while self._channels:
                self._channels.pop().close()
        return self._reach.ledger.tally()


def _check_helper(channel: socket.socket) -> None:
    if (channel.family, channel.type) != (socket.AF_UNIX, socket.SOCK_STREAM):
        raise RunRejected("the helper's door is not a stream socket")


def _check_proxy(channel: socket.socket) -> None:
    """A socket that listens on an address others can reach would be a proxy for them as well."""
    fits = (channel.family, channel.type) == (socket.AF_INET, socket.SOCK_STREAM)
    if not fits or not channel.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise RunRejected("the proxy's door does not listen")
    if channel.getsockname()[0] != _PROXY_ADDRESS:
        raise RunRejected("the proxy's door listens on another address")
