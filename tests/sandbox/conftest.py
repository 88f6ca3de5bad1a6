"""A real sandboxd for the whole session, and a short way to run something in it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.client import SandboxClient
from sandbox.daemon import account_helper
from sandbox.spec import CodeSource, IsolationLevel, Limits, Profile, SandboxResult, SandboxSpec
from tests.conditions import LIMIT_S, until

ROOT = Path(__file__).resolve().parents[2]
# Two suites may run on one machine at the same time.
GROUPS = f"toolcrib-test-{os.getpid()}"
STANDARD = Profile(IsolationLevel.STANDARD)

type RunIt = Callable[..., SandboxResult]


class Daemon:
    """A sandboxd process; `start` returns when it says that it is ready."""

    def __init__(
        self, directory: str, cgroup_root: str, *options: str, through: tuple[str, ...] = ()
    ) -> None:
        self.path = f"{directory}/s"
        self._command = [*through, sys.executable, "-m", "sandbox.daemon", "--socket", self.path]
        self._command += ["--allow-uid", str(os.getuid()), "--cgroup-root", cgroup_root, *options]
        self.facts: dict[str, dict[str, Any]] = {}
        self.log: list[str] = []

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, cwd=ROOT, env={}, stderr=subprocess.PIPE)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._note(line)
            if "ready" in self.facts:
                break
        threading.Thread(target=self._drain, daemon=True).start()
        self.client = SandboxClient(self.path)

    def _note(self, line: bytes) -> None:
        self.log.append(line.decode())
        fact = json.loads(line)
        self.facts[fact["event"]] = fact

    def _drain(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            for line in self.process.stderr:
                self._note(line)

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.client.close()
        self.process.send_signal(number)
        self.process.wait(LIMIT_S)

    def run(
        self,
        source: str,
        parameters: dict[str, Any] | None = None,
        *,
        organization: str = "acme",
        profile: Profile = STANDARD,
        cancelled: threading.Event | None = None,
        **limits: Any,
    ) -> SandboxResult:
        program = CodeSource(source)
        spec = SandboxSpec(organization, profile, Limits(**limits), program, parameters or {})
        return self.client.run(spec, cancelled=cancelled)


@pytest.fixture(scope="session")
def short_directory() -> Iterator[str]:
    """UNIX socket paths end at 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="tc") as directory:
        os.chmod(directory, 0o755)
        yield directory


@pytest.fixture
def tmp_path(short_directory: str) -> Path:
    """Writable by the sandbox user. Pytest's own directory has mode 0700, and every pytest session
    that starts on this machine sets that mode again."""
    place = Path(tempfile.mkdtemp(dir=short_directory))
    place.chmod(0o777)
    return place


@pytest.fixture(scope="session")
def daemon(short_directory: str) -> Iterator[Daemon]:
    one = Daemon(short_directory, GROUPS, "--allow-degraded")
    one.start()
    print(f"cgroup mode: {one.facts['cgroups']['mode']}", file=sys.__stderr__)
    yield one
    one.stop()
    remove_groups()


@pytest.fixture
def own_daemon() -> Iterator[Callable[..., Daemon]]:
    """Daemons a test may kill."""
    started: list[Daemon] = []
    with tempfile.TemporaryDirectory(prefix="tc") as directory:
        os.chmod(directory, 0o755)

        def make(
            *options: str, cgroup_root: str = f"{GROUPS}-own", through: tuple[str, ...] = ()
        ) -> Daemon:
            os.chmod(directory, 0o777 if through else 0o755)
            one = Daemon(directory, cgroup_root, *options, through=through)
            one.start()
            started.append(one)
            return one

        yield make
        for one in started:
            if one.process.poll() is None:
                one.stop()
        if os.getuid() == 0:
            account_helper.kill_left_over()  # as the next sandboxd does, where a helper was killed


def remove_groups(name: str = GROUPS) -> None:
    for tree in Path("/sys/fs/cgroup").glob(f"*/{name}*"):
        for directory in (*tree.glob("*/"), tree):
            until(lambda group=directory: is_removed(group))


def is_removed(group: Path) -> bool:
    """Not while the kernel is busy with the last process of a run."""
    try:
        group.rmdir()
    except OSError:
        return False
    return True


@pytest.fixture
def run(daemon: Daemon) -> RunIt:
    return daemon.run
