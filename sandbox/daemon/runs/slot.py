"""A warm slot as sandboxd holds it: a confined process that waits for its only job."""

import os
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

from sandbox.daemon.daemon_log import log
from sandbox.daemon.limits.cgroup_leaves import Leaf
from sandbox.daemon.limits.operations import RunOperations
from sandbox.daemon.run_accounts import OURS, SandboxAccount
from sandbox.spec import Limits


class SlotDisk(NamedTuple):
    """What a run may keep in its private places. Slots differ by it."""

    size: int
    inodes: int

    @classmethod
    def from_limits(cls, limits: Limits) -> Self:
        return cls(limits.tmp_bytes, limits.tmp_inodes)


@dataclass(slots=True)
class SandboxSlot:
    """`pid` is the host's number; in a pid namespace the process is number 1.

    `door` and `proxy` are the far ends of its sockets to the egress broker; `operations` counts
    what it does to files; `scratch` is a directory on the host's disk, to be removed after the run.
    """

    pid: int
    pidfd: int
    channel: socket.socket
    stdout: int
    stderr: int
    leaf: Leaf
    order_next: Callable[[], None]
    door: socket.socket | None = None
    proxy: socket.socket | None = None
    operations: RunOperations | None = None
    scratch: int | None = None
    account: SandboxAccount = OURS
    ordered: bool = False
    killed: bool = False

    @property
    def has_ended(self) -> bool:
        """Its process is gone, before sandboxd killed it."""
        look = select.poll()
        look.register(self.pidfd, select.POLLIN)
        return bool(look.poll(0))

    def refill(self) -> None:
        """Have the next slot made; later is better, for the making competes with this run."""
        if not self.ordered:
            self.ordered = True
            self.order_next()

    def kill(self) -> None:
        """Process 1 of a pid namespace takes all others with it; the group is the quicker way."""
        if self.killed:
            return
        self.killed = True
        try:
            self.account.kill(self.pidfd)
        except ProcessLookupError:
            if self.scratch is None:
                return  # with process 1 all others are gone
        if self.scratch is not None:
            self.account.kill_session(self.pid)
        try:
            self.leaf.kill()
        except OSError as error:
            log("cgroup_kill_failed", pid=self.pid, reason=str(error))

    def shut_doors(self) -> None:
        """The broker has its own descriptors of them, or they are not needed."""
        for door in (self.door, self.proxy):
            if door is not None:
                door.close()

    def close(self) -> None:
        """All but `scratch`: the code that empties it closes it."""
        self.channel.close()
        self.shut_doors()
        if self.operations is not None:
            self.operations.close()
        for descriptor in (self.stdout, self.stderr, self.pidfd):
            os.close(descriptor)
