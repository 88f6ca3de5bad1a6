"""The server of sandboxd: allowed peers, and the conversation with one worker on one connection."""

import itertools
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from sandbox import doctor, wire
from sandbox.backends.backend_registry import BackendRegistry
from sandbox.daemon.daemon_log import log
from sandbox.daemon.lasting_servers import SandboxedServers
from sandbox.daemon.run_accounts import Accounts
from sandbox.daemon.runs.janitor import Janitor
from sandbox.daemon.runs.profile_paths import flaw_of
from sandbox.daemon.runs.sandbox_run import EgressSockets, SandboxRun, SlotEnded
from sandbox.daemon.runs.slot import SandboxSlot
from sandbox.daemon.runs.slots import Slots
from sandbox.daemon.trials.capability import Capability
from sandbox.daemon.worker_channel import WorkerChannel
from sandbox.errors import ErrorCode, RunRefused, SpecInvalid
from sandbox.levels import clamp_limits
from sandbox.machine import Facts
from sandbox.spec import (
    Backend,
    IsolationLevel,
    Language,
    Limits,
    Mount,
    Profile,
    RunOutcome,
    SandboxResult,
    ServerSpec,
)
from sandbox.strict_fields import Fields

_PEER = struct.Struct("3i")
_BACKLOG = 128
_MOST_DEAD_SLOTS = 16


def listen(path: str) -> socket.socket:
    """Replaces the socket an earlier sandboxd left; only one without a listener."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.path.exists(path):
        remove_dead(path)
    listener.bind(path)
    os.chmod(path, 0o666)  # noqa: S103 - connecting is free, the peer is checked
    listener.listen(_BACKLOG)
    return listener


def remove_dead(path: str) -> None:
    """Raises OSError when another sandboxd answers there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
        try:
            knock.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        else:
            raise OSError(f"another sandboxd listens on {path}")


def peer_uid(worker: socket.socket) -> int:
    raw = worker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(raw)[1])


@dataclass(frozen=True)
class Order:
    """One run as it was asked for. `ticket` is the egress broker's name for what it may reach."""

    organization: str
    profile: Profile
    limits: Limits
    body: bytes
    ticket: str | None = None


type Answer = Callable[[SandboxResult, bytes], None]  # to who asked for a run: once


class Service:
    """Turns a request into a result; shared by all connections and the doctor."""

    def __init__(
        self, slots: Slots, backends: BackendRegistry, janitor: Janitor, doors: EgressSockets,
        servers: SandboxedServers,
        *, accounts: Accounts, cgroup_mode: str,
    ) -> None:  # fmt: skip
        self.capability = Capability(None, cgroup_mode, ("sandboxd is starting",))
        self._slots, self._backends = slots, backends
        self._janitor, self._doors, self._servers = janitor, doors, servers
        self._quotas, self._accounts = servers.quotas, accounts
        self._numbers = itertools.count(1)

    def examine(self, facts: Facts) -> Capability:
        """Attacks its own sandboxes with real runs; what it finds decides what is served."""
        with ThreadPoolExecutor(1, thread_name_prefix="backends") as pool:
            others = pool.submit(self._backends.flaws)
            found = doctor.examine(self._examination, facts)
            backends = {**others.result(), **found.backends}
        self._slots.dismiss(doctor.ORGANIZATION)
        self.capability = replace(found, backends=backends)
        return self.capability

    def _examination(
        self, profile: Profile, limits: Limits, body: dict[str, Any]
    ) -> tuple[SandboxResult, bytes]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            order = Order(doctor.ORGANIZATION, profile, limits, json.dumps(body).encode())
            answers: list[tuple[SandboxResult, bytes]] = []
            self.run(order, WorkerChannel(ours), lambda *answer: answers.append(answer))
            return answers[0]

    def serve(self, order: Order, worker: WorkerChannel, answer: Answer) -> None:
        """One run. Its result is answered before its slot is replaced and cleared away."""
        profile = self.capability.placed(order.profile)
        refusal = self.capability.refusal(profile.level, profile)
        if refusal is None:
            refusal = self._backends.refusal(profile) or self._too_few_processes(profile)
        if refusal is not None:
            answer(refused(ErrorCode.ISOLATION_UNAVAILABLE, refusal), b"")
        else:
            self.run(replace(order, profile=profile), worker, answer)

    def _too_few_processes(self, profile: Profile) -> str | None:
        """A runtime beside this Python needs several, and Strict has one where nothing counts."""
        if self.capability.counted or profile.level != IsolationLevel.STRICT:
            return None
        if profile.language == Language.PYTHON and profile.backend != Backend.MONTY:
            return None
        return "without control groups Strict has one process, and this runtime needs more"

    def run(self, order: Order, worker: WorkerChannel, answer: Answer) -> None:
        received_at = time.monotonic()
        limits = clamp_limits(order.profile.level, order.limits, self.capability.counted)
        order = replace(order, limits=limits)
        try:
            for _ in range(_MOST_DEAD_SLOTS):
                with self._living(order) as slot, suppress(SlotEnded):
                    answer(*self._perform(order, slot, worker, received_at))
                    return
            raise RunRefused(ErrorCode.LAUNCH_FAILED, "every slot died before it had its job")
        except RunRefused as reason:
            log("run_refused", code=reason.code, reason=str(reason))
            answer(refused(reason.code, str(reason)), b"")

    @contextmanager
    def _living(self, order: Order) -> Iterator[SandboxSlot]:
        """A slot for one run, cleared away afterwards. Raises Refused with LAUNCH_FAILED."""
        with self._slots.take_slot(order.organization, order.profile, order.limits) as slot:
            try:
                yield slot
            finally:
                slot.kill()
                slot.refill()
                self._janitor.clear(slot)

    def _perform(
        self, order: Order, slot: SandboxSlot, worker: WorkerChannel, received_at: float
    ) -> tuple[SandboxResult, bytes]:
        """Raises SlotEnded, if possible before the egress sockets are attached: that happens
        once."""
        if slot.has_ended:
            raise SlotEnded
        sandbox_id = f"{os.getpid()}-{next(self._numbers)}"
        share = self._quotas.share(order.profile, order.limits, slot.operations)
        with self._doors.opened(slot, order.ticket), share as shared:
            run = SandboxRun(slot, order.limits, worker, shared)
            return run.perform(order.body, time.monotonic() - received_at, sandbox_id)

    def hold(self, spec: ServerSpec, ticket: str | None, worker: socket.socket) -> None:
        """A lasting server, for as long as this connection is held; what is refused is answered."""
        profile = Profile(IsolationLevel.STANDARD, network=spec.network)
        flaw = self.capability.refusal(profile.level, profile)
        if flaw is None and self.capability.placed(profile).backend != Backend.PROCESS:
            flaw = "servers need namespaces, which this machine has not"
        try:
            if flaw is not None:
                raise RunRefused(ErrorCode.ISOLATION_UNAVAILABLE, flaw)
            self._servers.hold(spec, ticket, worker)
        except RunRefused as reason:
            log("server_refused", code=reason.code, reason=str(reason))
            refusal = {"type": "refused", "code": reason.code, "reason": str(reason)}
            wire.send(worker, wire.encode(refusal))

    def describe(self) -> dict[str, Any]:
        counts = {**self._slots.counts(), "servers": self._servers.count()}
        flaw = {"accounts_flaw": self._accounts.flaw}
        return {**self.capability.to_wire(), **flaw, **counts, "pid": os.getpid()}


def refused(code: ErrorCode, reason: str) -> SandboxResult:
    given_up = code == ErrorCode.NOT_BEGUN
    outcome = RunOutcome.CANCELLED if given_up else RunOutcome.SANDBOX_ERROR
    return SandboxResult(outcome, error_code=code, error_message=reason)


class WorkerConnection:
    """One connection: one run at a time. The worker's end closing ends the run."""

    def __init__(self, service: Service, worker: socket.socket) -> None:
        self._service, self._worker = service, worker
        self._reader = wire.FrameReader(worker, wire.FRAME_CAP)
        self._profiles: dict[str, Profile] = {}

    def hold(self) -> None:
        with self._worker:
            try:
                while True:
                    self._answer(wire.decode(self._reader.read()))
            except (wire.ConnectionEnded, BrokenPipeError, ConnectionResetError):
                return
            except (SpecInvalid, wire.FrameTooLarge) as error:
                log("conversation_ended", reason=str(error))

    def _answer(self, request: Fields) -> None:
        match request.text("type"):
            case "ping":
                wire.send(self._worker, wire.encode(self._service.describe()))
            case "examine":
                mounts = [Mount.from_wire(one) for one in request.items("mounts")]
                flaws = {one.source: flaw for one in mounts if (flaw := flaw_of(one))}
                wire.send(self._worker, wire.encode(flaws))
            case "profile":
                self._learn(Profile.from_wire(request.value("profile")))
            case "run":
                self._run(request)
            case "server":
                ticket = request.optional_text("ticket")
                spec = request.done(ServerSpec.from_wire(request.value("server")))
                self._service.hold(spec, ticket, self._worker)
                raise wire.ConnectionEnded  # the connection was the server's
            case "alive":
                return  # of a run that was over when it came
            case other:
                raise SpecInvalid(f"unknown request {other[:40]!r}")

    def _learn(self, profile: Profile) -> None:
        if len(self._profiles) >= wire.PROFILES_PER_CONNECTION:
            self._profiles.clear()
        self._profiles[profile.digest] = profile

    def _run(self, request: Fields) -> None:
        organization, digest = request.text("organization"), request.text("profile")
        ticket = request.optional_text("ticket")
        worker = WorkerChannel(self._worker, self._reader, wire.read_until(request))
        limits = request.done(Limits.from_wire(request.value("limits")))
        if digest not in self._profiles:
            raise SpecInvalid("the profile was not sent on this connection")
        body = self._reader.read()
        order = Order(organization, self._profiles[digest], limits, body, ticket)
        self._service.serve(order, worker, self._send_result)

    def _send_result(self, result: SandboxResult, output: bytes) -> None:
        wire.send(self._worker, *wire.result_frames(result, output))


class Server:
    """Accepts the allowed users only; the socket itself is open to all, the peer is checked."""

    def __init__(self, listener: socket.socket, allowed: frozenset[int], service: Service) -> None:
        self._listener, self._allowed, self._service = listener, allowed, service

    def serve(self) -> None:
        while True:
            worker, _ = self._listener.accept()
            uid = peer_uid(worker)
            if uid in self._allowed:
                self._welcome(worker)
            else:
                log("peer_refused", uid=uid)
                worker.close()

    def _welcome(self, worker: socket.socket) -> None:
        conversation = WorkerConnection(self._service, worker)
        threading.Thread(target=conversation.hold, daemon=True, name="worker").start()
