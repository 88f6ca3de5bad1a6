"""The directory of an organization's workspace on the host. Only the sandbox opens files in it."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from audit import shared_files


@lru_cache(maxsize=1024)
def workspace_path(organization: str) -> Path:
    """The organization's directory, made on first use and given to whom the workspaces belong; by
    sandboxd itself where this process may not."""
    root = Path(settings.WORKSPACES_DIR)
    root.mkdir(parents=True, exist_ok=True)
    place, owner = root / organization, root.stat()
    if os.geteuid() not in {0, owner.st_uid}:
        return place
    place.mkdir(mode=0o755, exist_ok=True)
    if place.stat().st_uid != owner.st_uid:
        os.chown(place, owner.st_uid, owner.st_gid, follow_symlinks=False)
    return place


class WorkspaceBusy(Exception):
    """Another writer held the lock for too long."""


@contextmanager
def workspace_lock(
    organization: str, within_s: float, stopped: Callable[[], bool]
) -> Iterator[None]:
    """One writer at a time, of all workers on this host. Raises `WorkspaceBusy`, also when it was
    stopped.

    The lock is on a file beside the workspaces: nothing inside the sandbox sees or holds it.
    """
    locks = Path(settings.WORKSPACES_DIR).parent / "workspace-locks"
    shared_files.make_directory(locks)
    held = shared_files.open_to_write(locks / organization, os.O_RDWR)
    try:
        _acquire_lock(held, time.monotonic() + within_s, stopped)
        yield
    finally:
        os.close(held)


def _acquire_lock(held: int, until: float, stopped: Callable[[], bool]) -> None:
    while True:
        try:
            return fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if stopped() or time.monotonic() > until:
                raise WorkspaceBusy from None
            time.sleep(0.005)
