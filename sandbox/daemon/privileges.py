"""Drop root before anything is served, and keep needed files accessible.

One small process keeps it: `account_helper.py` starts templates as users of their own.
"""

import os
import stat
import sys
from pathlib import Path

from sandbox.daemon.daemon_log import log
from sandbox.daemon.limits import cgroups
from sandbox.inside.layers import libc

_PACKAGE = Path(__file__).resolve().parent.parent
SANDBOX_UID = 61917  # owns nothing; outside the ranges distributions hand out


def prepare_for_user(cgroup_name: str, uid: int) -> int:
    """As root: cgroup trees that this user may use, and mounts in which it reaches Python.
    How many groups of earlier runs were removed: only root can end runs of other users."""
    removed = _take_cgroups(cgroup_name, uid)
    os.unshare(os.CLONE_NEWNS)
    libc.mount("none", "/", flags=libc.MS_REC | libc.MS_SLAVE)
    stay_reachable()
    return removed


def drop_root(uid: int) -> None:
    """Become this user irrevocably; the parent-death signal stays what it was."""
    signal = libc.death_signal()
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    libc.prctl(libc.PR_SET_PDEATHSIG, signal)


def _take_cgroups(name: str, uid: int) -> int:
    try:
        cgroups.delegate(name, uid, uid)
        cgroups.enter(name, os.getpid())
        return sum(map(cgroups.remove_orphaned_groups, cgroups.hierarchies(name).values()))
    except OSError as error:
        log("cgroups_not_delegated", reason=str(error))
        return 0


def stay_reachable() -> None:
    """The interpreter, its packages and this one, for a user who may not pass all of the way."""
    make_reachable(Path(sys.base_prefix), Path(sys.prefix), _PACKAGE)


def make_reachable(*paths: Path) -> None:
    """In this process's own mounts: an ancestor closed to others shows nothing but `paths`."""
    hidden: dict[Path, dict[Path, int]] = {}
    for path in paths:
        closed = closed_ancestor(path)
        if closed is not None:
            hidden.setdefault(closed, {})[path] = os.open(path, os.O_PATH | os.O_CLOEXEC)
    for closed, held in hidden.items():
        cover(closed)
        for path, descriptor in held.items():
            make_mount_point(path, os.fstat(descriptor))
            source = f"/proc/self/fd/{descriptor}"
            libc.mount(source, str(path), flags=libc.MS_BIND | libc.MS_REC)
            os.close(descriptor)


def closed_ancestor(path: Path) -> Path | None:
    """The first directory on the way that others may not pass."""
    return next((one for one in reversed(path.parents) if not one.stat().st_mode & 1), None)


def cover(closed: Path) -> None:
    libc.mount("tmpfs", str(closed), "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "mode=755,size=1m")


def make_mount_point(path: Path, kind: os.stat_result) -> None:
    if stat.S_ISDIR(kind.st_mode):
        path.mkdir(parents=True, exist_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
