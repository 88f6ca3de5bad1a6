"""Started as root: give root away before anything is served, and keep what is needed reachable."""

import os
import sys
from pathlib import Path

from sandbox.daemon import cgroups
from sandbox.daemon.logs import log
from sandbox.inside import libc

SANDBOX_UID = 61917  # owns nothing; outside the ranges distributions hand out


def drop_root(cgroup_name: str) -> None:
    """Become SANDBOX_UID for good, with cgroup trees it may use."""
    take_cgroups(cgroup_name)
    os.unshare(os.CLONE_NEWNS)
    libc.mount("none", "/", flags=libc.MS_REC | libc.MS_SLAVE)
    make_reachable(Path(sys.base_prefix))
    os.setgroups([])
    os.setresgid(SANDBOX_UID, SANDBOX_UID, SANDBOX_UID)
    os.setresuid(SANDBOX_UID, SANDBOX_UID, SANDBOX_UID)


def take_cgroups(name: str) -> None:
    try:
        cgroups.delegate(name, SANDBOX_UID, SANDBOX_UID)
        cgroups.enter(name, os.getpid())
    except OSError as error:
        log("cgroups_not_delegated", reason=str(error))


def make_reachable(path: Path) -> None:
    """In this process's own mounts: an ancestor closed to others shows nothing but `path`."""
    closed = next((one for one in reversed(path.parents) if not one.stat().st_mode & 1), None)
    if closed is None:
        return
    held = os.open(path, os.O_PATH | os.O_CLOEXEC)
    libc.mount(
        "tmpfs",
        str(closed),
        "tmpfs",
        libc.MS_NOSUID | libc.MS_NODEV,
        "mode=755,size=1m",
    )
    path.mkdir(parents=True)
    libc.mount(f"/proc/self/fd/{held}", str(path), flags=libc.MS_BIND | libc.MS_REC)
    os.close(held)
