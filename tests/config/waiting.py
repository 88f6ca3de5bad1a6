"""Waiting for what the system does, with a deadline instead of a guess."""

import time
from collections.abc import Callable
from pathlib import Path

DEADLINE_S = 30.0


def eventually[T](what: Callable[[], T], *, within_s: float = DEADLINE_S) -> T:
    """The first truthy answer of `what`."""
    deadline = time.monotonic() + within_s
    while not (answer := what()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return answer


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False


def using(directory: Path) -> list[int]:
    """Processes whose command line names the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(directory).encode() in words:
            found.append(int(entry.name))
    return found
