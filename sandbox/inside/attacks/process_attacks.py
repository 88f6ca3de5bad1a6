"""Attacks on the host's processes, and by processes of its own."""

import ctypes
import mmap
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from sandbox.inside.attacks import (
    EVERY,
    FORKING,
    RESTRICTED,
    SANDBOXED,
    STANDARD,
    STRICT,
    TIGHT,
    Bait,
    attack,
    listed,
)
from sandbox.inside.attacks.raw_calls import PR_SET_NAME, call, libc

PATIENCE_S = 86_400
_PTRACE_SEIZE = 0x4206
_NEW_USER_NAMESPACE = 0x10000000
_GOT_THROUGH = 7
_I386_GETPID = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"  # mov eax, 20; int 0x80; ret


@attack("signal sandboxd", SANDBOXED)
def signal_sandboxd(bait: Bait) -> str | None:
    """Signal 0: where this gets through, the doctor must survive to report it."""
    os.kill(bait["sandboxd"], 0)
    return "it could be signalled"


@attack("signal whatever there is", SANDBOXED, alone=True)
def signal_all(bait: Bait) -> str | None:
    """With others in sight the kernel says yes even when each of them was refused."""
    os.kill(-1, 0)
    return "others are in sight"


@attack("share a namespace with the host", (STANDARD,), alone=True)
def share_namespace(bait: Bait) -> str | None:
    links = bait["namespaces"]
    return listed(kind for kind in links if os.readlink(f"/proc/self/ns/{kind}") == links[kind])


@attack("see processes of others", SANDBOXED, alone=True)
def see_processes(bait: Bait) -> str | None:
    return listed({name for name in os.listdir("/proc") if name.isdigit()} - {str(os.getpid())})


@attack("look into /proc", TIGHT)
def look_into_proc(bait: Bait) -> str | None:
    return listed(os.listdir("/proc")[:5])


@attack("read the environment of processes", SANDBOXED, loot=True)
def read_environments(bait: Bait) -> str | None:
    return "\n".join(_environment_of(name) for name in os.listdir("/proc")) or None


@attack("read the memory of a process", SANDBOXED)
def read_memory(bait: Bait) -> str | None:
    """The addresses are wrong: only a process that may read at all gets that error."""
    vector = (ctypes.c_uint64 * 2)(1, 8)
    return call("process_vm_readv", bait["pid"], vector, 1, vector, 1, 0)


@attack("trace a process", EVERY)
def trace(bait: Bait) -> str | None:
    """To seize one changes nothing for it, and ends with this process."""
    return call("ptrace", ctypes.c_long(_PTRACE_SEIZE), ctypes.c_long(bait["pid"]), 0, 0)


@attack("kill a process of the host", SANDBOXED)
def kill_one(bait: Bait) -> str | None:
    os.kill(bait["pid"], signal.SIGKILL)
    return "a signal was sent"


@attack("start the interpreter anew", (STRICT,))
def start_interpreter(bait: Bait) -> str | None:
    return "it was started" if _in_child(_become_interpreter) == _GOT_THROUGH else None


@attack("start any program", (RESTRICTED,))
def start_program(bait: Bait) -> str | None:
    """A path that is not there: the filter answers before the kernel looks."""
    try:
        os.execv("/nowhere", ["nowhere"])
    except FileNotFoundError:
        return "execve was let through"


@attack("make memory executable", (RESTRICTED,))
def make_executable(bait: Bait) -> str | None:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
    return "memory to write and to execute"


@attack("turn written memory into code", (RESTRICTED,))
def turn_into_code(bait: Bait) -> str | None:
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    rights, size = mmap.PROT_READ | mmap.PROT_EXEC, ctypes.c_size_t(mmap.PAGESIZE)
    changed = libc.mprotect(ctypes.c_void_p(_address(memory)), size, rights)
    return "it became executable" if changed == 0 else None


@attack("make a process", (RESTRICTED,))
def make_process(bait: Bait) -> str | None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "a process"


@attack("call the kernel by i386 numbers", FORKING)
def call_by_i386(bait: Bait) -> str | None:
    """In a child: the filter's answer to another architecture is death."""
    if platform.machine() != "x86_64":
        return None
    return "the kernel answered" if _in_child(_call_i386) == _GOT_THROUGH else None


@attack("make namespaces", EVERY)
def make_namespaces(bait: Bait) -> str | None:
    """Late: who is in a user namespace of its own can do less to others."""
    return call("unshare", ctypes.c_long(_NEW_USER_NAMESPACE))


@attack("leave a process behind", FORKING)
def leave_process(bait: Bait) -> str | None:
    """A grandchild, in a session of its own where that is possible. Judged from outside."""
    _in_child(lambda: linger(bait["mark"]) if os.fork() == 0 else 0)
    return None


def linger(mark: str) -> NoReturn:
    """Under a name that can be looked for. Without a pid namespace no session can be made."""
    libc.prctl(PR_SET_NAME, mark.encode(), 0, 0, 0)
    try:
        os.setsid()
    except OSError:
        pass
    time.sleep(PATIENCE_S)
    os._exit(0)


def _environment_of(name: str) -> str:
    try:
        with open(f"/proc/{name}/environ", encoding="utf-8", errors="replace") as file:
            return file.read(4096)
    except OSError:
        return ""


def _in_child(act: Callable[[], int | None]) -> int:
    """What the child returned, or minus the signal that ended it. Raises OSError."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(act() or 0)
        except OSError:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _call_i386() -> int:
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(_I386_GETPID)
    return _GOT_THROUGH if ctypes.CFUNCTYPE(ctypes.c_int)(_address(memory))() > 0 else 0


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _become_interpreter() -> None:
    code = f"raise SystemExit({_GOT_THROUGH})"
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", code])
