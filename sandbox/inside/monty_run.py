"""A run in Monty, a small Python written in Rust: one VM process in the sandbox of its slot.

This process holds the client of the VM and never runs the tool; what it reads from the VM is as
hostile as the tool. Both live under the same filter, rules, limits and namespaces.
"""

import json
import os
import socket
import sys
from typing import Any, NoReturn

from pydantic_monty import (
    ExternalModule,
    Monty,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
)

from sandbox.inside import frames, runner
from sandbox.inside.layers import rlimits
from sandbox.inside.toolcrib import ToolError

_JOB_CAP = 1 << 28  # our own side sends it; only a slip could be larger
_MESSAGE_LENGTH = 500
_TOOL_FILE = "<python-input-0>"  # what Monty calls the first text a session is fed
_RESULT = "toolcrib_result"
_ENCODE = f"import json as toolcrib_json\ntoolcrib_json.dumps({_RESULT}, allow_nan=False)"


def serve_one(channel: socket.socket, program: str, data_before: int) -> NoReturn:
    """Wait for the one job of this process, have the VM at `program` do it, answer, and end."""
    reader = frames.FrameReader(channel, _JOB_CAP)
    try:
        limits, job = json.loads(reader.read()), json.loads(reader.read())
    except frames.ConnectionEnded:
        os._exit(0)  # the slot was retired without having been used
    rlimits.confine_run(limits, data_before)
    os.environ["TOKIO_WORKER_THREADS"] = "1"  # else one for each processor of this machine
    with Monty(binary_path=program, min_processes=1, max_processes=1) as pool:
        kind, payload = answer(job, pool, int(limits["memory_bytes"]))
        runner.flush_streams()
        frames.send(channel, kind + payload)
        os._exit(0)


def answer(job: dict[str, Any], pool: Monty, memory_bytes: int) -> tuple[bytes, bytes]:
    """The frame to send: a result, or an error of the tool's own making."""
    ending = ReportedEnding()
    try:
        with pool.checkout(
            limits={"max_memory": memory_bytes},
            os_policy={"sleep": "system", "sleep_system_max": float("inf")},
            external_modules={"toolcrib": ExternalModule({"ToolError": ending.tool_error})},
        ) as session:
            return runner.RESULT, call(job, session).encode()
    except MontyCrashedError:
        os._exit(1)
    except Exception as error:  # noqa: BLE001 - whatever a tool throws is its answer
        return runner.ERROR, json.dumps(ending.describe(error)).encode()


def call(job: dict[str, Any], session: MontySession) -> str:
    """The result as JSON text, made on the VM's side."""
    program = job["program"]
    _feed(session, program["source"])
    name = _entry_point(session, program["entry_point"])
    _feed(session, f"{_RESULT} = {name}(parameters)", {"parameters": job["parameters"]})
    try:
        return str(_feed(session, _ENCODE))
    except MontyRuntimeError as error:
        reason = f"the result is not JSON: {summary(error)}"
        raise runner.RunnerFailure("INVALID_RESULT", reason) from None


def _entry_point(session: MontySession, name: str) -> str:
    nothing = runner.RunnerFailure("TOOL_ERROR", f"the tool has no function {name!r}")
    if not name.isidentifier():
        raise nothing
    try:
        _feed(session, name)
    except MontyError:
        raise nothing from None
    return name


def _feed(session: MontySession, code: str, inputs: dict[str, Any] | None = None) -> object:
    return session.feed_run(code, inputs=inputs, print_callback=_print)


def _print(stream: str, text: str) -> None:
    out = sys.stderr if stream == "stderr" else sys.stdout
    out.write(text)
    out.flush()


class ReportedEnding:
    """What the tool said about its end, by the only function it gets from outside the VM."""

    def __init__(self) -> None:
        self._said: ToolError | None = None

    def tool_error(self, code: str, message: str = "") -> NoReturn:
        """`raise ToolError(…)` ends here; the VM makes an Exception with this text of it."""
        self._said = ToolError(code, str(message))
        raise self._said

    def describe(self, error: Exception) -> dict[str, str]:
        if not isinstance(error, MontyRuntimeError | MontySyntaxError):
            return runner.describe(error)
        inner, reported = error.exception(), self._said
        if reported is not None and type(inner) is Exception and str(inner) == reported.message:
            return runner.describe(reported)
        if isinstance(inner, MemoryError):
            return runner.describe(inner)
        return {"code": "TOOL_ERROR", "message": f"{summary(error)}{place(error)}"}


def summary(error: MontyRuntimeError | MontySyntaxError) -> str:
    return error.display("type-msg")[:_MESSAGE_LENGTH]


def place(error: MontyRuntimeError | MontySyntaxError) -> str:
    """The innermost line of the tool's own source that the error passed through."""
    lines = [frame.line for frame in error.traceback() if frame.filename == _TOOL_FILE]
    return f" (line {lines[-1]})" if lines else ""
