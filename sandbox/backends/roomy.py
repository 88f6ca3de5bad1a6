"""The control group of a run with a kernel of its own: more processes than the tool may have."""

from sandbox.daemon.limits.cgroup_leaves import Leaf


class RoomyLeaf:
    """A leaf in whose number of processes those of the runtime are not counted.

    Its memory is: the tool's part of it is unknown, and a limit must hold for the whole.
    """

    def __init__(self, leaf: Leaf, spare: int) -> None:
        self._leaf, self._spare = leaf, spare
        self.counted, self.alarm = leaf.counted, leaf.alarm

    def limit(self, memory_bytes: int, processes: int) -> None:
        self._leaf.limit(memory_bytes, processes + self._spare)

    def cpu_ns(self) -> int:
        return self._leaf.cpu_ns()

    def peak_memory(self) -> int | None:
        return self._leaf.peak_memory()

    def memory_exceeded(self) -> bool:
        return self._leaf.memory_exceeded()

    def processes_refused(self) -> bool:
        return self._leaf.processes_refused()

    def kill(self) -> None:
        self._leaf.kill()

    def remove(self) -> bool:
        return self._leaf.remove()
