"""Ending a run that has no pid namespace: all that is left of its session.

The filter refuses such a run to leave its session, so this finds every process of it.
"""

import os
import signal
from collections.abc import Iterator


def kill(sessions: frozenset[int]) -> None:
    """Until none is left: one that is just forking may be missed by a first look."""
    while found := list(_members(sessions)):
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue


def _members(sessions: frozenset[int]) -> Iterator[int]:
    """Living processes of our own user whose session is one of these."""
    for name in os.listdir("/proc"):
        if name.isdigit() and _is_member(name, sessions):
            yield int(name)


def _is_member(name: str, sessions: frozenset[int]) -> bool:
    try:
        with open(f"/proc/{name}/stat", "rb") as file:
            state, _, _, session = file.read().rpartition(b")")[2].split()[:4]
        return (
            int(session) in sessions and state not in (b"Z", b"X") and uid_of(name) == os.geteuid()
        )
    except OSError:
        return False


def uid_of(name: str) -> int:
    """By its own word: the directory of one that cannot be dumped belongs to root."""
    with open(f"/proc/{name}/status") as file:
        uids = next(line for line in file if line.startswith("Uid:")).split()
    return int(uids[1])
