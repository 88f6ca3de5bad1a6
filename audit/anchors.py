"""What was published of each log, kept outside the database: who rolls it back cannot hide it.

A directory per log, in it numbered files of JSON lines that are only ever appended to. A line that
was begun and not ended (the power went) counts for nothing, and the next goes into a new file.
"""

import fcntl
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from django.conf import settings

from audit import checkpoints, files, signing
from audit.checkpoints import Acceptance, BadNote, Statement

log = logging.getLogger(__name__)
FULL_BYTES = 64 * 1024 * 1024
_TAIL_BYTES = 16 * 1024  # a line is about 500 bytes, and never near this


class BadAnchor(Exception):
    """A line that was written whole cannot be read any more."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """What its note says is to be believed only of who signed it."""

    log: str
    note: str

    @property
    def statement(self) -> Statement:
        """Raises `BadAnchor`."""
        try:
            return checkpoints.read(self.note)
        except BadNote as error:
            raise BadAnchor(f"an anchor of {self.log} cannot be read: {error}") from None

    @property
    def accepted(self) -> Acceptance | None:
        """Raises `BadAnchor`."""
        return self.statement.accepted


def logs() -> list[str]:
    """The names of all logs of which something was published."""
    root = Path(settings.ANCHORS_DIR)
    found = root.iterdir() if root.is_dir() else ()
    return sorted({name for path in found if (name := _log_in(path)) is not None})


def newest(log_name: str) -> Anchor | None:
    """Raises `BadAnchor`."""
    return _last_in(_directory(log_name))


def every(log_name: str) -> Iterator[Anchor]:
    """From the first on. Raises `BadAnchor`."""
    for path in _files(_directory(log_name)):
        with path.open("rb") as lines:
            yield from (_read(line, path) for line in lines if line.endswith(b"\n"))


def kept_here() -> bool:
    """Whether this machine has them; a worker of its own may be elsewhere."""
    return Path(settings.ANCHORS_DIR).is_dir()


def append(log_name: str, note: str) -> None:
    """On the disk when it returns. One that is older than the newest adds nothing, unless it says
    that a break was accepted."""
    anchor = Anchor(log_name, note)
    directory = _directory(log_name)
    files.make_directory(directory)
    with _locked(directory):
        if anchor.accepted is not None or _is_news(anchor, directory):
            _write(directory, anchor)
    size = anchor.statement.size
    log.info("checkpoint", extra={"log": log_name, "size": size, "note": note})


def _is_news(anchor: Anchor, directory: Path) -> bool:
    last = _last_in(directory)
    if last is None:
        return True
    one, other = anchor.statement, last.statement
    return (one.size, one.at) > (other.size, other.at)


def _directory(log_name: str) -> Path:
    return Path(settings.ANCHORS_DIR) / signing.plain(log_name)


def _log_in(directory: Path) -> str | None:
    try:
        last = _last_in(directory)
    except (BadAnchor, OSError):
        return directory.name  # as logs are usually named; whoever asks for it learns the rest
    return last.log if last is not None else None


def _files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.jsonl")) if directory.is_dir() else []


def _last_in(directory: Path) -> Anchor | None:
    for path in reversed(_files(directory)):
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            return _read(whole.rpartition(b"\n")[2], path)
    return None


def _read(line: bytes, path: Path) -> Anchor:
    try:
        raw = json.loads(line)
        return Anchor(str(raw["log"]), str(raw["note"]))
    except (ValueError, TypeError, KeyError):
        raise BadAnchor(
            f"a line of the anchors in {path.parent.name}/{path.name} is damaged"
        ) from None


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Two sealers do not write at once."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)  # a file that is new is in its directory
    finally:
        os.close(descriptor)


def _write(directory: Path, anchor: Anchor) -> None:
    line = json.dumps(asdict(anchor), ensure_ascii=False).encode() + b"\n"
    flags = os.O_WRONLY | os.O_APPEND
    descriptor = files.open_to_write(_file_to_write(directory), flags)
    with os.fdopen(descriptor, "wb") as out:
        out.write(line)
        out.flush()
        os.fsync(out.fileno())


def _file_to_write(directory: Path) -> Path:
    found = _files(directory)
    if found and _takes_more(found[-1]):
        return found[-1]
    number = int(found[-1].stem) + 1 if found else 1
    return directory / f"{number:08}.jsonl"


def _takes_more(path: Path) -> bool:
    size = path.stat().st_size
    if size == 0:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return size < FULL_BYTES and file.read(1) == b"\n"
