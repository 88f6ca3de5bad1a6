"""Calls that Python's os module does not offer, and how their refusal looks."""

import ctypes
import errno
import os
import platform

MACHINES = ("x86_64", "aarch64")
PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_SECCOMP = 3, 15, 21
PR_CAPBSET_READ, PR_GET_NO_NEW_PRIVS = 23, 39

_REFUSALS = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS})

# name → (number on x86_64, number on aarch64)
_NUMBERS = {
    "add_key": (248, 217), "bpf": (321, 280), "chroot": (161, 51), "io_uring_setup": (425, 425),
    "ioctl": (16, 29), "keyctl": (250, 219), "memfd_create": (319, 279), "mount": (165, 40),
    "open_by_handle_at": (304, 265), "perf_event_open": (298, 241), "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41), "process_vm_readv": (310, 270), "ptrace": (101, 117),
    "semget": (64, 190), "setns": (308, 268), "shmget": (29, 194), "unshare": (272, 97),
    "userfaultfd": (323, 282),
}  # fmt: skip

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def prctl(option: int, second: int = 0) -> int:
    return int(libc.prctl(option, ctypes.c_ulong(second), 0, 0, 0))


def call(name: str, *arguments: object) -> str:
    """What the kernel said of a call it took up. Raises OSError where it was refused."""
    return call_number(_NUMBERS[name][MACHINES.index(platform.machine())], *arguments)


def call_number(number: int, *arguments: object) -> str:
    ctypes.set_errno(0)
    if libc.syscall(ctypes.c_long(number), *arguments) != -1:
        return "done"
    error = ctypes.get_errno()
    if error in _REFUSALS:
        raise OSError(error, os.strerror(error))
    return errno.errorcode[error]
