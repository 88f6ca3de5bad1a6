"""The listening side: who may ask, and the conversation with one worker on one connection."""

import itertools
import os
import socket
import struct
import threading
import time
from typing import Any

from sandbox import wire
from sandbox.daemon import capability
from sandbox.daemon.capability import Capability
from sandbox.daemon.logs import log
from sandbox.daemon.reap import Janitor
from sandbox.daemon.run import Run
from sandbox.daemon.slots import Slots
from sandbox.errors import ErrorCode, Refused, SpecInvalid
from sandbox.fields import Fields
from sandbox.spec import Limits, Outcome, Profile, SandboxResult

_PEER = struct.Struct("3i")
_BACKLOG = 128


class Service:
    """Turns a request into a result; shared by all connections and the probe."""

    def __init__(self, slots: Slots, janitor: Janitor, cgroup_mode: str) -> None:
        self.capability = Capability(None, cgroup_mode, ["sandboxd is starting"])
        self._slots, self._janitor = slots, janitor
        self._numbers = itertools.count(1)

    def probe(self) -> Capability:
        """A real run; what it finds decides what this daemon serves."""
        ours, theirs = socket.socketpair()
        mode = self.capability.cgroup_mode
        body = b'{"program":{"name":"selfcheck","entry_point":"main"},"parameters":{}}'
        with ours, theirs:
            result, output = self.run(
                capability.PROBE_ORGANIZATION,
                capability.PROBE_PROFILE,
                capability.PROBE_LIMITS,
                body,
                ours,
            )
        self.capability = capability.verdict(result, output, mode)
        return self.capability

    def serve(
        self,
        organization: str,
        profile: Profile,
        limits: Limits,
        body: bytes,
        worker: socket.socket,
    ) -> tuple[SandboxResult, bytes]:
        refusal = self.capability.refusal(profile.level)
        if refusal is not None:
            return refused(ErrorCode.ISOLATION_UNAVAILABLE, refusal), b""
        return self.run(organization, profile, limits, body, worker)

    def run(
        self,
        organization: str,
        profile: Profile,
        limits: Limits,
        body: bytes,
        worker: socket.socket,
    ) -> tuple[SandboxResult, bytes]:
        asked = time.monotonic()
        sandbox_id = f"{os.getpid()}-{next(self._numbers)}"
        try:
            with self._slots.taken(organization, profile, limits) as slot:
                try:
                    run = Run(slot, limits, worker)
                    return run.perform(body, time.monotonic() - asked, sandbox_id)
                finally:
                    slot.kill()
                    slot.refill()
                    self._janitor.clear(slot)
        except Refused as reason:
            log("run_refused", code=reason.code, reason=str(reason))
            return refused(reason.code, str(reason)), b""

    def describe(self) -> dict[str, Any]:
        return {**self.capability.to_wire(), **self._slots.counts(), "pid": os.getpid()}


def refused(code: ErrorCode, reason: str) -> SandboxResult:
    return SandboxResult(Outcome.SANDBOX_ERROR, error_code=code, error_message=reason)


class Conversation:
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
            case "profile":
                self._learn(Profile.from_wire(request.value("profile")))
            case "run":
                self._run(request)
            case other:
                raise SpecInvalid(f"unknown request {other[:40]!r}")

    def _learn(self, profile: Profile) -> None:
        if len(self._profiles) >= wire.PROFILES_PER_CONNECTION:
            self._profiles.clear()
        self._profiles[profile.digest] = profile

    def _run(self, request: Fields) -> None:
        organization, digest = request.text("organization"), request.text("profile")
        limits = request.done(Limits.from_wire(request.value("limits")))
        if digest not in self._profiles:
            raise SpecInvalid("the profile was not sent on this connection")
        body = self._reader.read()
        result, output = self._service.serve(
            organization, self._profiles[digest], limits, body, self._worker
        )
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
        conversation = Conversation(self._service, worker)
        threading.Thread(target=conversation.hold, daemon=True, name="worker").start()


def listen(path: str) -> socket.socket:
    """Replaces the socket an earlier sandboxd left; only one that nobody listens on."""
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
