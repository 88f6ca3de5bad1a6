"""What a run leaves behind, cleared away after its result is out: no zombie, no group, no fd."""

import queue
import select
import threading
import time

from sandbox.daemon import scratch
from sandbox.daemon.leaves import Leaf
from sandbox.daemon.logs import log
from sandbox.daemon.slot import Slot

_PATIENCE_S = 5.0
_RETRY_S = 0.02


class Janitor:
    """One thread that waits for killed slots to be gone and removes their groups."""

    def __init__(self) -> None:
        self._finished: queue.SimpleQueue[Slot | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True, name="janitor")
        self._thread.start()

    def clear(self, slot: Slot) -> None:
        self._finished.put(slot)

    def close(self) -> None:
        """Clear away what is left, and no more."""
        self._finished.put(None)
        self._thread.join(_PATIENCE_S)

    def _work(self) -> None:
        while (slot := self._finished.get()) is not None:
            clear_away(slot)


def clear_away(slot: Slot) -> None:
    wait_for_end(slot.pidfd)
    if slot.scratch is not None:
        scratch.remove(slot.scratch)
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
