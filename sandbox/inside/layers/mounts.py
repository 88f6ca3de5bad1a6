"""Mounts that stage 2 makes or tightens, while it still may."""

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterable

from sandbox.inside.layers import libc

NOBODY = 65534
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_SETATTR = 442
_READ_ONLY, _NO_SET_ID, _NO_DEVICES, _NO_PROGRAMS = 1, 2, 4, 8
_PLAIN = libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC
_DETACH = 2
PROXY_PORT = 3128
_PROXY = f"http://127.0.0.1:{PROXY_PORT}"
_SET_FLAGS = 0x8914
_UP = 1
_BACKLOG = 16


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


def proxy_listener() -> socket.socket:
    """Made in the run's own network namespace, where it stays: the broker accepts from outside."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", PROXY_PORT))
    listener.listen(_BACKLOG)
    return listener


def announce_proxy() -> None:
    """The variables that programs read; both spellings are in use."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        os.environ[name] = _PROXY


def _set(path: str, wanted: int) -> None:
    attributes = struct.pack("=QQQQ", wanted, 0, 0, 0)
    size = ctypes.c_size_t(len(attributes))
    libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), _AT_RECURSIVE, attributes, size)
