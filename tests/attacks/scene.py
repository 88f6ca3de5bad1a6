"""What an attack could get hold of: things of the host that are there to be stolen or broken."""

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from sandbox.daemon.runs import scratch
from sandbox.spec import Limits
from tests.conditions import LIMIT_S, until
from tests.sandbox.run_observer import all_end

SLEEPER = "/bin/sleep"
_ROOT = Path(__file__).resolve().parents[2]
_LATE_S = 2
_SHARED_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
_HARMLESS_KINDS = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
_LOOKED_AT = 200  # entries of the arena


class Scene:
    """`uid` is the user on this machine that attacks run as, or that of sandboxd."""

    def __init__(self, uid: int, secret: str, *, without_sandbox: bool = False) -> None:
        self.uid, self.secret, self._without_sandbox = uid, secret, without_sandbox
        self.token = uuid4().hex[:8]
        self.base = Path(tempfile.mkdtemp(prefix="siege"))
        self.base.chmod(0o755)
        self._numbers = iter(range(1, 1 << 20))
        self._files()
        self._listeners = dict(self._listen())
        self.start_canary()
        self._start_services()
        self._before = self._state()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners.values():
            listener.close()
        for process in (self.canary, self.services):
            process.kill()
            process.communicate()
        self._shared.unlink()
        shutil.rmtree(self.base)

    def _files(self) -> None:
        (self.base / "secret").write_text(self.secret)
        (self.base / "open").write_text("anybody may write here")
        (self.base / "open").chmod(0o666)
        self.arena, self.gift = self.base / "arena", self.base / "gift"
        for directory in (self.arena, self.gift):
            directory.mkdir()
            directory.chmod(0o777)
        (self.gift / "note").write_text("read me")
        (self.gift / "note").chmod(0o666)
        shutil.copy("/usr/bin/id", self.gift / "id")
        (self.gift / "id").chmod(0o4755)
        self._shared = Path("/dev/shm", f"siege-{self.token}")
        self._shared.write_text(self.secret)

    def _listen(self) -> Iterator[tuple[str, socket.socket]]:
        yield "tcp", _bound(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        yield "udp", _bound(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        with suppress(OSError):  # a machine without IPv6
            yield "tcp6", _bound(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0))
        yield "unix", _bound(socket.AF_UNIX, socket.SOCK_STREAM, f"{self.base}/knock")
        (self.base / "knock").chmod(0o777)
        yield "abstract", _bound(socket.AF_UNIX, socket.SOCK_STREAM, f"\0siege-{self.token}")

    def start_canary(self) -> None:
        """Same user, secret in its environment: a process that may look at it has the secret."""
        other_user = {"user": self.uid, "group": self.uid, "extra_groups": ()}
        options: dict[str, Any] = other_user if os.geteuid() == 0 else {}
        command = [SLEEPER, "86400"]
        self.canary = subprocess.Popen(command, env={"SECRET": self.secret}, cwd="/", **options)
        until(self._canary_sleeps)

    def place_canary(self, uid: int) -> None:
        """Under this user, before an attack: one that has died until then counts for none."""
        if uid != self.uid or not self._canary_sleeps():
            self.uid = uid
            self._replace_canary()

    def _start_services(self) -> None:
        """Where runs may go that are allowed to; without a sandbox also a proxy for everything."""
        command = [sys.executable, "-m", "tests.attacks.services", str(self.port), self.secret]
        command += ["open"] if self._without_sandbox else []
        self.services = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=_ROOT)
        assert self.services.stdout is not None
        self.web_port = int(self.services.stdout.readline())

    @property
    def port(self) -> int:
        """Of the service on the loopback that no run may reach."""
        return int(self._listeners["tcp"].getsockname()[1])

    def next_marker(self) -> str:
        """At most 15 characters: the kernel keeps no longer names of processes."""
        return f"{self.token}{next(self._numbers):05}"

    def parameters(self, limits: Limits, *, sandboxed: bool) -> dict[str, Any]:
        """What an attack is given. Nothing of it is worth stealing."""
        ports = {
            name: listener.getsockname()[1]
            for name, listener in self._listeners.items()
            if listener.family != socket.AF_UNIX
        }
        return {
            "marker": self.next_marker(),
            "base": str(self.base),
            "secret": str(self.base / "secret"),
            "open": str(self.base / "open"),
            "arena": "/arena" if sandboxed else str(self.arena),
            "gift": "/gift" if sandboxed else str(self.gift),
            "abstract": f"siege-{self.token}",
            "ports": ports | {"web": self.web_port},
            "canary": self.canary.pid,
            "patience_s": 0.05 if self._without_sandbox else 2,
            # How far beyond its limit an attack tries to get. Who watches it may be late.
            "beyond_s": 0.1 if self._without_sandbox else _LATE_S,
            # How long it flees: without a sandbox nothing ends it.
            "flees_s": 1 if self._without_sandbox else LIMIT_S + 20,
            "limits": limits.to_wire(),
        }

    def knocks(self) -> tuple[str, ...]:
        """Who was called since the last time."""
        return tuple(name for name, one in self._listeners.items() if _was_called(one))

    def changes(self) -> tuple[str, ...]:
        now = self._state()
        keys = self._before.keys() | now.keys()
        changed = tuple(sorted(key for key in keys if self._before.get(key) != now.get(key)))
        self._before = now
        return changed

    def _state(self) -> dict[str, object]:
        watched = [self.base / "secret", self.base / "open", *self.gift.iterdir(), self.gift]
        found: dict[str, object] = {str(path): _look_of(path) for path in watched}
        found |= {path: _look_of(Path(path)) for path in _SHARED_DEVICES}
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        found["the mounts below it"] = [line for line in mounts if self.base.name in line]
        found["the host name"] = os.uname().nodename
        return found | {f"{one}'s content": one.read_bytes() for one in watched if one.is_file()}

    @contextmanager
    def meeting(self) -> Iterator[tuple[int, int]]:
        """Where a duel's first side tells that it is ready, and hears that the other has ended."""
        held = []
        for name in ("ready", "answer"):
            os.mkfifo(self.arena / name)
            (self.arena / name).chmod(0o666)
            held.append(os.open(self.arena / name, os.O_RDWR | os.O_NONBLOCK))
        try:
            yield held[0], held[1]
        finally:
            for descriptor in held:
                os.close(descriptor)
            _empty(self.arena)

    def traps(self) -> tuple[str, ...]:
        """What lies in the arena that would hurt who trusts it; then it is emptied."""
        found = tuple(_traps_below(self.arena))
        _empty(self.arena)
        return found

    def canary_is_dead(self) -> bool:
        """A dead one is replaced."""
        if self._canary_sleeps():
            return False
        self._replace_canary()
        return True

    def _canary_sleeps(self) -> bool:
        return self.canary.poll() is None and _state_of(self.canary.pid) == "S"

    def _replace_canary(self) -> None:
        self.canary.kill()
        self.canary.wait()
        self.start_canary()

    def survivors(self, marker: str = "", patience_s: float = LIMIT_S) -> int:
        """Processes that carry the marker, or any of this scene, and are not gone in time."""
        deadline = time.monotonic() + patience_s
        while found := list(_bearing(marker or self.token)):
            if not _all_end(found, deadline - time.monotonic()):
                return len(found)
        return 0

    def oldest(self, marker: str) -> int:
        """The first of the processes that carry the marker."""
        return min(_bearing(marker), key=_started_at)


def _bound(family: int, kind: int, address: Any) -> socket.socket:
    listener = socket.socket(family, kind | socket.SOCK_NONBLOCK)
    listener.bind(address)
    if kind == socket.SOCK_STREAM:
        listener.listen()
    return listener


def _was_called(listener: socket.socket) -> bool:
    called = False
    with suppress(BlockingIOError):
        while True:
            if listener.type & socket.SOCK_DGRAM:
                listener.recv(2048)
            else:
                listener.accept()[0].close()
            called = True
    return called


def _look_of(path: Path) -> object:
    look = path.lstat()
    times = (look.st_mtime_ns, look.st_ctime_ns) if not stat.S_ISCHR(look.st_mode) else ()
    return (look.st_mode, look.st_uid, look.st_gid, look.st_nlink, look.st_size, *times)


def _traps_below(directory: Path) -> Iterator[str]:
    with suppress(OSError):
        for number, (root, _, files, _) in enumerate(os.fwalk(directory, follow_symlinks=False)):
            if number > _LOOKED_AT:
                return
            for name in (".", *files[:_LOOKED_AT]):
                yield from _trap_at(os.path.join(root, name))


def _trap_at(path: str) -> Iterator[str]:
    look = os.lstat(path)
    if look.st_mode & 0o6000:
        yield f"set-id {path[-40:]!r}"
    if stat.S_IFMT(look.st_mode) not in _HARMLESS_KINDS:
        yield f"a special file {path[-40:]!r}"
    if os.path.basename(path).startswith("core"):
        yield "a core dump"


def _empty(directory: Path) -> None:
    for entry in os.scandir(directory):
        remove(entry.path)
    directory.chmod(0o777)


def remove(path: str) -> None:
    """However deep, wide or closed to its owner."""
    if os.path.islink(path) or not os.path.isdir(path):
        os.unlink(path)
        return
    os.chmod(path, 0o700)
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    scratch.empty(directory)
    os.close(directory)
    os.rmdir(path)


def _bearing(marker: str) -> Iterator[int]:
    wanted = marker.encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid() and wanted in _names_of(name):
            yield int(name)


def _state_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def _started_at(pid: int) -> int:
    """In ticks since the machine's start."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def _names_of(pid: str) -> bytes:
    found = b""
    with suppress(OSError):
        found = Path(f"/proc/{pid}/comm").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
    return found


def _all_end(pids: list[int], seconds: float) -> bool:
    """Also True when they have others in their places; False when there is no time left."""
    pidfds = [pidfd for pid in pids if (pidfd := _open_process(pid)) is not None]
    try:
        return seconds > 0 and all_end(pidfds, seconds)
    finally:
        for pidfd in pidfds:
            os.close(pidfd)


def _open_process(pid: int) -> int | None:
    with suppress(OSError):
        return os.pidfd_open(pid)
    return None
