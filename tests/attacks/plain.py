"""A run without a sandbox: a child process like any other, and a parent that believes it."""

import ast
import ctypes
import json
import os
import pickle
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from sandbox.errors import ErrorCode
from sandbox.inside import toolcrib
from sandbox.inside.layers import libc
from sandbox.spec import MIB, RunOutcome
from tests.attacks import plain_http
from tests.attacks.scene import Scene
from tests.attacks.sources import Body, source_of

LONGEST_S = 3.0
_GRACE_S, _QUIET_S = 0.2, 0.03
_OUTCOMES = {"TIMEOUT": RunOutcome.TIMEOUT, "CANCELLED": RunOutcome.CANCELLED}
_STATUSES = {
    124: ErrorCode.TIMEOUT,
    128 + signal.SIGXCPU: ErrorCode.CPU_LIMIT,
    137: ErrorCode.MEMORY_LIMIT,
}
_HARD = (
    (resource.RLIMIT_AS, 4096 * MIB),
    (resource.RLIMIT_NPROC, 200),
    (resource.RLIMIT_FSIZE, 1 << 41),
    (resource.RLIMIT_NOFILE, 4096),
    (resource.RLIMIT_CPU, 5),
    (resource.RLIMIT_CORE, 1 * MIB),
)


@dataclass
class Answer:
    """What a parent that trusts a process makes of its end."""

    value: Any = None
    outcome: RunOutcome = RunOutcome.FAILED
    code: str = ""
    text: str = ""
    cpu_ms: float = 0
    overstayed: bool = False


class Plain:
    """A child process like any other, and a parent that believes what it says."""

    def __init__(
        self, body: Body, parameters: dict[str, Any], scene: Scene, longest_s: float = LONGEST_S
    ) -> None:
        self._longest_s = longest_s
        self.marker, source = parameters["marker"], source_of(body)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._output_file = os.memfd_create("output", 0)
        self._began = time.monotonic()
        self._child = os.fork()
        if self._child == 0:
            _live(source, parameters, theirs, self._output_file, scene.uid)
        theirs.close()

    def has_ended(self) -> bool:
        look = os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return look is not None or time.monotonic() - self._began > self._longest_s

    def finish(self, wall_s: float) -> Answer:
        patience = min(wall_s + _GRACE_S, self._longest_s)
        received = self._receive(self._began + patience)
        overstayed = time.monotonic() - self._began >= patience and wall_s < self._longest_s
        with suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        _, status, usage = os.wait4(self._child, 0)
        answer = read_trustingly(received, os.waitstatus_to_exitcode(status))
        answer.overstayed = overstayed
        answer.text = f"{answer.value}\n{answer.code}\n{answer.text}\n{self._output()}"
        if not (isinstance(answer.value, dict) and "usage" in answer.value):
            answer.cpu_ms = 1000 * (usage.ru_utime + usage.ru_stime)
        return answer

    def _receive(self, deadline: float) -> bytes:
        """Until it says nothing more: the last word counts."""
        received = bytearray()
        with self._channel:
            poll = select.poll()
            poll.register(self._channel, select.POLLIN)
            while (left := deadline - time.monotonic()) > 0:
                wait_s = _QUIET_S if _has_whole_frame(received) else left
                if not poll.poll(1000 * wait_s):
                    break
                if not (data := self._channel.recv(1 << 20)) or len(received) > 64 * MIB:
                    break
                received += data
        return bytes(received)

    def _output(self) -> str:
        try:
            return os.pread(self._output_file, 1 << 20, 0).decode("utf-8", "surrogateescape")
        finally:
            os.close(self._output_file)


def _has_whole_frame(received: bytes | bytearray) -> bool:
    return len(received) >= 4 and len(received) >= 4 + int.from_bytes(received[:4], "big")


def _frames(received: bytes) -> Iterator[bytes]:
    while _has_whole_frame(received):
        end = 4 + int.from_bytes(received[:4], "big")
        yield received[4:end]
        received = received[end:]


def read_trustingly(received: bytes, status: int) -> Answer:
    frames = list(_frames(received))
    if not frames and int.from_bytes(received[:4], "big") > len(received) > 5:
        frames = [received[4:]]
    if not frames:
        code = _STATUSES.get(status if status >= 0 else 128 - status, "")
        return Answer(None, RunOutcome.SUCCESS if status == 0 else RunOutcome.FAILED, code)
    kind, payload = frames[-1][:1], frames[-1][1:]
    try:
        value = take_anything(payload if kind in (b"R", b"E") else frames[-1])
    except RecursionError:
        return Answer("the reader fell over", RunOutcome.SUCCESS)
    except Exception:  # noqa: BLE001 - unpickling raises what it likes
        return Answer()
    return _failed(value) if kind == b"E" else _succeeded(value)


def _succeeded(value: Any) -> Answer:
    usage = value.get("usage", {}) if isinstance(value, dict) else {}
    return Answer(value, RunOutcome.SUCCESS, cpu_ms=usage.get("cpu_time_ms", 0))


def _failed(value: Any) -> Answer:
    if not isinstance(value, dict):
        return Answer()
    code, message = str(value.get("code")), str(value.get("message"))
    outcome = _OUTCOMES.get(code, RunOutcome.FAILED)
    return Answer(None, RunOutcome(value.get("outcome", outcome)), code, message)


def take_anything(payload: bytes) -> Any:
    """JSON as the library reads it, whatever the encoding; else a pickle; else Python."""
    for spelling in (payload, payload.decode("latin-1")):
        with suppress(ValueError):
            return json.loads(spelling)
    with suppress(pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError):
        return pickle.loads(payload)
    return ast.literal_eval(payload.decode())


def _live(
    source: str, parameters: dict[str, Any], channel: socket.socket, output: int, uid: int
) -> NoReturn:
    status = 1
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.dup2(channel.fileno(), 3)
        _become_ordinary(uid)
        status = _answer(source, parameters)
    except BaseException:  # noqa: BLE001 - the outermost edge of this process
        traceback.print_exc()
    finally:
        os._exit(status)


def _become_ordinary(uid: int) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    for kind, value in _HARD:
        resource.setrlimit(kind, (value, value))
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        ctypes.CDLL(None).prctl(libc.PR_SET_DUMPABLE, 1, 0, 0, 0)
    else:
        libc.capset(())


def _answer(source: str, parameters: dict[str, Any]) -> int:
    sys.modules |= {"toolcrib": toolcrib, "sandbox_http": plain_http}
    names: dict[str, Any] = {"__name__": "tool"}
    try:
        exec(compile(source, "<tool>", "exec"), names)
        payload = b"R" + _encode(names["main"](parameters))
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except BaseException as error:  # noqa: BLE001 - whatever a tool throws is its answer
        payload = b"E" + _encode_error(error)
    whole = len(payload).to_bytes(4, "big") + payload
    while whole:
        whole = whole[os.write(3, whole) :]
    return 0


def _encode(value: object) -> bytes:
    try:
        return json.dumps(value).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError):
        return pickle.dumps(value)


def _encode_error(error: BaseException) -> bytes:
    code = getattr(error, "code", "TOOL_ERROR")
    message = f"{type(error).__name__}: {error}"
    return json.dumps({"code": code, "message": message}).encode()
