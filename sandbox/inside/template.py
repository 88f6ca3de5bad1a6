"""The template: one warm interpreter per organization and profile, forked for every slot.

It runs inside bwrap's namespaces with the right to mount there, holds no secret, and never
executes a custom tool: only the profile's preloaded modules, once.
"""

import fcntl
import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from sandbox.inside import deno_run, runner, sandbox_http, session_kill, stage2, toolcrib
from sandbox.inside.filter import seccomp
from sandbox.inside.filter.call_rules import FilterRequirements
from sandbox.inside.layers import landlock, libc, mounts
from sandbox.inside.stage2 import Disk, Layers

_LIBRARIES = "/libraries"
_HIGH = 64
GOODBYE = b"goodbye"


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
    """`setup` comes from `daemon/launch.py`."""
    layers, machine = Layers(**setup["layers"]), os.uname().machine
    sys.modules["toolcrib"], sys.modules["sandbox_http"] = toolcrib, sandbox_http
    toolcrib.places.update(setup["places"])
    sys.path.extend(setup["libraries"])
    if layers.namespaces:
        shut_mounts(setup["mounts"], setup["devices"])
    if setup["network"] == "proxy":
        mounts.announce_proxy()
    prepared = stage2.Prepared(
        layers=layers,
        network=setup["network"],
        scratch=setup["scratch"],
        last_capability=libc.last_capability(),
        ruleset=landlock.Ruleset(**setup["landlock"]) if layers.landlock else None,
        counting=seccomp.Counting(machine, writing=setup["writes"]),
        filter=seccomp.SeccompFilter(machine, filter_requirements(layers, setup)),
        serve=select_engine(setup["engine"], layers),
        modules={name: preload(name, source) for name, source in setup["preload"]},
    )
    runner.warm_up()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    gc.collect()
    gc.freeze()
    return prepared


def select_engine(setup: dict[str, str], layers: Layers) -> stage2.Serve:
    """What does the job of a slot: this Python, or what takes its place."""
    if setup["name"] == "javascript":
        runtime = deno_run.Runtime(setup["program"], setup["script"], layers.new_code)
        return lambda channel, modules, data: deno_run.become_deno(channel, runtime)
    if setup["name"] == "server":
        return deno_run.become_server
    if setup["name"] == "monty":  # its client is a library that is only there for it
        monty = importlib.import_module("sandbox.inside.monty_run")
        return lambda channel, modules, data: monty.serve_one(channel, setup["program"], data)
    return runner.serve_one


def filter_requirements(layers: Layers, setup: dict[str, Any]) -> FilterRequirements:
    return FilterRequirements(
        layers.calls,
        sockets=setup["network"] == "proxy",
        programs=bool(setup["landlock"]["executable"]) or not layers.landlock,
        new_code=layers.new_code,
        sessions=layers.namespaces,
        shared_memory=layers.shared_memory,
        spawns=setup["engine"]["name"] == "monty",
    )


def shut_mounts(made: list[dict[str, Any]], devices: list[str]) -> None:
    """Before anything else: what bwrap mounted for the profile, without programs and devices."""
    mounts.keep_private()
    mounts.freeze_devices(devices)
    for mount in made:
        mounts.tighten(mount["target"], writable=mount["writable"])


def preload(name: str, source: str) -> ModuleType:
    module = ModuleType(name)
    sys.modules[name] = module
    runner.execute(compile(source, f"<tool {name}>", "exec"), module)
    return module


def serve(report: socket.socket, prepared: stage2.Prepared) -> None:
    # Ended slots need no waiting for; what became of them sandboxd sees by their pidfd.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    apart = prepared.layers.namespaces
    fork = fork_in_namespace() if apart else os.fork
    made: set[int] = set()
    while request := report.recv(256):
        if request == GOODBYE:
            return
        size, inodes, count = map(int, request.split())
        for _ in range(count):
            child = fork()
            if child == 0:
                stage2.become_slot(report, prepared, Disk(size, inodes), b"%d %d" % (size, inodes))
            made.add(child)
    if not apart:
        session_kill.kill(frozenset(made))  # sandboxd is gone; no namespace does it


def fork_in_namespace() -> Callable[[], int]:
    """Forks whose child is process 1 of a pid namespace of its own."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)

    def fork() -> int:
        os.unshare(os.CLONE_NEWPID)
        child = os.fork()
        if child:
            os.setns(own, os.CLONE_NEWPID)
        return child

    return fork


if __name__ == "__main__":
    main(int(sys.argv[1]))
