"""Start a container from a bundle, check it, and assign it a control group, to get a slot."""

import os
import socket
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sandbox.backends.oci_bundle import Bundle, writable_places
from sandbox.backends.runtimes import ProcessStreams, RuntimeFailed, Started
from sandbox.daemon.limits.cgroup_leaves import Leaf
from sandbox.daemon.limits.cgroups import Driver
from sandbox.daemon.runs.janitor import remove_patiently
from sandbox.daemon.runs.slot import SandboxSlot
from sandbox.daemon.runs.template_process import close_all
from sandbox.inside import frames, guest
from sandbox.spec import Profile

_OF_THE_RUNTIME = ("/proc", "/dev")
_DATA = frozenset({"nosuid", "nodev", "noexec"})
_OPEN_PLAINLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_NOTE_BYTES = 4096
_PROCESSES_OF_A_KERNEL = 64


class KernelLeaf:
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


class BadMount(OSError):
    """The text says which, and what is wrong with it."""


class FoundMount(NamedTuple):
    target: str
    options: frozenset[str]


def check_mounts(pid: int, profile: Profile, opened: list[int]) -> None:
    """`opened` are descriptors of the profile's sources, in order. Raises MountWrong, OSError."""
    there = _mounts_of(pid)
    for mount, source in zip(profile.mounts, opened, strict=True):
        if mount.target not in {one.target for one in there}:
            raise BadMount(f"{mount.target} was not mounted")
        _check_same(f"/proc/{pid}/root{mount.target}", source, mount.target)
    for one in there:
        missing = _expected_options(one.target, profile) - one.options
        if missing:
            raise BadMount(f"{one.target} was mounted without {', '.join(sorted(missing))}")


@dataclass
class ContainerSlot(SandboxSlot):
    """Its last act is to have the container taken away; all its processes are gone by then."""

    take_away: Callable[[], None] = field(default=lambda: None)

    def close(self) -> None:
        super().close()
        self.take_away()


class ContainerLaunch:
    """A container on its way to becoming a slot. `undo` closes what was opened for it."""

    def __init__(self, bundle: Bundle, undo: ExitStack, timeout_s: float) -> None:
        self._bundle, self._undo, self._timeout_s = bundle, undo, timeout_s
        self._channel, self._theirs = socket.socketpair()
        self._out, self._out_write = os.pipe()
        self._err, self._err_write = os.pipe()
        undo.callback(self._channel.close)
        undo.callback(close_all, [self._out, self._err])

    def slot(self, profile: Profile, opened: list[int], driver: Driver) -> ContainerSlot:
        runtime, started = self._bundle.runtime, self._run()
        place = partial(driver.place, started.pid)
        # The processes of such a run are children of the one that is its kernel.
        leaf = self._early(place) if runtime.own_kernel else None
        runtime.open_gate(self._channel)
        self._await_ready()
        # It has answered: the number is still its own.
        pidfd = os.pidfd_open(started.pid)
        self._undo.callback(os.close, pidfd)
        self._check(started.pid, profile, opened)
        return ContainerSlot(
            pid=started.pid,
            pidfd=pidfd,
            channel=self._channel,
            stdout=self._out,
            stderr=self._err,
            order_next=_nothing,
            leaf=leaf or place(),
        )

    def _run(self) -> Started:
        near = ProcessStreams(self._theirs.fileno(), self._out_write, self._err_write)
        try:
            started = self._bundle.run(near)
        except RuntimeFailed as error:
            raise RuntimeFailed(f"{error}: {self._last_words()}") from None
        finally:
            self._theirs.close()
            close_all([self._out_write, self._err_write])
        return started

    def _await_ready(self) -> None:
        self._channel.settimeout(self._timeout_s)
        try:
            frames.send(self._channel, guest.GO)
            note = frames.FrameReader(self._channel, _NOTE_BYTES).read()
        except (BrokenPipeError, frames.ConnectionEnded, frames.FrameTooLarge):
            raise RuntimeFailed(f"its first process ended: {self._last_words()}") from None
        if note != guest.READY:
            raise RuntimeFailed(note.removeprefix(guest.FAILED).decode("utf-8", "replace"))
        self._channel.settimeout(None)

    def _check(self, pid: int, profile: Profile, opened: list[int]) -> None:
        if not self._bundle.runtime.own_kernel:
            check_mounts(pid, profile, opened)
        elif opened:
            raise BadMount(f"what {self._bundle.runtime.name} mounts cannot be looked at")

    def _early(self, place: Callable[[], Leaf]) -> Leaf:
        leaf = place()
        self._undo.callback(remove_patiently, leaf)
        self._undo.callback(self._bundle.end)
        return KernelLeaf(leaf, _PROCESSES_OF_A_KERNEL)

    def _last_words(self) -> str:
        os.set_blocking(self._err, False)
        try:
            words = os.read(self._err, _NOTE_BYTES).decode("utf-8", "replace").strip()
        except BlockingIOError:
            words = ""
        return words.splitlines()[-1] if words else "it said nothing"


def _check_same(path: str, source: int, target: str) -> None:
    descriptor = os.open(path, _OPEN_PLAINLY)
    try:
        if not os.path.sameopenfile(descriptor, source):
            raise BadMount(f"{target} was exchanged while it was mounted")
    finally:
        os.close(descriptor)


def _expected_options(target: str, profile: Profile) -> frozenset[str]:
    if _is_below(target, _OF_THE_RUNTIME):
        return frozenset()
    data = _DATA if _is_below(target, [one.target for one in profile.mounts]) else frozenset()
    if _is_below(target, writable_places(profile)):
        return _DATA
    return data | {"ro"} | ({"nosuid", "nodev"} if target != "/" else frozenset())


def _is_below(target: str, places: Iterable[str]) -> bool:
    return any(target == place or target.startswith(f"{place}/") for place in places)


def _mounts_of(pid: int) -> list[FoundMount]:
    lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    return [_read(line.split(" ")) for line in lines]


def _read(words: list[str]) -> FoundMount:
    """Fifth and sixth field; the kernel writes odd characters as octal numbers."""
    target = words[4].encode().decode("unicode_escape")
    return FoundMount(target, frozenset(words[5].split(",")))


def _nothing() -> None:
    """There is no stock to be refilled."""
