"""Keys that stand outside the database, in files only their owner can read.

Whoever can write to the database alone can then make neither a record nor a checkpoint.
"""

import hashlib
import hmac
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from django.conf import settings

RECORDS = "audit-records.key"


def read_or_make(name: str, make: Callable[[], bytes]) -> bytes:
    """What the file in `KEYS_DIR` holds; written on first use, by the first of several writers."""
    path = Path(settings.KEYS_DIR) / name
    if not path.exists():
        _write(path, make())
    return path.read_bytes()


@lru_cache(maxsize=1)
def root_key() -> bytes:
    """32 bytes that every process of one installation shares."""
    key = read_or_make(RECORDS, lambda: os.urandom(32))
    if len(key) != 32:
        raise ValueError(f"{RECORDS} does not hold 32 bytes: restore it from a backup.")
    return key


@lru_cache(maxsize=1024)
def derived(purpose: str, organization: str) -> bytes:
    """A key of one organization for one purpose."""
    return hmac.digest(root_key(), f"{purpose}:{organization}".encode(), hashlib.sha256)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was first; its key is the one
    finally:
        draft.unlink()
