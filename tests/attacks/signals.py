"""Signals to those who did not ask for them, and ways to read or write their memory."""

import ctypes
import fcntl
import os
import resource
import signal
import struct
from pathlib import Path

from tests.attacks.attack import ALL, SANDBOXED, attack
from tests.attacks.evidence import got_something, killed_a_stranger, leaked_the_secret
from tests.attacks.kit import (
    Parameters,
    call,
    prctl,
    reached_calls,
    succeeds,
    texts_of,
    what_works,
)


@attack(seen=(killed_a_stranger,))
def kills_everybody(p: Parameters) -> object:
    if os.fork() == 0:
        os.kill(-1, signal.SIGKILL)
    os.wait()
    return []


@attack(seen=(killed_a_stranger,))
def kills_by_number(p: Parameters) -> object:
    os.kill(p["canary"], signal.SIGKILL)
    return []


@attack(seen=(killed_a_stranger,))
def kills_a_single_thread(p: Parameters) -> object:
    what_works(
        {
            "tkill": lambda: call("tkill", p["canary"], signal.SIGKILL),
            "tgkill": lambda: call("tgkill", p["canary"], p["canary"], signal.SIGKILL),
        }
    )
    return []


@attack(seen=(killed_a_stranger, got_something))
def kills_by_a_process_descriptor(p: Parameters) -> object:
    held = os.pidfd_open(p["canary"])
    signal.pidfd_send_signal(held, signal.SIGKILL)
    return ["a descriptor of a process outside"]


@attack(seen=(killed_a_stranger, got_something))
def kills_with_a_message(p: Parameters) -> object:
    """A queued signal carries a sender that the sender makes up."""
    about = (ctypes.c_int * 32)(signal.SIGKILL, 0, -1, 1, 0)
    call("rt_sigqueueinfo", p["canary"], signal.SIGKILL, about)
    return ["a forged sender"]


@attack(seen=(got_something, killed_a_stranger))
def has_the_kernel_send_a_signal_when_a_file_is_ready(p: Parameters) -> object:
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETOWN, p["canary"])
    fcntl.fcntl(reading, 10, signal.SIGKILL)  # F_SETSIG
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writing, b"x")
    return ["a signal to a process outside"]


@attack()
def feels_for_other_processes(p: Parameters) -> object:
    """Signal 0 tells whether there is one."""
    strangers = set(range(2, 3000)) | {p["canary"], p["parent"]}
    return sorted(n for n in strangers - {os.getpid()} if succeeds(lambda pid=n: os.kill(pid, 0)))


@attack()
def asks_about_other_processes(p: Parameters) -> object:
    them = (p["canary"], p["parent"], os.getppid() or p["parent"])
    return [
        *(("group", pid) for pid in them if succeeds(lambda one=pid: os.getpgid(one))),
        *(("session", pid) for pid in them if succeeds(lambda one=pid: os.getsid(one))),
        *(("limits", pid) for pid in them if succeeds(lambda one=pid: resource.prlimit(one, 0))),
    ]


@attack(levels=SANDBOXED)
def watches_the_processor_clock_of_a_stranger(p: Parameters) -> object:
    clock = (~p["canary"] << 3) | 2
    now = (ctypes.c_long * 2)()
    call("clock_gettime", clock, now)
    return ["how much a process outside computes"]


@attack(levels=ALL)
def traces_a_stranger(p: Parameters) -> object:
    return what_works(
        {
            "attach": lambda: call("ptrace", 16, p["canary"], 0, 0),
            "seize": lambda: call("ptrace", 0x4206, p["canary"], 0, 0),
        }
    )


@attack(levels=ALL)
def traces_its_own_child(p: Parameters) -> object:
    """A tracer can exchange the system call after a filter has looked at it."""
    return reached_calls({"ptrace": (0, 0, 0, 0)})


@attack(seen=(leaked_the_secret, got_something))
def reads_the_memory_of_a_stranger(p: Parameters) -> object:
    maps = Path(f"/proc/{p['canary']}/maps").read_text().splitlines()
    stack = next(line for line in maps if "[stack]" in line).split()[0].split("-")
    first, last = (int(one, 16) for one in stack)
    room = ctypes.create_string_buffer(last - first)
    local = (ctypes.c_size_t * 2)(ctypes.addressof(room), last - first)
    remote = (ctypes.c_size_t * 2)(first, last - first)
    size = call("process_vm_readv", p["canary"], local, 1, remote, 1, 0)
    return room.raw[:size].decode("latin-1")[-4096:]


@attack(levels=ALL)
def writes_the_memory_of_a_stranger(p: Parameters) -> object:
    word = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.c_long()), 0)
    return reached_calls({"process_vm_writev": (p["canary"], word, 1, word, 1, 0)})


@attack(seen=(leaked_the_secret, got_something))
def reads_memory_files_of_strangers(p: Parameters) -> object:
    them = (p["canary"], p["parent"], 1)
    return [pid for pid in them if pid != os.getpid() and texts_of([f"/proc/{pid}/maps"])]


@attack(levels=ALL)
def takes_descriptors_out_of_a_stranger(p: Parameters) -> object:
    """Calls that take a descriptor of a process, or its number, and let one work on it."""
    held = os.pidfd_open(os.getpid())
    return reached_calls(
        {
            "pidfd_getfd": (held, 0, 0),
            "kcmp": (os.getpid(), os.getpid(), 0, 0, 0),
            "process_madvise": (held, 0, 0, 20, 0),
            "process_mrelease": (held, 0),
        }
    )


@attack()
def becomes_visible_to_debuggers(p: Parameters) -> object:
    """PR_SET_DUMPABLE and PR_SET_PTRACER: a process of the same user may then look inside."""
    return what_works({"dumpable": lambda: prctl(4, 1), "ptracer": lambda: prctl(0x59616D61, -1)})


@attack(toothless="the control's parent is root's")
def signals_its_parents(p: Parameters) -> object:
    parent = os.getppid()
    return what_works({"parent": lambda: os.kill(parent, 0)}) if parent else []


@attack(toothless="the kernel takes threads of the caller only")
def sets_a_timer_that_signals_a_stranger(p: Parameters) -> object:
    event = struct.pack("=qii48s", 0, signal.SIGKILL, 4, p["canary"].to_bytes(4, "little"))
    number = ctypes.c_int()
    call("timer_create", 1, event, ctypes.byref(number))
    return ["a timer that kills"]
