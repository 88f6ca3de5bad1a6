"""Key files outside the database, readable only for the processes that need them.

An attacker who can only write to the database can then forge neither a record nor a checkpoint.
"""

import hashlib
import hmac
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from audit import shared_files

ROOT_KEY_FILE = "audit-records.key"


class BadKey(ValueError):
    """A key file does not hold what it should; the message says which and what to do."""


def read_or_make(name: str, make: Callable[[], bytes], *, private: bool = False) -> bytes:
    """What the file in `KEYS_DIR` holds; written on first use, by the first of several writers. A
    private one is for the process alone to which the directory belongs."""
    path = path_of(name)
    if not path.exists():
        _write_key_file(path, make(), private)
    return path.read_bytes()


@lru_cache(maxsize=1)
def root_key() -> bytes:
    """32 bytes that every process of one installation shares. Raises `BadKey`, OSError."""
    key = read_or_make(ROOT_KEY_FILE, lambda: os.urandom(32))
    if len(key) != 32:
        raise BadKey(f"{ROOT_KEY_FILE} does not hold 32 bytes: restore it from a backup.")
    return key


@lru_cache(maxsize=1024)
def derived_key(purpose: str, organization: str) -> bytes:
    """A key of one organization for one purpose."""
    return hmac.digest(root_key(), f"{purpose}:{organization}".encode(), hashlib.sha256)


def path_of(name: str) -> Path:
    return Path(settings.KEYS_DIR) / name


def replace_key_file(name: str, content: bytes, *, private: bool = False) -> None:
    """Replace the file atomically, also at a loss of power."""
    with _draft(path_of(name), content, private) as draft:
        draft.replace(path_of(name))


def flush(directory: Path) -> None:
    """Sync the directory, so that names survive a loss of power."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_key_file(path: Path, content: bytes, private: bool) -> None:
    shared_files.make_directory(path.parent)
    flush(path.parent.parent)
    with _draft(path, content, private) as draft, suppress(FileExistsError):
        os.link(draft, path)  # of several writers the first one's key is the one


@contextmanager
def _draft(path: Path, content: bytes, private: bool) -> Iterator[Path]:
    """The content on the disk, to be given its name, which is on the disk afterwards."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = shared_files.open_to_write(draft, os.O_WRONLY | os.O_EXCL, private=private)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)
    flush(path.parent)
