"""Attacks on the network, and by system calls that no tool needs."""

import ctypes
import platform
import socket
from typing import Any

from sandbox.inside.attacks import EVERY, SANDBOXED, Bait, Perform, attack
from sandbox.inside.attacks.raw_calls import call, call_number

_AF_VSOCK = 40
_X32_GETPID = 0x40000000 | 39
_ANSWER_S = 1

# Arguments with which the call does something, or complains of them, where it is let through.
_CALLS: tuple[tuple[str, tuple[str, ...], str, tuple[int, ...]], ...] = (
    ("mount a file system", EVERY, "mount", (0, 0, 0, 0, 0)),
    ("enter a namespace", SANDBOXED, "setns", (-1, 0)),
    ("change the root", SANDBOXED, "chroot", (0,)),
    ("exchange the root", SANDBOXED, "pivot_root", (0, 0)),
    ("take a descriptor of a process", SANDBOXED, "pidfd_getfd", (-1, 0, 0)),
    ("load a program into the kernel", EVERY, "bpf", (0, 0, 0)),
    ("use io_uring", EVERY, "io_uring_setup", (4, 0)),
    ("use the kernel's keyrings", EVERY, "keyctl", (0, -3, 1)),
    ("leave a key with the kernel", SANDBOXED, "add_key", (0, 0, 0, 0, 0)),
    ("stop the kernel at a page fault", SANDBOXED, "userfaultfd", (1,)),
    ("count the machine's events", SANDBOXED, "perf_event_open", (0, 0, -1, -1, 0)),
    ("open files by their handles", SANDBOXED, "open_by_handle_at", (0, 0, 0)),
    ("keep memory in a nameless file", SANDBOXED, "memfd_create", (0, 0)),
    ("share memory by a key", SANDBOXED, "shmget", (0, 0, 0o600)),
    ("share a semaphore by a key", SANDBOXED, "semget", (0, -1, 0o600)),
    ("type into a terminal", SANDBOXED, "ioctl", (0, 0x5412, 0)),
)


@attack("reach a service of the host's loopback", SANDBOXED)
def reach_loopback(bait: Bait) -> str | None:
    return _try_connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", bait["tcp"]))


@attack("send a datagram", SANDBOXED)
def send_datagram(bait: Bait) -> str | None:
    return _try_connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", bait["udp"]))


@attack("reach an abstract socket of the host", SANDBOXED)
def reach_abstract(bait: Bait) -> str | None:
    return _try_connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + bait["abstract"])


@attack("reach a socket in the host's files", SANDBOXED)
def reach_path(bait: Bait) -> str | None:
    return _try_connect(socket.AF_UNIX, socket.SOCK_STREAM, bait["socket"])


@attack("reach the hypervisor", EVERY)
def reach_hypervisor(bait: Bait) -> str | None:
    return _try_socket(_AF_VSOCK, socket.SOCK_STREAM)


@attack("configure the network", SANDBOXED)
def configure_network(bait: Bait) -> str | None:
    return _try_socket(socket.AF_NETLINK, socket.SOCK_RAW)


@attack("listen to the wire", EVERY)
def listen_to_wire(bait: Bait) -> str | None:
    return _try_socket(socket.AF_PACKET, socket.SOCK_RAW)


def _calling(name: str, arguments: tuple[int, ...]) -> Perform:
    return lambda bait: call(name, *map(ctypes.c_long, arguments))


for _name, _levels, _call, _arguments in _CALLS:
    attack(_name, _levels)(_calling(_call, _arguments))


@attack("call the kernel by x32 numbers", EVERY)
def call_by_x32(bait: Bait) -> str | None:
    return call_number(_X32_GETPID) if platform.machine() == "x86_64" else None


def _try_socket(family: int, kind: int) -> str:
    socket.socket(family, kind).close()
    return "a socket"


def _try_connect(family: int, kind: int, address: Any) -> str:
    """A socket of that family is too much already."""
    with socket.socket(family, kind) as door:
        door.settimeout(_ANSWER_S)
        try:
            door.connect(address)
            door.send(b"x")
        except OSError:
            return "a socket"
    return "it answered"
