"""The number of file operations of each run: sandboxd's side of the counting process.

`Counter` keeps that process alive. Runs do not notice when it has to be restarted: sandboxd holds
every listener as well, and the numbers are in memory that both share. Only an operation that was
being answered at that very moment waits until its run is over.
"""

import array
import errno
import itertools
import mmap
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from sandbox.daemon.daemon_log import log
from sandbox.daemon.limits import operation_counter
from sandbox.daemon.limits.operation_counter import (
    BYTES,
    BYTES_LIMIT,
    COUNT,
    FULL,
    GENERATION,
    LARGEST,
    LIMIT,
    NAMES,
    NAMES_LIMIT,
    OVER,
    STATE,
    TAKEN,
    WANTED_BYTES,
    WANTED_NAMES,
    CounterMessage,
)
from sandbox.daemon.subprocesses import start_child, wait_child

_MOST_RUNS = 4096
_OTHER_DESCRIPTORS = 64
_RUN_BYTES = operation_counter.CELL_BYTES * len(operation_counter.CELLS)
_SEND_PATIENCE = struct.pack("=qq", 5, 0)
_SHORT_LIFE_S = 1.0
_PAUSE_S = 1.0
_CODE_ROOT = str(Path(__file__).resolve().parents[3])
_START = (
    f"import sys; sys.path.insert(0, {_CODE_ROOT!r}); sys.dont_write_bytecode = True; "
    "from sandbox.daemon.limits.operation_counter import main; main(*map(int, sys.argv[1:3]))"
)


class RunOperations:
    """The operations of one run.

    `alarm` becomes readable when it wants to make more than it may: it is blocked from then on, and
    is to be killed; or when it wants to grow by more than it was granted: that call waits for
    `resume`. Nothing may be asked after `close`.
    """

    def __init__(
        self, counter: "Counter", place: int, generation: int, listener: int, directory: int | None
    ) -> None:
        self.place, self.generation = place, generation
        self.listener, self.directory = listener, directory
        self.alarm = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._counter, self._cells = counter, counter.cells_of(place)
        for limit in (LIMIT, BYTES_LIMIT, NAMES_LIMIT, LARGEST):
            self._cells[limit] = operation_counter.UNLIMITED
        self._before = 0

    def count(self) -> int:
        """Since `reset`; those that failed are counted, those that the sandbox refuses are not."""
        return self._cell(COUNT) - self._before

    def reset(self, most: int | None = None) -> None:
        """The job begins: count from here, and let it make `most` operations."""
        self._before = self._cell(COUNT)
        self._cells[LIMIT] = operation_counter.UNLIMITED if most is None else self._before + most

    @property
    def bytes(self) -> int:
        """That calls of it may have written to files and streams; with `names`, may have made."""
        return self._cell(BYTES)

    @property
    def names(self) -> int:
        return self._cell(NAMES)

    @property
    def wanted_bytes(self) -> int:
        return self._cell(WANTED_BYTES)

    @property
    def wanted_names(self) -> int:
        return self._cell(WANTED_NAMES)

    @property
    def taken_names(self) -> int:
        """Names that it took away: what they were names of may be open."""
        return self._cell(TAKEN)

    def grant(self, bytes_: int, names: int) -> None:
        self._cells[BYTES_LIMIT], self._cells[NAMES_LIMIT] = bytes_, names

    def no_larger_than(self, largest: int) -> None:
        self._cells[LARGEST] = largest

    def hear(self) -> None:
        """Clear the alarm, so that it reports again from now on."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.alarm)

    def resume(self) -> None:
        """What waits is looked at again, by the limits as they are now."""
        self._counter.resume(self)

    def is_over_limit(self) -> bool:
        """Whether it wanted to make more than it may."""
        return bool(self._cell(STATE) & OVER)

    def full(self) -> bool:
        """Whether its disk is full, or was so when something was about to be taken away."""
        if self.directory is None:
            return False
        return bool(self._cell(STATE) & FULL) or operation_counter.is_full(self.directory)

    def close(self) -> None:
        """Of a run that has ended; closes both descriptors it was made with."""
        self._counter.drop(self)

    def _cell(self, which: int) -> int:
        """0 until the counting process has this run: the cells are an earlier one's."""
        return self._cells[which] if self._cells[GENERATION] == self.generation else 0


class Counter:
    def __init__(self) -> None:
        self._memory = os.memfd_create("operations", os.MFD_CLOEXEC)
        os.ftruncate(self._memory, _MOST_RUNS * _RUN_BYTES)
        self._cells = memoryview(mmap.mmap(self._memory, 0)).cast("Q")
        self._free = deque(range(_room()))
        self._generations = itertools.count(1)
        self._live: dict[int, RunOperations] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()

    @property
    def pid(self) -> int:
        """Of the process that counts now."""
        return self._process.pid

    def start(self) -> None:
        """Raises OSError when the process cannot be started."""
        self._launch()
        self._watcher = threading.Thread(target=self._watch, daemon=True, name="operations")
        self._watcher.start()

    def adopt(self, listener: int, directory: int | None = None) -> RunOperations:
        """Count what `listener` reports; `directory`, in the run's private file system, may be a
        mere O_PATH. Both belong to the tally from now on, and are closed when this raises OSError:
        there are too many runs, or descriptors.
        """
        with self._lock:
            try:
                tally = self._make(listener, directory)
            except OSError:
                _close_all(listener, directory)
                raise
            self._live[tally.place] = tally
            try:
                self._notify_counter(operation_counter.ADOPT, tally, _descriptors(tally))
            except OSError:
                self._forget(tally)
                raise
        return tally

    def drop(self, tally: RunOperations) -> None:
        with self._lock:
            if self._live.get(tally.place) is not tally:
                return
            try:
                self._notify_counter(operation_counter.DROP, tally)
            except OSError as error:
                log("counting_not_told", reason=str(error))  # it hears of it from the kernel
            self._forget(tally)

    def resume(self, tally: RunOperations) -> None:
        with self._lock:
            if self._live.get(tally.place) is tally:
                self._notify_counter(operation_counter.RESUME, tally)

    def cells_of(self, place: int) -> memoryview:
        at = place * len(operation_counter.CELLS)
        return self._cells[at : at + len(operation_counter.CELLS)]

    def close(self) -> None:
        """After the last run: what is still counted is blocked for ever."""
        self._closing.set()
        with self._lock:
            self._hang_up()
        self._watcher.join()
        os.close(self._memory)

    def _make(self, listener: int, directory: int | None) -> RunOperations:
        if not self._free:
            raise OSError(errno.EMFILE, "too many runs to count their operations")
        place = self._free.popleft()
        try:
            return RunOperations(self, place, next(self._generations), listener, directory)
        except OSError:
            self._free.append(place)
            raise

    def _forget(self, tally: RunOperations) -> None:
        """Its cells may be another run's: the counting process hears of both in this order."""
        del self._live[tally.place]
        _close_all(tally.listener, tally.directory, tally.alarm)
        self._free.append(tally.place)

    def _notify_counter(
        self, kind: bytes, tally: RunOperations, descriptors: list[int] | None = None
    ) -> None:
        """If the counting process is gone, its successor is sent all live runs."""
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors or []))
        message = CounterMessage(kind, tally.place, tally.generation).pack()
        try:
            self._control.sendmsg([message], [rights] if descriptors else [])
        except (BrokenPipeError, ConnectionResetError):
            return
        except BlockingIOError:
            self._process.kill()  # it has not read for seconds

    def _launch(self) -> None:
        self._control, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_PATIENCE)
        inherited = [far.fileno(), self._memory]
        command = [sys.executable, "-I", "-S", "-c", _START, *map(str, inherited)]
        with far:
            self._process = start_child(
                command, stdin=subprocess.DEVNULL, pass_fds=inherited, env={}, cwd="/"
            )

    def _watch(self) -> None:
        while True:
            begun = time.monotonic()
            self._wait_for_end()
            if time.monotonic() - begun < _SHORT_LIFE_S:
                self._closing.wait(_PAUSE_S)
            if not self._restart():
                return

    def _wait_for_end(self) -> None:
        """It never writes: anything read here is its end."""
        try:
            self._control.recv(1)
        except OSError:
            pass
        self._process.kill()
        wait_child(self._process)

    def _restart(self) -> bool:
        """False when it is not wanted any more."""
        with self._lock:
            self._control.close()
            if self._closing.is_set():
                return False
            log("counting_restarted", status=self._process.returncode, runs=len(self._live))
            try:
                self._launch()
                for tally in self._live.values():
                    self._notify_counter(operation_counter.ADOPT, tally, _descriptors(tally))
            except OSError as error:
                log("counting_not_restarted", reason=str(error))
                self._hang_up()
        return True

    def _hang_up(self) -> None:
        try:
            self._control.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the other end is gone already


def _room() -> int:
    """As many runs as the counting process can have descriptors for."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(_MOST_RUNS, (most - _OTHER_DESCRIPTORS) // operation_counter.DESCRIPTORS)


def _descriptors(tally: RunOperations) -> list[int]:
    descriptors = (tally.listener, tally.alarm, tally.directory)
    return [one for one in descriptors if one is not None]


def _close_all(*descriptors: int | None) -> None:
    for descriptor in descriptors:
        if descriptor is not None:
            os.close(descriptor)
