"""Mounts that stage 2 makes or tightens, while it still may."""

import ctypes
import os
import struct
from collections.abc import Iterable

from sandbox.inside.layers import libc

NOBODY = 65534
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_SETATTR = 442
_READ_ONLY, _NO_SET_ID, _NO_DEVICES, _NO_PROGRAMS = 1, 2, 4, 8
_PLAIN = libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC
_DETACH = 2


def keep_private() -> None:
    """What is mounted on the host from now on, also below a shared path, does not appear here."""
    libc.mount("none", "/", flags=libc.MS_REC | libc.MS_PRIVATE)


def tighten(path: str, *, writable: bool) -> None:
    """No set-id bits, devices or programs there, nor in anything that is mounted below."""
    _set(path, _NO_SET_ID | _NO_DEVICES | _NO_PROGRAMS | (0 if writable else _READ_ONLY))


def freeze_devices(names: Iterable[str]) -> None:
    """They can be written to, but their inodes, which are the host's, cannot be touched."""
    for name in names:
        _set(f"/dev/{name}", _READ_ONLY)


def _set(path: str, wanted: int) -> None:
    attributes = struct.pack("=QQQQ", wanted, 0, 0, 0)
    size = ctypes.c_size_t(len(attributes))
    libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), _AT_RECURSIVE, attributes, size)


def scratch(path: str, size: int, inodes: int) -> None:
    """A private place in memory; what lies in it can be read and written, never executed."""
    options = f"size={size},nr_inodes={inodes},mode=700,uid={NOBODY},gid={NOBODY}"
    libc.mount("tmpfs", path, "tmpfs", _PLAIN, options)


def processes() -> int:
    """Mount the namespace's own /proc; returns a descriptor that outlives its unmounting."""
    libc.mount("proc", "/proc", "proc", _PLAIN, "hidepid=2,subset=pid")
    return os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def hide_processes() -> None:
    """Take away both: the namespace's own, and the template's below it."""
    for _ in range(2):
        libc.umount("/proc", _DETACH)
