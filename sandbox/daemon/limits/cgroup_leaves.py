"""The control group of one run: its limits, what it counted, its end. One class per mode."""

import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

V1_CONTROLLERS = ("memory", "pids", "cpuacct")
RUN_PREFIX = "run-"


class Leaf(Protocol):
    """The group of one run."""

    counted: bool
    alarm: int | None  # readable when memory ran out, where the kernel does not kill the whole run

    def limit(self, memory_bytes: int, processes: int) -> None:
        """Writes nothing when these are its limits already."""
        ...

    def cpu_ns(self) -> int: ...
    def peak_memory(self) -> int | None: ...
    def memory_exceeded(self) -> bool: ...
    def processes_refused(self) -> bool: ...
    def kill(self) -> None: ...
    def remove(self) -> bool: ...


def write(path: Path | str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def read(path: Path | str) -> str:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 8192).decode()
    finally:
        os.close(file)


def keyed(text: str, key: str) -> int:
    """The number after a key in a file of `key number` lines; 0 when it is not there."""
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if name == key:
            return int(number)
    return 0


def remove_directory(path: str) -> bool:
    """True when it is gone; a group whose last process is still ending is busy."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


class NoLeaf:
    """Where no group can be made: the first process of the run is asked itself."""

    counted = False
    alarm: int | None = None

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def limit(self, memory_bytes: int, processes: int) -> None:
        """Nothing to write: the process limits of stage 2 stand alone."""

    def cpu_ns(self) -> int:
        """Its CPUCLOCK_SCHED; 0 when it has ended."""
        try:
            return time.clock_gettime_ns((~self._pid << 3) | 2)
        except OSError:
            return 0

    def peak_memory(self) -> int | None:
        try:
            status = Path(f"/proc/{self._pid}/status").read_text()
        except OSError:
            return None
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else None

    def memory_exceeded(self) -> bool:
        return False

    def processes_refused(self) -> bool:
        return False

    def kill(self) -> None:
        """The caller kills process 1 of the run's pid namespace, which ends all."""

    def remove(self) -> bool:
        return True


class V2Leaf:
    counted = True
    alarm: int | None = None

    def __init__(self, path: str) -> None:
        self._path = path
        self._limits = (0, 0)

    def limit(self, memory_bytes: int, processes: int) -> None:
        if self._limits == (memory_bytes, processes):
            return
        self._limits = (memory_bytes, processes)
        write(f"{self._path}/memory.max", str(memory_bytes))
        write(f"{self._path}/pids.max", str(processes))

    def cpu_ns(self) -> int:
        return keyed(read(f"{self._path}/cpu.stat"), "usage_usec") * 1000

    def peak_memory(self) -> int | None:
        """None before kernel 5.19."""
        try:
            return int(read(f"{self._path}/memory.peak"))
        except FileNotFoundError:
            return None

    def memory_exceeded(self) -> bool:
        return keyed(read(f"{self._path}/memory.events"), "oom_kill") > 0

    def processes_refused(self) -> bool:
        return keyed(read(f"{self._path}/pids.events"), "max") > 0

    def kill(self) -> None:
        write(f"{self._path}/cgroup.kill", "1")

    def remove(self) -> bool:
        return remove_directory(self._path)


class HybridLeaf:
    counted = True

    def __init__(self, name: str, roots: dict[str, Path], unified: Path | None) -> None:
        self._name, self._roots = f"{RUN_PREFIX}{name}", roots
        paths = {kind: f"{root}/{self._name}" for kind, root in roots.items()}
        self._memory, self._pids, self._cpu = (paths[kind] for kind in V1_CONTROLLERS)
        self._unified = f"{unified}/{self._name}" if unified else None
        self.alarm: int | None = None
        self._paths = [*paths.values()]
        if self._unified:
            self._paths.append(self._unified)
        self._limits = (0, 0)

    def enter(self, pid: int, enter: Callable[[int, str, Iterable[Path]], None]) -> None:
        """`enter` does it for version 1, where who moves a process must be its user."""
        for path in self._paths:
            os.mkdir(path)
        enter(pid, self._name, self._roots.values())
        if self._unified:
            write(f"{self._unified}/cgroup.procs", str(pid))
        self.alarm = memory_alarm(self._memory)

    def limit(self, memory_bytes: int, processes: int) -> None:
        if self._limits == (memory_bytes, processes):
            return
        self._limits = (memory_bytes, processes)
        write(f"{self._memory}/memory.limit_in_bytes", str(memory_bytes))
        write(f"{self._pids}/pids.max", str(processes))

    def cpu_ns(self) -> int:
        return int(read(f"{self._cpu}/cpuacct.usage"))

    def peak_memory(self) -> int:
        return int(read(f"{self._memory}/memory.max_usage_in_bytes"))

    def memory_exceeded(self) -> bool:
        return keyed(read(f"{self._memory}/memory.oom_control"), "oom_kill") > 0

    def processes_refused(self) -> bool:
        return keyed(read(f"{self._pids}/pids.events"), "max") > 0

    def kill(self) -> None:
        if self._unified:
            write(f"{self._unified}/cgroup.kill", "1")

    def remove(self) -> bool:
        if self.alarm is not None:
            os.close(self.alarm)
            self.alarm = None
        gone = [remove_directory(path) for path in self._paths]
        return all(gone)


def memory_alarm(group: str) -> int:
    """v1 kills one process of a run, not the run: an event descriptor lets sandboxd do the rest."""
    alarm = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    control = os.open(f"{group}/memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
    write(f"{group}/cgroup.event_control", f"{alarm} {control}")
    os.close(control)
    return alarm
