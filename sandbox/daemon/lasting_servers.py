"""Lasting servers: each is started for one connection and ends with it; their number is limited."""

import json
import os
import select
import socket
import threading
import time
from collections import Counter as Counts
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from sandbox import wire
from sandbox.daemon.daemon_log import log
from sandbox.daemon.limits.cgroups import Driver
from sandbox.daemon.limits.operations import Counter
from sandbox.daemon.limits.quotas import Quotas, Share, file_bytes
from sandbox.daemon.run_accounts import Accounts
from sandbox.daemon.runs import launch
from sandbox.daemon.runs.engines import engine_of_server
from sandbox.daemon.runs.janitor import Janitor
from sandbox.daemon.runs.sandbox_run import EgressSockets
from sandbox.daemon.runs.slot import SandboxSlot, SlotDisk
from sandbox.daemon.runs.template_process import Template
from sandbox.errors import ErrorCode, RunRefused
from sandbox.inside import frames
from sandbox.spec import KEPT_WORDS, IsolationLevel, Limits, Profile, ServerSpec

_SLOT_TIMEOUT_S = 15
_SPARE_BYTES = 2 << 30  # V8 asks for address space that it never uses
_SPARE_PROCESSES = 16  # the control group's limit is to be met first: it counts refusals
_CHUNK = 1 << 16
_FLOOD_PAUSE_S = 0.05
_GONE = select.POLLIN | select.POLLRDHUP | select.POLLHUP | select.POLLERR


class SandboxedServers:
    """`most` of all organizations together, `most_each` of one."""

    def __init__(
        self, bwrap: str, driver: Driver, counter: Counter, janitor: Janitor, doors: EgressSockets,
        *, accounts: Accounts, most: int, most_each: int,
    ) -> None:  # fmt: skip
        self._bwrap, self._accounts = bwrap, accounts
        self._driver, self._counter = driver, counter
        self._janitor, self._doors = janitor, doors
        self._most, self._most_each = most, most_each
        self.quotas = Quotas()
        self._running: Counts[str] = Counts()
        self._templates: set[Template] = set()
        self._lock = threading.Lock()

    def count(self) -> int:
        return self._running.total()

    def hold(self, spec: ServerSpec, ticket: str | None, worker: socket.socket) -> None:
        """Until the server has ended, or its client disconnected. Raises Refused before it was
        started, and OSError when the client is gone."""
        with self._place(spec.organization), self._slot(spec) as slot:
            profile = _profile(spec)
            share = self.quotas.share(profile, spec.limits, slot.operations)
            with self._doors.opened(slot, ticket), share as shared:
                self._begin(slot, spec, shared)
                answer = wire.encode({"type": "started"})
                socket.send_fds(worker, frames.pack(answer), [slot.channel.fileno()])
                log("server_started", organization=spec.organization, pid=slot.pid)
                held = _RunningServer(slot, worker, shared)
                reason = held.until_end()
            slot.kill()
            log("server_ended", organization=spec.organization, pid=slot.pid, reason=reason)
            wire.send(
                worker, wire.encode({"type": "ended", "reason": reason, "said": held.read_stderr()})
            )

    def close(self) -> None:
        """End them all; no other can be requested."""
        with self._lock:
            self._most, templates = 0, list(self._templates)
        for template in templates:
            template.retire()
        for template in templates:
            template.join(_SLOT_TIMEOUT_S)

    @contextmanager
    def _place(self, organization: str) -> Iterator[None]:
        with self._lock:
            if self._running.total() >= self._most:
                raise RunRefused(ErrorCode.LAUNCH_FAILED, "too many servers run here already")
            if self._running[organization] >= self._most_each:
                raise RunRefused(ErrorCode.LAUNCH_FAILED, "the organization has too many servers")
            self._running[organization] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[organization] -= 1
                self._running += Counts()  # forgets whom it counts nothing of

    @contextmanager
    def _slot(self, spec: ServerSpec) -> Iterator[SandboxSlot]:
        """A slot of a template of its own: with either of them gone, so is the server."""
        profile = _profile(spec)
        engine = engine_of_server(spec.programs)
        prepare = partial(launch.namespaced, self._bwrap, profile, engine=engine)
        template = Template(prepare, self._accounts, self._driver, self._counter, target=0)
        with self._lock:
            self._templates.add(template)
        try:
            slot = template.take(SlotDisk.from_limits(spec.limits), _SLOT_TIMEOUT_S)
            try:
                yield slot
            finally:
                slot.kill()
                self._janitor.clear(slot)
        finally:
            template.retire()
            template.join(_SLOT_TIMEOUT_S)
            with self._lock:
                self._templates.discard(template)

    def _begin(self, slot: SandboxSlot, spec: ServerSpec, share: Share | None) -> None:
        slot.leaf.limit(spec.limits.memory_bytes, spec.limits.processes)
        if slot.operations is not None:
            slot.operations.reset()
        job = {
            "command": spec.command,
            "environment": spec.environment,
            "directory": spec.directory,
        }
        try:
            limits = _limits(spec.limits, slot, share)
            frames.send(slot.channel, limits, json.dumps(job).encode())
        except OSError:
            raise RunRefused(ErrorCode.LAUNCH_FAILED, "the slot died before its server") from None


def _profile(spec: ServerSpec) -> Profile:
    return Profile(IsolationLevel.STANDARD, spec.mounts, network=spec.network)


def _limits(limits: Limits, slot: SandboxSlot, share: Share | None) -> bytes:
    counted = slot.leaf.counted
    wire_limits = limits.to_wire() | {"data_spare": _SPARE_BYTES if counted else 0}
    wire_limits["file_bytes"] = file_bytes(limits, share)
    wire_limits["processes"] = limits.processes + (_SPARE_PROCESSES if counted else 0)
    return json.dumps(wire_limits).encode()


class _RunningServer:
    """One running server: its last output is kept, and its end is detected."""

    def __init__(self, slot: SandboxSlot, worker: socket.socket, share: Share | None) -> None:
        self._slot, self._words, self._share = slot, bytearray(), share
        self._flooded_until = 0.0
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], str | None]] = {
            slot.pidfd: lambda: "it ended",
            worker.fileno(): lambda: "nobody holds it any more",
            slot.stderr: self._hear,
        }
        if slot.leaf.alarm is not None:
            self._handlers[slot.leaf.alarm] = lambda: "it used more memory than it may"
        if slot.operations is not None and share is not None:
            self._handlers[slot.operations.alarm] = self._stands_still
        for descriptor in self._handlers:
            self._poll.register(descriptor, _GONE)
        self._hearing = True

    def until_end(self) -> str:
        while True:
            for descriptor, _ in self._poll.poll(self._patience_ms()):
                if (reason := self._handlers[descriptor]()) is not None:
                    return self._corrected(reason)
            self._listen_again()

    def read_stderr(self) -> str:
        """The last of it; what was written before the end may still be in the pipe."""
        os.set_blocking(self._slot.stderr, False)
        try:
            self._keep(os.read(self._slot.stderr, _CHUNK))
        except OSError:
            pass  # nothing is left there
        return self._words.decode("utf-8", "replace").replace("\0", "\ufffd")

    def _corrected(self, reason: str) -> str:
        leaf = self._slot.leaf
        return "it used more memory than it may" if leaf.memory_exceeded() else reason

    def _stands_still(self) -> str | None:
        """It wants to write more than it was granted."""
        assert self._slot.operations is not None and self._share is not None
        self._slot.operations.hear()
        if not self._share.extend():
            return "a path that it shares is full"
        self._slot.operations.resume()
        return None

    def _hear(self) -> None:
        data = os.read(self._slot.stderr, _CHUNK)
        self._keep(data)
        if not data or len(data) >= KEPT_WORDS:  # one who floods waits, and we do not
            self._poll.unregister(self._slot.stderr)
            self._hearing = False
            self._flooded_until = time.monotonic() + _FLOOD_PAUSE_S if data else float("inf")

    def _keep(self, data: bytes) -> None:
        self._words += data
        del self._words[:-KEPT_WORDS]

    def _listen_again(self) -> None:
        if not self._hearing and time.monotonic() >= self._flooded_until:
            self._poll.register(self._slot.stderr, _GONE)
            self._hearing = True

    def _patience_ms(self) -> float | None:
        if self._hearing or self._flooded_until == float("inf"):
            return None
        return max(0.0, self._flooded_until - time.monotonic()) * 1000
