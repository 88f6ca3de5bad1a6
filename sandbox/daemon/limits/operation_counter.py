"""The process that answers for every counted operation: one more, go on.

It is apart from sandboxd, so that a tool with a million operations costs sandboxd's threads
nothing. All it believes is what the kernel writes into a notification; it never looks at what a
pointer of a tool leads to, and decides nothing but that a run has used up its number, or the room
that it was granted: then the call waits until sandboxd has granted more, or ended the run.
"""

import array
import fcntl
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from typing import NamedTuple

from sandbox.daemon.daemon_log import log
from sandbox.inside.filter import seccomp, syscalls
from sandbox.inside.layers import libc

# The cells of a run in the shared memory. Sandboxd writes the limits, this process the others.
CELLS = range(12)
COUNT, LIMIT, STATE, GENERATION, BYTES, BYTES_LIMIT, NAMES, NAMES_LIMIT, *_REST = CELLS
WANTED_BYTES, WANTED_NAMES, TAKEN, LARGEST = _REST
_COUNTED_HERE = (COUNT, STATE, BYTES, NAMES, WANTED_BYTES, WANTED_NAMES, TAKEN)
CELL_BYTES = 8
FULL, OVER = 1, 2
UNLIMITED = (1 << 64) - 1

ADOPT, DROP, RESUME = b"A", b"D", b"R"
DESCRIPTORS = 3  # listener, alarm, and a directory of the run's private file system

_RECEIVE, _SEND, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082104
_NOTIFICATION = bytes(80)
_ID, _CALL, _ARGUMENTS = slice(0, 8), slice(16, 20), 32
_GO_ON = struct.pack("=qiI", 0, 0, 1)
_SYNCHRONOUS_WAKE_UP = 1
_ANCILLARY = socket.CMSG_SPACE(4 * DESCRIPTORS)
_FLAGS_ARGUMENT = {"open": 1, "openat": 2}
_O_TRUNC_BYTE, _O_TRUNC_BIT = 1, 0x02  # of the flags, which are little-endian
_O_CREAT, _O_TMPFILE = 0x40, 0x40_0000
# The index of the number of bytes among the arguments; None: behind a pointer, so anything.
_SIZES = {
    "write": 2, "pwrite64": 2, "ftruncate": 1, "truncate": 1, "fallocate": 3, "sendfile": 3,
    "copy_file_range": 4, "splice": 4, "writev": None, "pwritev": None, "pwritev2": None,
}  # fmt: skip
_MAKING = frozenset(
    {"creat", "link", "linkat", "mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat"}
)
_MESSAGE = struct.Struct("=cIQ")


type Growth = Callable[[bytes, int], tuple[int, int]]


class CounterMessage(NamedTuple):
    """From sandboxd; with ADOPT come the listener, the alarm and perhaps a directory. RESUME
    reports limits that were raised.

    `place` is where the run's cells are, and another run's after it was dropped; no two runs
    have the same generation.
    """

    kind: bytes
    place: int
    generation: int

    def pack(self) -> bytes:
        return _MESSAGE.pack(*self)


class CountedRun(NamedTuple):
    """A run whose operations are counted here. `waiting` are calls that there is no room for."""

    place: int
    cells: memoryview
    listener: int
    alarm: int
    directory: int | None
    waiting: list[bytes]

    def close(self) -> None:
        os.close(self.listener)
        os.close(self.alarm)
        if self.directory is not None:
            os.close(self.directory)


class Desk:
    def __init__(self, control: socket.socket, memory: memoryview) -> None:
        self._control, self._memory = control, memory
        self._by_listener: dict[int, CountedRun] = {}
        self._by_place: dict[int, CountedRun] = {}
        self._losing = _losing(os.uname().machine)
        self._growing = _growing(os.uname().machine)
        self._counted = _numbers(seccomp.COUNTED, os.uname().machine)
        self._taking = _numbers(seccomp.TAKING_AWAY, os.uname().machine)
        self._epoll = select.epoll()
        self._epoll.register(control.fileno(), select.EPOLLIN)

    def serve(self) -> None:
        """Until sandboxd closes its end."""
        control, served = self._control.fileno(), True
        while served:
            has_message = False
            for descriptor, event in self._epoll.poll():
                if descriptor == control:
                    has_message = True
                else:
                    self._attend(self._by_listener[descriptor], event)
            # Last: what it closes and opens may be a number that is still among the events.
            served = not has_message or self._obey()

    def _attend(self, line: CountedRun, event: int) -> None:
        if event & select.EPOLLIN:
            self._count(line)
        if event & select.EPOLLHUP:
            self._forget(line)  # no process of that run is left

    def _count(self, line: CountedRun) -> None:
        """The hottest lines of this process: some microseconds, with the kernel's part."""
        try:
            notification = fcntl.ioctl(line.listener, _RECEIVE, _NOTIFICATION)
        except OSError:
            return  # who asked was killed in the meantime
        if notification[_CALL] in self._growing and not self._fits(line, notification):
            line.waiting.append(notification)
            os.eventfd_write(line.alarm, 1)
            return
        self._answer(line, notification)

    def _answer(self, line: CountedRun, notification: bytes) -> None:
        if notification[_CALL] not in self._counted:
            self._let_go_on(line, notification)
            return
        cells = line.cells
        count, limit = cells[COUNT] + 1, cells[LIMIT]
        if count - limit > 1:
            return  # it is blocked until it is killed
        cells[COUNT] = count
        if line.directory is not None:
            self._look_at_disk(line, line.directory, notification)
        if count > limit:
            self._stop(line)
            return
        if not self._let_go_on(line, notification):
            cells[COUNT] = count - 1  # killed before it was done

    def _let_go_on(self, line: CountedRun, notification: bytes) -> bool:
        try:
            fcntl.ioctl(line.listener, _SEND, notification[_ID] + _GO_ON)
        except OSError:
            return False
        return True

    def _fits(self, line: CountedRun, notification: bytes) -> bool:
        """Whether it may grow by what this call may add; what it wants else is in its cells."""
        cells, call = line.cells, notification[_CALL]
        size, names = self._growing[call](notification, cells[LARGEST])
        if cells[BYTES] + size > cells[BYTES_LIMIT] or cells[NAMES] + names > cells[NAMES_LIMIT]:
            cells[WANTED_BYTES] = max(cells[WANTED_BYTES], size)
            cells[WANTED_NAMES] = max(cells[WANTED_NAMES], names)
            return False
        cells[BYTES] += size
        cells[NAMES] += names
        cells[TAKEN] += call in self._taking or names > 1
        return True

    def _resume(self, line: CountedRun) -> None:
        """What waited is tried again, in the order in which it came."""
        line.cells[WANTED_BYTES] = line.cells[WANTED_NAMES] = 0
        waiting = [*line.waiting]
        line.waiting.clear()
        for notification in waiting:
            if self._fits(line, notification):
                self._answer(line, notification)
            else:
                line.waiting.append(notification)
        if line.waiting:
            os.eventfd_write(line.alarm, 1)

    def _stop(self, line: CountedRun) -> None:
        line.cells[STATE] |= OVER
        os.eventfd_write(line.alarm, 1)

    def _look_at_disk(self, line: CountedRun, directory: int, notification: bytes) -> None:
        at = self._losing.get(notification[_CALL])
        if at is None or (at and not notification[at] & _O_TRUNC_BIT):
            return
        if is_full(directory):
            line.cells[STATE] |= FULL

    def _obey(self) -> bool:
        """One message; False when the sender is gone."""
        try:
            data, ancillary, _, _ = self._control.recvmsg(
                _MESSAGE.size, _ANCILLARY, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            return False
        if not data:
            return False
        message = CounterMessage(*_MESSAGE.unpack(data))
        if message.kind == RESUME:
            line = self._by_place.get(message.place)
            if line is not None and line.cells[GENERATION] == message.generation:
                self._resume(line)
            return True
        if message.place in self._by_place:
            self._forget(self._by_place[message.place])
        if message.kind == ADOPT:
            self._adopt(message, *_descriptors(ancillary))
        return True

    def _adopt(
        self, message: CounterMessage, listener: int, alarm: int, directory: int | None = None
    ) -> None:
        at = message.place * len(CELLS)
        cells = self._memory[at : at + len(CELLS)]
        if cells[GENERATION] != message.generation:  # else a process before this one counted it
            for cell in _COUNTED_HERE:
                cells[cell] = 0
            cells[GENERATION] = message.generation
        line = CountedRun(message.place, cells, listener, alarm, directory, [])
        self._by_listener[listener] = self._by_place[message.place] = line
        _wake_synchronously(listener)
        self._epoll.register(listener, select.EPOLLIN)

    def _forget(self, line: CountedRun) -> None:
        self._epoll.unregister(line.listener)
        del self._by_listener[line.listener], self._by_place[line.place]
        line.close()


def is_full(directory: int) -> bool:
    """Of the file system it lies in: it has a size, and no block or no inode is left."""
    disk = os.fstatvfs(directory)
    return (disk.f_bfree == 0 < disk.f_blocks) or (disk.f_ffree == 0 < disk.f_files)


def _losing(machine: str) -> dict[bytes, int]:
    """Calls that may take away what filled the disk → where in a notification to look.

    0: always; else at the byte of the flags that holds O_TRUNC.
    """
    table = syscalls.table(machine)
    looked = {table[name]: 0 for name in (*seccomp.TAKING_AWAY, "creat") if name in table}
    for name, argument in _FLAGS_ARGUMENT.items():
        if name in table:
            looked[table[name]] = _ARGUMENTS + 8 * argument + _O_TRUNC_BYTE
    return {struct.pack("=I", number): at for number, at in looked.items()}


def _growing(machine: str) -> dict[bytes, Growth]:
    """Calls that may make a directory grow → by how many bytes and names, at most."""
    table = syscalls.table(machine)
    found: dict[str, Growth] = {name: _sized(at) for name, at in _SIZES.items()}
    found |= dict.fromkeys(seccomp.TAKING_AWAY - {"truncate"}, lambda notification, largest: (0, 0))
    found |= dict.fromkeys(_MAKING, lambda notification, largest: (0, 1))
    found["io_submit"] = lambda notification, largest: (largest * _argument(notification, 1), 0)
    found |= {name: _opening(at) for name, at in _FLAGS_ARGUMENT.items()}
    return {
        struct.pack("=I", table[name]): growth for name, growth in found.items() if name in table
    }


def _sized(at: int | None) -> Growth:
    if at is None:
        return lambda notification, largest: (largest, 0)
    return lambda notification, largest: (min(_argument(notification, at), largest), 0)


def _opening(at: int) -> Growth:
    """One that never has a name counts as two, and its run as one that takes away."""

    def growth(notification: bytes, largest: int) -> tuple[int, int]:
        flags = _argument(notification, at)
        return 0, 2 if flags & _O_TMPFILE else bool(flags & _O_CREAT)

    return growth


def _argument(notification: bytes, at: int) -> int:
    return int.from_bytes(notification[_ARGUMENTS + 8 * at : _ARGUMENTS + 8 * at + 8], "little")


def _numbers(names: frozenset[str], machine: str) -> frozenset[bytes]:
    table = syscalls.table(machine)
    return frozenset(struct.pack("=I", table[name]) for name in names if name in table)


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> array.array[int]:
    return array.array("i", b"".join(data for _, _, data in ancillary))


def _wake_synchronously(listener: int) -> None:
    """The two take turns on one processor. Since Linux 6.6."""
    try:
        fcntl.ioctl(listener, _SET_FLAGS, _SYNCHRONOUS_WAKE_UP)
    except OSError:
        return


def main(control: int, memory: int) -> None:
    """Both descriptors were inherited from sandboxd."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends when sandboxd has ended
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    cells = memoryview(mmap.mmap(memory, 0)).cast("Q")
    try:
        Desk(socket.socket(fileno=control), cells).serve()
    except Exception as error:  # noqa: BLE001 - the outermost edge; sandboxd starts another
        frames = traceback.extract_tb(error.__traceback__)
        where = [f"{frame.filename}:{frame.lineno}" for frame in frames]
        log("counting_failed", kind=type(error).__name__, where=where)
        sys.exit(1)
