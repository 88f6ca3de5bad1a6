"""Bait: resources of the host that a run must not reach, laid out by sandboxd, and whether it did.

The attacker gets their paths, never their content: it can only know that by reading them.
"""

import os
import secrets
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from sandbox.daemon.subprocesses import start_child, wait_child
from sandbox.inside.attacks import Bait as Told

_NAMESPACES = ("user", "pid", "net", "ipc", "uts", "mnt", "cgroup")
_WAIT_FOR_ITS_END = "import sys; sys.stdin.read()"
_GONE_WITHIN_S = 1.0
_LOOK_AGAIN_S = 0.005


class Bait:
    """Use it as a context: then nothing of it stays. Raises OSError where it cannot be laid out."""

    def __init__(self) -> None:
        self.secret = secrets.token_hex(16)
        self.mark = f"tc{secrets.token_hex(6)}"  # the kernel keeps 15 characters of a name
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._directory = Path(tempfile.mkdtemp(prefix="toolcrib-bait-")).resolve()
            stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
            self._file = self._directory / "secret"
            self._file.write_text(self.secret, encoding="ascii")
            self.shared = self._directory / "shared"
            self.shared.mkdir()
            self._pid, self._pidfd = self._victim(stack)
            self._listeners = [stack.enter_context(one) for one in self._make_listeners()]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def describe(self, shared: str) -> Told:
        """What the attacker is given; `shared` is the path of the shared directory, or ""."""
        abstract, path, tcp, udp = self._listeners
        return {
            "file": str(self._file),
            "mark": self.mark,
            "pid": self._pid,
            "sandboxd": os.getpid(),
            "shared": shared,
            "abstract": abstract.getsockname()[1:].decode(),
            "socket": path.getsockname(),
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "namespaces": {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in _NAMESPACES},
        }

    def harm(self) -> dict[str, str]:
        """What is to be seen from outside, by what was done; "" where nothing was."""
        return {
            "end the host's process": "" if self._victim_lives() else "it is dead",
            "change the host's file": "" if self._file_is_whole() else "it is not as it was",
            "knock at the host's sockets": self._knocks(),
            "leave a set-id file or device behind": ", ".join(self._dangerous_files()),
            "outlive its run": self._survivors(),
        }

    def _victim(self, stack: ExitStack) -> tuple[int, int]:
        """A process with the secret in its environment, which ends with this one."""
        victim = start_child(
            [sys.executable, "-I", "-S", "-c", _WAIT_FOR_ITS_END],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"TOOLCRIB_BAIT": self.secret},
        )
        stack.callback(_end, victim)
        pidfd = os.pidfd_open(victim.pid)
        stack.callback(os.close, pidfd)
        return victim.pid, pidfd

    def _make_listeners(self) -> list[socket.socket]:
        places: list[tuple[int, int, Any]] = [
            (socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self.mark}"),
            (socket.AF_UNIX, socket.SOCK_STREAM, str(self._directory / "socket")),
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        ]
        return [_listener(*place) for place in places]

    def _victim_lives(self) -> bool:
        """Asked of its pidfd: another process may have reaped it."""
        return not _readable(self._pidfd)

    def _file_is_whole(self) -> bool:
        names = {entry.name for entry in self._directory.iterdir()}
        return names == {"secret", "shared", "socket"} and self._file.read_text() == self.secret

    def _knocks(self) -> str:
        names = ("abstract", "path", "TCP", "UDP")
        pairs = zip(names, self._listeners, strict=True)
        return ", ".join(name for name, listener in pairs if _readable(listener.fileno()))

    def _dangerous_files(self) -> list[str]:
        found = [(entry.name, entry.lstat().st_mode) for entry in self.shared.rglob("*")]
        return [name for name, mode in found if _is_dangerous(mode)]

    def _survivors(self) -> str:
        """Those found are ended: the doctor leaves nothing behind that it has let in."""
        deadline = time.monotonic() + _GONE_WITHIN_S
        while found := _processes_named(self.mark):
            if time.monotonic() > deadline:
                _kill(found)
                return f"{len(found)} of them"
            time.sleep(_LOOK_AGAIN_S)
        return ""


def _listener(family: int, kind: int, address: Any) -> socket.socket:
    listener = socket.socket(family, kind)
    listener.bind(address)
    if kind == socket.SOCK_STREAM:
        listener.listen()
    return listener


def _readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _is_dangerous(mode: int) -> bool:
    return bool(mode & (stat.S_ISUID | stat.S_ISGID)) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def _processes_named(mark: str) -> list[int]:
    """The processes that bear that name."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if Path(entry.path, "comm").read_text().strip() == mark:
                    found.append(int(entry.name))
            except OSError:
                continue  # it has just ended
    return found


def _kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _end(victim: subprocess.Popen[bytes]) -> None:
    victim.kill()
    assert victim.stdin is not None
    victim.stdin.close()
    wait_child(victim)
