"""One template process and its warm slots, kept by one thread for as long as it lives.

The thread that starts bwrap must stay: with --die-with-parent the end of that thread ends it.
"""

import array
import os
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from sandbox.daemon.daemon_log import log
from sandbox.daemon.limits.cgroup_leaves import Leaf
from sandbox.daemon.limits.cgroups import Driver
from sandbox.daemon.limits.operations import Counter, RunOperations
from sandbox.daemon.run_accounts import Accounts, SandboxAccount, StartedProgram
from sandbox.daemon.runs import launch, scratch
from sandbox.daemon.runs.janitor import clean_up_run
from sandbox.daemon.runs.launch import Launch
from sandbox.daemon.runs.profile_paths import Sources, unchanged
from sandbox.daemon.runs.slot import SandboxSlot, SlotDisk
from sandbox.errors import ErrorCode, RunRefused
from sandbox.inside.template import GOODBYE
from sandbox.spec import Limits

_CREDENTIALS = struct.Struct("3i")
_DESCRIPTORS = 8
_ANCILLARY = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(4 * _DESCRIPTORS)


_USUAL_LIMITS = Limits()
_USUAL = SlotDisk.from_limits(_USUAL_LIMITS)


class Template:
    """`take` hands out a ready slot; the keeper thread has the next ones made."""

    def __init__(
        self, prepare: Callable[[int], Launch], accounts: Accounts, driver: Driver,
        counter: Counter, target: int,
    ) -> None:  # fmt: skip
        self.used_at = time.monotonic()
        self.forks = 0
        self._active = 0
        self._prepare, self._accounts = prepare, accounts
        self._driver, self._target = driver, target
        self._counter = counter
        self._ready: dict[SlotDisk, deque[SandboxSlot]] = defaultdict(deque)
        self._coming: dict[SlotDisk, int] = defaultdict(int)
        self._changed = threading.Condition()
        self._failure: str | None = None
        self._sources: Sources = ()
        self._waiting = 0
        self._report, self._far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._report.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._keeper = threading.Thread(target=self._keep, daemon=True, name="template")
        self._keeper.start()

    @property
    def alive(self) -> bool:
        return self._failure is None

    @property
    def current(self) -> bool:
        return unchanged(self._sources)

    def ready_count(self) -> int:
        with self._changed:
            return sum(len(slots) for slots in self._ready.values())

    def take(self, disk: SlotDisk, timeout_s: float) -> SandboxSlot:
        """Raises Refused with LAUNCH_FAILED when there is none in time."""
        with self._changed:
            self.used_at = time.monotonic()
            self._waiting += 1
            try:
                self._order(disk)
                self._changed.wait_for(
                    lambda: self._ready[disk] or self._failure is not None,
                    timeout_s,
                )
            finally:
                self._waiting -= 1
            if not self._ready[disk]:
                raise RunRefused(ErrorCode.LAUNCH_FAILED, self._failure or "no slot came in time")
            return self._ready[disk].popleft()

    def refill(self, disk: SlotDisk) -> None:
        with self._changed:
            self._order(disk)

    def reserve(self) -> None:
        """A run is going to take a slot: until it is released this template may not retire."""
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
            self._report.send(GOODBYE)
            self._report.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it ended by itself

    def join(self, timeout_s: float) -> None:
        """Wait until a retired template has cleared up."""
        self._keeper.join(timeout_s)

    def _order(self, disk: SlotDisk) -> None:
        """Have as many slots made as are missing. The lock is held.

        Only the usual size of /tmp is kept in stock; runs with another wait for their own.
        """
        there = len(self._ready[disk]) + self._coming[disk]
        stock = self._target if disk == _USUAL else 0
        missing = stock + self._waiting - there
        if missing <= 0 or self._failure is not None:
            return
        self._coming[disk] += missing
        self.forks += missing
        try:
            self._report.send(b"%d %d %d" % (*disk, missing))
        except OSError:
            return  # it ended, maybe with a reason, which `_end` reports

    def _keep(self) -> None:
        try:
            prepared = self._prepare(self._far.fileno())
            self._sources = prepared.sources
            program = launch.start(prepared, self._accounts)
            self._account = program.account
        except OSError as error:
            self._fail(f"the template cannot be started: {error}")
            return
        except RunRefused as reason:
            self._fail(str(reason))
            return
        finally:
            self._far.close()
        try:
            while self._receive():
                pass
        finally:
            self._end(program)
            if prepared.scratch:
                with suppress(OSError):  # a run's directory may still be there; it goes at the end
                    os.rmdir(prepared.scratch)

    def _receive(self) -> bool:
        """One message of the template or of a slot; False when all of them are gone."""
        try:
            text, ancillary, _, _ = self._report.recvmsg(512, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return False
        word, *rest = text.split(b" ", 3)
        if word == b"ready":
            pid, descriptors = _unpack(ancillary)
            names = rest[2].decode().split()
            self._add(_disk(rest), pid, dict(zip(names, descriptors, strict=True)))
        elif word == b"failed":
            self._lose(_disk(rest), rest[2].decode("utf-8", "replace"))
        return bool(text)

    def _add(self, disk: SlotDisk, pid: int, far: dict[str, int]) -> None:
        try:
            if "scratch" in far:
                far["scratch"] = scratch.in_our_mounts(far["scratch"])
            leaf = self._driver.place(pid, self._account)
        except OSError as error:
            close_all(far.values())  # its channel closed, the slot ends by itself
            self._lose(disk, f"no cgroup or directory: {error}")
            return
        leaf.limit(_USUAL_LIMITS.memory_bytes, _USUAL_LIMITS.processes)  # most runs have these
        slot = _slot(pid, far, leaf, self._account, partial(self.refill, disk))
        try:
            slot.operations = self._counted(far)
        except OSError as error:
            slot.kill()
            clean_up_run(slot)
            self._lose(disk, f"its operations cannot be counted: {error}")
            return
        with self._changed:
            self._coming[disk] -= 1
            self._ready[disk].append(slot)
            self._changed.notify()

    def _counted(self, far: dict[str, int]) -> RunOperations | None:
        """None where the kernel has no listener; a slot that cannot be counted is not to be
        used."""
        listener, directory = far.get("operations"), far.get("tmp")
        if listener is None:
            close_all([] if directory is None else [directory])
            return None
        return self._counter.adopt(listener, directory)

    def _lose(self, disk: SlotDisk, reason: str) -> None:
        log("slot_failed", reason=reason)
        with self._changed:
            self._coming[disk] -= 1
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()

    def _end(self, program: StartedProgram) -> None:
        program.end()
        with program.stderr as stderr:
            words = stderr.read(4096).decode("utf-8", "replace").strip()
        self._fail(words.splitlines()[-1] if words else "the template ended")
        self._report.close()
        with self._changed:
            left = [slot for slots in self._ready.values() for slot in slots]
            self._ready.clear()
        for slot in left:
            slot.kill()
            clean_up_run(slot)


def close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _disk(words: list[bytes]) -> SlotDisk:
    return SlotDisk(int(words[0]), int(words[1]))


def _slot(
    pid: int,
    far: dict[str, int],
    leaf: Leaf,
    account: SandboxAccount,
    order_next: Callable[[], None],
) -> SandboxSlot:
    return SandboxSlot(
        pid=pid,
        pidfd=far["pidfd"],
        channel=socket.socket(fileno=far["channel"]),
        stdout=far["stdout"],
        stderr=far["stderr"],
        leaf=leaf,
        order_next=order_next,
        door=_socket(far.get("door")),
        proxy=_socket(far.get("proxy")),
        scratch=far.get("scratch"),
        account=account,
    )


def _socket(descriptor: int | None) -> socket.socket | None:
    return None if descriptor is None else socket.socket(fileno=descriptor)


def _unpack(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, list[int]]:
    """The sender's pid as this side counts it, and the descriptors that came along."""
    pid, descriptors = 0, array.array("i")
    for _, kind, data in ancillary:
        if kind == socket.SCM_CREDENTIALS:
            pid = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0]
        elif kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return pid, list(descriptors)
