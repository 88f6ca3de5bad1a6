"""The isolation levels: which layers each has, and how many processes.

The table of the design: what a line says here is what `inside/stage2.py` and
`daemon/runs/launch.py` do.
"""

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from sandbox.spec import Backend, IsolationLevel, Limits

_ORDER = list(IsolationLevel)


class SystemCalls(StrEnum):
    """Which system calls there are: all but a few, an allow list, or one without new processes."""

    OPEN = "open"
    USUAL = "usual"
    THREADS_ONLY = "threads-only"


@dataclass(frozen=True)
class LevelLayers:
    """`namespaces` are users, processes, mounts, network, IPC, host name and cgroups."""

    namespaces: bool
    whole_usr: bool  # else /usr/lib and the interpreter alone
    proc: bool
    shared_memory: bool  # a private /dev/shm
    programs: bool  # Landlock: what lies in /usr may be executed; else nothing may
    landlock: bool
    calls: SystemCalls
    new_code: bool  # memory may become executable
    processes: int

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)


LAYERS = {
    IsolationLevel.NONE: LevelLayers(
        namespaces=False,
        whole_usr=True,
        proc=True,
        shared_memory=True,
        programs=True,
        landlock=False,
        calls=SystemCalls.OPEN,
        new_code=True,
        processes=256,
    ),
    IsolationLevel.STANDARD: LevelLayers(
        namespaces=True,
        whole_usr=True,
        proc=True,
        shared_memory=True,
        programs=True,
        landlock=True,
        calls=SystemCalls.USUAL,
        new_code=True,
        processes=64,
    ),
    IsolationLevel.STRICT: LevelLayers(
        namespaces=True,
        whole_usr=False,
        proc=False,
        shared_memory=False,
        programs=False,
        landlock=True,
        calls=SystemCalls.USUAL,
        new_code=True,
        processes=24,
    ),
    IsolationLevel.RESTRICTED: LevelLayers(
        namespaces=True,
        whole_usr=False,
        proc=False,
        shared_memory=False,
        programs=False,
        landlock=True,
        calls=SystemCalls.THREADS_ONLY,
        new_code=False,
        processes=24,
    ),
}


def at_least(level: IsolationLevel, wanted: IsolationLevel) -> bool:
    """True when `level` is as strong as `wanted`, or stronger."""
    return _ORDER.index(level) >= _ORDER.index(wanted)


def strongest(*levels: IsolationLevel) -> IsolationLevel:
    return max(levels, key=_ORDER.index)


def layers_of(level: IsolationLevel, backend: Backend) -> LevelLayers:
    """The layers a run has; without namespaces it is the degraded backend's Standard."""
    layers = LAYERS[level]
    return replace(layers, namespaces=False) if backend == Backend.DEGRADED else layers


def clamp_limits(level: IsolationLevel, limits: Limits, counted: bool) -> Limits:
    """The limits, with no more processes than the level has.

    Where no cgroup counts memory, a tree of processes could use more than it may: Strict, whose
    promise that would break, has one process then.
    """
    most = 1 if level == IsolationLevel.STRICT and not counted else LAYERS[level].processes
    return replace(limits, processes=min(limits.processes, most))
