"""A warm slot as sandboxd holds it: a confined process that waits for its only job."""

import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass

from sandbox.daemon.cgroups import Leaf


@dataclass(slots=True)
class Slot:
    """`pid` is the host's number; for itself the process is number 1."""

    pid: int
    pidfd: int
    channel: socket.socket
    stdout: int
    stderr: int
    leaf: Leaf
    refill: Callable[
        [], None
    ]  # call once the job is on its way: the next slot may not delay it

    def kill(self) -> None:
        """Process 1 of a pid namespace takes all others with it."""
        try:
            self.leaf.kill()
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return

    def close(self) -> None:
        self.channel.close()
        for descriptor in (self.stdout, self.stderr, self.pidfd):
            os.close(descriptor)
