"""Run one job, from its frame to its answer. It runs the tool: nothing in this process is trusted
after."""

import json
import os
import re
import socket
import sys
from collections.abc import Callable
from types import CodeType, ModuleType, TracebackType
from typing import Any, NoReturn

from sandbox.inside import frames
from sandbox.inside.layers import rlimits
from sandbox.inside.toolcrib import ToolError

RESULT, ERROR = b"R", b"E"
_CODE = re.compile(r"[A-Z][A-Z0-9_]{2,39}\Z")
_MESSAGE_LENGTH = 500
_JOB_CAP = 1 << 28  # our own side sends it; only a slip could be larger
_TOOL_FILE = "<tool>"
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class RunnerFailure(Exception):
    """An end with a code that is decided inside the sandbox."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def serve_one(channel: socket.socket, modules: dict[str, ModuleType], data_before: int) -> NoReturn:
    """Wait for the one job of this process, do it, answer, and end the process."""
    reader = frames.FrameReader(channel, _JOB_CAP)
    try:
        limits, job = json.loads(reader.read()), json.loads(reader.read())
    except frames.ConnectionEnded:
        os._exit(0)  # the slot was retired without having been used
    rlimits.confine_run(limits, data_before)
    kind, payload = answer(job, modules)
    flush_streams()
    frames.send(channel, kind + payload)
    os._exit(0)


def warm_up() -> None:
    """Do a warm-up job, so that the real one finds code and pages in memory."""
    for source in ("def main(p):\n    return p", "def main(p):\n    return 1 / 0"):
        job = {"program": {"source": source, "entry_point": "main"}, "parameters": {"wall_s": 1.5}}
        answer(json.loads(json.dumps(job)), {})
    sys.modules.pop("tool", None)


def answer(job: dict[str, Any], modules: dict[str, ModuleType]) -> tuple[bytes, bytes]:
    """The frame to send: a result, or an error of the tool's own making."""
    try:
        return RESULT, encode(call(job, modules))
    except SystemExit as ended:
        if ended.code is not None and not isinstance(ended.code, int):  # it says why
            return ERROR, _encode(describe(ended)).encode()
        flush_streams()
        os._exit(ended.code or 0)
    except BaseException as error:  # noqa: BLE001 - whatever a tool throws is its answer
        rlimits.open_reserve()
        return ERROR, _encode(describe(error)).encode()


def call(job: dict[str, Any], modules: dict[str, ModuleType]) -> object:
    return entry_point(job["program"], modules)(job["parameters"])


def entry_point(program: dict[str, str], modules: dict[str, ModuleType]) -> Callable[..., object]:
    module = load(program["source"]) if "source" in program else modules.get(program["name"])
    function: object = getattr(module, program["entry_point"], None)
    if not callable(function):
        raise RunnerFailure("TOOL_ERROR", f"the tool has no function {program['entry_point']!r}")
    return function


def load(source: str) -> ModuleType:
    """Import the tool's source as a module of its own."""
    module = ModuleType("tool")
    sys.modules["tool"] = module
    execute(compile(source, _TOOL_FILE, "exec"), module)
    return module


def execute(code: CodeType, module: ModuleType) -> None:
    exec(code, module.__dict__)


def encode(value: object) -> bytes:
    try:
        return _encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise RunnerFailure("INVALID_RESULT", f"the result is not JSON: {text_of(error)}") from None


def describe(error: BaseException) -> dict[str, str]:
    if isinstance(error, RunnerFailure):
        return {"code": error.code, "message": str(error)}
    if isinstance(error, ToolError) and _CODE.match(str(error.code)):
        return {
            "code": str(error.code),
            "message": str(error.message)[:_MESSAGE_LENGTH],
        }
    if isinstance(error, MemoryError):
        return {
            "code": "MEMORY_LIMIT",
            "message": "the tool asked for more memory than it has",
        }
    return {"code": "TOOL_ERROR", "message": f"{summary(error)}{place(error)}"}


def summary(error: BaseException) -> str:
    text = text_of(error)
    name = type(error).__name__[:100]
    return f"{name}: {text}" if text else name


def text_of(error: BaseException) -> str:
    """The tool may have written its own __str__, which may fail as well."""
    try:
        return str(error.msg if isinstance(error, SyntaxError) else error)[:_MESSAGE_LENGTH]
    except BaseException:  # noqa: BLE001 - the tool's own code ran
        return ""


def place(error: BaseException) -> str:
    line = error.lineno if isinstance(error, SyntaxError) else last_line(error.__traceback__)
    return f" (line {line})" if line else ""


def last_line(traceback: TracebackType | None) -> int | None:
    """The innermost line of the tool's own source that the error passed through."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename.startswith("<tool"):
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def flush_streams() -> None:
    """What the tool printed last; it may have closed or replaced its streams."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
