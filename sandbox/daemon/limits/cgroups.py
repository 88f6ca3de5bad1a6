"""One control group per run, on whichever hierarchies this machine offers.

v2: memory and pids there. hybrid: they are v1, and v2 only kills. none: nothing is counted.
A leaf is entered before its job begins, so peak memory and CPU time are the run's own.

The tree as a whole weighs less than one process outside of it, so that runs, however many processes
they have, give way to the web and the database; within the tree each run weighs the same. Without
a controller for that, each process of a run is nice instead.
"""

import hashlib
import os
import secrets
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Protocol

from sandbox.daemon.limits.cgroup_leaves import (
    RUN_PREFIX,
    V1_CONTROLLERS,
    HybridLeaf,
    Leaf,
    NoLeaf,
    V2Leaf,
    read,
    remove_directory,
    write,
)
from sandbox.daemon.run_accounts import OURS, SandboxAccount

MOUNT = Path("/sys/fs/cgroup")
_OWN = "daemon"
_CPU = "cpu"
_WEIGHTS = {"cpu.weight": 50, "cpu.shares": 512}  # half of what anything else has


class Driver(Protocol):
    mode: str
    weighted: bool  # its tree weighs less than others

    def place(self, pid: int, account: SandboxAccount = OURS) -> Leaf: ...
    def clean(self) -> int: ...


class NoDriver:
    mode, weighted = "none", False

    def place(self, pid: int, account: SandboxAccount = OURS) -> Leaf:
        account.give_way(pid)
        return NoLeaf(pid)

    def clean(self) -> int:
        return 0


class V2Driver:
    mode = "v2"

    def __init__(self, root: Path) -> None:
        self._root = root
        self._swap = (root / "memory.swap.max").exists()
        self.weighted = has_lower_weight(root)

    def place(self, pid: int, account: SandboxAccount = OURS) -> Leaf:
        if not self.weighted:
            account.give_way(pid)
        path = f"{self._root}/{RUN_PREFIX}{new_name()}"
        os.mkdir(path)
        if self._swap:
            write(f"{path}/memory.swap.max", "0")
        write(f"{path}/memory.oom.group", "1")
        write(f"{path}/cgroup.procs", str(pid))
        return V2Leaf(path)

    def clean(self) -> int:
        return remove_orphaned_groups(self._root)


class HybridDriver:
    """Without a `unified` directory of its own a run is killed through its pid namespace alone."""

    def __init__(self, roots: dict[str, Path], unified: Path | None) -> None:
        self._roots, self._unified = roots, unified
        self.mode = "hybrid" if unified else "v1"
        self.weighted = any(map(has_lower_weight, roots.values()))

    def place(self, pid: int, account: SandboxAccount = OURS) -> Leaf:
        if not self.weighted:
            account.give_way(pid)
        leaf = HybridLeaf(new_name(), self._roots, self._unified)
        try:
            leaf.enter(pid, account.enter)
        except OSError:
            leaf.remove()
            raise
        return leaf

    def clean(self) -> int:
        roots = [*self._roots.values(), *([self._unified] if self._unified else [])]
        return sum(remove_orphaned_groups(root) for root in roots)


def hierarchies(name: str) -> dict[str, Path]:
    """Where a tree called `name` is or would be, by controller; "v2" for the unified one."""
    if (MOUNT / "cgroup.controllers").exists():
        return {"v2": MOUNT / name}
    found = {kind: MOUNT / kind / name for kind in V1_CONTROLLERS if (MOUNT / kind).is_dir()}
    if (MOUNT / _CPU).is_dir() and not _is_one_hierarchy(MOUNT / _CPU, MOUNT / "cpuacct"):
        found[_CPU] = MOUNT / _CPU / name
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
        _lower_weight(root)
    return f"cgroups for {name}: {_expected(trees)}"


def enter(name: str, pid: int) -> None:
    """As root: move sandboxd itself into the v2 tree it was given."""
    root = hierarchies(name).get("v2")
    if root is not None:
        write(root / _OWN / "cgroup.procs", str(pid))


def choose(name: str) -> Driver:
    """The strongest driver that really works: every tree is tried with a group of its own."""
    trees = {kind: root for kind, root in hierarchies(name).items() if _usable(kind, root)}
    if "v2" in trees and _controls_memory(trees["v2"]):
        return V2Driver(trees["v2"])
    if all(kind in trees for kind in V1_CONTROLLERS):
        return HybridDriver(
            {kind: root for kind, root in trees.items() if kind != "v2"}, trees.get("v2")
        )
    return NoDriver()


def has_lower_weight(root: Path) -> bool:
    return any(
        (root / name).exists() and int(read(root / name)) <= weight
        for name, weight in _WEIGHTS.items()
    )


def remove_orphaned_groups(root: Path) -> int:
    """Kill and remove the runs of ours or of a dead sandboxd; returns how many there were."""
    found = [path for path in root.iterdir() if path.name.startswith(RUN_PREFIX)]
    if not found:
        return 0
    ours, alive = _own_token(), _is_alive()
    leaves = [path for path in found if not _belongs_to_another(path.name, ours, alive)]
    for leaf in leaves:
        for pid in _processes(leaf):
            _kill(pid)
    for leaf in leaves:
        _remove_when_empty(leaf)
    return len(leaves)


def new_name() -> str:
    """For a run's group. A run can read it, so it contains no number of the host."""
    return f"{_own_token()}-{secrets.token_hex(8)}"


@cache
def _own_token() -> str:
    return _token_of("self")


def _belongs_to_another(name: str, ours: str, alive: frozenset[str]) -> bool:
    """The name says which sandboxd made it; a probe beside a working one must leave it alone."""
    owner = name.removeprefix(RUN_PREFIX).partition("-")[0]
    return owner != ours and owner in alive


def _is_alive() -> frozenset[str]:
    return frozenset(_token_of(name) for name in os.listdir("/proc") if name.isdigit())


def _token_of(process: str) -> str:
    """Identifies a living process by its number and start time; empty for others."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")
        pid, rest = words[0].partition(" ")[0], words[2].split()
    except OSError:
        return ""
    if rest[0] in {"Z", "X"}:
        return ""
    return hashlib.sha256(f"{pid} {rest[19]}".encode()).hexdigest()[:16]


def _processes(leaf: Path) -> list[int]:
    """Empty for a group that is just being removed by the thread that clears up after runs."""
    try:
        return [int(pid) for pid in read(leaf / "cgroup.procs").split()]
    except OSError:
        return []


def _remove_when_empty(leaf: Path) -> None:
    """Killed processes need a moment to leave; what stays is the next start's to remove."""
    for _ in range(200):
        if remove_directory(str(leaf)):
            return
        time.sleep(0.005)


def _kill(pid: int) -> None:
    """Another user's ends with the process that started it."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, 9)


def _give_away(directory: Path, uid: int, gid: int) -> None:
    os.chown(directory, uid, gid)
    for name in ("cgroup.procs", "cgroup.subtree_control", "tasks", "cgroup.threads"):
        if (directory / name).exists():
            os.chown(directory / name, uid, gid)


def _enable_controllers(root: Path) -> None:
    for directory in (root.parent, root):
        offered = (directory / "cgroup.controllers").read_text().split()
        control = directory / "cgroup.subtree_control"
        wanted = [f"+{kind}" for kind in ("memory", "pids") if kind in offered]
        if wanted and not _write_if_allowed(control, wanted):
            return
        if _CPU in offered:  # by itself: it is refused where a process has a real-time priority
            _write_if_allowed(control, [f"+{_CPU}"])


def _lower_weight(root: Path) -> None:
    """Its files stay root's: who was given the tree cannot raise it."""
    for name, weight in _WEIGHTS.items():
        if (root / name).exists():
            _write_if_allowed(root / name, [str(weight)])


def _is_one_hierarchy(one: Path, other: Path) -> bool:
    """Two names of a hierarchy, as on most systems with v1."""
    return other.exists() and one.samefile(other)


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
    return kind != "v2" or f"/{root.name}/{_OWN}" in Path("/proc/self/cgroup").read_text()
