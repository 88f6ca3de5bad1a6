"""Resource usage of a run and what remains of its limits: time, CPU, memory, text."""

import os
import time

from sandbox.daemon.limits.cgroup_leaves import Leaf
from sandbox.daemon.limits.operations import RunOperations
from sandbox.errors import ErrorCode
from sandbox.spec import Limits, ResourceUsage

_CPUS = os.cpu_count() or 1
_SHORTEST_WATCH_S = 0.002
_TEXT_KEPT = 64 * 1024
_CUT = "\n… cut …\n"


class RunMeter:
    """Starts counting when it is made; times are seconds of the monotonic clock."""

    def __init__(self, limits: Limits, leaf: Leaf, operations: RunOperations | None) -> None:
        self._limits, self._leaf, self._operations = limits, leaf, operations
        self._cpu_at_start = leaf.cpu_ns()
        self._started = time.monotonic()
        self._deadline = self._started + limits.wall_s

    def cpu_s(self) -> float:
        return (self._leaf.cpu_ns() - self._cpu_at_start) / 1e9

    def wall_s(self) -> float:
        return time.monotonic() - self._started

    def watch_s(self) -> float:
        """How long the run can be left alone: no limit can be reached sooner."""
        left = self._deadline - time.monotonic()
        if self._limits.cpu_s >= self._limits.wall_s * _CPUS:
            return left
        processor = (self._limits.cpu_s - self.cpu_s()) / _CPUS
        return min(left, max(processor, _SHORTEST_WATCH_S))

    def late(self) -> bool:
        return time.monotonic() >= self._deadline

    def exceeded(self) -> ErrorCode | None:
        if self.late():
            return ErrorCode.TIMEOUT
        if self.cpu_s() >= self._limits.cpu_s:
            return ErrorCode.CPU_LIMIT
        return None

    def usage(self, start_s: float) -> ResourceUsage:
        peak = self._leaf.peak_memory()
        return ResourceUsage(
            peak_memory_bytes=peak or 0,
            cpu_time_ms=round(self.cpu_s() * 1000, 3),
            wall_ms=round(self.wall_s() * 1000, 3),
            filesystem_operations=self._operations.count() if self._operations else None,
            sandbox_start_ms=round(start_s * 1000, 3),
            approximate=not self._leaf.counted or peak is None,
        )


class KeptText:
    """Head and tail of a stream: all of it is counted, little of it is held."""

    def __init__(self) -> None:
        self.received = 0
        self._head, self._tail = bytearray(), bytearray()

    def add(self, data: bytes) -> None:
        self.received += len(data)
        room = _TEXT_KEPT // 2 - len(self._head)
        self._head += data[:room] if room > 0 else b""
        self._tail += data[max(room, 0) :]
        del self._tail[: -_TEXT_KEPT // 2]

    def text(self) -> str:
        """NUL cannot be stored by PostgreSQL."""
        cut = self.received > len(self._head) + len(self._tail)
        raw = (bytes(self._head), bytes(self._tail))
        head, tail = (part.decode("utf-8", "replace").replace("\0", "\ufffd") for part in raw)
        return head + (_CUT if cut else "") + tail
