"""Anchors: published checkpoints of each log, kept outside the database, which reveal a rollback of
it.

A directory per log holds numbered files of JSON lines, which are appended to and thinned by age as
checkpoints are (`audit.log.checkpoint_retention`). An incomplete line (after a loss of power) is
ignored, and the next line goes into a new file.
"""

import fcntl
import json
import logging
import os
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings

from audit import shared_files
from audit.log import checkpoints, key_files
from audit.log.checkpoint_retention import KEEP_ALL_FOR, SLACK
from audit.log.checkpoints import Acceptance, BadNote, CheckpointStatement

log = logging.getLogger(__name__)
FULL_BYTES = 64 * 1024 * 1024
_TAIL_BYTES = 16 * 1024  # a line is about 500 bytes, and never near this


class BadAnchor(Exception):
    """A line that was written completely can no longer be read."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """Its note is trusted only as far as its signatures."""

    log: str
    note: str

    @property
    def statement(self) -> CheckpointStatement:
        """Raises `BadAnchor`."""
        try:
            return checkpoints.read_note(self.note)
        except BadNote as error:
            raise BadAnchor(f"an anchor of {self.log} cannot be read: {error}") from None

    @property
    def accepted(self) -> Acceptance | None:
        """Raises `BadAnchor`."""
        return self.statement.accepted


def anchor_line(anchor: Anchor) -> bytes:
    return json.dumps(asdict(anchor), ensure_ascii=False).encode() + b"\n"


def anchored_logs() -> list[str]:
    """The names of all logs of which something was published."""
    root = Path(settings.ANCHORS_DIR)
    found = root.iterdir() if root.is_dir() else ()
    return sorted({name for path in found if (name := _log_name(path)) is not None})


def newest_anchor(log_name: str) -> Anchor | None:
    """Raises `BadAnchor`."""
    return _last_anchor(_log_directory(log_name))


def read_anchors(log_name: str) -> Iterator[Anchor]:
    """From the first on, also what is published meanwhile. Raises `BadAnchor`."""
    done: list[Path] = []
    while left := [path for path in _anchor_files(_log_directory(log_name)) if path not in done]:
        yield from _read_file(left[0])
        done.append(left[0])


def _read_file(path: Path) -> Iterator[Anchor]:
    """Again from its beginning where it was thinned meanwhile: a line may come twice."""
    read = None
    while read != (read := path.stat().st_ino):
        with path.open("rb") as lines:
            yield from (_parse_line(line, path) for line in lines if line.endswith(b"\n"))


def has_anchors() -> bool:
    """Whether this machine has anchors; a worker may be on another one."""
    return Path(settings.ANCHORS_DIR).is_dir()


def append_anchor(log_name: str, note: str) -> None:
    """On the disk when it returns. One that is older than the newest adds nothing, unless it says
    that a break was accepted."""
    anchor = Anchor(log_name, note)
    directory = _log_directory(log_name)
    shared_files.make_directory(directory)
    with _locked_directory(directory):
        if anchor.accepted is not None or _is_newer(anchor, directory):
            _write_anchor(directory, anchor)
    size = anchor.statement.size
    log.info("checkpoint", extra={"log": log_name, "size": size, "note": note})


def thin_anchors(log_name: str) -> int:
    """Remove lines that a later one of their hour covers, and that are older than the last day; how
    many. Every file keeps a line. Raises `BadAnchor`."""
    directory = _log_directory(log_name)
    newest = _last_anchor(directory)
    if newest is None:
        return 0
    before = newest.statement.at - KEEP_ALL_FOR - SLACK
    with _locked_directory(directory):
        return sum(_thin_file(path, before) for path in _anchor_files(directory))


def _thin_file(path: Path, before: datetime) -> int:
    gone = sum(covered for _, covered in _lines_of(path, before))
    if gone:
        kept = (line for line, covered in _lines_of(path, before) if not covered)
        shared_files.write_atomically(path, kept)
    return gone


def _lines_of(path: Path, before: datetime) -> Iterator[tuple[bytes, bool]]:
    """Each complete line, and whether the one after it covers it."""
    held, anchor = b"", None
    with path.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            following = _parse_line(line, path)
            if anchor is not None:
                yield held, _is_covered(anchor, following, before)
            held, anchor = line, following
    if anchor is not None:
        yield held, False


def _is_covered(anchor: Anchor, following: Anchor, before: datetime) -> bool:
    one, after = anchor.statement, following.statement
    plain = one.accepted is None and anchor.note.count("\n\u2014 ") == 1
    same_hour = f"{one.at:%Y%m%d%H}" == f"{after.at:%Y%m%d%H}"
    return plain and one.at < before and same_hour and one.size <= after.size


def _is_newer(anchor: Anchor, directory: Path) -> bool:
    last = _last_anchor(directory)
    if last is None:
        return True
    one, other = anchor.statement, last.statement
    return (one.size, one.at) > (other.size, other.at)


def newest_notes() -> dict[str, str]:
    """The newest note in each directory of a log, by the directory's name; empty where there is
    none that can be read."""
    return {path.name: _newest_note(path) for path in _log_directories()}


def copy_anchors(into: Path, until: Mapping[str, Container[str]]) -> None:
    """The files of every log, each up to the last line whose note is one of those `until` has for
    its directory; none of a log of which it has nothing. Where no such line is left, all of it."""
    for directory in _log_directories():
        if directory.name in until:
            _copy_directory(directory, into / directory.name, until[directory.name])


def restore_anchors(source: Path) -> None:
    """Copies of the directories below `source`, but for logs that have their anchors here already.

    Raises `BadAnchor` where those end before the copies do, and writes nothing then.
    """
    copies = sorted(source.iterdir()) if source.is_dir() else []
    kept = {path.name: path for path in _log_directories()}
    for path in copies:
        if path.name in kept and _newest_time(kept[path.name]) < _newest_time(path):
            raise BadAnchor(
                f"the anchors in {kept[path.name]} end before those of the backup: move them away"
            )
    for path in copies:
        if path.name not in kept:
            _copy_directory(path, Path(settings.ANCHORS_DIR) / path.name, frozenset())


def _log_directories() -> list[Path]:
    root = Path(settings.ANCHORS_DIR)
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def _newest_note(directory: Path) -> str:
    try:
        last = _last_anchor(directory)
    except BadAnchor:
        return ""
    return last.note if last else ""


def _newest_time(directory: Path) -> datetime:
    end = _newest_note(directory)
    return Anchor(directory.name, end).statement.at if end else datetime.min.replace(tzinfo=UTC)


def _copy_directory(directory: Path, into: Path, until: Container[str]) -> None:
    files = _anchor_files(directory)
    ends = {path: end for path in files if (end := _end_of_last(path, until)) is not None}
    last = max(ends, default=None)
    into.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    into.mkdir(mode=0o700)
    for path in files:
        if last is None or path < last:
            _copy_bytes(path, into / path.name)
        elif path == last:
            _copy_bytes(path, into / path.name, ends[path])


def _end_of_last(path: Path, notes: Container[str]) -> int | None:
    """Where the last line ends that has one of the notes."""
    end = position = 0
    with path.open("rb") as lines:
        for line in lines:
            position += len(line)
            with suppress(BadAnchor):
                end = position if _parse_line(line, path).note in notes else end
    return end or None


def _copy_bytes(source: Path, target: Path, most: int = -1) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with source.open("rb") as content, os.fdopen(os.open(target, flags, 0o600), "wb") as out:
        out.write(content.read(most))


def _log_directory(log_name: str) -> Path:
    return Path(settings.ANCHORS_DIR) / key_files.safe_name(log_name)


def _log_name(directory: Path) -> str | None:
    try:
        last = _last_anchor(directory)
    except (BadAnchor, OSError):
        return directory.name  # as logs are usually named; the rest is checked on use
    return last.log if last is not None else None


def _anchor_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.jsonl")) if directory.is_dir() else []


def _last_anchor(directory: Path) -> Anchor | None:
    for path in reversed(_anchor_files(directory)):
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            return _parse_line(whole.rpartition(b"\n")[2], path)
    return None


def _parse_line(line: bytes, path: Path) -> Anchor:
    try:
        raw = json.loads(line)
        return Anchor(str(raw["log"]), str(raw["note"]))
    except (ValueError, TypeError, KeyError):
        raise BadAnchor(
            f"a line of the anchors in {path.parent.name}/{path.name} is damaged"
        ) from None


@contextmanager
def _locked_directory(directory: Path) -> Iterator[None]:
    """Two sealers do not write at once."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)  # a file that is new is in its directory
    finally:
        os.close(descriptor)


def _write_anchor(directory: Path, anchor: Anchor) -> None:
    line = anchor_line(anchor)
    flags = os.O_WRONLY | os.O_APPEND
    descriptor = shared_files.open_to_write(_file_to_write(directory), flags)
    with os.fdopen(descriptor, "wb") as out:
        out.write(line)
        out.flush()
        os.fsync(out.fileno())


def _file_to_write(directory: Path) -> Path:
    found = _anchor_files(directory)
    if found and _has_room(found[-1]):
        return found[-1]
    number = int(found[-1].stem) + 1 if found else 1
    return directory / f"{number:08}.jsonl"


def _has_room(path: Path) -> bool:
    size = path.stat().st_size
    if size == 0:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return size < FULL_BYTES and file.read(1) == b"\n"
