"""Check the mounts of a container before it gets its job: the runtime is not trusted.

Runtimes find sources and targets by path, and not all of them make what lies below a mount
read-only as well. What differs from what was asked for is refused.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sandbox.backends.oci_bundle import writable_places
from sandbox.spec import Profile

_OF_THE_RUNTIME = ("/proc", "/dev")
_DATA = frozenset({"nosuid", "nodev", "noexec"})
_OPEN_PLAINLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class MountWrong(OSError):
    """The text says which, and what is wrong with it."""


class Mounted(NamedTuple):
    target: str
    options: frozenset[str]


def check_mounts(pid: int, profile: Profile, opened: list[int]) -> None:
    """`opened` are descriptors of the profile's sources, in order. Raises MountWrong, OSError."""
    there = _mounts_of(pid)
    for mount, source in zip(profile.mounts, opened, strict=True):
        if mount.target not in {one.target for one in there}:
            raise MountWrong(f"{mount.target} was not mounted")
        _check_same(f"/proc/{pid}/root{mount.target}", source, mount.target)
    for one in there:
        missing = _wanted(one.target, profile) - one.options
        if missing:
            raise MountWrong(f"{one.target} was mounted without {', '.join(sorted(missing))}")


def _check_same(path: str, source: int, target: str) -> None:
    descriptor = os.open(path, _OPEN_PLAINLY)
    try:
        if not os.path.sameopenfile(descriptor, source):
            raise MountWrong(f"{target} was exchanged while it was mounted")
    finally:
        os.close(descriptor)


def _wanted(target: str, profile: Profile) -> frozenset[str]:
    if _is_below(target, _OF_THE_RUNTIME):
        return frozenset()
    data = _DATA if _is_below(target, [one.target for one in profile.mounts]) else frozenset()
    if _is_below(target, writable_places(profile)):
        return _DATA
    return data | {"ro"} | ({"nosuid", "nodev"} if target != "/" else frozenset())


def _is_below(target: str, places: Iterable[str]) -> bool:
    return any(target == place or target.startswith(f"{place}/") for place in places)


def _mounts_of(pid: int) -> list[Mounted]:
    lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    return [_read(line.split(" ")) for line in lines]


def _read(words: list[str]) -> Mounted:
    """Fifth and sixth field; the kernel writes odd characters as octal numbers."""
    target = words[4].encode().decode("unicode_escape")
    return Mounted(target, frozenset(words[5].split(",")))
