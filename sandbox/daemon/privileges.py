"""Started as root: give root away before anything is served, and keep what is needed reachable."""

import os
import sys
from pathlib import Path

from sandbox.daemon import cgroups
from sandbox.daemon.logs import log
from sandbox.inside import libc

_PACKAGE = Path(__file__).resolve().parent.parent
SANDBOX_UID = 61917  # owns nothing; outside the ranges distributions hand out


def drop_root(cgroup_name: str) -> None:
    """Become SANDBOX_UID for good, with cgroup trees it may use."""
    take_cgroups(cgroup_name)
    os.unshare(os.CLONE_NEWNS)
    libc.mount("none", "/", flags=libc.MS_REC | libc.MS_SLAVE)
    stay_reachable()
    os.setgroups([])
    os.setresgid(SANDBOX_UID, SANDBOX_UID, SANDBOX_UID)
    os.setresuid(SANDBOX_UID, SANDBOX_UID, SANDBOX_UID)


def take_cgroups(name: str) -> None:
    try:
        cgroups.delegate(name, SANDBOX_UID, SANDBOX_UID)
        cgroups.enter(name, os.getpid())
    except OSError as error:
        log("cgroups_not_delegated", reason=str(error))


def stay_reachable() -> None:
    """The interpreter, its packages and this one, for a user who may not pass all of the way."""
    make_reachable(Path(sys.base_prefix), Path(sys.prefix), _PACKAGE)


def make_reachable(*paths: Path) -> None:
    """In this process's own mounts: an ancestor closed to others shows nothing but `paths`."""
    hidden: dict[Path, dict[Path, int]] = {}
    for path in paths:
        closed = next((one for one in reversed(path.parents) if not one.stat().st_mode & 1), None)
        if closed is not None:
            hidden.setdefault(closed, {})[path] = os.open(path, os.O_PATH | os.O_CLOEXEC)
    for closed, held in hidden.items():
        _show_only(closed, held)


def _show_only(closed: Path, held: dict[Path, int]) -> None:
    plain = libc.MS_NOSUID | libc.MS_NODEV
    libc.mount("tmpfs", str(closed), "tmpfs", plain, "mode=755,size=1m")
    for path, descriptor in held.items():
        path.mkdir(parents=True, exist_ok=True)
        source = f"/proc/self/fd/{descriptor}"
        libc.mount(source, str(path), flags=libc.MS_BIND | libc.MS_REC)
        os.close(descriptor)
