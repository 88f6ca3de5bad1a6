"""The process that answers for every counted operation: one more, go on.

It is apart from sandboxd, so that a tool with a million operations costs sandboxd's threads
nothing. All it believes is what the kernel writes into a notification; it never looks at what a
pointer of a tool leads to, and decides nothing but that a run has used up its number.
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
from typing import NamedTuple

from sandbox.daemon.logs import log
from sandbox.inside import libc, notify, syscalls

# The cells of a run in the shared memory. Sandboxd writes the limit, this process the others.
CELLS = COUNT, LIMIT, STATE, GENERATION = range(4)
CELL_BYTES = 8
FULL, OVER = 1, 2
UNLIMITED = (1 << 64) - 1

ADOPT, DROP = b"A", b"D"
DESCRIPTORS = 3  # listener, alarm, and a directory of the run's private file system

_RECEIVE, _SEND, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082104
_NOTIFICATION = bytes(80)
_ID, _CALL, _ARGUMENTS = slice(0, 8), slice(16, 20), 32
_GO_ON = struct.pack("=qiI", 0, 0, 1)
_SYNCHRONOUS_WAKE_UP = 1
_ANCILLARY = socket.CMSG_SPACE(4 * DESCRIPTORS)
_FLAGS_ARGUMENT = {"open": 1, "openat": 2}
_O_TRUNC_BYTE, _O_TRUNC_BIT = 1, 0x02  # of the flags, which are little-endian
_MESSAGE = struct.Struct("=cIQ")


class Message(NamedTuple):
    """From sandboxd; with ADOPT come the listener, the alarm and perhaps a directory.

    `place` is where the run's cells are, and another run's after it was dropped; no two runs
    have the same generation.
    """

    kind: bytes
    place: int
    generation: int

    def pack(self) -> bytes:
        return _MESSAGE.pack(*self)


class Line(NamedTuple):
    """A run whose operations are counted here."""

    place: int
    cells: memoryview
    listener: int
    alarm: int
    directory: int | None

    def close(self) -> None:
        os.close(self.listener)
        os.close(self.alarm)
        if self.directory is not None:
            os.close(self.directory)


class Desk:
    def __init__(self, control: socket.socket, memory: memoryview) -> None:
        self._control, self._memory = control, memory
        self._by_listener: dict[int, Line] = {}
        self._by_place: dict[int, Line] = {}
        self._losing = _losing(os.uname().machine)
        self._epoll = select.epoll()
        self._epoll.register(control.fileno(), select.EPOLLIN)

    def serve(self) -> None:
        """Until sandboxd closes its end."""
        control, served = self._control.fileno(), True
        while served:
            told = False
            for descriptor, event in self._epoll.poll():
                if descriptor == control:
                    told = True
                else:
                    self._attend(self._by_listener[descriptor], event)
            # Last: what it closes and opens may be a number that is still among the events.
            served = not told or self._obey()

    def _attend(self, line: Line, event: int) -> None:
        if event & select.EPOLLIN:
            self._count(line)
        if event & select.EPOLLHUP:
            self._forget(line)  # no process of that run is left

    def _count(self, line: Line) -> None:
        """The hottest lines of this process: some microseconds, with the kernel's part."""
        try:
            asked = fcntl.ioctl(line.listener, _RECEIVE, _NOTIFICATION)
        except OSError:
            return  # who asked was killed in the meantime
        cells = line.cells
        count, limit = cells[COUNT] + 1, cells[LIMIT]
        if count - limit > 1:
            return  # it stands still until it is killed
        cells[COUNT] = count
        if line.directory is not None:
            self._look_at_disk(line, line.directory, asked)
        if count > limit:
            self._stop(line)
            return
        try:
            fcntl.ioctl(line.listener, _SEND, asked[_ID] + _GO_ON)
        except OSError:
            cells[COUNT] = count - 1  # killed before it was done

    def _stop(self, line: Line) -> None:
        line.cells[STATE] |= OVER
        os.eventfd_write(line.alarm, 1)

    def _look_at_disk(self, line: Line, directory: int, asked: bytes) -> None:
        at = self._losing.get(asked[_CALL])
        if at is None or (at and not asked[at] & _O_TRUNC_BIT):
            return
        if is_full(directory):
            line.cells[STATE] |= FULL

    def _obey(self) -> bool:
        """One message; False when there is nobody left to send one."""
        try:
            data, ancillary, _, _ = self._control.recvmsg(
                _MESSAGE.size, _ANCILLARY, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            return False
        if not data:
            return False
        message = Message(*_MESSAGE.unpack(data))
        if message.place in self._by_place:
            self._forget(self._by_place[message.place])
        if message.kind == ADOPT:
            self._adopt(message, *_descriptors(ancillary))
        return True

    def _adopt(
        self, message: Message, listener: int, alarm: int, directory: int | None = None
    ) -> None:
        at = message.place * len(CELLS)
        cells = self._memory[at : at + len(CELLS)]
        if cells[GENERATION] != message.generation:  # else a process before this one counted it
            cells[COUNT] = cells[STATE] = 0
            cells[GENERATION] = message.generation
        line = Line(message.place, cells, listener, alarm, directory)
        self._by_listener[listener] = self._by_place[message.place] = line
        _wake_synchronously(listener)
        self._epoll.register(listener, select.EPOLLIN)

    def _forget(self, line: Line) -> None:
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
    looked = {table[name]: 0 for name in (*notify.TAKING_AWAY, "creat") if name in table}
    for name, argument in _FLAGS_ARGUMENT.items():
        if name in table:
            looked[table[name]] = _ARGUMENTS + 8 * argument + _O_TRUNC_BYTE
    return {struct.pack("=I", number): at for number, at in looked.items()}


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
