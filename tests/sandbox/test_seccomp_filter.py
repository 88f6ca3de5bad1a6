"""The filter programs, run here by a small interpreter over every number of several machines.

`syscall_numbers.csv` holds the kernel's own tables (linux-libc-dev 6.1), libseccomp has another;
both are compared with ours. The last tests load the programs into real processes.
"""

import csv
import errno
import itertools
import platform
import signal
import socket
import struct
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from sandbox.inside.filter import bpf, call_rules, seccomp, syscalls
from sandbox.inside.filter.arguments import Rule
from sandbox.inside.filter.bpf import Block
from sandbox.inside.filter.call_rules import FilterRequirements
from tests.sandbox import generate_syscalls
from tests.sandbox.libseccomp import Library

ROOT = Path(__file__).resolve().parents[2]
ALLOW, KILL = bpf.ALLOW, bpf.KILL_PROCESS
EPERM, ENOSYS, EINVAL = (bpf.error(n) for n in (errno.EPERM, errno.ENOSYS, errno.EINVAL))
ENOTSUP, ENOLCK = bpf.error(errno.ENOTSUP), bpf.error(errno.ENOLCK)
FOREIGN = {"i386": 0x40000003, "arm": 0x40000028, "ppc64le": 0xC0000015, "none": 0}
HIGH = 1 << 32

NONE = FilterRequirements("open", programs=True)
STANDARD = FilterRequirements("usual", programs=True, new_code=True, sessions=True)
STRICT = FilterRequirements("usual", new_code=True, sessions=True)
DEGRADED = FilterRequirements("usual", programs=True, new_code=True)
RESTRICTED = FilterRequirements("threads-only")
RUNTIME = FilterRequirements("threads-only", programs=True, new_code=True)
PROXY = FilterRequirements("usual", sockets=True, programs=True, new_code=True, sessions=True)
ALL = {
    "None": NONE, "Standard": STANDARD, "Strict": STRICT, "degraded": DEGRADED,
    "Restricted": RESTRICTED, "runtime": RUNTIME, "proxy": PROXY,
    "Restricted proxy": RESTRICTED._replace(sockets=True),
}  # fmt: skip
SANDBOXED = {name: wanted for name, wanted in ALL.items() if wanted.calls != "open"}

NEVER = """
    acct add_key adjtimex bpf chroot clock_adjtime clock_settime create_module delete_module
    fanotify_init fanotify_mark finit_module fsconfig fsmount fsopen fspick init_module
    io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load
    keyctl lookup_dcookie memfd_secret migrate_pages modify_ldt mount mount_setattr move_mount
    move_pages mq_open mq_unlink msgctl msgget name_to_handle_at open_by_handle_at open_tree
    perf_event_open pidfd_getfd pivot_root process_madvise process_mrelease process_vm_readv
    process_vm_writev ptrace quotactl quotactl_fd reboot remap_file_pages request_key semctl semget
    semop semtimedop setdomainname sethostname setns settimeofday shmat shmctl shmget swapoff
    swapon sysfs syslog umount2 unshare uselib userfaultfd ustat vhangup vmsplice"""
NEVER_BEHIND_THE_WALL = """
    accept accept4 bind capset chown execveat fchown fchownat inotify_add_watch inotify_init
    inotify_init1 io_setup io_submit ioprio_set landlock_restrict_self lchown listen memfd_create
    mincore mknod mknodat mlock mlock2 mlockall munlock personality pkey_mprotect readahead
    recvmmsg rt_sigqueueinfo rt_tgsigqueueinfo sched_setaffinity sched_setattr sched_setparam
    sched_setscheduler seccomp sendmmsg set_mempolicy setfsgid setfsuid setgid setgroups
    setpriority setregid setresgid setresuid setreuid setrlimit setuid splice sync syncfs tee"""
NEVER_RESTRICTED = """
    execve fork kill link linkat pidfd_open pidfd_send_signal setpgid setsid symlink symlinkat
    sysinfo timer_create tkill vfork wait4 waitid"""
WITHOUT_SOCKETS = "connect sendmsg socket"
ABSENT = """
    cachestat clone3 futex_requeue futex_wait futex_waitv futex_wake map_shadow_stack openat2"""
ATTRIBUTES = """
    fgetxattr flistxattr fremovexattr fsetxattr getxattr lgetxattr listxattr llistxattr lremovexattr
    lsetxattr removexattr setxattr"""


def execute(program: Block, architecture: int, number: int, arguments: Iterable[int] = ()) -> int:
    """What the kernel would answer: the subset of classic BPF that the assemblers make."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *padded)
    at, value = 0, 0
    while True:
        code, if_true, if_false, operand = program[at]
        at += 1
        if code == bpf.LOAD:
            (value,) = struct.unpack_from("=I", data, operand)
        elif code == bpf.AND:
            value &= operand
        elif code == bpf.JUMP:
            at += operand
        elif code == bpf.RETURN:
            return operand
        else:
            holds = {
                bpf.JUMP_EQUAL: value == operand,
                bpf.JUMP_AT_LEAST: value >= operand,
                0x25: value > operand,
            }[code]
            at += if_true if holds else if_false


class Machine:
    """One of our machines with one program."""

    def __init__(self, name: str, wanted: FilterRequirements) -> None:
        self.name, self.wanted = name, wanted
        self.architecture = bpf.ARCHITECTURES[name]
        self.program = seccomp.program(name, wanted)
        self.table = syscalls.table(name)
        named = call_rules.rules(wanted)
        self.rules = {call: named.get(call, Rule()) for call in self.table}

    def decide(self, number: int, arguments: Iterable[int] = ()) -> int:
        return execute(self.program, self.architecture, number, arguments)

    def answer(self, call: str, *arguments: int) -> int:
        return self.decide(self.table[call], arguments)


@pytest.fixture(params=syscalls.MACHINES)
def machine(request) -> str:
    return request.param


def machines(*wanted: FilterRequirements) -> Iterator[Machine]:
    for name, one in itertools.product(syscalls.MACHINES, wanted):
        yield Machine(name, one)


@pytest.fixture
def libseccomp() -> Library:
    try:
        return Library()
    except OSError as reason:
        print(f"NOT COMPARED with libseccomp: {reason}", file=sys.__stderr__)
        pytest.skip(f"not compared with libseccomp: {reason}")


def test_every_number_in_our_table_is_the_kernels(machine):
    rows = csv.DictReader((Path(__file__).parent / "syscall_numbers.csv").open())
    theirs = {row["name"]: int(row[machine]) for row in rows if row[machine]}
    ours = syscalls.table(machine)
    both = ours.keys() & theirs.keys()
    assert len(both) > 300
    assert {name: ours[name] for name in both} == {name: theirs[name] for name in both}


def test_every_number_is_libseccomps_too(machine, libseccomp):
    ours = syscalls.table(machine)
    theirs = {name: libseccomp.number(name, machine) for name in ours}
    known = {name: number for name, number in theirs.items() if number is not None}
    assert len(known) > 300
    assert {name: ours[name] for name in known} == known


def test_the_table_is_as_it_was_generated(libseccomp):
    """A libseccomp of another age knows more or fewer calls: then there is nothing to say."""
    if any(libseccomp.table(one).keys() != syscalls.table(one).keys() for one in syscalls.MACHINES):
        pytest.skip("this libseccomp is of another age than the table")
    assert generate_syscalls.TARGET.read_text() == generate_syscalls.generate()


def test_no_name_in_our_lists_is_misspelt():
    for wanted in ALL.values():
        assert call_rules.rules(wanted).keys() <= syscalls.NUMBERS.keys()
    for text in (NEVER, NEVER_BEHIND_THE_WALL, NEVER_RESTRICTED, ABSENT, ATTRIBUTES):
        assert set(text.split()) <= syscalls.NUMBERS.keys()


@pytest.mark.part("sandbox", but_each=3)
@pytest.mark.parametrize("wanted", ALL.values(), ids=ALL)
def test_libseccomp_decides_the_same_of_every_number(machine, wanted, libseccomp):
    ours = Machine(machine, wanted)
    plain = {name: rule for name, rule in ours.rules.items() if not rule.cases}
    theirs = libseccomp.program(machine, ENOSYS, plain)
    for number in set(range(600)) - {ours.table[name] for name in ours.rules.keys() - plain.keys()}:
        assert ours.decide(number) == execute(theirs, ours.architecture, number), number


@pytest.mark.part("sandbox", but_each=3)
@pytest.mark.parametrize("wanted", ALL.values(), ids=ALL)
def test_libseccomp_decides_the_same_of_all_arguments(machine, wanted, libseccomp):
    """On both sides of every border of every condition, with upper halves."""
    ours = Machine(machine, wanted)
    conditional = {name: rule for name, rule in ours.rules.items() if rule.cases}
    for default in {rule.otherwise for rule in conditional.values()}:
        alike = {name: rule for name, rule in conditional.items() if rule.otherwise == default}
        theirs = libseccomp.program(machine, default, alike)
        for name, rule in alike.items():
            for arguments in tried(rule):
                answer = execute(theirs, ours.architecture, ours.table[name], arguments)
                assert ours.answer(name, *arguments) == answer, (name, arguments)


def tried(rule: Rule) -> Iterator[list[int]]:
    """Argument vectors on both sides of every border of a rule."""
    values: dict[int, set[int]] = {}
    for case in rule.cases:
        for check in case.checks:
            near = {value ^ bit for value in check.values for bit in (0, 1, 2, 0x800, 0x10000)}
            masked = range(32) if check.mask != 0xFFFFFFFF else ()
            bits = {1 << bit for bit in masked if check.mask >> bit & 1}
            wide = {value | HIGH for value in check.values}
            values.setdefault(check.argument, set()).update(near | bits | wide | {0, 0xFFFFFFFF})
    names = sorted(values)
    for chosen in itertools.product(*(sorted(values[name]) for name in names)):
        arguments = [0] * 6
        for name, value in zip(names, chosen, strict=True):
            arguments[name] = value
        yield arguments


def refused(text: str, answer: int, *wanted: FilterRequirements) -> None:
    for one in machines(*wanted):
        for name in text.split():
            if name in one.table:
                assert one.answer(name) == answer, (name, one.name, one.wanted)


def test_dangerous_calls_are_refused_by_name():
    refused(NEVER, EPERM, *ALL.values())
    refused(NEVER_BEHIND_THE_WALL, EPERM, *SANDBOXED.values())
    refused(NEVER_RESTRICTED, EPERM, RESTRICTED)
    refused(WITHOUT_SOCKETS, EPERM, STANDARD, STRICT, DEGRADED, RESTRICTED, RUNTIME)
    refused("execve", EPERM, STRICT, RESTRICTED)
    refused("setpgid setsid", EPERM, NONE, DEGRADED, RESTRICTED)


def test_refusals_that_programs_know_a_way_around_say_so():
    refused("clone3 openat2", ENOSYS, *ALL.values())
    refused(ABSENT, ENOSYS, *SANDBOXED.values())
    refused(ATTRIBUTES, ENOTSUP, *SANDBOXED.values())
    refused("flock", ENOLCK, *SANDBOXED.values())
    refused("copy_file_range fstatfs membarrier sendfile statfs", ENOSYS, RESTRICTED)


def test_a_number_without_a_name_does_not_exist():
    for one in machines(*ALL.values()):
        unknown = set(range(1200)) - set(one.table.values()) | {0x3FFFFFFF}
        assert {one.decide(number) for number in unknown} == {ENOSYS}


def test_another_architecture_kills_whatever_the_number():
    for one in machines(*ALL.values()):
        others = {*FOREIGN.values(), *bpf.ARCHITECTURES.values()} - {one.architecture}
        for other in others:
            assert {execute(one.program, other, number) for number in range(600)} == {KILL}


@pytest.mark.parametrize("wanted", ALL.values(), ids=ALL)
def test_numbers_of_the_x32_interface_are_refused(wanted):
    one = Machine("x86_64", wanted)
    for number in (*range(0x40000000, 0x40000400), 0xFFFFFFFF):
        assert one.decide(number) == EPERM


@pytest.mark.parametrize(
    ("wanted", "most"),
    [(RESTRICTED, 129), (RUNTIME, 131), (RESTRICTED._replace(sockets=True), 132)],
)
def test_restricted_reaches_few_calls(wanted, most):
    """The target is 140; what is here now is the limit, so that one more is a decision."""
    one = Machine("x86_64", wanted)
    answers = {name: {rule.otherwise, *(case.answer for case in rule.cases)}
               for name, rule in one.rules.items()}  # fmt: skip
    assert sum(ALLOW in each for each in answers.values()) == most
    assert most <= 140


# Everywhere; then by level. Each line: call, arguments, answer.
EVERYWHERE = [
    ("clone", [0x10000011], EPERM), ("clone", [0x20000], EPERM), ("clone", [0x40000000], EPERM),
    ("clone", [0x3D0F00 | 0x02000000], EPERM), ("clone", [0x3D0F00], ALLOW),
    ("fchmod", [0, 0o777], ALLOW), ("fchmod", [0, 0o4755], EPERM),
    ("fchmod", [0, 0o4755 | HIGH], EPERM), ("fchmodat", [0, 0, 0o2755], EPERM),
    ("fchmodat2", [0, 0, 0o4000], EPERM), ("openat", [0, 0, 64, 0o644], ALLOW),
    ("openat", [0, 0, 64, 0o4644], EPERM), ("mkdirat", [0, 0, 0o2755], EPERM),
    ("prlimit64", [0], ALLOW), ("prlimit64", [1], EPERM), ("prlimit64", [HIGH], ALLOW),
    ("ioctl", [0, 0x5401], ALLOW), ("ioctl", [0, 0x5412], EPERM),
    ("ioctl", [0, 0x5412 | HIGH], EPERM), ("ioctl", [0, 0x541C], EPERM),
    ("prctl", [15], ALLOW), ("prctl", [1], EPERM), ("prctl", [4], EPERM), ("prctl", [35], EPERM),
    ("socketpair", [1, 1], ALLOW), ("socketpair", [1, 0x80801], ALLOW),
    ("socketpair", [2, 1], EPERM), ("socketpair", [30, 1], EPERM),
]  # fmt: skip
BEHIND_THE_WALL = [
    ("socketpair", [1, 5], ALLOW), ("socketpair", [1, 2], EPERM), ("socketpair", [1, 3], EPERM),
    ("prctl", [22], EPERM), ("prctl", [38], EPERM), ("prctl", [1 << 31], EPERM),
    ("ioctl", [0, 0x5410], EPERM), ("ioctl", [0, 0x5452], EPERM), ("ioctl", [0, 0x8914], EPERM),
    ("fcntl", [0, 1030], ALLOW), ("fcntl", [0, 4], ALLOW), ("fcntl", [0, 6], ENOLCK),
    ("fcntl", [0, 7], ENOLCK), ("fcntl", [0, 5], ENOLCK), ("fcntl", [0, 37], ENOLCK),
    ("fcntl", [0, 38 | HIGH], ENOLCK), ("fcntl", [0, 8], EPERM), ("fcntl", [0, 10], EPERM),
    ("fcntl", [0, 1024], EPERM), ("fcntl", [0, 1026], EPERM), ("fcntl", [0, 1031], EPERM),
    ("fcntl", [0, 1036], EPERM), ("sendto", [3, 1, 1, 0, 0, 0], ALLOW),
    ("sendto", [3, 1, 1, 0x4040, 0, 0], ALLOW), ("sendto", [3, 1, 1, 0, 8, 0], EPERM),
    ("sendto", [3, 1, 1, 0, HIGH, 0], EPERM), ("sendto", [3, 1, 1, 1, 0, 0], EPERM),
    ("sendto", [3, 1, 1, 0x20000000, 0, 0], EPERM), ("recvfrom", [3, 1, 1, 1], EPERM),
    ("recvfrom", [3, 1, 1, 0x40], ALLOW), ("recvmsg", [3, 1, 0x2000], EPERM),
    ("setsockopt", [3, 1, 7], ALLOW), ("setsockopt", [3, 1, 26], EPERM),
    ("setsockopt", [3, 1, 50], EPERM), ("setsockopt", [3, 41, 7], EPERM),
    ("getsockopt", [3, 1, 39], ALLOW), ("getsockopt", [3, 0, 39], EPERM),
    ("madvise", [0, 0, 4], ALLOW), ("madvise", [0, 0, 12], EINVAL), ("madvise", [0, 0, 21], EINVAL),
    ("mmap", [0, 0, 1, 0x22], ALLOW), ("mmap", [0, 0, 1, 0x2022], EPERM),
    ("mmap", [0, 0, 1, 0x40022], EPERM), ("preadv2", [0, 0, 0, 0, 0, 0], ALLOW),
    ("preadv2", [0, 0, 0, 0, 0, 8], ENOTSUP), ("preadv2", [0, 0, 0, 0, 0, 0x80], ENOTSUP),
    ("renameat2", [0, 0, 0, 0, 1], ALLOW), ("renameat2", [0, 0, 0, 0, 4], EINVAL),
]  # fmt: skip
WITH_PROCESSES = [
    ("clone", [17], ALLOW), ("clone", [0x1200011], ALLOW), ("clone", [0x4111], ALLOW),
    ("kill", [1], ALLOW), ("kill", [0xFFFFFFFF], EPERM), ("kill", [0xFFFFFFFFFFFFFFFF], EPERM),
]  # fmt: skip
THREADS_ONLY = [
    ("clone", [17], EPERM), ("clone", [0x1200011], EPERM), ("clone", [0x4111], EPERM),
    ("clone", [HIGH | 0x4111], EPERM), ("fadvise64", [0, 0, 0, 0], EPERM),
]  # fmt: skip
NO_NEW_CODE = [
    ("mmap", [0, 0, 3, 0x22], ALLOW), ("mmap", [0, 0, 5, 2], ALLOW), ("mmap", [0, 0, 6, 2], EPERM),
    ("mmap", [0, 0, 7, 2], EPERM), ("mmap", [0, 0, HIGH | 7, 2], EPERM),
    ("mprotect", [0, 0, 3], ALLOW), ("mprotect", [0, 0, 4], EPERM), ("mprotect", [0, 0, 5], EPERM),
]  # fmt: skip
CONNECTIONS = [
    ("socket", [2, 1, 0], ALLOW), ("socket", [10, 0x80801, 6], ALLOW), ("socket", [1, 1, 0], EPERM),
    ("socket", [2, 2, 0], EPERM), ("socket", [2, 3, 0], EPERM), ("socket", [2, 1, 262], EPERM),
    ("socket", [2, 1, 132], EPERM), ("socket", [16, 1, 0], EPERM), ("socket", [40, 1, 0], EPERM),
    ("socket", [2, 0x101, 0], EPERM), ("connect", [3], ALLOW), ("sendmsg", [3, 1, 0], ALLOW),
    ("sendmsg", [3, 1, 0x20000000], EPERM), ("setsockopt", [3, 6, 1], ALLOW),
    ("setsockopt", [3, 6, 30], EPERM), ("setsockopt", [3, 6, 31], EPERM),
    ("getsockopt", [3, 6, 11], ALLOW), ("getsockopt", [3, 6, 35], EPERM),
]  # fmt: skip
OPEN = [
    ("socket", [1, 1], ALLOW), ("socket", [2, 2], ALLOW), ("socket", [16, 3], EPERM),
    ("socket", [17, 3], EPERM), ("socket", [38, 5], EPERM), ("socket", [40, 1], EPERM),
    ("personality", [0xFFFFFFFF], ALLOW), ("personality", [0], ALLOW),
    ("personality", [0x0040000], EPERM), ("personality", [0x0400000], EPERM),
    ("mknodat", [0, 0, 0o104755], EPERM), ("mknodat", [0, 0, 0o010644], ALLOW),
    ("prctl", [36], ALLOW), ("prctl", [0x59616D61], EPERM), ("ioctl", [0, 0x5423], EPERM),
    ("ioctl", [0, 0x5402], ALLOW), ("flock", [0, 2], ALLOW), ("fcntl", [0, 6], ALLOW),
]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (EVERYWHERE, ALL.values()),
        (BEHIND_THE_WALL, [STANDARD, STRICT, DEGRADED, RESTRICTED, RUNTIME]),
        (WITH_PROCESSES, [NONE, STANDARD, STRICT, DEGRADED, PROXY]),
        (THREADS_ONLY, [RESTRICTED, RUNTIME]),
        (NO_NEW_CODE, [RESTRICTED]),
        (CONNECTIONS, [PROXY, RESTRICTED._replace(sockets=True)]),
        (OPEN, [NONE]),
    ],
)
def test_arguments_decide(lines, wanted):
    for one in machines(*wanted):
        for name, arguments, expected in lines:
            assert one.answer(name, *arguments) == expected, (one.wanted, name, arguments)


def test_a_machine_without_a_table_gets_no_filter_and_so_no_sandbox():
    with pytest.raises(ValueError, match="riscv64"):
        seccomp.SeccompFilter("riscv64", STANDARD)


def test_a_word_that_is_no_levels_gets_no_filter():
    with pytest.raises(KeyError):
        seccomp.SeccompFilter("x86_64", FilterRequirements("everything"))


def test_every_jump_stays_inside_the_program():
    for one in machines(*ALL.values()):
        assert len(one.program) < 4096
        for at, (code, if_true, if_false, operand) in enumerate(one.program):
            reach = operand if code == bpf.JUMP else max(if_true, if_false)
            if code in (bpf.JUMP, bpf.JUMP_EQUAL, bpf.JUMP_AT_LEAST):
                assert at + 1 + reach < len(one.program)
            else:
                assert (if_true, if_false) == (0, 0)


UNDER_IT = """
import asyncio, ctypes, errno, fcntl, mmap, os, shutil, socket, sys, tempfile, threading
from sandbox.inside.filter import call_rules, seccomp
from sandbox.inside.layers import libc
os.chdir(sys.argv[2])
wanted = eval(sys.argv[1], {"FilterRequirements": call_rules.FilterRequirements})
libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
seccomp.SeccompFilter(os.uname().machine, wanted).load()
def refused(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
"""


@pytest.fixture
def run_filtered(tmp_path):
    """Run Python under the real filter of this machine; returns what it printed."""

    def run(wanted: FilterRequirements, source: str) -> str:
        command = [sys.executable, "-c", UNDER_IT + textwrap.dedent(source), repr(wanted)]
        command.append(str(tmp_path))
        done = subprocess.run(command, check=False, capture_output=True, cwd=ROOT, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


EACH = pytest.mark.parametrize("wanted", ALL.values(), ids=ALL)


@pytest.mark.part("sandbox", but_each=3)
@EACH
def test_ordinary_python_works_under_each_of_them(run_filtered, wanted):
    source = """
    results = []
    threads = [threading.Thread(target=results.append, args=(n,)) for n in range(20)]
    for one in threads: one.start()
    for one in threads: one.join()
    async def go():
        await asyncio.sleep(0.001)
        return await asyncio.to_thread(sum, [1, 2])
    with tempfile.TemporaryDirectory(dir=".") as place:
        open(place + "/a", "w").write("text")
        shutil.copy2(place + "/a", place + "/b")
        shutil.copytree(place, place + "/c")
        os.replace(place + "/b", place + "/d")
        os.chmod(place + "/d", 0o600)
        names = sorted(os.listdir(place))
    ours, theirs = socket.socketpair()
    ours.sendall(b"hello")
    memory = mmap.mmap(-1, 1 << 20)
    memory[:3] = b"abc"
    print(len(results), asyncio.run(go()), names, theirs.recv(9), memory[:3])
    """
    assert run_filtered(wanted, source) == "20 3 ['a', 'c', 'd'] b'hello' b'abc'"


@pytest.mark.part("sandbox", but_each=3)
@pytest.mark.parametrize("wanted", SANDBOXED.values(), ids=SANDBOXED)
def test_there_are_no_locks_on_inodes_that_others_share(run_filtered, wanted):
    source = """
    null, program = open("/dev/null", "r+b", 0), open(os.__file__)
    print(*(refused(how, file, fcntl.LOCK_SH) for how in (fcntl.flock, fcntl.lockf)
            for file in (null, program)))
    print(refused(fcntl.fcntl, program, fcntl.F_NOTIFY, 1),
          refused(fcntl.fcntl, program, fcntl.F_SETLEASE, fcntl.F_RDLCK),
          refused(fcntl.fcntl, program, fcntl.F_SETSIG, 10))
    """
    assert run_filtered(wanted, source).split() == ["ENOLCK"] * 4 + ["EPERM"] * 3


def test_restricted_has_threads_and_nothing_beside(run_filtered):
    source = """
    ours, _ = socket.socketpair()
    print(refused(os.fork), refused(os.execv, "/bin/true", ["true"]), refused(os.setsid),
          refused(os.kill, os.getpid(), 0), refused(os.symlink, "a", "b"),
          refused(mmap.mmap, -1, 4096, mmap.MAP_PRIVATE, 7), refused(socket.socket),
          refused(ours.sendmsg, [b"x"]))
    """
    assert run_filtered(RESTRICTED, source).split() == ["EPERM"] * 8


def test_a_run_behind_the_proxys_door_connects_and_never_listens(run_filtered):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        source = f"""
        one = socket.create_connection(("127.0.0.1", {listener.getsockname()[1]}))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.sendmsg([b"ab", b"c"])
        other = socket.socket()
        datagrams = lambda kind: socket.socket(socket.AF_INET, kind)
        print(refused(other.bind, ("127.0.0.1", 0)), refused(other.listen),
              refused(datagrams, socket.SOCK_DGRAM), refused(datagrams, socket.SOCK_RAW),
              refused(socket.socket, socket.AF_UNIX), refused(socket.socket, socket.AF_NETLINK),
              refused(other.sendto, b"x", 0x20000000, ("127.0.0.1", 1)))
        """
        assert run_filtered(PROXY, source).split() == ["EPERM"] * 7
        assert listener.accept()[0].recv(9) == b"abc"


def test_32_bit_code_is_killed_at_its_first_call(run_filtered):
    """int 0x80 takes the numbers of another architecture."""
    if platform.machine() != "x86_64":
        pytest.skip("only x86_64 has a second way into the kernel")
    code = "b8 14 00 00 00 cd 80 c3".replace(" ", "")  # getpid, return
    source = f"""
    memory = mmap.mmap(-1, 4096, prot=7)
    memory.write(bytes.fromhex("{code}"))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    child = os.fork()
    if child == 0:
        ctypes.CFUNCTYPE(ctypes.c_int)(address)()
        os._exit(0)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]))
    """
    assert int(run_filtered(STANDARD, source)) == signal.SIGSYS
