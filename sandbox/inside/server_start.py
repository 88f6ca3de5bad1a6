"""A lasting server: the slot becomes its program, as the same process in the same sandbox.

The channel becomes its stdin and stdout, stderr stays what it was. Nothing is started beside it.
"""

import json
import os
import signal
import socket
import struct
from types import ModuleType
from typing import Any, NoReturn

from sandbox.inside.layers import rlimits

_LENGTH = struct.Struct(">I")
_NOT_STARTED = 127  # as a shell says it
_CHANGED_BY_PYTHON = (signal.SIGPIPE, signal.SIGINT)


def become_server(channel: socket.socket, modules: dict[str, ModuleType], data_before: int) -> NoReturn:
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


def _environment(given: list[tuple[str, str]]) -> dict[str, str]:
    """What the template has, but for what its own interpreter needs; then what is given."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    return own | dict(given)


def _read(channel: socket.socket) -> Any:
    """Exactly one frame, for what follows it is the server's to read."""
    header = channel.recv(_LENGTH.size, socket.MSG_WAITALL)
    if len(header) < _LENGTH.size:
        os._exit(0)  # it was retired without having been used
    (length,) = _LENGTH.unpack(header)
    return json.loads(channel.recv(length, socket.MSG_WAITALL))
