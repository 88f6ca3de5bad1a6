"""Rollback protection: the newest version seen of each tool, stored outside the database, so that
write access to the database alone cannot roll it back.

One file per organization that is only appended to. A line is `seen <tool> <number>`,
`accept <tool> <number>` (an operator restored a backup) or `distrust <key>`.
"""

import logging
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from django.conf import settings

from audit import shared_files

log = logging.getLogger(__name__)


@dataclass
class SignatureFileState:
    """The content of one file up to `offset`."""

    offset: int = 0
    numbers: dict[UUID, int] = field(default_factory=dict)
    distrusted: set[str] = field(default_factory=set)

    def read(self, line: str) -> None:
        """An incomplete line, for example after a full disk, is ignored."""
        match line.split():
            case ["distrust", key_id]:
                self.distrusted.add(key_id)
            case ["seen" | "accept" as what, tool, number] if number.isdecimal():
                try:
                    identifier = UUID(tool)
                except ValueError:
                    return
                at_least = self.numbers.get(identifier, 0) if what == "seen" else 0
                self.numbers[identifier] = max(at_least, int(number))


FOLDER = "newest"


class Newest:
    """What this process has read of the files."""

    def __init__(self) -> None:
        self._known: dict[UUID, SignatureFileState] = {}
        self._lock = threading.Lock()

    def read_state(self, organization: UUID) -> SignatureFileState:
        """The current content. Read it before the rows that are compared with it."""
        with self._lock:
            known = self._known.setdefault(organization, SignatureFileState())
            _catch_up(known, _path(organization))
            return SignatureFileState(known.offset, dict(known.numbers), set(known.distrusted))

    def saw(self, organization: UUID, numbers: Mapping[UUID, int]) -> None:
        """Call it after the versions are committed."""
        known = self.read_state(organization).numbers
        newer = [(pk, number) for pk, number in numbers.items() if number > known.get(pk, 0)]
        try:
            append(organization, (f"seen {pk} {number}" for pk, number in newer))
        except OSError as error:
            log.error("the newest versions could not be noted: %s", error.strerror)

    def forget(self) -> None:
        self._known.clear()


newest = Newest()


def append(organization: UUID, lines: Iterable[str]) -> None:
    """One write, which begins a line of its own. Raises `OSError`."""
    text = "".join(f"\n{line}" for line in lines)
    if not text:
        return
    path = _path(organization)
    shared_files.make_directory(path.parent)
    descriptor = shared_files.open_to_write(path, os.O_WRONLY | os.O_APPEND)
    with os.fdopen(descriptor, "ab", buffering=0) as out:
        out.write(f"{text}\n".encode())
        os.fsync(out.fileno())


def as_of(text: str, numbers: Mapping[UUID, int]) -> str:
    """A file's lines without versions that were seen later than those `numbers` of tools were the
    newest. What was distrusted or accepted stays, whenever that was."""
    return "".join(f"{line}\n" for line in text.splitlines() if not _is_later(line, numbers))


def _is_later(line: str, numbers: Mapping[UUID, int]) -> bool:
    known = SignatureFileState()
    known.read(line)
    seen = line.startswith("seen ")
    return seen and any(number > numbers.get(tool, 0) for tool, number in known.numbers.items())


def _catch_up(known: SignatureFileState, path: Path) -> None:
    if not path.exists() or path.stat().st_size == known.offset:
        return
    with path.open("rb") as lines:
        lines.seek(known.offset)
        fresh = lines.read()
    whole = fresh[: fresh.rfind(b"\n") + 1]
    known.offset += len(whole)
    for line in whole.decode("ascii", "replace").splitlines():
        known.read(line)


def _path(organization: UUID) -> Path:
    return Path(settings.KEYS_DIR) / FOLDER / str(organization)
