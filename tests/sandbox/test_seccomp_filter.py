"""The filter program, run here by a small interpreter over every number of several machines.

`syscall_numbers.csv` holds the kernel's own tables (linux-libc-dev 6.1), not ours.
"""

import csv
import ctypes
import ctypes.util
import struct
from pathlib import Path

import pytest

from sandbox.inside import bpf, seccomp, syscalls

ALLOW, EPERM, ENOSYS, KILL = bpf.ALLOW, 0x50001, 0x50026, bpf.KILL_PROCESS
NATIVE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FOREIGN = {"i386": 0x40000003, "arm": 0x40000028, "ppc64le": 0xC0000015, "none": 0}
LIBSECCOMP = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NEVER = [
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "unshare",
    "setns",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "bpf",
    "perf_event_open",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "keyctl",
    "add_key",
    "request_key",
    "userfaultfd",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "open_by_handle_at",
    "name_to_handle_at",
    "pidfd_getfd",
    "socket",
    "connect",
    "bind",
    "listen",
    "accept",
    "accept4",
    "memfd_create",
    "memfd_secret",
    "shmget",
    "shmat",
    "mq_open",
    "msgget",
    "semget",
    "mknod",
    "mknodat",
    "setuid",
    "setgid",
    "setreuid",
    "setregid",
    "setresuid",
    "setresgid",
    "setgroups",
    "setfsuid",
    "capset",
    "personality",
    "acct",
    "reboot",
    "swapon",
    "swapoff",
    "sethostname",
    "setdomainname",
    "clock_settime",
    "settimeofday",
    "adjtimex",
    "clock_adjtime",
    "quotactl",
    "mount_setattr",
    "fsopen",
    "fsmount",
    "fsconfig",
    "open_tree",
    "move_mount",
    "fanotify_init",
    "syslog",
    "iopl",
    "ioperm",
    "modify_ldt",
    "openat2",
    "landlock_restrict_self",
    "seccomp",
    "splice",
    "vmsplice",
    "tee",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "chown",
    "fchown",
    "lchown",
    "fchownat",
]


def execute(program, architecture, number, arguments=()):
    """What the kernel would answer: the subset of classic BPF that the assembler makes."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *padded)
    at, value = 0, 0
    while True:
        code, if_true, if_false, operand = program[at]
        at += 1
        if code == bpf.LOAD:
            (value,) = struct.unpack_from("=I", data, operand)
        elif code == bpf.RETURN:
            return operand
        else:
            holds = {
                bpf.JUMP_EQUAL: value == operand,
                bpf.JUMP_AT_LEAST: value >= operand,
                bpf.JUMP_ANY_BIT: bool(value & operand),
            }[code]
            at += if_true if holds else if_false


@pytest.fixture(params=syscalls.MACHINES)
def machine(request):
    return request.param


@pytest.fixture(scope="module")
def tables():
    rows = list(csv.DictReader((Path(__file__).parent / "syscall_numbers.csv").open()))
    return {
        name: {row["name"]: int(row[name]) for row in rows if row[name]}
        for name in syscalls.MACHINES
    }


def test_every_number_in_our_table_is_the_kernels(machine, tables):
    for name in (*syscalls.ALLOWED, *syscalls.CONDITIONAL):
        assert syscalls.number(name, machine) == tables[machine].get(name), name


def test_every_number_is_libseccomps_too(machine):
    library = ctypes.util.find_library("seccomp")
    if library is None:
        pytest.skip("no libseccomp here to compare with")
    resolve = ctypes.CDLL(library).seccomp_syscall_resolve_name_arch
    for name in (*syscalls.ALLOWED, *syscalls.CONDITIONAL):
        theirs = resolve(LIBSECCOMP[machine], name.encode())
        if theirs >= 0:  # older than the call, or no such call on this machine
            assert syscalls.number(name, machine) == theirs, name


def test_exactly_the_allowed_numbers_pass(machine, tables):
    program = seccomp.program(machine)
    allowed = {syscalls.number(name, machine) for name in syscalls.ALLOWED}
    conditional = {syscalls.number(name, machine) for name in syscalls.CONDITIONAL}
    for number in [*range(1200), 0x3FFFFFFF]:
        if number not in conditional:
            expected = ALLOW if number in allowed else EPERM
            assert execute(program, NATIVE[machine], number) == expected, number


def test_dangerous_calls_are_refused_by_name(machine, tables):
    program = seccomp.program(machine)
    for name in NEVER:
        if name in tables[machine]:
            assert execute(program, NATIVE[machine], tables[machine][name]) == EPERM, name


def test_another_architecture_kills_whatever_the_number(machine):
    program = seccomp.program(machine)
    others = [*FOREIGN.values(), *(code for name, code in NATIVE.items() if name != machine)]
    for code in others:
        assert {execute(program, code, number) for number in range(600)} == {KILL}


def test_numbers_of_the_x32_interface_are_refused():
    program = seccomp.program("x86_64")
    for number in (*range(0x40000000, 0x40000400), 0xFFFFFFFF):
        assert execute(program, NATIVE["x86_64"], number) == EPERM


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("clone", [17], ALLOW), ("clone", [0x3D0F00], ALLOW), ("clone", [0x10000011], EPERM),
        ("clone", [0x20000], EPERM), ("clone", [0x40000000], EPERM), ("clone3", [], ENOSYS),
        ("socketpair", [1], ALLOW), ("socketpair", [2], EPERM), ("prctl", [15], ALLOW),
        ("prctl", [4], EPERM), ("prctl", [22], EPERM), ("prctl", [38], EPERM),
        ("prlimit64", [0], ALLOW), ("prlimit64", [1], EPERM), ("ioctl", [0, 0x5401], ALLOW),
        ("ioctl", [0, 0x5412], EPERM), ("ioctl", [0, 0x5412 | 1 << 32], EPERM),
        ("fchmod", [0, 0o777], ALLOW), ("fchmod", [0, 0o4755], EPERM),
        ("fchmodat", [0, 0, 0o2755], EPERM), ("fchmodat2", [0, 0, 0o4000], EPERM),
        ("openat", [0, 0, 64, 0o644], ALLOW), ("openat", [0, 0, 64, 0o4644], EPERM),
        ("mkdirat", [0, 0, 0o2755], EPERM),
    ],
)  # fmt: skip
def test_arguments_decide(machine, name, arguments, expected):
    number = syscalls.number(name, machine)
    assert execute(seccomp.program(machine), NATIVE[machine], number, arguments) == expected


def test_a_machine_without_a_table_gets_no_filter_and_so_no_sandbox():
    with pytest.raises((KeyError, ValueError)):
        seccomp.program("riscv64")


def test_every_jump_stays_inside_the_program(machine):
    program = seccomp.program(machine)
    assert len(program) < 4096
    for at, (code, if_true, if_false, _) in enumerate(program):
        if code in (bpf.JUMP_EQUAL, bpf.JUMP_AT_LEAST, bpf.JUMP_ANY_BIT):
            assert at + 1 + max(if_true, if_false) < len(program)
