"""The data directory: who may pass through it, and that only one Toolcrib works on it."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.accounts import sandbox_account

UNFINISHED_RESTORE = "restore.unfinished"
LEAST_FREE_BYTES = 200 * 1024 * 1024


class Unusable(Exception):
    """The data directory cannot be used now; the message says why and what to do."""


@contextmanager
def held(data: Path) -> Iterator[None]:
    """The directory is ours while it lasts, and shaped as the processes need it."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        # The ordinary users that root hands out have places further in.
        data.chmod(0o700 if os.geteuid() else 0o711)
        lock = os.open(data / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unusable(_sentence(error, data)) from error
    try:
        _take(lock, data)
        _check_whole(data)
        _check_space(data)
        sandbox_account().own(data / "workspaces", 0o700)
        yield
    finally:
        os.close(lock)


def _take(lock: int, data: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        raise Unusable(
            f"Toolcrib already runs on {data} (process {holder}): stop it first,"
            " or set TOOLCRIB_DATA to another directory."
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)


def _check_whole(data: Path) -> None:
    if (data / UNFINISHED_RESTORE).exists():
        raise Unusable(
            f"A restore into {data} did not come to its end: move away what it holds, and restore"
            " the backup again."
        )


def _check_space(data: Path) -> None:
    free = shutil.disk_usage(data).free
    if free < LEAST_FREE_BYTES:
        raise Unusable(
            f"Only {free // 1024**2} MB are free in {data} and Toolcrib needs"
            f" {LEAST_FREE_BYTES // 1024**2} MB: free some, or set TOOLCRIB_DATA to another disk."
        )


def _sentence(error: OSError, data: Path) -> str:
    if error.errno == errno.ENOSPC:
        return f"The disk of {data} is full: free some space, or set TOOLCRIB_DATA to another disk."
    return (
        f"{data} cannot be written ({error.strerror}): set TOOLCRIB_DATA to a directory of yours."
    )
