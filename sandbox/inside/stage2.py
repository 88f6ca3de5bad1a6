"""From a fresh fork of the template to a slot: every layer on, then ready, then one job.

Mounts come before the user namespace of the run, so that the run owns no namespace that could
change them; the filter comes last, since most of these steps are what it refuses.
"""

import array
import fcntl
import os
import signal
import socket
from dataclasses import dataclass
from types import ModuleType
from typing import NoReturn

from sandbox.inside import capabilities, landlock, libc, rlimits, runner, seccomp

NOBODY = 65534
_TMP_INODES = 1024
_NAMESPACES = (
    os.CLONE_NEWNS | os.CLONE_NEWNET | os.CLONE_NEWIPC | os.CLONE_NEWUTS | os.CLONE_NEWCGROUP
)
_CHANNEL = 3
_ABOVE_FIXED = 32


@dataclass(frozen=True)
class Prepared:
    """What the template worked out once for all its slots."""

    last_capability: int
    ruleset: landlock.Ruleset
    filter: seccomp.Filter
    modules: dict[str, ModuleType]


def become_slot(
    report: socket.socket, prepared: Prepared, tmp_bytes: int, serial: bytes
) -> NoReturn:
    """Run in the child, which is process 1 of a fresh pid namespace. Never returns."""
    try:
        announced = _enclose(prepared, tmp_bytes)
    except OSError as error:
        report.send(b"failed " + serial + b" " + str(error).encode())
        os._exit(1)
    _announce(report, b"ready " + serial, announced)
    os.closerange(_CHANNEL + 1, 1 << 20)
    runner.serve_one(socket.socket(fileno=_CHANNEL), prepared.modules)


def _enclose(prepared: Prepared, tmp_bytes: int) -> list[int]:
    """Put on every layer; returns the descriptors sandboxd needs, own pidfd first."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.unshare(_NAMESPACES)
    _mount_private(tmp_bytes)
    announced = [os.pidfd_open(os.getpid()), *_open_channels()]
    _own_user_namespace()
    rlimits.confine_slot()
    capabilities.drop_all(prepared.last_capability)
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    prepared.ruleset.restrict()
    prepared.filter.load()
    runner.warm_up()
    return announced


def _mount_private(tmp_bytes: int) -> None:
    plain = libc.MS_NOSUID | libc.MS_NODEV
    size = f"size={tmp_bytes},nr_inodes={_TMP_INODES},mode=700,uid={NOBODY},gid={NOBODY}"
    libc.mount("tmpfs", "/tmp", "tmpfs", plain, size)
    libc.mount("proc", "/proc", "proc", plain | libc.MS_NOEXEC, "hidepid=2,subset=pid")
    os.chdir("/tmp")


def _own_user_namespace() -> None:
    """A namespace of its own makes RLIMIT_NPROC count this run alone."""
    os.unshare(os.CLONE_NEWUSER)
    for name, text in (
        ("setgroups", b"deny"),
        ("uid_map", b"%d %d 1" % (NOBODY, NOBODY)),
        ("gid_map", b"%d %d 1" % (NOBODY, NOBODY)),
    ):
        file = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(file, text)
        os.close(file)


def _open_channels() -> list[int]:
    """Put channel, stdout and stderr in their places; returns the far ends, in that order."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    # Duplicates above all fixed numbers, so that no dup2 below closes what is still needed.
    kept = [_moved_up(fd) for fd in (near.detach(), far.detach(), out_read, err_read)]
    os.dup2(out_write, 1)
    os.dup2(err_write, 2)
    os.dup2(kept[0], _CHANNEL, inheritable=False)
    return kept[1:]


def _moved_up(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_FIXED)


def _announce(report: socket.socket, text: bytes, descriptors: list[int]) -> None:
    """The kernel adds this process's credentials: sandboxd learns its pid on the host."""
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
    report.sendmsg([text], [rights])
