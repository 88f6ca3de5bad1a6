"""A built-in of sandboxd: attack its own sandbox from inside, and use up each of its limits."""

import errno
import mmap
import os
import threading
import time
from typing import Any, NoReturn

from sandbox.inside.attacks import (
    ATTACKS,
    Attack,
    Bait,
    Perform,
    file_attacks,
    inheritance,
    kernel_attacks,
    process_attacks,
)

# In this order; the last leave processes behind.
__all__ = ["ATTACKS", "Attack", "file_attacks", "inheritance", "kernel_attacks", "process_attacks"]

_CHUNK = 1 << 16


def assail(parameters: dict[str, Any]) -> dict[str, tuple[bool, str]]:
    """By name, whether each attack got something, and what it saw."""
    names, bait = parameters["names"], parameters["bait"]
    return {name: attempt(ATTACKS[name].perform, bait) for name in names}


def attempt(perform: Perform, bait: Bait) -> tuple[bool, str]:
    try:
        got = perform(bait)
    except OSError as error:
        return False, errno.errorcode.get(error.errno or 0, type(error).__name__)
    return (False, "nothing") if got is None else (True, got)


# Each of these must be ended from outside.


def exhaust_memory(parameters: dict[str, Any]) -> int:
    """Shared memory is no process's own: only a control group limits it."""
    size = int(parameters["bytes"])
    if not parameters["shared"]:
        return len(bytearray(size))
    memory = mmap.mmap(-1, size)
    for page in range(0, size, mmap.PAGESIZE):
        memory[page] = 1
    return size


def exhaust_processor(parameters: dict[str, Any]) -> NoReturn:
    while True:
        pass


def exhaust_processes(parameters: dict[str, Any]) -> int:
    """Threads count as processes do, and are all that Restricted has."""
    threading.stack_size(_CHUNK)
    most = int(parameters["most"])
    for _ in range(most):
        if parameters["threads"]:
            sleeper = threading.Thread(
                target=time.sleep, args=(process_attacks.PATIENCE_S,), daemon=True
            )
            sleeper.start()
        elif os.fork() == 0:
            process_attacks.linger(parameters["mark"])
    return most


def exhaust_output(parameters: dict[str, Any]) -> NoReturn:
    while True:
        os.write(1, bytes(_CHUNK))


def exhaust_disk(parameters: dict[str, Any]) -> int:
    size = int(parameters["bytes"])
    with open("flood", "wb", buffering=0) as file:
        for _ in range(0, size, _CHUNK):
            file.write(bytes(_CHUNK))
    return size


def exhaust_patience(parameters: dict[str, Any]) -> None:
    time.sleep(process_attacks.PATIENCE_S)
