"""The log file of one process: appended by it, watched and rotated by the supervisor.

The process writes to the file itself, so no line is lost when the supervisor dies.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

MOST_BYTES = 10 * 1024 * 1024
MOST_READ = 256 * 1024
WORTH_TELLING = frozenset({"WARNING", "ERROR", "CRITICAL"})


class LogFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = path.stat().st_size if path.exists() else 0
        self.started_at = self.position

    def open(self) -> IO[bytes]:
        self.started_at = self.path.stat().st_size if self.path.exists() else 0
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return os.fdopen(descriptor, "wb")

    def new_lines(self) -> Iterator[str]:
        """Whole lines written since the last call; a flood is skipped, not read."""
        size = self.path.stat().st_size if self.path.exists() else 0
        self.position = max(min(self.position, size), size - MOST_READ)
        if size == self.position:
            return
        with self.path.open("rb") as source:
            source.seek(self.position)
            text = source.read(size - self.position)
        whole = text[: text.rfind(b"\n") + 1]
        self.position += len(whole)
        yield from whole.decode("utf-8", "replace").splitlines()

    def last_line(self) -> str:
        """The last line with words in it since the process was started."""
        if not self.path.exists():
            return ""
        with self.path.open("rb") as source:
            source.seek(max(self.started_at, self.path.stat().st_size - MOST_READ))
            lines = source.read().decode("utf-8", "replace").splitlines()
        return next((in_short(line) for line in reversed(lines) if line.strip()), "")

    def rotate(self) -> None:
        """Keeps one old file. The writer appends, so emptying the file under it is safe.

        Where there is no room for the copy the log stays as it is, and the room is for others.
        """
        if not self.path.exists() or self.path.stat().st_size <= MOST_BYTES:
            return
        old = self.path.with_suffix(".log.1")
        try:
            shutil.copyfile(self.path, old)
        except OSError:
            old.unlink(missing_ok=True)
            return
        os.truncate(self.path, 0)
        self.position = self.started_at = 0


def _fields(line: str) -> dict[str, object]:
    if not line.startswith("{"):
        return {}
    try:
        fields = json.loads(line)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def in_short(line: str) -> str:
    return str(_fields(line).get("message") or line).strip()[:300]


def worth_telling(line: str, alarming: str) -> str | None:
    """What the terminal shows of a line: warnings and worse, in short; else None."""
    if str(_fields(line).get("level", "")).upper() in WORTH_TELLING:
        return in_short(line)
    return in_short(line) if re.search(alarming, line) else None
