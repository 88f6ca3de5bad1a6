"""JavaScript for code tools: Deno, the system's or the wheel's, and what it needs inside."""

import json
import os
import shutil
import socket
import struct
import subprocess
import sysconfig
from pathlib import Path

from sandbox.daemon.subprocesses import start_child, wait_child
from sandbox.inside import deno_run, frames

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian: x86_64 and aarch64
_HEADER_BYTES = 64
_TABLE = struct.Struct("=32xQ14xHH")  # where the program headers begin, size and number
_PROGRAM = struct.Struct("=IIQQQQ")
_INTERPRETER = 3
# Where a run with namespaces sees them.
PROGRAM_INSIDE, SCRIPT_INSIDE = "/runtime/deno", "/runtime/javascript.js"
SCRIPT = str(Path(deno_run.__file__).with_name("javascript.js"))
_FIX = "Install the wheel deno, or Deno 2 itself, where sandboxd finds it."
_PATIENCE_S = 10
_MEMORY_BYTES = 64 << 20
_TRIAL = {"program": {"source": "function main(n) { return n + 1 }", "entry_point": "main"}}


def loader_of(program: str) -> str | None:
    """The path as the program says it; None for a static one. Raises ValueError, OSError."""
    with Path(program).open("rb") as file:
        header = file.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
            raise ValueError(f"{program} is not a program of this machine")
        start, size, count = _TABLE.unpack_from(header)
        file.seek(start)
        table = file.read(size * count)
        for at in range(0, len(table), size):
            kind, _, offset, _, _, length = _PROGRAM.unpack_from(table, at)
            if kind == _INTERPRETER:
                file.seek(offset)
                return file.read(length).rstrip(b"\0").decode()
    return None


def runtime() -> str:
    """The system's own, else the wheel's. Raises FileNotFoundError."""
    wheel = os.path.join(sysconfig.get_path("scripts"), "deno")
    found = shutil.which("deno") or shutil.which(wheel)
    if found is None:
        raise FileNotFoundError("Deno is neither installed nor in the environment")
    return os.path.realpath(found)


def executables(program: str) -> list[str]:
    """All that may be executed where nothing else may: Deno as `program`, and its loader."""
    loader = loader_of(runtime())
    return [program, *([] if loader is None else [loader])]


def flaw() -> str | None:
    """Why no JavaScript can be run here, with what to do about it; None: some was run."""
    try:
        answer = _try()
    except (OSError, frames.ConnectionEnded, frames.FrameTooLarge, ValueError) as error:
        return f"Deno does not run here: {type(error).__name__} {error}".strip() + f". {_FIX}"
    if answer != b"R2":
        return f"Deno answers with what it was not asked. {_FIX}"
    return None


def _try() -> bytes:
    """A job as a slot would do it, without a sandbox: the job is ours."""
    ours, theirs = socket.socketpair()
    runnable = deno_run.Runtime(runtime(), SCRIPT, new_code=True)
    with ours, theirs:
        ours.settimeout(_PATIENCE_S)
        process = start_child(
            deno_run.command(runnable, _MEMORY_BYTES),
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            env=deno_run.ENVIRONMENT,
            cwd="/",
        )
        try:
            theirs.close()
            frames.send(ours, json.dumps(_TRIAL | {"parameters": 1}).encode())
            return frames.FrameReader(ours, 100).read()
        finally:
            process.kill()
            wait_child(process)
