"""The data directory: the owner of each part of it, and a lock against a second Toolcrib.

`OWNED_PATHS` lists, for a start by root, which process writes each path and which may read it. The
set-group-ID bit gives later files the same group (audit/shared_files.py). Files of an earlier
start, when all of them were root's, change their owner.
"""

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from audit.log import key_files
from audit.records import payloads
from config.local.unix_accounts import (
    BEAT_UID,
    CALLS_GID,
    DATABASE_GID,
    EVIDENCE_GID,
    PRODUCT,
    PRODUCT_GID,
    SEALER_UID,
    WEB_UID,
    WORKER_UID,
    sandbox_account,
)

UNFINISHED_RESTORE = "restore.unfinished"
LEAST_FREE_BYTES = 200 * 1024 * 1024


@dataclass(frozen=True)
class DataPath:
    """A directory with all that is in it, or a file; `path` is below the data directory. `others`
    are files in it, by the beginning of their names, that are not as the rest is."""

    path: str
    uid: int
    gid: int
    mode: int
    others: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def file_owner(self, name: str) -> tuple[int, int, int]:
        known = (owner for prefix, owner in self.others.items() if name.startswith(prefix))
        return next(known, (self.uid, self.gid, self.mode & 0o660))


OWNED_PATHS = (
    DataPath("secret_key", 0, DATABASE_GID, 0o640),
    DataPath("settings", 0, PRODUCT_GID, 0o2750),
    DataPath(
        "keys",
        SEALER_UID,
        EVIDENCE_GID,
        0o2750,
        {
            key_files.CURRENT: (SEALER_UID, SEALER_UID, 0o600),
            key_files.PREVIOUS: (SEALER_UID, SEALER_UID, 0o600),
            key_files.MANIFESTS: (0, WORKER_UID, 0o640),
            "signing.pem": (0, CALLS_GID, 0o640),
        },
    ),
    DataPath("keys/payloads", WORKER_UID, CALLS_GID, 0o2770),
    DataPath("keys/newest", WORKER_UID, CALLS_GID, 0o2770),
    DataPath("anchors", SEALER_UID, EVIDENCE_GID, 0o2750),
    DataPath("audit-archive", WORKER_UID, CALLS_GID, 0o2750),
    DataPath("audit-exports", WORKER_UID, CALLS_GID, 0o2770),
    DataPath("workspace-locks", WORKER_UID, WORKER_UID, 0o2700),
    DataPath("openapi", WEB_UID, WEB_UID, 0o2700),
    DataPath("beat", BEAT_UID, BEAT_UID, 0o2700),
    DataPath("metrics", WORKER_UID, PRODUCT_GID, 0o2750),
    DataPath("metrics/root", 0, CALLS_GID, 0o2750),
    *(
        DataPath(f"metrics/{name}", account.uid, CALLS_GID, 0o2770)
        for name, account in PRODUCT.items()
    ),
)


class DataDirectoryUnusable(Exception):
    """The data directory cannot be used now; the message says why and what to do."""


@contextmanager
def locked_directory(data: Path) -> Iterator[None]:
    """A context in which the directory is locked, and has the layout that the processes need."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        # The ordinary users that root hands out have places further in.
        data.chmod(0o700 if os.geteuid() else 0o711)
        lock = os.open(data / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DataDirectoryUnusable(_describe_error(error, data)) from error
    try:
        _lock_directory(lock, data)
        _check_restore(data)
        _check_space(data)
        sandbox_account().make_directory(data / "workspaces", 0o700)
        yield
    finally:
        os.close(lock)


def take_over(data: Path, anchors: Path, metrics: Path) -> None:
    """Set the owner of each part of the directory; started by a user, all of it is that user's.
    Raises OSError."""
    _move_former_files(data)
    if os.geteuid():
        return
    os.chown(data, 0, PRODUCT_GID)
    data.chmod(0o751)
    places = {_resolve_path(place, data, anchors, metrics): place for place in OWNED_PATHS}
    for path, place in places.items():
        if place.mode & stat.S_ISGID:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _set_tree_owner(path, place, {*places} - {path})
        elif path.exists():  # not where the setting has the value itself
            _set_owner(path, (place.uid, place.gid, place.mode))


def _resolve_path(place: DataPath, data: Path, anchors: Path, metrics: Path) -> Path:
    top, _, below = place.path.partition("/")
    return {"anchors": anchors, "metrics": metrics}.get(top, data / top) / below


def _move_former_files(data: Path) -> None:
    """Move files of earlier releases to their present paths."""
    keys, beat = data / "keys", data / "beat"
    for former in keys.glob(f"{payloads.FORMER}*.key"):
        (keys / payloads.DIRECTORY).mkdir(mode=0o700, exist_ok=True)
        former.rename(keys / payloads.DIRECTORY / former.name.removeprefix(payloads.FORMER))
    beat.mkdir(mode=0o700, exist_ok=True)
    for former in data.glob("beat-schedule*"):
        former.rename(beat / former.name.replace("beat-schedule", "schedule"))


def _set_tree_owner(top: Path, place: DataPath, others: set[Path]) -> None:
    """`others` are below it and have an entry of their own. No link is followed, nor anything given
    that has a second name: those to whom a directory belonged before may have left one there."""
    for directory, names, files, handle in os.fwalk(top, follow_symlinks=False):
        names[:] = [name for name in names if Path(directory, name) not in others]
        _set_owner(handle, (place.uid, place.gid, place.mode))
        for name in files:
            _set_file_owner(name, handle, place.file_owner(name))


def _set_file_owner(name: str, directory: int, wanted: tuple[int, int, int]) -> None:
    try:
        found = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:  # a link, a socket, or gone
        return
    try:
        kind = os.fstat(found)
        if stat.S_ISREG(kind.st_mode) and kind.st_nlink == 1:
            _set_owner(found, wanted)
    finally:
        os.close(found)


def _set_owner(what: int | Path, wanted: tuple[int, int, int]) -> None:
    uid, gid, mode = wanted
    found = os.stat(what)
    if (found.st_uid, found.st_gid) != (uid, gid):
        os.chown(what, uid, gid)
    if stat.S_IMODE(os.stat(what).st_mode) != mode:  # a change of owner takes bits away
        os.chmod(what, mode)


def _lock_directory(lock: int, data: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        raise DataDirectoryUnusable(
            f"Toolcrib already runs on {data} (process {holder}): stop it first,"
            " or set TOOLCRIB_DATA to another directory."
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)


def _check_restore(data: Path) -> None:
    if (data / UNFINISHED_RESTORE).exists():
        raise DataDirectoryUnusable(
            f"A restore into {data} did not come to its end: move away what it holds, and restore"
            " the backup again."
        )


def _check_space(data: Path) -> None:
    free = shutil.disk_usage(data).free
    if free < LEAST_FREE_BYTES:
        raise DataDirectoryUnusable(
            f"Only {free // 1024**2} MB are free in {data} and Toolcrib needs"
            f" {LEAST_FREE_BYTES // 1024**2} MB: free some, or set TOOLCRIB_DATA to another disk."
        )


def _describe_error(error: OSError, data: Path) -> str:
    if error.errno == errno.ENOSPC:
        return f"The disk of {data} is full: free some space, or set TOOLCRIB_DATA to another disk."
    return (
        f"{data} cannot be written ({error.strerror}): set TOOLCRIB_DATA to a directory of yours."
    )
