"""Directories on the host's disk for runs without a mount namespace, and their removal."""

import errno
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from sandbox.daemon.daemon_log import log

_TRIES, _PAUSE_S = 5, 0.1
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_root(path: str) -> str:
    """A directory of our own, empty; what an earlier sandboxd left there is removed.

    Raises OSError when another user owns it.
    """
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to somebody else")
    os.chmod(path, 0o700)
    root = os.open(path, _DIRECTORY)
    try:
        empty(root)
    finally:
        os.close(root)
    return path


def clear(path: str, *, whole: bool) -> None:
    """At the end, the directory itself too where it is `whole` ours.

    A slot that was being made when everything ended may put something there meanwhile.
    """
    for left in reversed(range(_TRIES)):
        try:
            make_root(path)
            if whole:
                os.rmdir(path)
        except OSError as error:
            if not left:
                log("scratch_left_behind", reason=str(error))
                return
            time.sleep(_PAUSE_S)
        else:
            return


def in_our_mounts(directory: int) -> int:
    """The same directory, once more: in the mounts of another user it is not ours to empty. Raises
    OSError, and leaves the one it was given open."""
    found = os.open(os.readlink(f"/proc/self/fd/{directory}"), _DIRECTORY)
    if not os.path.samestat(os.fstat(found), os.fstat(directory)):
        os.close(found)
        raise FileNotFoundError("it has been moved")
    os.close(directory)
    return found


def never() -> bool:
    return False


def remove(directory: int, stopped: Callable[[], bool] = never) -> None:
    """The directory behind the descriptor, with all that is in it; what is left when it is
    `stopped` goes by `clear`."""
    try:
        empty(directory, stopped)
        if not stopped():
            Path(os.readlink(f"/proc/self/fd/{directory}")).rmdir()
    except OSError as error:
        log("scratch_left_behind", reason=str(error))


def empty(directory: int, stopped: Callable[[], bool] = never) -> None:
    """Remove everything below, however deep or wide, with two descriptors and no recursion.

    What lies in a subdirectory is moved up, so that there never is a third floor. A run that
    ends meanwhile removes its own: what is gone already is looked at no more.
    """
    fresh = (f".moved-{number}" for number in count())
    while subdirectories := _remove_files(directory):
        for name in subdirectories:
            if stopped():
                return
            with suppress(FileNotFoundError):
                _remove_directory(directory, name, fresh.__next__)


def _remove_files(directory: int) -> list[str]:
    """Returns the names of what is left: the directories."""
    left = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                left.append(entry.name)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(entry.name, dir_fd=directory)
    return left


def _remove_directory(parent: int, name: str, fresh_name: Callable[[], str]) -> None:
    try:
        os.rmdir(name, dir_fd=parent)  # most are empty: one call instead of five
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        _flatten(parent, name, fresh_name)


def _flatten(parent: int, name: str, fresh_name: Callable[[], str]) -> None:
    # No process is left that could replace it with a link; its owner may have removed his own
    # access.
    os.chmod(name, 0o700, dir_fd=parent)
    directory = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        for below in _remove_files(directory):
            os.chmod(below, 0o700, dir_fd=directory)
            _move_up(below, directory, parent, fresh_name)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)


def _move_up(name: str, directory: int, parent: int, fresh_name: Callable[[], str]) -> None:
    """Under a name that is free there."""
    while True:
        target = fresh_name()
        try:
            os.stat(target, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(name, target, src_dir_fd=directory, dst_dir_fd=parent)
            return
