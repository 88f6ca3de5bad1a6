"""The few kernel calls that Python's os module does not offer."""

import ctypes
import os
from collections.abc import Iterable

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = (ctypes.c_int,) + (ctypes.c_ulong,) * 4
_libc.mount.argtypes = (
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
)
_libc.statx.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p)
_libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)
_libc.syscall.restype = ctypes.c_long
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE = 4096, 16384, 1 << 18, 1 << 19
PR_SET_PDEATHSIG = 1
_PR_GET_PDEATHSIG = 2
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_SET_MDWE = 65
MDWE_REFUSE_EXEC_GAIN = 1
_AT_EMPTY_PATH = 0x1000
_STATX_BYTES = 256
_AMBIENT_CLEAR_ALL = 4


def prctl(option: int, second: int = 0, third: int = 0) -> int:
    return _checked(_libc.prctl(option, second, third, 0, 0), f"prctl {option}")


def death_signal() -> int:
    """What this process gets when its parent ends; 0 for nothing."""
    number = ctypes.c_int()
    _checked(_libc.prctl(_PR_GET_PDEATHSIG, ctypes.addressof(number), 0, 0, 0), "prctl")
    return number.value


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), flags, options.encode() or None
    )
    _checked(result, f"mount on {target}")


def umount(target: str, flags: int = 0) -> None:
    _checked(_libc.umount2(target.encode(), flags), f"umount of {target}")


def statx(descriptor: int, mask: int) -> bytes:
    """The kernel's `struct statx` of what the descriptor is open on."""
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    _checked(_libc.statx(descriptor, b"", _AT_EMPTY_PATH, mask, answer), "statx")
    return answer.raw


def syscall(number: int, *arguments: object) -> int:
    return _checked(_libc.syscall(ctypes.c_long(number), *arguments), f"system call {number}")


def capset(kept: Iterable[int]) -> None:
    """Give up all permitted and effective capabilities but these, and all that are inheritable."""
    bits = sum(1 << one for one in kept)
    low, high = bits & 0xFFFF_FFFF, bits >> 32
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)), "capset")


def last_capability() -> int:
    """Ask before /proc is replaced by one that shows processes only."""
    with open("/proc/sys/kernel/cap_last_cap") as file:
        return int(file.read())


def drop_all(last: int) -> None:
    """The bounding set first: taking from it needs a capability."""
    for capability in range(last + 1):
        prctl(PR_CAPBSET_DROP, capability)
    prctl(PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    capset(())


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
