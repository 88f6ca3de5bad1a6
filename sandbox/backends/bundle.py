"""The directory of one container: its bundle and the state files of the runtime."""

import itertools
import os
from pathlib import Path

from sandbox.backends.runtimes import OciRuntime, Process, ProcessStreams, Started
from sandbox.daemon.daemon_log import log
from sandbox.daemon.runs import scratch
from sandbox.daemon.subprocesses import wait_child

_RUNTIME = "runtime"
_numbers = itertools.count(1)


class Bundle:
    """Named after the process that made it, so that a later one knows whether it is left over."""

    def __init__(self, path: Path, runtime: OciRuntime) -> None:
        self.path, self.runtime = path, runtime
        self._process: Process | None = None

    @classmethod
    def make(cls, root: str, runtime: OciRuntime) -> "Bundle":
        path = Path(root, f"toolcrib-{os.getpid()}-{next(_numbers)}")
        path.mkdir(mode=0o700)
        (path / _RUNTIME).write_text(runtime.name)
        return cls(path, runtime)

    def run(self, streams: ProcessStreams) -> Started:
        """Raises RuntimeFailed, OSError."""
        started = self.runtime.run(self.path, streams)
        self._process = started.process
        return started

    def end(self) -> None:
        """The process of ours that stays, with all that it started."""
        if self._process is not None:
            self._process.kill()
            wait_child(self._process)
            self._process = None

    def remove(self) -> None:
        """The container, should it still be there, and the directory with all that is in it."""
        self.end()
        self.runtime.delete(self.path)
        try:
            directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            log("bundle_left_behind", reason=str(error))
            return
        try:
            scratch.remove(directory)
        finally:
            os.close(directory)


def leftovers(root: str, runtimes: list[OciRuntime]) -> list[Bundle]:
    """Bundles whose maker has ended; those of a runtime that is no longer there stay."""
    known = {runtime.name: runtime for runtime in runtimes}
    found = []
    for path in Path(root).iterdir():
        runtime = known.get(_text(path / _RUNTIME))
        if runtime is not None and not _is_alive(path.name):
            found.append(Bundle(path, runtime))
    return found


def _is_alive(name: str) -> bool:
    owner = int(name.split("-")[1])
    if owner == os.getpid():
        return False
    try:
        os.kill(owner, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
