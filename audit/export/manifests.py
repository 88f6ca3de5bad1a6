"""Manifests: the content of an evidence file, signed by the installation's manifest key.

A manifest is a signed note (https://c2sp.org/signed-note): the log's origin, one `name value` a
line, an empty line, the signatures.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from audit import shared_files


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
    descriptor = shared_files.open_to_write(draft, os.O_WRONLY | os.O_EXCL)
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
