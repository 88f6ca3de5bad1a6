"""Files and directories that several processes share.

Started by root, the processes of the product have accounts of their own, and `manage.py` runs as
root. What is made in a directory with the set-group-ID bit (config/local/datadir.py) has the
directory's group and mode, and of root its owner: an account that may use the directory may use all
that is in it. Files of any other directory belong to their creator alone.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO


def make_directory(path: Path) -> None:
    """Create the directory with its missing parents. Safe to repeat."""
    if path.is_dir():
        return
    make_directory(path.parent)
    above = path.parent.stat()
    path.mkdir(mode=0o700, exist_ok=True)
    if above.st_mode & stat.S_ISGID:
        _copy_owner(path, above)
        path.chmod(above.st_mode & 0o7777)


def open_to_write(path: Path, flags: int, *, private: bool = False) -> int:
    """A descriptor of a file, which is created where it is missing. A private one is its owner's
    alone in such a directory too. No link is followed: some directories are not only root's.
    """
    above = path.parent.stat()
    shared = above.st_mode & stat.S_ISGID and not private
    mode = above.st_mode & 0o660 if shared else 0o600
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        return os.open(path, flags)
    if above.st_mode & stat.S_ISGID:
        _copy_owner(descriptor, above)
        os.fchmod(descriptor, mode)
    return descriptor


class DigestWriter:
    """Counts and hashes what is written."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._sha256 = hashlib.sha256()
        self.size = 0

    def write(self, part: bytes) -> int:
        self._sha256.update(part)
        self.size += len(part)
        return self._out.write(part)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()


def write_atomically(
    path: Path, parts: Iterable[bytes], ready: Callable[[DigestWriter], None] | None = None
) -> DigestWriter:
    """Write a file atomically, with its directory, and sync it. `ready` is called before it gets
    its name."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = open_to_write(draft, os.O_WRONLY | os.O_EXCL)
    try:
        with os.fdopen(descriptor, "wb") as out:
            digest = DigestWriter(out)
            for part in parts:
                digest.write(part)
            out.flush()
            os.fsync(out.fileno())
        if ready is not None:
            ready(digest)
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_directory(path.parent)
    return digest


def sync_directory(directory: Path) -> None:
    """Sync the directory, so that the file's name survives a loss of power."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _copy_owner(made: int | Path, above: os.stat_result) -> None:
    if os.geteuid() == 0:
        os.chown(made, above.st_uid, above.st_gid)
