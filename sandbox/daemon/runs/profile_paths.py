"""Open the paths of a profile: exactly the named directory, without following links.

The descriptor is what gets mounted, so nothing can be exchanged between the check and the mount.
"""

import ctypes
import errno
import os
import stat
import struct
from typing import NamedTuple

from sandbox.errors import ErrorCode, RunRefused
from sandbox.inside.layers import libc
from sandbox.spec import Mount, Profile

_OPENAT2, _AT_FDCWD = 437, -100
_NO_MAGIC_LINKS, _NO_LINKS = 0x02, 0x04
_HOW = struct.Struct("=QQQ")
_INODE, _MOUNT, _UNIQUE_MOUNT = 0x100, 0x1000, 0x4000
_STATX_FIELDS = struct.Struct("=32xQ96xIIQ")  # inode, device (major, minor), mount
_ACCESS = {False: os.R_OK, True: os.R_OK | os.W_OK}
_REASONS = {
    errno.ENOENT: "there is no such path",
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.ELOOP: "the path leads through a symbolic link; name the place itself",
    errno.EACCES: "the sandbox's user may not pass to it",
}


def open_plainly(path: str) -> int:
    """A descriptor (O_PATH) of a file or directory. Raises OSError, ELOOP for any link."""
    how = _HOW.pack(os.O_PATH | os.O_CLOEXEC, 0, _NO_LINKS | _NO_MAGIC_LINKS)
    size = ctypes.c_size_t(len(how))
    return libc.syscall(_OPENAT2, _AT_FDCWD, os.fsencode(path), how, size)


def flaw_of(mount: Mount) -> str | None:
    """Why this mount cannot be made now, as an end of a sentence; None when it can."""
    try:
        os.close(_open(mount))
    except _UnfitPath as reason:
        return str(reason)
    return None


def open_mounts(profile: Profile) -> list[int]:
    """One descriptor for each mount, in order. Raises Refused with LAUNCH_FAILED."""
    opened: list[int] = []
    try:
        for mount in profile.mounts:
            opened.append(_open(mount))
    except _UnfitPath as reason:
        for descriptor in opened:
            os.close(descriptor)
        raise RunRefused(
            ErrorCode.LAUNCH_FAILED, f"{mount.target} cannot be mounted: {reason}"
        ) from None
    return opened


class FileIdentity(NamedTuple):
    """Which file or directory a path led to. While it is mounted, no other gets its numbers."""

    inode: int
    device: tuple[int, int]
    mount: int


type Sources = tuple[tuple[str, FileIdentity], ...]


def sources_of(profile: Profile, opened: list[int]) -> Sources:
    """The paths that are mounted, and what their descriptors are open on."""
    paths = (mount.source for mount in profile.mounts)
    return tuple(zip(paths, map(_identity, opened), strict=True))


def unchanged(known: Sources) -> bool:
    """Whether each path still leads to what it led to, and through no link."""
    return all(_find_identity(path) == identity for path, identity in known)


def _find_identity(path: str) -> FileIdentity | None:
    try:
        descriptor = open_plainly(path)
    except OSError:
        return None
    try:
        return _identity(descriptor)
    finally:
        os.close(descriptor)


def _identity(descriptor: int) -> FileIdentity:
    """Kernels before 6.8 give a mount's number to a later mount again."""
    answer = libc.statx(descriptor, _INODE | _MOUNT | _UNIQUE_MOUNT)
    inode, major, minor, mount = _STATX_FIELDS.unpack_from(answer)
    return FileIdentity(inode, (major, minor), mount)


class _UnfitPath(Exception):
    """The text says why, as an end of a sentence."""


def _open(mount: Mount) -> int:
    try:
        if mount.make:
            _make(mount.source)
        descriptor = open_plainly(mount.source)
    except OSError as error:
        raise _UnfitPath(_REASONS.get(error.errno or 0, "it cannot be opened")) from None
    flaw = _flaw_in(descriptor, mount.writable)
    if flaw is not None:
        os.close(descriptor)
        raise _UnfitPath(flaw)
    return descriptor


def _make(path: str) -> None:
    above = open_plainly(os.path.dirname(path))
    try:
        os.mkdir(os.path.basename(path), 0o755, dir_fd=above)
    except FileExistsError:
        pass
    finally:
        os.close(above)


def _flaw_in(descriptor: int, writable: bool) -> str | None:
    kind = os.fstat(descriptor).st_mode
    if not (stat.S_ISDIR(kind) or stat.S_ISREG(kind)):
        return "it is neither a file nor a directory"
    if not os.access(f"/proc/self/fd/{descriptor}", _ACCESS[writable]):
        return f"the sandbox's user may not {'write' if writable else 'read'} it"
    return None
