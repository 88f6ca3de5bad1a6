"""One template process and its warm slots, kept by one thread for as long as it lives.

The thread that starts bwrap must stay: with --die-with-parent the end of that thread ends it.
"""

import array
import json
import os
import socket
import struct
import subprocess
import threading
import time
from collections import defaultdict, deque
from functools import partial

from sandbox.daemon import launch
from sandbox.daemon.cgroups import Driver
from sandbox.daemon.logs import log
from sandbox.daemon.reap import clear_away
from sandbox.daemon.slot import Slot
from sandbox.errors import ErrorCode, Refused
from sandbox.spec import Limits, Profile

_CREDENTIALS = struct.Struct("3i")
_DESCRIPTORS = 4
_ANCILLARY = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(4 * _DESCRIPTORS)
_USUAL_TMP_BYTES = Limits().tmp_bytes


class Template:
    """`take` hands out a ready slot; the keeper thread has the next ones made."""

    def __init__(self, bwrap: str, profile: Profile, driver: Driver, target: int) -> None:
        self.used_at = time.monotonic()
        self.forks = 0
        self._active = 0
        self._bwrap, self._profile, self._driver, self._target = (
            bwrap,
            profile,
            driver,
            target,
        )
        self._ready: dict[int, deque[Slot]] = defaultdict(deque)
        self._coming: dict[int, int] = defaultdict(int)
        self._changed = threading.Condition()
        self._failure: str | None = None
        self._waiting = 0
        self._report, self._far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._report.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._keeper = threading.Thread(target=self._keep, daemon=True, name="template")
        self._keeper.start()

    @property
    def alive(self) -> bool:
        return self._failure is None

    def ready_count(self) -> int:
        with self._changed:
            return sum(len(slots) for slots in self._ready.values())

    def take(self, tmp_bytes: int, timeout_s: float) -> Slot:
        """Raises Refused with LAUNCH_FAILED when there is none in time."""
        with self._changed:
            self.used_at = time.monotonic()
            self._waiting += 1
            try:
                self._order(tmp_bytes)
                self._changed.wait_for(
                    lambda: self._ready[tmp_bytes] or self._failure is not None,
                    timeout_s,
                )
            finally:
                self._waiting -= 1
            if not self._ready[tmp_bytes]:
                raise Refused(ErrorCode.LAUNCH_FAILED, self._failure or "no slot came in time")
            return self._ready[tmp_bytes].popleft()

    def refill(self, tmp_bytes: int) -> None:
        with self._changed:
            self._order(tmp_bytes)

    def reserve(self) -> None:
        """A run is going to take a slot: until it is given back this template may not retire."""
        with self._changed:
            self._active += 1

    def give_back(self) -> None:
        with self._changed:
            self._active -= 1

    @property
    def busy(self) -> bool:
        return self._active > 0

    def retire(self) -> None:
        """End the template and all its slots, also taken ones."""
        self._fail("retired")
        try:
            self._report.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it ended by itself

    def join(self, timeout_s: float) -> None:
        """Wait until a retired template has cleared up."""
        self._keeper.join(timeout_s)

    def _order(self, tmp_bytes: int) -> None:
        """Have as many slots made as are missing. The lock is held.

        Only the usual size of /tmp is kept in stock; runs with another wait for their own.
        """
        there = len(self._ready[tmp_bytes]) + self._coming[tmp_bytes]
        stock = self._target if tmp_bytes == _USUAL_TMP_BYTES else 0
        missing = stock + self._waiting - there
        if missing <= 0 or self._failure is not None:
            return
        self._coming[tmp_bytes] += missing
        self.forks += missing
        try:
            self._report.send(b"%d %d" % (tmp_bytes, missing))
        except OSError as error:
            self._failure = self._failure or f"the template is gone: {error}"

    def _keep(self) -> None:
        try:
            process = launch.start(self._bwrap, self._profile, self._far)
        except OSError as error:
            self._fail(f"bwrap cannot be started: {error}")
            return
        finally:
            self._far.close()
        try:
            self._set_up(process)
            while self._receive():
                pass
        finally:
            self._end(process)

    def _set_up(self, process: subprocess.Popen[bytes]) -> None:
        writable = [mount.target for mount in self._profile.mounts if mount.writable]
        setup = {"preload": self._profile.preload, "writable": writable}
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(setup).encode())
            process.stdin.close()
        except BrokenPipeError:
            return  # it ended already; _end finds the reason

    def _receive(self) -> bool:
        """One message of the template or of a slot; False when all of them are gone."""
        try:
            text, ancillary, _, _ = self._report.recvmsg(512, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return False
        word, _, rest = text.partition(b" ")
        if word == b"ready":
            self._add(int(rest), *_unpack(ancillary))
        elif word == b"failed":
            self._lose(rest)
        return bool(text)

    def _add(self, tmp_bytes: int, pid: int, descriptors: list[int]) -> None:
        pidfd, channel, stdout, stderr = descriptors
        try:
            leaf = self._driver.place(pid, f"{os.getpid()}-{pid}")
        except OSError as error:
            close_all(descriptors)  # its channel closed, the slot ends by itself
            self._lose(b"%d no cgroup: %s" % (tmp_bytes, str(error).encode()))
            return
        refill = partial(self.refill, tmp_bytes)
        slot = Slot(pid, pidfd, socket.socket(fileno=channel), stdout, stderr, leaf, refill)
        with self._changed:
            self._coming[tmp_bytes] -= 1
            self._ready[tmp_bytes].append(slot)
            self._changed.notify()

    def _lose(self, rest: bytes) -> None:
        tmp_bytes, _, reason = rest.partition(b" ")
        log("slot_failed", reason=reason.decode("utf-8", "replace"))
        with self._changed:
            self._coming[int(tmp_bytes)] -= 1
        self._fail(reason.decode("utf-8", "replace"))

    def _fail(self, reason: str) -> None:
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        assert process.stderr is not None
        said = process.stderr.read(4096).decode("utf-8", "replace").strip()
        process.stderr.close()
        process.wait()
        self._fail(said.splitlines()[-1] if said else "the template ended")
        self._report.close()
        with self._changed:
            left = [slot for slots in self._ready.values() for slot in slots]
            self._ready.clear()
        for slot in left:
            slot.kill()
            clear_away(slot)


def close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _unpack(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, list[int]]:
    """The sender's pid as this side counts it, and the descriptors that came along."""
    pid, descriptors = 0, array.array("i")
    for _, kind, data in ancillary:
        if kind == socket.SCM_CREDENTIALS:
            pid = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0]
        elif kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return pid, list(descriptors)
