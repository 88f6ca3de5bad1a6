"""Clean up after a run once its result is sent: no zombie, no group, no fd."""

import fcntl
import os
import queue
import select
import signal
import struct
import threading
import time
from collections.abc import Callable

from sandbox.daemon.daemon_log import log
from sandbox.daemon.limits.cgroup_leaves import Leaf
from sandbox.daemon.runs import scratch
from sandbox.daemon.runs.slot import SandboxSlot

_PATIENCE_S = 5.0
_RETRY_S = 0.02
# struct pidfd_info of <linux/pidfd.h>, first version: mask, cgroup, eleven numbers, exit code.
_INFO = struct.Struct("QQ11Ii")
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_WITH_EXIT = 1 << 3
_EXIT_TIMEOUT_S = 0.2  # process 1 of a namespace waits for all others before it is gone
_GONE = select.POLLHUP  # POLLIN comes earlier, before the kernel has written the exit down


class Janitor:
    """One thread waits for killed slots to be gone and removes their groups; another empties the
    directories, which may take as long as runs like: no other run's group waits for that."""

    def __init__(self) -> None:
        self._finished: queue.SimpleQueue[SandboxSlot | None] = queue.SimpleQueue()
        self._littered: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True, name=name)
            for name, work in (("janitor", self._clear), ("sweeper", self._sweep))
        ]
        for thread in self._threads:
            thread.start()

    def clear(self, slot: SandboxSlot) -> None:
        self._finished.put(slot)

    def close(self) -> None:
        """Clear away what is left, and no more. Directories that take longer are left to the one
        who clears them all: two at the same files are slower than one."""
        self._finished.put(None)
        for thread in self._threads:
            thread.join(_PATIENCE_S)
        self._stopped.set()
        self._threads[-1].join(_PATIENCE_S)

    def _clear(self) -> None:
        while (slot := self._finished.get()) is not None:
            _release(slot)
            if slot.scratch is not None:
                self._littered.put(slot.scratch)
        self._littered.put(None)

    def _sweep(self) -> None:
        while (directory := self._littered.get()) is not None:
            _empty_directories(directory, self._stopped.is_set)


def clean_up_run(slot: SandboxSlot) -> None:
    """At once, for who has no janitor."""
    _release(slot)
    if slot.scratch is not None:
        _empty_directories(slot.scratch)


def wait_for_end(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(_PATIENCE_S * 1000))


def remove_patiently(leaf: Leaf) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while not leaf.remove():
        if time.monotonic() > deadline:
            return False
        time.sleep(_RETRY_S)
    return True


def was_killed(pidfd: int) -> bool:
    """By SIGKILL, which no process sends itself by mistake; False where the kernel cannot say."""
    status = _status(pidfd)
    return status is not None and status & 0x7F == signal.SIGKILL


def _release(slot: SandboxSlot) -> None:
    """All but its directory."""
    wait_for_end(slot.pidfd)
    slot.close()
    if not remove_patiently(slot.leaf):
        log("cgroup_left_behind", pid=slot.pid)


def _empty_directories(directory: int, stopped: Callable[[], bool] = scratch.never) -> None:
    scratch.remove(directory, stopped)
    os.close(directory)


def _status(pidfd: int) -> int | None:
    """As waitpid gives it; None for a process that has not ended, or on an older kernel."""
    gone = select.poll()
    gone.register(pidfd, _GONE)
    gone.poll(_EXIT_TIMEOUT_S * 1000)
    info = bytearray(_INFO.pack(_WITH_EXIT, *[0] * 13))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None
    mask, *_, status = _INFO.unpack(info)
    return status if mask & _WITH_EXIT else None
