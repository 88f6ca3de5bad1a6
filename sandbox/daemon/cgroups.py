"""One control group per run, on whichever hierarchies this machine offers.

v2: memory and pids there. hybrid: they are v1, and v2 only kills. none: nothing is counted.
A leaf is entered before its job begins, so peak memory and CPU time are the run's own.
"""

import os
import time
from pathlib import Path
from typing import Protocol

MOUNT = Path("/sys/fs/cgroup")
V1_CONTROLLERS = ("memory", "pids", "cpuacct")
_OWN = "daemon"
_RUN_PREFIX = "run-"


class Leaf(Protocol):
    """The group of one run."""

    counted: bool
    alarm: (
        int | None
    )  # readable when memory ran out, where the kernel does not kill the whole run

    def limit(self, memory_bytes: int, processes: int) -> None: ...
    def cpu_ns(self) -> int | None: ...
    def peak_memory(self) -> int | None: ...
    def memory_exceeded(self) -> bool: ...
    def processes_refused(self) -> bool: ...
    def kill(self) -> None: ...
    def remove(self) -> bool: ...


class Driver(Protocol):
    mode: str

    def place(self, pid: int, name: str) -> Leaf: ...
    def clean(self) -> int: ...


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
    counted = False
    alarm: int | None = None

    def limit(self, memory_bytes: int, processes: int) -> None:
        """Nothing to write: the process limits of stage 2 stand alone."""

    def cpu_ns(self) -> int | None:
        return None

    def peak_memory(self) -> int | None:
        return None

    def memory_exceeded(self) -> bool:
        return False

    def processes_refused(self) -> bool:
        return False

    def kill(self) -> None:
        """The caller kills process 1 of the run's pid namespace, which ends all."""

    def remove(self) -> bool:
        return True


class NoDriver:
    mode = "none"

    def place(self, pid: int, name: str) -> Leaf:
        return NoLeaf()

    def clean(self) -> int:
        return 0


class V2Leaf:
    counted = True
    alarm: int | None = None

    def __init__(self, path: str) -> None:
        self._path = path

    def limit(self, memory_bytes: int, processes: int) -> None:
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


class V2Driver:
    mode = "v2"

    def __init__(self, root: Path) -> None:
        self._root = root
        self._swap = (root / "memory.swap.max").exists()

    def place(self, pid: int, name: str) -> Leaf:
        path = f"{self._root}/{_RUN_PREFIX}{name}"
        os.mkdir(path)
        if self._swap:
            write(f"{path}/memory.swap.max", "0")
        write(f"{path}/memory.oom.group", "1")
        write(f"{path}/cgroup.procs", str(pid))
        return V2Leaf(path)

    def clean(self) -> int:
        return clear_leftovers(self._root)


class HybridLeaf:
    counted = True

    def __init__(self, name: str, roots: dict[str, Path], unified: Path | None) -> None:
        leaf = f"{_RUN_PREFIX}{name}"
        self._memory, self._pids, self._cpu = (
            f"{roots[kind]}/{leaf}" for kind in V1_CONTROLLERS
        )
        self._unified = f"{unified}/{leaf}" if unified else None
        self.alarm: int | None = None
        self._paths = [self._memory, self._pids, self._cpu]
        if self._unified:
            self._paths.append(self._unified)

    def enter(self, pid: int) -> None:
        for path in self._paths:
            os.mkdir(path)
            write(f"{path}/cgroup.procs", str(pid))
        self.alarm = memory_alarm(self._memory)

    def limit(self, memory_bytes: int, processes: int) -> None:
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


class HybridDriver:
    """Without a `unified` directory of its own a run is killed through its pid namespace alone."""

    def __init__(self, roots: dict[str, Path], unified: Path | None) -> None:
        self._roots, self._unified = roots, unified
        self.mode = "hybrid" if unified else "v1"

    def place(self, pid: int, name: str) -> Leaf:
        leaf = HybridLeaf(name, self._roots, self._unified)
        leaf.enter(pid)
        return leaf

    def clean(self) -> int:
        roots = [*self._roots.values(), *([self._unified] if self._unified else [])]
        return sum(clear_leftovers(root) for root in roots)


def hierarchies(name: str) -> dict[str, Path]:
    """Where a tree called `name` stands or would stand, by controller; "v2" for the unified one."""
    if (MOUNT / "cgroup.controllers").exists():
        return {"v2": MOUNT / name}
    found = {
        kind: MOUNT / kind / name for kind in V1_CONTROLLERS if (MOUNT / kind).is_dir()
    }
    if (MOUNT / "unified" / "cgroup.procs").exists():
        found["v2"] = MOUNT / "unified" / name
    return found


def delegate(name: str, uid: int, gid: int) -> str:
    """As root, before sandboxd starts as `uid`: make its trees and give them away.

    Returns a line that names the mode to expect. Follow with `enter` once its pid is known:
    on v2 only a process inside the tree may move others within it.
    """
    trees = hierarchies(name)
    for kind, root in trees.items():
        for directory in (root, root / _OWN):
            directory.mkdir(exist_ok=True)
            _give_away(directory, uid, gid)
        if kind == "v2":
            _enable_controllers(root)
    return f"cgroups for {name}: {_expected(trees)}"


def enter(name: str, pid: int) -> None:
    """As root: move sandboxd itself into the v2 tree it was given."""
    root = hierarchies(name).get("v2")
    if root is not None:
        write(root / _OWN / "cgroup.procs", str(pid))


def choose(name: str) -> Driver:
    """The strongest driver that really works: every tree is tried with a group of its own."""
    trees = {
        kind: root for kind, root in hierarchies(name).items() if _usable(kind, root)
    }
    if "v2" in trees and _controls_memory(trees["v2"]):
        return V2Driver(trees["v2"])
    if all(kind in trees for kind in V1_CONTROLLERS):
        return HybridDriver(
            {kind: trees[kind] for kind in V1_CONTROLLERS}, trees.get("v2")
        )
    return NoDriver()


def clear_leftovers(root: Path) -> int:
    """Kill and remove the runs an earlier sandboxd left; returns how many there were."""
    leaves = [path for path in root.iterdir() if path.name.startswith(_RUN_PREFIX)]
    for leaf in leaves:
        for pid in read(leaf / "cgroup.procs").split():
            _kill(int(pid))
    for leaf in leaves:
        _remove_when_empty(leaf)
    return len(leaves)


def _remove_when_empty(leaf: Path) -> None:
    """Killed processes need a moment to leave; what stays is the next start's to remove."""
    for _ in range(200):
        if remove_directory(str(leaf)):
            return
        time.sleep(0.005)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return


def _give_away(directory: Path, uid: int, gid: int) -> None:
    os.chown(directory, uid, gid)
    for name in ("cgroup.procs", "cgroup.subtree_control", "tasks", "cgroup.threads"):
        if (directory / name).exists():
            os.chown(directory / name, uid, gid)


def _enable_controllers(root: Path) -> None:
    for directory in (root.parent, root):
        offered = (directory / "cgroup.controllers").read_text().split()
        wanted = [f"+{kind}" for kind in ("memory", "pids") if kind in offered]
        if wanted and not _write_if_allowed(
            directory / "cgroup.subtree_control", wanted
        ):
            return


def _write_if_allowed(path: Path, words: list[str]) -> bool:
    """False in a container whose own group has processes and no right to pass controllers on."""
    try:
        write(path, " ".join(words))
    except OSError:
        return False
    return True


def _controls_memory(root: Path) -> bool:
    enabled = (root / "cgroup.subtree_control").read_text().split()
    return {"memory", "pids"} <= set(enabled)


def _expected(trees: dict[str, Path]) -> str:
    if "v2" in trees and _controls_memory(trees["v2"]):
        return "v2"
    if all(kind in trees for kind in V1_CONTROLLERS):
        return "hybrid" if "v2" in trees else "v1"
    return "none"


def _usable(kind: str, root: Path) -> bool:
    """A group can be made here; for v2, this process is inside the tree as well."""
    probe = root / f"probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return (
        kind != "v2" or f"/{root.name}/{_OWN}" in Path("/proc/self/cgroup").read_text()
    )
