"""The OCI runtimes this machine may have, and how a container of each is started and ended.

runc and crun make a container and leave; its first process becomes sandboxd's. gVisor is a
program of many processes that stays: it gets a pid namespace, so that none of them outlives it.
"""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sandbox.daemon.subprocesses import start_child, wait_child

_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_PATIENCE_S = 20
# Waits for a line on stdin, which it reads no further; what it becomes then is in its group.
_GATE = ("/bin/sh", "-c", 'read -r _ && exec "$@"', "sh")
_APART = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"),
)

type Process = subprocess.Popen[bytes]


class RuntimeFailed(Exception):
    """The text is what went wrong, and what the runtime said last."""


class ProcessStreams(NamedTuple):
    """Descriptors that become stdin, stdout and stderr of the first process."""

    channel: int
    stdout: int
    stderr: int


class Started(NamedTuple):
    """`pid` is the process to kill; `process` is a child of ours that must be reaped."""

    pid: int
    process: Process | None = None


class OciRuntime(NamedTuple):
    """`own_kernel`: calls of a run are answered by a process, not by the kernel of this machine."""

    name: str
    program: str
    options: tuple[str, ...] = ()
    own_kernel: bool = False

    def run(self, bundle: Path, streams: ProcessStreams) -> Started:
        """Returns when the first process of the container is there, or will soon be."""
        if self.own_kernel:
            command = [*_GATE, *_APART, *self._command(bundle, "run", "--bundle", str(bundle))]
            process = _start(command, streams)
            return Started(process.pid, process)
        pid_file = bundle / "pid"
        words = ("run", "--detach", "--pid-file", str(pid_file), "--bundle", str(bundle))
        if _finish(_start(self._command(bundle, *words), streams)) != 0:
            raise RuntimeFailed("it made no container")
        return Started(int(pid_file.read_text()))

    def open_gate(self, channel: socket.socket) -> None:
        """Once the process that was started is in its control group."""
        if self.own_kernel:
            channel.sendall(b"\n")

    def delete(self, bundle: Path) -> None:
        """Also a container that still runs; nothing is wrong when there is none."""
        if not self.own_kernel:
            _finish(_start(self._command(bundle, "delete", "--force"), None))

    def _command(self, bundle: Path, *words: str) -> list[str]:
        places = ("--root", str(bundle / "state"), "--log", str(bundle / "log"))
        return [self.program, *places, *self.options, *words, bundle.name]


def _start(command: list[str], streams: ProcessStreams | None) -> Process:
    nothing = subprocess.DEVNULL
    return start_child(
        command,
        stdin=streams.channel if streams else nothing,
        stdout=streams.stdout if streams else nothing,
        stderr=streams.stderr if streams else nothing,
        env=_ENVIRONMENT,
        cwd="/",
    )


def _finish(process: Process) -> int:
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
    return wait_child(process)


def installed() -> Iterator[OciRuntime]:
    """Those on PATH, the strongest isolation first."""
    gvisor = ("--rootless", "--network=none", "--ignore-cgroups")
    for name, options, own_kernel in (
        ("runsc", gvisor, True),
        ("crun", ("--cgroup-manager=disabled",), False),
        ("runc", (), False),
    ):
        program = shutil.which(name, path=_ENVIRONMENT["PATH"])
        if program is not None:
            yield OciRuntime(name, program, options, own_kernel)
