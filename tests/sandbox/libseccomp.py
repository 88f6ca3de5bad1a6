"""libseccomp by ctypes: the numbers it knows, and the programs it makes of a policy.

A second opinion on tables and assembler, for tests and for `generate_syscalls.py` only.
"""

import ctypes
import ctypes.util
import itertools
import os
import struct
from collections.abc import Mapping

from sandbox.inside.filter.arguments import ArgumentCase, Check, Rule
from sandbox.inside.filter.bpf import ARCHITECTURES, Block

_NUMBERS = range(1000)
_MASKED_EQUAL = 7


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("mask", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
    )


class Library:
    """Raises OSError where there is no libseccomp."""

    def __init__(self) -> None:
        name = ctypes.util.find_library("seccomp")
        if name is None:
            raise OSError("libseccomp is not installed (Debian: libseccomp2)")
        self._library = ctypes.CDLL(name)
        self._library.seccomp_syscall_resolve_num_arch.restype = ctypes.c_void_p
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._library.seccomp_arch_native.restype = ctypes.c_uint32

    def number(self, name: str, machine: str) -> int | None:
        """None: no such call on that machine, or one that is newer than this libseccomp."""
        resolve = self._library.seccomp_syscall_resolve_name_arch
        found: int = resolve(ctypes.c_uint32(ARCHITECTURES[machine]), name.encode())
        return found if found >= 0 else None

    def table(self, machine: str) -> dict[str, int]:
        names = ((self._name(number, machine), number) for number in _NUMBERS)
        return {name: number for name, number in names if name}

    def _name(self, number: int, machine: str) -> str | None:
        architecture = ctypes.c_uint32(ARCHITECTURES[machine])
        found = self._library.seccomp_syscall_resolve_num_arch(architecture, number)
        if not found:
            return None
        try:
            return ctypes.string_at(found).decode()
        finally:
            ctypes.CDLL(None).free(ctypes.c_void_p(found))

    def program(self, machine: str, default: int, rules: Mapping[str, Rule]) -> Block:
        """Of calls without cases, and of those that end in `default` when no case holds."""
        context = ctypes.c_void_p(self._library.seccomp_init(ctypes.c_uint32(default)))
        try:
            self._only(context, machine)
            for name, rule in rules.items():
                for case in rule.cases or (ArgumentCase((), rule.otherwise),):
                    if case.answer != default:
                        self._add(context, name, case)
            return self._exported(context)
        finally:
            self._library.seccomp_release(context)

    def _only(self, context: ctypes.c_void_p, machine: str) -> None:
        wanted, own = ARCHITECTURES[machine], self._library.seccomp_arch_native()
        if wanted != own:
            assert self._library.seccomp_arch_add(context, ctypes.c_uint32(wanted)) == 0
            assert self._library.seccomp_arch_remove(context, ctypes.c_uint32(own)) == 0

    def _add(self, context: ctypes.c_void_p, name: str, case: ArgumentCase) -> None:
        """libseccomp wants the number of the machine it runs on, and translates."""
        number = self._library.seccomp_syscall_resolve_name(name.encode())
        for comparisons in itertools.product(*map(_comparisons, case.checks)):
            array = (_Comparison * len(comparisons))(*comparisons)
            answer = ctypes.c_uint32(case.answer)
            done = self._library.seccomp_rule_add_array(
                context, answer, number, len(comparisons), array
            )
            assert done == 0, (name, case, done)

    def _exported(self, context: ctypes.c_void_p) -> Block:
        descriptor = os.memfd_create("program")
        try:
            assert self._library.seccomp_export_bpf(context, descriptor) == 0
            packed = os.pread(descriptor, 1 << 20, 0)
        finally:
            os.close(descriptor)
        return list(struct.iter_unpack("=HBBI", packed))


def _comparisons(check: Check) -> list[_Comparison]:
    return [_Comparison(check.argument, _MASKED_EQUAL, check.mask, value) for value in check.values]
