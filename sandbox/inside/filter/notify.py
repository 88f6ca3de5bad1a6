"""Counting operations on files: a filter of its own that asks a listener before each of them.

It decides nothing. The sandbox's filter is another, loaded after this one, and the kernel takes the
stricter answer of the two: what that filter refuses is refused without having been counted.
"""

import ctypes
import errno

from sandbox.inside.filter import bpf, syscalls
from sandbox.inside.filter.seccomp import Program
from sandbox.inside.layers import libc

# Of these it is also asked whether the disk was full, before what filled it is taken away.
TAKING_AWAY = frozenset(
    {"rename", "renameat", "renameat2", "rmdir", "truncate", "unlink", "unlinkat"}
)
# Of these, where there is a shared path to write to: whether there is room.
WRITING = frozenset(
    {
        *("write", "pwrite64", "writev", "pwritev", "pwritev2", "ftruncate", "fallocate"),
        *("sendfile", "copy_file_range", "splice", "io_submit", "mknod", "mknodat"),
    }
)
COUNTED = TAKING_AWAY | {
    *("creat", "open", "openat", "link", "linkat", "mkdir", "mkdirat", "symlink", "symlinkat"),
}

_SET_MODE_FILTER = 1
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5
# Without: a kernel before 5.19, or 5.0; no seccomp at all; a listener exists already.
_NOT_TO_BE_HAD = frozenset({errno.EINVAL, errno.ENOSYS, errno.EBUSY})


def counting_program(machine: str, *, writing: bool = False) -> bpf.Block:
    """Raises ValueError for a machine without a table."""
    table = syscalls.table(machine)
    asked = COUNTED | WRITING if writing else COUNTED
    counted = sorted(number for name, number in table.items() if name in asked)
    pass_on = bpf.answer(bpf.ALLOW)
    ask = bpf.one_of(counted, bpf.answer(bpf.NOTIFY), pass_on)
    return bpf.for_machine(machine, ask, pass_on)


class Counting:
    """Packed once in the template, loaded by every slot for itself."""

    def __init__(self, machine: str, *, writing: bool = False) -> None:
        self._program = Program(counting_program(machine, writing=writing))
        self._number = syscalls.number("seccomp", machine)

    def listen(self) -> int | None:
        """Load it; returns the listener's descriptor, or None where the kernel has none to give.

        Needs no_new_privs. From here on each of these calls waits until the descriptor's holder
        answers, or fails with ENOSYS when there is none left.
        """
        program = ctypes.c_void_p(self._program.address)
        for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
            try:
                return libc.syscall(self._number, _SET_MODE_FILTER, flags, program)
            except OSError as error:
                if error.errno not in _NOT_TO_BE_HAD:
                    raise
        return None
