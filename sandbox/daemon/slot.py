"""A warm slot as sandboxd holds it: a confined process that waits for its only job."""

import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass

from sandbox.daemon.leaves import Leaf
from sandbox.daemon.logs import log


@dataclass(slots=True)
class Slot:
    """`pid` is the host's number; for itself the process is number 1."""

    pid: int
    pidfd: int
    channel: socket.socket
    stdout: int
    stderr: int
    leaf: Leaf
    order_next: Callable[[], None]
    ordered: bool = False
    killed: bool = False

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
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return  # with process 1 all others are gone
        try:
            self.leaf.kill()
        except OSError as error:
            log("cgroup_kill_failed", pid=self.pid, reason=str(error))

    def close(self) -> None:
        self.channel.close()
        for descriptor in (self.stdout, self.stderr, self.pidfd):
            os.close(descriptor)
