"""Clearing up after runs: what one of them left must not keep the group of another."""

import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from sandbox.daemon.limits.cgroup_leaves import NoLeaf
from sandbox.daemon.runs import scratch
from sandbox.daemon.runs.janitor import Janitor
from sandbox.daemon.runs.slot import SandboxSlot


class TellingLeaf(NoLeaf):
    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        self.removed = threading.Event()

    def remove(self) -> bool:
        self.removed.set()
        return True


def ended_slot(directory: Path) -> tuple[SandboxSlot, TellingLeaf]:
    """What is left of a run without a mount namespace."""
    directory.mkdir()
    (directory / "file").touch()
    process = subprocess.Popen(["/bin/true"])
    pidfd, leaf = os.pidfd_open(process.pid), TellingLeaf(process.pid)
    process.wait()
    channel, far = socket.socketpair()
    far.close()
    out, err = (os.open("/dev/null", os.O_RDONLY) for _ in range(2))
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    return SandboxSlot(
        process.pid, pidfd, channel, out, err, leaf, lambda: None, scratch=opened
    ), leaf


def test_a_directory_that_takes_long_keeps_no_other_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied, begun, remove = threading.Event(), threading.Event(), scratch.remove

    def slowly(directory: int, _stopped: object) -> None:
        begun.set()
        assert emptied.wait(20)
        remove(directory)

    monkeypatch.setattr(scratch, "remove", slowly)
    janitor = Janitor()
    wide, first = ended_slot(tmp_path / "wide")
    other, second = ended_slot(tmp_path / "other")
    before = len(os.listdir("/proc/self/fd"))
    janitor.clear(wide)
    assert begun.wait(10) and first.removed.is_set()
    janitor.clear(other)
    assert second.removed.wait(10)
    assert sorted(os.listdir(tmp_path)) == ["other", "wide"]
    emptied.set()
    janitor.close()
    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) <= before - 10
