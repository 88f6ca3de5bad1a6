"""What a run leaves behind, cleared away after its result is out: no zombie, no group, no fd."""

import os
import queue
import select
import threading
import time

from sandbox.daemon.leaves import Leaf
from sandbox.daemon.logs import log
from sandbox.daemon.slot import Slot
from sandbox.inside import libc

_PATIENCE_S = 5.0
_RETRY_S = 0.02


def become_subreaper() -> None:
    """Orphans of a killed bwrap come to this process, which waits for them."""
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)


def reap_orphans() -> None:
    """Statuses taken from a Popen by this are of no interest to it."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


class Janitor:
    """One thread that waits for killed slots to be gone and removes their groups."""

    def __init__(self) -> None:
        self._finished: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True, name="janitor").start()

    def clear(self, slot: Slot) -> None:
        self._finished.put(slot)

    def _work(self) -> None:
        while True:
            clear_away(self._finished.get())


def clear_away(slot: Slot) -> None:
    wait_for_end(slot.pidfd)
    slot.close()
    if not remove_patiently(slot.leaf):
        log("cgroup_left_behind", pid=slot.pid)


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
