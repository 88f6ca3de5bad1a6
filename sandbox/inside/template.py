"""The template: one warm interpreter per organization and profile, forked for every slot.

It runs inside bwrap's namespaces with the right to mount there, holds no secret, and never
executes a custom tool: only the profile's preloaded modules, once.
"""

import fcntl
import gc
import json
import os
import platform
import signal
import socket
import sys
from types import ModuleType
from typing import Any

from sandbox.inside import capabilities, landlock, runner, seccomp, stage2, toolcrib

_LIBRARIES = "/libraries"
_EXECUTABLE = ("/usr", "/python", _LIBRARIES)
_HIGH = 64


def main(report_fd: int) -> None:
    """Read the set-up from stdin, then fork slots on request until the socket closes."""
    # Out of the way: a slot puts its own descriptors at fixed low numbers.
    report = socket.socket(fileno=fcntl.fcntl(report_fd, fcntl.F_DUPFD_CLOEXEC, _HIGH))
    os.close(report_fd)
    setup = json.loads(sys.stdin.buffer.read())
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    prepared = prepare(setup)
    report.send(b"template")
    serve(report, prepared)


def prepare(setup: dict[str, Any]) -> stage2.Prepared:
    sys.modules["toolcrib"] = toolcrib
    sys.path.append(_LIBRARIES)
    prepared = stage2.Prepared(
        last_capability=capabilities.last_capability(),
        ruleset=landlock.Ruleset(
            executable=[path for path in _EXECUTABLE if os.path.isdir(path)],
            writable=["/tmp", *setup["writable"]],
        ),
        filter=seccomp.Filter(platform.machine()),
        modules={name: preload(name, source) for name, source in setup["preload"]},
    )
    runner.warm_up()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    gc.collect()
    gc.freeze()
    return prepared


def preload(name: str, source: str) -> ModuleType:
    module = ModuleType(name)
    sys.modules[name] = module
    runner.execute(compile(source, f"<tool {name}>", "exec"), module)
    return module


def serve(report: socket.socket, prepared: stage2.Prepared) -> None:
    # Ended slots need no waiting for; what became of them sandboxd sees by their pidfd.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    own_pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)
    while request := report.recv(256):
        tmp_bytes, count = map(int, request.split())
        for _ in range(count):
            os.unshare(os.CLONE_NEWPID)
            if os.fork() == 0:
                stage2.become_slot(report, prepared, tmp_bytes, b"%d" % tmp_bytes)
            os.setns(own_pid_namespace, os.CLONE_NEWPID)


if __name__ == "__main__":
    main(int(sys.argv[1]))
