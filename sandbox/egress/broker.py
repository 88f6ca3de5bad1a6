"""The egress broker's server: allowed peers and requests, and the lifetime of a ticket."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.daemon.daemon_log import log
from sandbox.egress import control
from sandbox.egress.dial import Dialer
from sandbox.egress.egress_checks import RunEgress
from sandbox.egress.egress_run import EgressRun, RunRejected
from sandbox.egress.entry_points.streams import accepted
from sandbox.egress.rules.egress_policy import EgressPolicy, EgressSummary
from sandbox.egress.task_group import TaskGroup
from sandbox.errors import SpecInvalid
from sandbox.strict_fields import Fields

_BACKLOG = 128


@dataclass(frozen=True)
class Users:
    """By their uid; the kernel says who is at the other end."""

    workers: frozenset[int]
    sandbox: int


class EgressBroker:
    def __init__(self, dialer: Dialer, users: Users) -> None:
        self._dialer, self._users = dialer, users
        self._runs: dict[str, EgressRun] = {}

    async def serve(self, listener: socket.socket) -> None:
        """Until it is cancelled; then every run has ended."""
        listener.setblocking(False)
        async with TaskGroup() as peers:
            while True:
                peers.begin(self._welcome(await accepted(listener)))

    async def _welcome(self, channel: socket.socket) -> None:
        uid = control.peer_uid(channel)
        with channel:
            if not self.may_open(uid) and not self.may_attach(uid):
                log("peer_refused", uid=uid)
                return
            try:
                await Peer(channel, uid, self).converse()
            except OSError:
                return  # it went away

    def may_open(self, uid: int) -> bool:
        return uid in self._users.workers

    def may_attach(self, uid: int) -> bool:
        return uid == self._users.sandbox

    def open(self, policy: EgressPolicy, organization: str) -> EgressRun:
        """Raises SpecInvalid."""
        run = EgressRun(RunEgress(policy, self._dialer, organization))
        self._runs[run.name] = run
        return run

    def attach(self, name: str, doors: list[socket.socket]) -> EgressRun:
        """Raises Unfit."""
        run = self._runs.get(name)
        if run is None:
            raise RunRejected("there is no such ticket")
        if not doors:
            raise RunRejected("a ticket without a door")
        run.attach(doors[0], doors[1] if len(doors) > 1 else None)
        return run

    def forget(self, run: EgressRun) -> None:
        self._runs.pop(run.name, None)


class Peer:
    """One connection: of a worker with one ticket at a time, or the lifeline of a run."""

    def __init__(self, channel: socket.socket, uid: int, broker: EgressBroker) -> None:
        self._frames = control.Frames(channel)
        self._uid, self._broker = uid, broker
        self._own: EgressRun | None = None
        self._led: EgressRun | None = None

    async def converse(self) -> None:
        """All that depends on this connection ends with it. Raises OSError."""
        try:
            while (body := await self._frames.next()) is not None:
                await self._frames.send(await self._answer(body))
        except SpecInvalid:
            log("conversation_ended", uid=self._uid)
        finally:
            self._frames.drop_doors()
            await self._end_all()

    async def _answer(self, body: bytes) -> dict[str, Any]:
        """A reason goes to the peer alone: it may quote a policy."""
        try:
            return await self._do(control.decode(body))
        except (SpecInvalid, RunRejected) as reason:
            log("refused", uid=self._uid, kind=type(reason).__name__)
            return {"refused": str(reason)}
        finally:
            self._frames.drop_doors()

    async def _do(self, request: Fields) -> dict[str, Any]:
        match request.text("type"):
            case "open" if self._own is None and self._broker.may_open(self._uid):
                policy = EgressPolicy.from_wire(request.value("policy"))
                return self._open(policy, request.text("organization"))
            case "close" if self._own is not None:
                return {"tally": (await self._close(self._own)).to_wire()}
            case "attach" if self._led is None and self._broker.may_attach(self._uid):
                return self._attach(request.text("ticket"))
        raise RunRejected("that is not yours to ask now")

    def _open(self, policy: EgressPolicy, organization: str) -> dict[str, Any]:
        """A socket that came along is the worker's own: it makes the requests itself."""
        doors, self._frames.doors = self._frames.doors, []
        self._own = self._broker.open(policy, organization)
        if doors:
            try:
                self._broker.attach(self._own.name, doors[:1])
            except RunRejected:
                self._frames.doors = doors  # to be closed with the others
                raise
            self._frames.doors = doors[1:]
        return {"ticket": self._own.name}

    def _attach(self, name: str) -> dict[str, Any]:
        doors, self._frames.doors = self._frames.doors, []
        try:
            self._led = self._broker.attach(name, doors)
        except RunRejected:
            self._frames.doors = doors  # to be closed with the others
            raise
        return {"attached": True}

    async def _close(self, run: EgressRun) -> EgressSummary:
        self._own = None
        self._broker.forget(run)
        tally = await run.end()
        if tally.requests:
            log("run", requests=tally.requests, refused=tally.refused)
        return tally

    async def _end_all(self) -> None:
        if self._led is not None:
            await self._led.end()
        if self._own is not None:
            await self._close(self._own)


def listen(path: str) -> socket.socket:
    """Replaces the socket an earlier broker left. Raises OSError where one still answers."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
        if knock.connect_ex(path) == 0:
            raise OSError(f"another broker listens on {path}")
    Path(path).unlink(missing_ok=True)
    listener.bind(path)
    os.chmod(path, 0o666)  # noqa: S103 - connecting is free, the peer is checked
    listener.listen(_BACKLOG)
    return listener
