"""The first process of a container: what a slot of stage 2 does where the runtime has mounted.

The runtime made the namespaces, set limits and took all capabilities. stdin is the channel.
"""

import fcntl
import gc
import json
import os
import resource
import signal
import socket
import sys
from types import ModuleType
from typing import Any

from sandbox.inside import frames, runner, sandbox_http, toolcrib
from sandbox.inside.filter import seccomp
from sandbox.inside.filter.call_rules import FilterRequirements
from sandbox.inside.layers import landlock, libc

GO, READY, FAILED = b"go", b"ready", b"failed "
_ABOVE_STREAMS = 3


def main(setup_path: str) -> None:
    """Shut this process in as `setup_path` says, report, and do one job."""
    channel = take_channel()
    try:
        with open(setup_path) as file:
            setup = json.load(file)
        modules = import_all(setup)
        await_parent(channel)
        shut_in(setup)
    except (OSError, ValueError) as error:
        frames.send(channel, FAILED + str(error).encode())
        sys.exit(1)
    frames.send(channel, READY)
    runner.serve_one(channel, modules, data_bytes())


def take_channel() -> socket.socket:
    """Runtimes hand on the three usual streams and no more; nothing is left to read on stdin."""
    channel = socket.socket(fileno=fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, _ABOVE_STREAMS))
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return channel


def await_parent(channel: socket.socket) -> None:
    """Until the runtime has left and sandboxd is the parent, whose end shall be this one's too."""
    note = frames.FrameReader(channel, len(GO)).read()
    if note != GO:
        raise ValueError(f"unexpected {note!r}")
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)


def shut_in(setup: dict[str, Any]) -> None:
    """The layers of the level that are a process's own."""
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    runner.warm_up()
    if not setup["layers"]["new_code"]:
        libc.prctl(libc.PR_SET_MDWE, libc.MDWE_REFUSE_EXEC_GAIN)
    landlock.Ruleset(**setup["landlock"]).restrict()
    seccomp.SeccompFilter(os.uname().machine, filter_of(setup["layers"])).load()


def filter_of(layers: dict[str, Any]) -> FilterRequirements:
    """Its container ends with it, so it may make sessions; it has no egress socket to hand over."""
    programs, new_code = layers["programs"], layers["new_code"]
    return FilterRequirements(layers["calls"], programs=programs, new_code=new_code, sessions=True)


def import_all(setup: dict[str, Any]) -> dict[str, ModuleType]:
    """Returns the preloaded modules."""
    sys.modules["toolcrib"], sys.modules["sandbox_http"] = toolcrib, sandbox_http
    sys.path.extend(setup["libraries"])
    modules = {name: preload(name, source) for name, source in setup["preload"]}
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    gc.collect()
    gc.freeze()
    return modules


def preload(name: str, source: str) -> ModuleType:
    module = ModuleType(name)
    sys.modules[name] = module
    runner.execute(compile(source, f"<tool {name}>", "exec"), module)
    return module


def data_bytes() -> int:
    """About what this process had before its job; without /proc it cannot know it exactly."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
