"""The filter every run lives under: an allow list, everything else answers EPERM."""

import ctypes
import errno

from sandbox.inside import bpf, libc, syscalls
from sandbox.inside.bpf import Block

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_NUMBERS = 0x40000000
_SECCOMP_MODE_FILTER = 2

# CLONE_NEW* of clone(); the low byte of its flags is a signal, so CLONE_NEWTIME is not there.
_NEW_NAMESPACES = 0x7E020000
_SET_ID_BITS = 0o6000
_AF_UNIX = 1
_PRCTL = (
    3,  # PR_GET_DUMPABLE
    15,  # PR_SET_NAME
    16,  # PR_GET_NAME
    21,  # PR_GET_SECCOMP
    23,  # PR_CAPBSET_READ
    39,  # PR_GET_NO_NEW_PRIVS
)
_IOCTL = (
    0x5401,  # TCGETS: isatty
    0x5413,  # TIOCGWINSZ
    0x541B,  # FIONREAD
    0x5421,  # FIONBIO
    0x5450,  # FIONCLEX
    0x5451,  # FIOCLEX
)

_YES, _NO = bpf.answer(bpf.ALLOW), bpf.refuse(errno.EPERM)


def _one_of(argument: int, values: tuple[int, ...]) -> Block:
    block = _NO
    for value in reversed(values):
        block = bpf.branch(bpf.JUMP_EQUAL, value, _YES, block)
    return bpf.load_argument(argument) + block


def _without_bits(argument: int, bits: int) -> Block:
    return bpf.load_argument(argument) + bpf.branch(bpf.JUMP_ANY_BIT, bits, _NO, _YES)


CONDITIONS: dict[str, Block] = {
    "clone": _without_bits(0, _NEW_NAMESPACES),
    # Its flags lie in memory that no filter can read; libc falls back to clone.
    "clone3": bpf.refuse(errno.ENOSYS),
    "prctl": _one_of(0, _PRCTL),
    "ioctl": _one_of(1, _IOCTL),
    "socketpair": _one_of(0, (_AF_UNIX,)),
    # Only the caller's own; a hard limit can be lowered, never raised.
    "prlimit64": _one_of(0, (0,)),
    # A set-id file in a writable mount would belong to the outer uid on the host.
    "chmod": _without_bits(1, _SET_ID_BITS),
    "fchmod": _without_bits(1, _SET_ID_BITS),
    "fchmodat": _without_bits(2, _SET_ID_BITS),
    "fchmodat2": _without_bits(2, _SET_ID_BITS),
    "open": _without_bits(2, _SET_ID_BITS),
    "openat": _without_bits(3, _SET_ID_BITS),
    "creat": _without_bits(1, _SET_ID_BITS),
    "mkdir": _without_bits(1, _SET_ID_BITS),
    "mkdirat": _without_bits(2, _SET_ID_BITS),
}


def _decisions(machine: str) -> dict[int, Block]:
    found: dict[int, Block] = {}
    for name in (*syscalls.ALLOWED, *CONDITIONS):
        number = syscalls.number(name, machine)
        if number is not None:
            found[number] = CONDITIONS.get(name, _YES)
    return found


def _ranges(decisions: dict[int, Block]) -> list[tuple[int, Block]]:
    """Runs of neighbours with one decision, as (first number, decision)."""
    ranges: list[tuple[int, Block]] = []
    for number in range(max(decisions) + 2):
        decision = decisions.get(number, _NO)
        if not ranges or ranges[-1][1] is not decision:
            ranges.append((number, decision))
    return ranges


def program(machine: str) -> Block:
    """Raises ValueError for a machine without a table."""
    wrong, right = bpf.answer(bpf.KILL_PROCESS), bpf.load(bpf.NUMBER_OFFSET)
    decide = bpf.search(_ranges(_decisions(machine)))
    if machine == "x86_64":
        decide = bpf.branch(bpf.JUMP_AT_LEAST, _X32_NUMBERS, _NO, decide)
    foreign = (bpf.JUMP_EQUAL, 1, 0, ARCHITECTURES[machine])
    return [*bpf.load(bpf.ARCHITECTURE_OFFSET), foreign, *wrong, *right, *decide]


class Filter:
    """Assembled once in the template, loaded by every slot for itself."""

    def __init__(self, machine: str) -> None:
        packed = bpf.pack(program(machine))
        self._code = ctypes.create_string_buffer(packed, len(packed))
        self._header = _Header(len(packed) // 8, ctypes.addressof(self._code))

    def load(self) -> None:
        """For good: needs no_new_privs, and holds for every process to come."""
        libc.prctl(libc.PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(self._header))


class _Header(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))
