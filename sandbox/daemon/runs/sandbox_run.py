"""One run from a taken slot to its result. It ends by its answer, a limit, or the worker."""

import json
import os
import re
import select
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sandbox import untrusted_json
from sandbox.daemon.limits.meter import KeptText, RunMeter
from sandbox.daemon.limits.quotas import Share, file_bytes
from sandbox.daemon.runs.janitor import was_killed
from sandbox.daemon.runs.slot import SandboxSlot
from sandbox.daemon.subprocesses import threads_of
from sandbox.daemon.worker_channel import WorkerChannel
from sandbox.egress.ticket_client import attach
from sandbox.errors import ErrorCode, RunRefused
from sandbox.inside import frames
from sandbox.spec import Limits, RunOutcome, SandboxResult

RESULT, ERROR = b"R", b"E"
# What the tool's side may say of itself in our words; the others are said by who watched it.
_ITS_OWN = frozenset({ErrorCode.TOOL_ERROR, ErrorCode.INVALID_RESULT, ErrorCode.MEMORY_LIMIT})
_OURS = frozenset(ErrorCode) - _ITS_OWN
_CODE = re.compile(r"[A-Z][A-Z0-9_]{2,39}\Z")
_MESSAGE_LENGTH = 800  # class name, 500 characters of text, line
_CHUNK = 1 << 16
_AT_ONCE = struct.pack("ll", 1, 0)  # a timeval: a slot that waits for its job reads it at once
_SHORT_RUN_MS = 4.0  # a run that is over by then has the processors to itself
_SPARE_PROCESSES = 16  # with a cgroup the rlimit is the fallback: the cgroup counts refusals
_OUTCOMES: dict[str, RunOutcome] = {
    ErrorCode.TIMEOUT: RunOutcome.TIMEOUT,
    ErrorCode.CANCELLED: RunOutcome.CANCELLED,
    ErrorCode.LOST: RunOutcome.SANDBOX_ERROR,
}
_UNLIMITED = 1 << 16
_MAYBE_REFUSED = (ErrorCode.TOOL_ERROR, ErrorCode.EXITED)
_MESSAGES = {
    ErrorCode.TIMEOUT: "the tool ran longer than {limits.wall_s} s",
    ErrorCode.CANCELLED: "the caller ended the run",
    ErrorCode.CPU_LIMIT: "the tool used more than {limits.cpu_s} s of processor time",
    ErrorCode.MEMORY_LIMIT: "the tool used more than {limits.memory_bytes} bytes of memory",
    ErrorCode.OUTPUT_LIMIT: "the tool wrote more than {limits.output_bytes} bytes",
    ErrorCode.PROCESS_LIMIT: "the tool had more than {limits.processes} processes",
    ErrorCode.DISK_LIMIT: "the tool wrote more than {limits.tmp_bytes} bytes"
    " or {limits.tmp_inodes} files",
    ErrorCode.QUOTA_LIMIT: "a path that the tool shares would hold more than {limits.shared_bytes}"
    " bytes or {limits.shared_files} files",
    ErrorCode.OPERATIONS_LIMIT: "the tool did more than {limits.filesystem_operations} operations"
    " on files",
    ErrorCode.EXITED: "the tool's process ended without a result",
    ErrorCode.LOST: "the tool's process was killed by somebody else",
}
_SILENT = "the worker said nothing for so long that its lease must be running out"


@dataclass(frozen=True)
class RunEnd:
    """How a run ended: with the raw JSON of a result, or with a code and a text."""

    output: bytes = b""
    code: str | None = None
    message: str | None = None


def read_answer(frame: bytes) -> RunEnd:
    """Anything unclean is INVALID_RESULT; an accepted output is handed on as it came."""
    kind, payload = frame[:1], frame[1:]
    try:
        value = untrusted_json.parse(payload, large_integers=True)
        if kind == RESULT:
            return RunEnd(output=payload)
        if kind == ERROR:
            return _read_error(value)
        raise untrusted_json.HostileJson("neither result nor error")
    except untrusted_json.HostileJson as reason:
        return RunEnd(code=ErrorCode.INVALID_RESULT, message=f"the result was refused: {reason}")


class SlotEnded(Exception):
    """The slot died, or did not take its job, before it had all of it: nothing of the tool ran."""


class SandboxRun:
    """Single use, like the slot it drives."""

    def __init__(
        self, slot: SandboxSlot, limits: Limits, worker: WorkerChannel, share: Share | None = None
    ) -> None:
        self._slot, self._limits, self._worker = slot, limits, worker
        self._share = share
        self._meter = RunMeter(limits, slot.leaf, slot.operations)
        self._reader = frames.FrameReader(slot.channel, limits.output_bytes + 1)
        self._streams = {slot.stdout: KeptText(), slot.stderr: KeptText()}
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], RunEnd | None]] = {}
        self._watch(slot.channel.fileno(), self._hear)
        self._watch(worker.fileno(), self._listen)
        for stream in self._streams:
            self._watch(stream, lambda stream=stream: self._drain(stream))  # type: ignore[misc]
        if slot.scratch is not None:  # no namespace ends the others, who hold the channel as well
            self._watch(slot.pidfd, self._outlived)
        if slot.operations is not None:
            self._watch(slot.operations.alarm, self._stands_still)
        if slot.leaf.alarm is not None:
            self._watch(slot.leaf.alarm, lambda: self._ended_by(ErrorCode.MEMORY_LIMIT))

    def perform(self, body: bytes, start_s: float, sandbox_id: str) -> tuple[SandboxResult, bytes]:
        """The result, and the output as JSON text that was found to be clean.

        Raises SlotEnded, and Refused with NOT_BEGUN when its caller is gone.
        """
        self._slot.leaf.limit(self._limits.memory_bytes, self._limits.processes)
        if self._slot.operations is not None:
            self._slot.operations.reset(self._limits.filesystem_operations)
        end = self._converse(body)
        usage = self._meter.usage(start_s)
        self._slot.kill()
        out, err = (self._rest_of(stream) for stream in self._streams)
        result = SandboxResult(
            outcome=_outcome(end),
            error_code=end.code,
            error_message=end.message,
            stdout=out,
            stderr=err,
            usage=usage,
            sandbox_id=sandbox_id,
        )
        return result, end.output

    def _converse(self, body: bytes) -> RunEnd:
        self._begin(body)
        while True:
            ready = self._poll.poll(self._patience_ms())
            for descriptor, _ in ready:
                end = self._handlers[descriptor]()
                if end is not None:
                    return self._correct(end)
            exceeded = self._meter.exceeded()
            if exceeded is not None:
                return self._ended_by(exceeded)
            if self._worker.left_s() <= 0:
                return RunEnd(code=ErrorCode.LOST, message=_SILENT)
            self._slot.refill()

    def _begin(self, body: bytes) -> None:
        if not self._worker.waits():
            raise RunRefused(ErrorCode.NOT_BEGUN, "nobody waited for the run when it could begin")
        try:
            self._slot.channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _AT_ONCE)
            frames.send(self._slot.channel, self._slot_limits(), body)
        except OSError:  # it is gone, or reads nothing: meanwhile the clock would not be checked
            raise SlotEnded from None

    def _patience_ms(self) -> float:
        watch_ms = max(0, min(self._meter.watch_s(), self._worker.left_s()) * 1000)
        return watch_ms if self._slot.ordered else min(watch_ms, _SHORT_RUN_MS)

    def _slot_limits(self) -> bytes:
        own = {
            "processes": self._process_rlimit(),
            "file_bytes": file_bytes(self._limits, self._share),
        }
        return json.dumps(self._limits.to_wire() | own).encode()

    def _process_rlimit(self) -> int:
        """Without a user namespace of its own, all processes of this user count together."""
        wanted = self._limits.processes
        if self._slot.scratch is not None:
            return (
                _UNLIMITED
                if self._slot.leaf.counted
                else wanted + threads_of(self._slot.account.uid)
            )
        return wanted + (_SPARE_PROCESSES if self._slot.leaf.counted else 0)

    def _watch(
        self,
        descriptor: int,
        handler: Callable[[], RunEnd | None],
        events: int = select.POLLIN,
    ) -> None:
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, events)

    def _ended_by(self, code: ErrorCode) -> RunEnd:
        return RunEnd(code=code, message=_MESSAGES[code].format(limits=self._limits))

    def _stands_still(self) -> RunEnd | None:
        operations = self._slot.operations
        assert operations is not None
        operations.hear()
        if operations.is_over_limit():
            return self._ended_by(ErrorCode.OPERATIONS_LIMIT)
        if self._share is None or not self._share.extend():
            return self._ended_by(ErrorCode.QUOTA_LIMIT)
        operations.resume()
        return None

    def _listen(self) -> RunEnd | None:
        return None if self._worker.hear() else self._ended_by(ErrorCode.CANCELLED)

    def _hear(self) -> RunEnd | None:
        """The tool's side said something, or closed. Raises SlotEnded.

        The kernel distinguishes an end that left some of what we sent unread from any other.
        """
        if self._slot.channel.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise SlotEnded
        open_still = self._reader.feed()
        try:
            frame = self._reader.next_whole()
        except frames.FrameTooLarge:
            return self._ended_by(ErrorCode.OUTPUT_LIMIT)
        if frame is not None:
            return read_answer(frame)
        return None if open_still else self._ended_by(ErrorCode.EXITED)

    def _outlived(self) -> RunEnd | None:
        """The first process is gone; what it said last may still be in the channel."""
        waiting = select.poll()
        waiting.register(self._slot.channel, select.POLLIN)
        while waiting.poll(0):
            end = self._hear()
            if end is not None:
                return end
        return self._ended_by(ErrorCode.EXITED)

    def _drain(self, stream: int) -> RunEnd | None:
        data = os.read(stream, _CHUNK)
        self._streams[stream].add(data)
        if not data:
            self._poll.unregister(stream)
        if self._streams[stream].received > self._limits.output_bytes:
            return self._ended_by(ErrorCode.OUTPUT_LIMIT)
        return None

    def _rest_of(self, stream: int) -> str:
        """What was already written when the run ended; a pipe holds 64 KiB."""
        os.set_blocking(stream, False)
        try:
            self._streams[stream].add(os.read(stream, _CHUNK))
        except BlockingIOError:
            pass
        return self._streams[stream].text()

    def _correct(self, end: RunEnd) -> RunEnd:
        """An end that looks like the tool's own may have been the kernel's doing."""
        leaf = self._slot.leaf
        if leaf.memory_exceeded():
            return self._ended_by(ErrorCode.MEMORY_LIMIT)
        if end.code in _MAYBE_REFUSED and leaf.processes_refused():
            return self._ended_by(ErrorCode.PROCESS_LIMIT)
        operations = self._slot.operations
        if end.code in _MAYBE_REFUSED and operations is not None and operations.full():
            return self._ended_by(ErrorCode.DISK_LIMIT)
        if end.code is None and self._meter.late():  # an answer counts until the deadline
            return self._ended_by(ErrorCode.TIMEOUT)
        return self._of_exit(end) if end.code == ErrorCode.EXITED else end

    def _of_exit(self, end: RunEnd) -> RunEnd:
        """A process that is gone went over a limit, was killed by another, or ended itself."""
        if exceeded := self._meter.exceeded():
            return self._ended_by(exceeded)
        return self._ended_by(ErrorCode.LOST) if was_killed(self._slot.pidfd) else end


class EgressSockets:
    def __init__(self, egress_path: str) -> None:
        self._path = egress_path

    @contextmanager
    def opened(self, slot: SandboxSlot, ticket: str | None) -> Iterator[None]:
        """Attach the far ends of the slot's egress sockets to the broker until the run is over.

        Raises Refused with EGRESS_UNAVAILABLE. Without a ticket they lead nowhere.
        """
        if slot.door is None or ticket is None:
            slot.shut_doors()
            yield
            return
        if not self._path:
            raise RunRefused(ErrorCode.EGRESS_UNAVAILABLE, "sandboxd knows no egress broker")
        lifeline = attach(self._path, ticket, helper=slot.door, proxy=slot.proxy)
        slot.shut_doors()
        with lifeline:
            yield


def _read_error(value: Any) -> RunEnd:
    if isinstance(value, dict):
        code, message = value.get("code"), value.get("message")
        if isinstance(code, str) and isinstance(message, str) and _CODE.match(code):
            honest = ErrorCode.TOOL_ERROR if code in _OURS else code
            return RunEnd(code=honest, message=message[:_MESSAGE_LENGTH])
    raise untrusted_json.HostileJson("an error without code and message")


def _outcome(end: RunEnd) -> RunOutcome:
    if end.code is None:
        return RunOutcome.SUCCESS
    return _OUTCOMES.get(end.code, RunOutcome.FAILED)
