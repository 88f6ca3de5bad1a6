"""Turn a fork of the template into a slot: apply every layer, report ready, then run one job.

Mounts come before the user namespace of the run, so that the run owns no namespace that could
change them; the filter comes last, since most of these steps are what it refuses.
"""

import array
import fcntl
import os
import signal
import socket
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple, NoReturn

from sandbox.inside import runner, sandbox_http
from sandbox.inside.filter import seccomp
from sandbox.inside.layers import landlock, libc, mounts, rlimits

_NAMESPACES = (
    os.CLONE_NEWNS | os.CLONE_NEWNET | os.CLONE_NEWIPC | os.CLONE_NEWUTS | os.CLONE_NEWCGROUP
)
_SHARED_MEMORY_BYTES = 8 << 20
_CHANNEL, _DOOR = 3, 4
_ABOVE_FIXED = 32


class Disk(NamedTuple):
    """What a run may keep in its private places."""

    size: int
    inodes: int


class Layers(NamedTuple):
    """The layers of a level, as `sandbox/levels.py` says them."""

    namespaces: bool
    whole_usr: bool
    proc: bool
    shared_memory: bool
    programs: bool
    landlock: bool
    calls: str
    new_code: bool
    processes: int


type Serve = Callable[[socket.socket, dict[str, ModuleType], int], NoReturn]


class Prepared(NamedTuple):
    """What the template worked out once for all its slots."""

    layers: Layers
    network: str
    scratch: str  # where a slot without a mount namespace makes its directory
    last_capability: int
    ruleset: landlock.Ruleset | None
    counting: seccomp.Counting
    filter: seccomp.SeccompFilter
    serve: Serve
    modules: dict[str, ModuleType]


class Slot:
    """The making of one slot. `announced` are the descriptors sandboxd gets, by name."""

    def __init__(self, prepared: Prepared, disk: Disk) -> None:
        self._prepared, self._disk = prepared, disk
        self._place = "/tmp"
        self._proc = -1
        self.announced: dict[str, int] = {}

    def enclose(self) -> int:
        """Put on every layer; returns how many bytes of data it had before its job."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        if self._prepared.layers.namespaces:
            self._separate()
        else:
            self._settle()
        self._open_channels()
        if self._prepared.layers.namespaces:
            _own_user_namespace(self._proc)
        data_bytes = rlimits.data_bytes(self._proc)
        self._give_up_power()
        runner.warm_up()
        self._close_in()
        return data_bytes

    def _separate(self) -> None:
        layers = self._prepared.layers
        os.unshare(_NAMESPACES)
        if self._prepared.network == "proxy":
            self.announced["proxy"] = mounts.proxy_listener().detach()
        mounts.scratch("/tmp", self._disk.size, self._disk.inodes)
        if layers.shared_memory:
            mounts.scratch("/dev/shm", _SHARED_MEMORY_BYTES, self._disk.inodes)
        self._proc = _moved_up(mounts.processes())
        if not layers.proc:
            mounts.hide_processes()
        os.chdir("/tmp")
        self.announced["tmp"] = os.open("/tmp", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _settle(self) -> None:
        """A directory on the host's disk; sandboxd removes it after the run."""
        self._place = f"{self._prepared.scratch}/run-{os.urandom(8).hex()}"
        os.mkdir(self._place, 0o700)
        os.environ["HOME"] = os.environ["TMPDIR"] = self._place
        os.chdir(self._place)
        self._proc = _moved_up(os.open("/proc", os.O_PATH | os.O_DIRECTORY))
        self.announced["scratch"] = os.open(self._place, os.O_RDONLY | os.O_DIRECTORY)

    def _open_channels(self) -> None:
        """Put channel, egress socket, stdout and stderr in their places; the far ends are
        announced."""
        pairs = {"channel": socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)}
        if self._prepared.network != "none":
            pairs["door"] = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        near = {name: _moved_up(ours.detach()) for name, (ours, _) in pairs.items()}
        far = {name: _moved_up(theirs.detach()) for name, (_, theirs) in pairs.items()}
        nothing = os.open("/dev/null", os.O_RDONLY)
        os.dup2(nothing, 0)  # its own: offset and flags of the template's are seen by all its slots
        os.close(nothing)
        for name, place in (("stdout", 1), ("stderr", 2)):
            read, write = os.pipe()
            far[name] = _moved_up(read)
            os.dup2(write, place)
        kept = {name: _moved_up(descriptor) for name, descriptor in self.announced.items()}
        self.announced = {"pidfd": _moved_up(os.pidfd_open(os.getpid())), **far, **kept}
        os.dup2(near["channel"], _CHANNEL, inheritable=False)
        if "door" in near:
            os.dup2(near["door"], _DOOR, inheritable=False)
            sandbox_http.open_door(_DOOR)

    def _give_up_power(self) -> None:
        rlimits.confine_slot()
        if self._prepared.layers.namespaces:
            libc.drop_all(self._prepared.last_capability)
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
        libc.prctl(libc.PR_SET_DUMPABLE, 0)
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)

    def _close_in(self) -> None:
        """Nothing is opened after this: who counts operations is not there yet."""
        layers = self._prepared.layers
        if not layers.new_code:
            libc.prctl(libc.PR_SET_MDWE, libc.MDWE_REFUSE_EXEC_GAIN)
        if self._prepared.ruleset is not None:
            self._prepared.ruleset.restrict([] if layers.namespaces else [self._place])
        listener = self._prepared.counting.listen()
        if listener is not None:
            self.announced["operations"] = listener


def become_slot(report: socket.socket, prepared: Prepared, disk: Disk, serial: bytes) -> NoReturn:
    """Run in the child, which is process 1 of a fresh pid namespace. Never returns."""
    slot = Slot(prepared, disk)
    try:
        data_bytes = slot.enclose()
    except OSError as error:
        report.send(b"failed " + serial + b" " + str(error).encode())
        os._exit(1)
    _announce(report, b"ready " + serial, slot.announced)
    rlimits.confine_descriptors()
    os.closerange(_DOOR + 1 if prepared.network != "none" else _DOOR, 1 << 20)
    prepared.filter.load()  # the last layer: it would have refused to announce
    prepared.serve(socket.socket(fileno=_CHANNEL), prepared.modules, data_bytes)


def _own_user_namespace(proc: int) -> None:
    """A namespace of its own makes RLIMIT_NPROC count this run alone."""
    os.unshare(os.CLONE_NEWUSER)
    for name, text in (
        ("setgroups", b"deny"),
        ("uid_map", b"%d %d 1" % (mounts.NOBODY, mounts.NOBODY)),
        ("gid_map", b"%d %d 1" % (mounts.NOBODY, mounts.NOBODY)),
    ):
        file = os.open(f"self/{name}", os.O_WRONLY, dir_fd=proc)
        os.write(file, text)
        os.close(file)


def _moved_up(descriptor: int) -> int:
    """A duplicate above all fixed numbers, so that no dup2 closes what is still needed."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_FIXED)
    os.close(descriptor)
    return moved


def _announce(report: socket.socket, text: bytes, announced: dict[str, int]) -> None:
    """The kernel adds this process's credentials: sandboxd learns its pid on the host."""
    names = " ".join(announced).encode()
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", announced.values()))
    report.sendmsg([text + b" " + names], [rights])
