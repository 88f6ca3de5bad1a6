"""The seccomp filter of every run: system calls of its level are allowed, all others refused."""

import ctypes
import errno

from sandbox.inside.filter import arguments, bpf, call_rules, syscalls
from sandbox.inside.filter.arguments import ArgumentCase, Rule
from sandbox.inside.filter.bpf import Block
from sandbox.inside.filter.call_rules import FilterRequirements
from sandbox.inside.layers import libc

_SECCOMP_MODE_FILTER = 2
_X32_NUMBERS = 0x40000000
# A number without a name is of a kernel newer than our tables: libc then takes an older call.
_UNKNOWN, _REFUSED = Rule(arguments.ABSENT), Rule(arguments.NO)
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


def program(machine: str, wanted: FilterRequirements) -> Block:
    """Raises KeyError for a machine without a table, or a word that is no level's."""
    decide = bpf.search([(first, compile_rule(rule)) for first, rule in _ranges(machine, wanted)])
    if machine == "x86_64":
        decide = bpf.branch(bpf.JUMP_AT_LEAST, _X32_NUMBERS, bpf.answer(arguments.NO), decide)
    return bpf.for_machine(machine, decide, bpf.answer(bpf.KILL_PROCESS))


def decisions(machine: str, wanted: FilterRequirements) -> dict[int, Rule]:
    """The rule of every number that has a name."""
    named = call_rules.rules(wanted)
    return {number: named.get(name, _REFUSED) for name, number in syscalls.table(machine).items()}


def compile_rule(rule: Rule) -> Block:
    block = bpf.answer(rule.otherwise)
    for case in reversed(rule.cases):
        block = _compile_case(case, block)
    return block


class Program:
    """Packed once in the template, loaded by every slot for itself."""

    def __init__(self, block: Block) -> None:
        packed = bpf.pack(block)
        self._code = ctypes.create_string_buffer(packed, len(packed))
        self._header = _Header(len(packed) // 8, ctypes.addressof(self._code))
        self.address = ctypes.addressof(self._header)


class SeccompFilter:
    def __init__(self, machine: str, wanted: FilterRequirements) -> None:
        self._program = Program(program(machine, wanted))

    def load(self) -> None:
        """Irrevocable: needs no_new_privs, and holds for every process to come."""
        libc.prctl(libc.PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, self._program.address)


class _Header(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def counting_program(machine: str, *, writing: bool = False) -> bpf.Block:
    """Raises ValueError for a machine without a table."""
    table = syscalls.table(machine)
    names = COUNTED | WRITING if writing else COUNTED
    counted = sorted(number for name, number in table.items() if name in names)
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


def _ranges(machine: str, wanted: FilterRequirements) -> list[tuple[int, Rule]]:
    """Runs of neighbours with one rule, as (first number, rule)."""
    found = decisions(machine, wanted)
    ranges: list[tuple[int, Rule]] = []
    for number in range(max(found) + 2):
        rule = found.get(number, _UNKNOWN)
        if not ranges or ranges[-1][1] != rule:
            ranges.append((number, rule))
    return ranges


def _compile_case(case: ArgumentCase, otherwise: Block) -> Block:
    """Every check that fails goes the same way, so each carries it along."""
    block = bpf.answer(case.answer)
    for check in reversed(case.checks):
        block = bpf.argument_is(check.argument, check.mask, check.values, block, otherwise)
    return block
