"""A run in JavaScript: the slot becomes Deno, as the same process in the same sandbox.

Nothing is started beside it: after execve the same process, with the same filter, rules, limits
and namespaces, reads the job from the channel by itself. `javascript.js` is the rest of this.
"""

import json
import os
import signal
import socket
import struct
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from sandbox.inside.layers import rlimits

_MIB = 1 << 20
_ASKS_NOTHING = ("--no-remote", "--no-npm", "--no-config", "--no-lock", "--cached-only")
_KEEPS_NOTHING = ("--no-prompt", "--no-code-cache", "--ignore-env")
# The caches would be files in the run's /tmp; where none can be made they stay in memory.
_NO_DIRECTORY = "/dev/null/deno"
ENVIRONMENT = {
    "DENO_DIR": _NO_DIRECTORY,
    "DENO_NO_UPDATE_CHECK": "1",
    "NO_COLOR": "1",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
}
_RUNTIME_BYTES = 32 * _MIB  # its own heap and stacks: the rlimit counts them, the tool should not
_CODE_RANGE_BYTES = 512 * _MIB  # what V8 asks for when it may make code, used or not
_BESIDE_HEAP_BYTES = 16 * _MIB
_LARGEST_NURSERY_BYTES = 16 * _MIB
_LENGTH = struct.Struct(">I")
_NOT_STARTED = 127  # as a shell says it
_CHANGED_BY_PYTHON = (signal.SIGPIPE, signal.SIGINT)


class Runtime(NamedTuple):
    """`program` is Deno and `script` is `javascript.js`, as paths that this process sees.

    `new_code`: memory may become executable, so that V8 may compile.
    """

    program: str
    script: str
    new_code: bool


def become_deno(channel: socket.socket, runtime: Runtime) -> NoReturn:
    """Wait for the limits of the one job of this process, and become the runtime that does it."""
    frame = _read_frame(channel)
    if frame is None:
        os._exit(0)  # the slot was retired without having been used
    limits = json.loads(frame)
    code_range = _CODE_RANGE_BYTES if runtime.new_code else 0
    rlimits.confine_run(limits, _RUNTIME_BYTES + code_range)
    become(channel.fileno(), command(runtime, int(limits["memory_bytes"])))


def become(channel: int, arguments: list[str]) -> NoReturn:
    """Deno can read one stream and write two: job, answer, and the tool's output.

    Printed output goes where stdout went; stderr is unused then.
    """
    os.dup2(1, 2)
    os.dup2(channel, 0)
    os.dup2(channel, 1)
    os.execve(arguments[0], arguments, ENVIRONMENT)


def command(runtime: Runtime, memory_bytes: int) -> list[str]:
    flags = ",".join(_engine(memory_bytes, runtime.new_code))
    options = [*_ASKS_NOTHING, *_KEEPS_NOTHING, f"--v8-flags={flags}"]
    return [runtime.program, "run", *options, runtime.script]


def become_server(
    channel: socket.socket, modules: dict[str, ModuleType], data_before: int
) -> NoReturn:
    """Wait for the one job of this process, and become the server that it names."""
    limits, job = _read(channel), _read(channel)
    rlimits.confine_server(limits, data_before)
    for number in _CHANGED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    os.dup2(channel.fileno(), 0)
    os.dup2(channel.fileno(), 1)
    try:
        os.chdir(job["directory"])
        os.execve(job["command"][0], job["command"], _environment(job["environment"]))
    except OSError as error:
        os.write(2, f"{job['command'][0]}: {error.strerror}\n".encode())
    os._exit(_NOT_STARTED)


def _engine(memory_bytes: int, new_code: bool) -> list[str]:
    """V8 must know its limit to collect garbage in time, and reach the run's a little sooner.

    One thread does all the work of V8, regardless of the machine's number of processors.
    """
    heap = max(memory_bytes - _BESIDE_HEAP_BYTES, memory_bytes // 2)
    nursery = min(memory_bytes // 16, _LARGEST_NURSERY_BYTES)
    flags = ["--single-threaded", f"--max-old-space-size={_mib(heap)}"]
    flags.append(f"--max-semi-space-size={_mib(nursery)}")
    return flags if new_code else [*flags, "--jitless"]


def _mib(size: int) -> int:
    return max(1, size // _MIB)


def _read_frame(channel: socket.socket) -> bytes | None:
    """Exactly one frame, for what follows it is Deno's to read; None when there is none."""
    header = channel.recv(_LENGTH.size, socket.MSG_WAITALL)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    return channel.recv(length, socket.MSG_WAITALL)


def _environment(variables: list[tuple[str, str]]) -> dict[str, str]:
    """What the template has, but for what its own interpreter needs; then what is given."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    return own | dict(variables)


def _read(channel: socket.socket) -> Any:
    """Exactly one frame, for what follows it is the server's to read."""
    header = channel.recv(_LENGTH.size, socket.MSG_WAITALL)
    if len(header) < _LENGTH.size:
        os._exit(0)  # it was retired without having been used
    (length,) = _LENGTH.unpack(header)
    return json.loads(channel.recv(length, socket.MSG_WAITALL))
