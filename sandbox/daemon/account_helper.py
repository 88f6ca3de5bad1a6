"""The process of sandboxd that stays root: it starts templates under accounts of their own.

The kernel counts pages of pipes, descriptors that are being sent, timers and more by real user. So
each template, which is of one organization, runs as a user that nothing else on this machine runs
as. On the disk all files stay sandboxd's: what a template shares is mounted for it once more, and
in that mount sandboxd's user and the template's are exchanged (an ID-mapped mount).

It hears sandboxd alone, over a socket that no other process has, and chooses the users itself.
What it starts is not root any more before it is executed, and it kills and moves no process that
does not run as one of these users.
"""

import array
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from sandbox.daemon.limits.cgroup_leaves import RUN_PREFIX, write
from sandbox.daemon.privileges import closed_ancestor, cover, make_mount_point
from sandbox.daemon.run_accounts import MESSAGE_BYTES, MOST_DESCRIPTORS, lower_priority
from sandbox.daemon.runs.profile_paths import open_plainly
from sandbox.inside import session_kill
from sandbox.inside.layers import libc

UIDS = range(70_000, 90_000)  # below those that distributions give to containers
_KILLER = UIDS.stop  # what runs have no user in common with
_ANCILLARY = socket.CMSG_SPACE(4 * MOST_DESCRIPTORS)
# DAC_OVERRIDE, KILL, SETGID, SETUID, SYS_ADMIN, SYS_NICE, SETFCAP
_CAPABILITIES = (1, 5, 6, 7, 21, 23, 31)
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_EMPTY_PATH, _AT_RECURSIVE, _AT_CLOEXEC = 0x1000, 0x8000, 0x8_0000
_CLONE, _FROM_DESCRIPTOR, _TO_DESCRIPTOR = 1, 0x04, 0x40
_NO_SET_ID, _NO_DEVICES, _ID_MAPPED = 0x2, 0x4, 0x10_0000
_CLOSE_RANGE, _CLOSE_ON_EXEC = 436, 4
_LAST_ID = (1 << 32) - 2


class Start(NamedTuple):
    """What is to be executed. `numbers` are those that its descriptors get, in the order they are
    sent. `shared` are paths that are mounted for it, and the numbers of those that are to be open
    in their new mounts."""

    command: list[str]
    environment: dict[str, str]
    numbers: list[int]
    shared: list[tuple[str, int | None]]


class AccountRequestRefused(Exception):
    """Sandboxd hears the text."""


def fork(owner: int, groups: Iterable[Path]) -> tuple[socket.socket, int]:
    """Start it, as root and before there is a thread. Sandboxd's end, and its number."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MESSAGE_BYTES)
    pid = os.fork()
    if pid == 0:
        kept = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 3)
        os.closerange(3, kept)
        os.closerange(kept + 1, 1 << 20)
        serve(socket.socket(fileno=kept), owner, groups)
    theirs.close()
    return ours, pid


def serve(control: socket.socket, owner: int, groups: Iterable[Path]) -> NoReturn:
    """Until sandboxd is gone; what was started ends before this process does. `owner` is sandboxd's
    user, `groups` are the directories of cgroup version 1 in which runs have groups."""
    status = 1
    try:
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
        for capability in set(range(libc.last_capability() + 1)) - {*_CAPABILITIES}:
            libc.prctl(libc.PR_CAPBSET_DROP, capability)
        libc.capset(_CAPABILITIES)
        kill_left_over()
        AccountHelper(control, owner, tuple(groups)).serve()
        status = 0
    finally:
        os._exit(status)


class AccountHelper:
    def __init__(self, control: socket.socket, owner: int, groups: Sequence[Path]) -> None:
        self._control, self._owner, self._groups = control, owner, groups
        self._free = list(UIDS)
        self._claims: dict[int, socket.socket] = {}  # by user
        self._children: dict[int, tuple[int, int | None]] = {}  # by pidfd: pid, user
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def serve(self) -> None:
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor != self._control.fileno():
                    self._reap(descriptor)
                elif not self._hear():
                    self._kill_all()
                    return

    def _kill_all(self) -> None:
        """What the death of its template leaves alive, in no namespace and always forking."""
        for uid in {uid for _, uid in self._children.values() if uid is not None}:
            kill_all_of(uid)

    def _hear(self) -> bool:
        """One request; False when sandboxd is gone."""
        text, ancillary, _, _ = self._control.recvmsg(
            MESSAGE_BYTES, _ANCILLARY, socket.MSG_CMSG_CLOEXEC
        )
        received = _descriptors(ancillary)
        try:
            if text:
                self._obey(json.loads(text), received)
        finally:
            for descriptor in received:
                os.close(descriptor)
        return bool(text)

    def _obey(self, request: dict[str, Any], received: list[int]) -> None:
        match request.pop("kind"):
            case "start":
                self._answer(lambda: self._start(Start(**request), received))
            case "enter":
                self._answer(lambda: self._enter(**request))
            case "kill":
                with suppress(AccountRequestRefused, ProcessLookupError):
                    _check(received[0], request["uid"])
                    signal.pidfd_send_signal(received[0], signal.SIGKILL)
            case "kill_session":
                self._kill_session(held=received[0], **request)

    def _answer(self, work: Callable[[], tuple[dict[str, int], list[int]]]) -> None:
        answer: dict[str, Any]
        descriptors: list[int] = []
        try:
            answer, descriptors = work()
        except (OSError, AccountRequestRefused) as error:
            answer = {"flaw": str(error)}
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        self._control.sendmsg([json.dumps(answer).encode()], [rights] if descriptors else [])

    def _start(self, start: Start, received: list[int]) -> tuple[dict[str, int], list[int]]:
        uid, us = self._take_user(), os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(start, received, uid, self._owner, us)
        return {"uid": uid}, [self._watch(pid, uid)]

    def _take_user(self) -> int:
        """The user that was free for the longest time: what the last one left has gone. Raises
        `AccountRequestRefused`."""
        for _ in range(len(self._free)):
            uid = self._free.pop(0)
            claim = claim_user(uid)
            if claim is not None:
                self._claims[uid] = claim
                return uid
            self._free.append(uid)
        raise AccountRequestRefused(f"all {len(UIDS)} accounts of runs are in use")

    def _watch(self, pid: int, uid: int | None) -> int:
        pidfd = os.pidfd_open(pid)
        self._children[pidfd] = pid, uid
        self._poll.register(pidfd, select.POLLIN)
        return pidfd

    def _reap(self, pidfd: int) -> None:
        pid, uid = self._children.pop(pidfd)
        self._poll.unregister(pidfd)
        os.waitpid(pid, 0)
        os.close(pidfd)
        if uid is not None:
            kill_all_of(uid)  # bwrap was killed before its child could follow it
            self._claims.pop(uid).close()
            self._free.append(uid)

    def _enter(self, uid: int, pid: int, group: str | None) -> tuple[dict[str, int], list[int]]:
        """Into the groups of this name of version 1, where that is for root or the process's own
        user. Without a name it gives way to others by being nice."""
        pidfd = os.pidfd_open(pid)
        try:
            _check(pidfd, uid)
            if group is None:
                lower_priority(pid)
            elif "/" in group or not group.startswith(RUN_PREFIX):
                raise AccountRequestRefused(f"{group} is no group of a run")
            else:
                for directory in self._groups:
                    with suppress(FileNotFoundError):  # sandboxd does not use this hierarchy
                        write(directory / group / "cgroup.procs", str(pid))
        finally:
            os.close(pidfd)
        return {}, []

    def _kill_session(self, held: int, uid: int, leader: int) -> None:
        """With what that user may do, and as root to those who would kill it. It may take as long
        as the run resists; `held` is closed when it is done."""
        if uid not in UIDS:
            return
        pid = os.fork()
        if pid == 0:
            try:
                os.dup2(held, 3)
                os.closerange(4, 1 << 20)
                os.seteuid(uid)
                session_kill.kill(frozenset({leader}))
            finally:
                os._exit(0)
        self._watch(pid, None)


def claim_user(uid: int) -> socket.socket | None:
    """Held as long as the user is ours; None where another sandboxd of this machine has it. The
    kernel gives it up with the process that holds it."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0toolcrib-account-{uid}")
    except OSError:
        claim.close()
        return None
    return claim


def kill_left_over() -> None:
    """Of a sandboxd whose helper was killed: every process of a user that none of this machine
    has. Needs root."""
    users = set()
    for entry in os.scandir("/proc"):
        with suppress(FileNotFoundError):
            users.add(entry.stat().st_uid)
    for uid in users.intersection(UIDS):
        claim = claim_user(uid)
        if claim is not None:
            with claim:
                kill_all_of(uid)


def kill_all_of(uid: int) -> None:
    """Every process of this user, at one moment: none forks its way out of it. Needs root."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresuid(_KILLER, uid, _KILLER)  # and without capabilities it reaches no other
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for _, kind, data in ancillary:
        if kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


def _check(pidfd: int, uid: int) -> None:
    """Raises Refused for what is not a living process of a run with this user."""
    with open(f"/proc/self/fdinfo/{pidfd}") as file:
        pid = next(line for line in file if line.startswith("Pid:")).split()[1]
    try:
        with open(f"/proc/{pid}/status") as file:
            uids = next(line for line in file if line.startswith("Uid:")).split()[1:]
    except OSError:
        raise AccountRequestRefused(f"process {pid} has ended") from None
    look = select.poll()
    look.register(pidfd, select.POLLIN)
    if uid not in UIDS or set(uids) != {str(uid)} or look.poll(0):  # the number may be another's
        raise AccountRequestRefused(f"process {pid} does not run as {uid}")


def _become(start: Start, received: list[int], uid: int, owner: int, parent: int) -> NoReturn:
    """In the child, for paths may lie on slow file systems: no root any more, then the command.
    The last descriptor is where it says why that cannot be; it is closed with the command."""
    *received_descriptors, says = received
    descriptors = dict(zip(start.numbers, received_descriptors, strict=True))
    high = max(start.numbers) + 1
    says = fcntl.fcntl(says, fcntl.F_DUPFD_CLOEXEC, high)
    try:
        if start.shared:
            descriptors |= _mount(start.shared, descriptors, owner, uid)
        _arrange(descriptors, high)
        _drop_root(uid, parent)
        os.chdir("/")
        os.execve(start.command[0], start.command, start.environment)  # noqa: S606
    except BaseException as error:  # noqa: BLE001 - the outermost edge of this process
        os.write(says, str(error).encode())
    finally:
        os._exit(1)


def _arrange(descriptors: dict[int, int], high: int) -> None:
    """At their numbers, and all others closed when the command is executed."""
    moved = {
        number: fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, high) for number, one in descriptors.items()
    }
    libc.syscall(_CLOSE_RANGE, 3, ctypes.c_uint(_LAST_ID), _CLOSE_ON_EXEC)
    for number, descriptor in moved.items():
        os.dup2(descriptor, number)


def _drop_root(uid: int, parent: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    libc.capset(())
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise AccountRequestRefused("sandboxd is gone")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec keeps that
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _mount(
    shared: list[tuple[str, int | None]], descriptors: dict[int, int], owner: int, uid: int
) -> dict[int, int]:
    """Each path over itself, in mounts of this process alone; the descriptors of the new mounts.

    What leads there may be closed to others than `owner`: then it shows nothing but these paths.
    """
    opened = {path: _opened(path, number, descriptors) for path, number in shared}
    exchanged = _exchanging(owner, uid)
    trees = {Path(path): _mapped(descriptor, exchanged) for path, descriptor in opened.items()}
    os.unshare(os.CLONE_NEWNS)
    libc.mount("none", "/", flags=libc.MS_REC | libc.MS_SLAVE)
    outermost = [path for path in trees if trees.keys().isdisjoint(path.parents)]
    covered = {closed for path in outermost if (closed := closed_ancestor(path)) is not None}
    for closed in covered:
        cover(closed)
    for path in sorted(trees, key=lambda one: len(one.parts)):
        if path in outermost and not covered.isdisjoint(path.parents):
            make_mount_point(path, os.fstat(opened[str(path)]))
            _attach(trees[path], open_plainly(str(path)))
        else:
            _attach(trees[path], _open_same_file(str(path), opened[str(path)]))
    return {number: open_plainly(path) for path, number in shared if number is not None}


def _opened(path: str, number: int | None, descriptors: dict[int, int]) -> int:
    return open_plainly(path) if number is None else descriptors[number]


def _open_same_file(path: str, opened: int) -> int:
    """The path again, in other mounts: what it led to when sandboxd looked at it."""
    found = open_plainly(path)
    if not os.path.samestat(os.fstat(found), os.fstat(opened)):
        raise AccountRequestRefused(f"{path} leads elsewhere now")
    return found


def _mapped(descriptor: int, exchanged: int) -> int:
    """A second mount of what the descriptor is open on, and of all that is mounted below."""
    how = _AT_EMPTY_PATH | _AT_RECURSIVE
    tree = libc.syscall(_OPEN_TREE, descriptor, b"", how | _AT_CLOEXEC | _CLONE)
    wanted = struct.pack("=QQQQ", _NO_SET_ID | _NO_DEVICES | _ID_MAPPED, 0, 0, exchanged)
    libc.syscall(_MOUNT_SETATTR, tree, b"", how, wanted, ctypes.c_size_t(len(wanted)))
    return tree


def _attach(tree: int, target: int) -> None:
    libc.syscall(_MOVE_MOUNT, tree, b"", target, b"", _FROM_DESCRIPTOR | _TO_DESCRIPTOR)


def _exchanging(owner: int, uid: int) -> int:
    """A user namespace that only serves as a table: both users and groups are each other."""
    lines = ((0, 0, owner), (owner, uid, 1), (owner + 1, owner + 1, uid - owner - 1),
             (uid, owner, 1), (uid + 1, uid + 1, _LAST_ID - uid))  # fmt: skip
    table = "".join(f"{inside} {outside} {count}\n" for inside, outside, count in lines)
    ready, begun = os.pipe()
    over, ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ends)
            os.unshare(os.CLONE_NEWUSER)
            os.write(begun, b".")
            os.read(over, 1)
        finally:
            os._exit(0)
    os.close(begun)
    try:
        if not os.read(ready, 1):
            raise AccountRequestRefused("no user namespace can be made")
        for name in ("uid_map", "gid_map"):
            write(f"/proc/{pid}/{name}", table)
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for descriptor in (ready, over, ends):
            os.close(descriptor)
        os.waitpid(pid, 0)
