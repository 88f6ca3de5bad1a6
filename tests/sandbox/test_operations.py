"""Counting operations on files: real processes under the real filter, observed from outside."""

import array
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.daemon.limits.operation_counter import is_full
from sandbox.daemon.limits.operations import Counter, RunOperations
from sandbox.inside.filter import bpf, seccomp, syscalls
from sandbox.inside.filter.bpf import ARCHITECTURES
from tests.sandbox.test_seccomp_filter import execute

ROOT = Path(__file__).resolve().parents[2]
BEGIN = """
import array, ctypes, os, signal, socket, sys, threading
from sandbox.inside.filter import call_rules, seccomp, syscalls
from sandbox.inside.layers import libc, mounts
machine = os.uname().machine
channel = socket.socket(fileno=int(sys.argv[1]))
place = sys.argv[2]
def tell(*descriptors):
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
    channel.sendmsg([b"x"], [rights])
def listen():
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    return seccomp.Counting(machine).listen()
def touch(name):
    os.close(os.open(f"{place}/{name}", os.O_CREAT | os.O_WRONLY, 0o600))
def begin(*others):
    listener = listen()
    tell(listener, *others)
    os.close(listener)
    channel.recv(1)
"""


class Child:
    """A process that counts from `begin()` on, and continues there on request."""

    def __init__(self, source: str, place: Path) -> None:
        self.place = place
        self.channel, far = socket.socketpair()
        command = [sys.executable, "-c", BEGIN + textwrap.dedent(source), str(far.fileno())]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*command, str(place)], pass_fds=[far.fileno()], cwd=ROOT, stdout=pipe
        )
        far.close()

    def descriptors(self, most: int = 2) -> list[int]:
        _, ancillary, _, _ = self.channel.recvmsg(1, socket.CMSG_SPACE(4 * most))
        return list(array.array("i", b"".join(data for *_, data in ancillary)))

    def go(self) -> None:
        self.channel.send(b"g")

    def finish(self) -> str:
        """Let it run to its end; returns what it printed."""
        self.go()
        text = self.process.stdout.read()
        assert self.process.wait() == 0
        return text.decode()

    def close(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


type Start = Callable[[str], tuple[Child, RunOperations]]


@pytest.fixture
def counter() -> Iterator[Counter]:
    one = Counter()
    one.start()
    yield one
    one.close()


@pytest.fixture
def child(tmp_path) -> Iterator[Callable[[str], Child]]:
    started: list[Child] = []

    def make(source: str) -> Child:
        started.append(Child(source, tmp_path))
        return started[-1]

    yield make
    for one in started:
        one.close()


@pytest.fixture
def start(counter, child) -> Iterator[Start]:
    """A child that is counted."""
    tallies: list[RunOperations] = []

    def make(source: str) -> tuple[Child, RunOperations]:
        one = child(source)
        tallies.append(counter.adopt(*one.descriptors()))
        return one, tallies[-1]

    yield make
    for tally in tallies:
        tally.close()


def descriptors_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def readable(descriptor: int, seconds: float = 10) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def test_each_kind_of_operation_is_counted_once(start):
    process, tally = start("""
        numbers = [syscalls.table(machine).get(name) for name in sorted(seccomp.COUNTED)]
        numbers = [number for number in numbers if number is not None]
        begin()
        for number in numbers:
            ctypes.CDLL(None).syscall(number, 0, 0, 0, 0, 0)
        print(len(numbers))
    """)
    assert tally.count() == 0
    number = int(process.finish())
    assert tally.count() == number >= 9


def test_what_python_does_to_files_is_counted_exactly(start):
    process, tally = start("""
        begin()
        os.mkdir(f"{place}/d")
        for n in range(10):
            touch(f"d/{n}")
        os.rename(f"{place}/d/0", f"{place}/d/new")
        os.link(f"{place}/d/1", f"{place}/d/hard")
        os.symlink("1", f"{place}/d/soft")
        os.truncate(f"{place}/d/1", 5)
        for name in os.listdir(f"{place}/d"):
            os.unlink(f"{place}/d/{name}")
        os.rmdir(f"{place}/d")
        os._exit(0)
    """)
    process.finish()
    assert tally.count() == 1 + 10 + 1 + 1 + 1 + 1 + (1 + 12) + 1


def test_reading_writing_and_asking_are_not_operations(start):
    process, tally = start("""
        begin()
        here = os.open(place, os.O_RDONLY)
        os.stat(place), os.fstat(here), os.getcwd(), os.listdir(here), os.access(place, os.R_OK)
        os.lseek(here, 0, os.SEEK_SET)
        os._exit(0)
    """)
    process.finish()
    assert tally.count() == 1


def test_operations_that_fail_are_counted_and_those_the_wall_refuses_are_not(start):
    process, tally = start("""
        wall = seccomp.SeccompFilter(machine, call_rules.FilterRequirements("usual"))
        begin()
        wall.load()
        for mode in (0o600, 0o4600, 0o600, 0o2600):
            try:
                os.open(f"{place}/none/x", os.O_CREAT, mode)
            except OSError as error:
                print(type(error).__name__, end=" ")
        sys.stdout.flush()
        os._exit(0)
    """)
    counts = process.finish().split()
    assert counts == ["FileNotFoundError", "PermissionError"] * 2
    assert tally.count() == 2


def test_what_came_before_the_job_is_not_the_jobs(start):
    process, tally = start("""
        begin()
        for n in range(5): touch(n)
        channel.send(b"warm")
        channel.recv(1)
        for n in range(3): touch(n)
        os._exit(0)
    """)
    process.go()
    process.channel.recv(8)
    assert tally.count() == 5
    tally.reset()
    assert tally.count() == 0
    process.finish()
    assert tally.count() == 3


def test_threads_and_grandchildren_count_together(start):
    process, tally = start("""
        started, going = threading.Barrier(5), threading.Barrier(5)
        def work():
            for n in range(50): touch(n)
        def work_later():
            touch("x")
            started.wait(), going.wait()
            work()
        begin()
        threads = [threading.Thread(target=work_later) for _ in range(4)]
        if os.fork() == 0:
            if os.fork() == 0:
                work()
                os._exit(0)
            os.wait()
            work()
            os._exit(0)
        os.wait()
        for one in threads: one.start()
        started.wait()
        channel.send(b"r")
        channel.recv(1)
        going.wait()
        for one in threads: one.join()
        os._exit(0)
    """)
    process.go()
    process.channel.recv(1)
    assert tally.count() >= 2 * 50 + 4  # libc opens a file or two for its first threads
    tally.reset()
    process.finish()
    assert tally.count() == 4 * 50


def test_runs_are_counted_apart(start):
    source = "begin()\nfor n in range({}): touch(n)\nos._exit(0)"
    pairs = [(start(source.format(number)), number) for number in (1, 20, 300)]
    for (process, _), _ in pairs:
        process.go()
    for (process, tally), number in pairs:
        process.process.wait()
        assert tally.count() == number


@pytest.mark.part("generated")
def test_hundreds_of_runs_at_once(counter, child):
    """Made by one process, so that it does not take a minute to start them."""
    parent = child("""
        gate, opener = os.pipe()
        for number in range(300):
            if os.fork() == 0:
                os.close(opener)
                tell(listen())
                os.read(gate, 1)
                for n in range(number % 20): touch(n)
                os._exit(0)
            channel.recv(1)
        channel.recv(1)
        os.close(opener)
        for _ in range(300): os.wait()
    """)
    tallies = []
    for _ in range(300):
        tallies.append(counter.adopt(*parent.descriptors()))
        parent.go()
    parent.finish()
    assert [tally.count() for tally in tallies] == [number % 20 for number in range(300)]
    for tally in tallies:
        tally.close()


def test_processes_that_are_killed_while_they_ask_leave_the_others_counted(start):
    process, tally = start("""
        begin()
        for _ in range(40):
            victim = os.fork()
            if victim == 0:
                while True: touch("victim")
            touch("mine")
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
        os._exit(0)
    """)
    other, others = start("begin()\nfor n in range(500): touch(n)\nos._exit(0)")
    process.go()
    other.finish()
    process.process.wait()
    assert others.count() == 500
    assert tally.count() >= 40
    assert start("begin()\ntouch('x')\nos._exit(0)")[0].finish() == ""


def test_a_run_over_its_number_stands_still_and_rings(start):
    process, tally = start("begin()\nfor n in range(100): touch(n)\nos._exit(0)")
    tally.reset(10)
    process.go()
    assert readable(tally.alarm)
    assert (tally.count(), tally.is_over_limit()) == (11, True)
    assert len(os.listdir(process.place)) == 10
    assert process.process.poll() is None


def test_threads_of_a_run_over_its_number_stand_still_too(start):
    process, tally = start("""
        def work():
            while True: touch(threading.get_ident())
        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        begin()
        for one in threads: one.start()
        threads[0].join()
    """)
    tally.reset(50)
    process.go()
    assert readable(tally.alarm)
    other, others = start("begin()\nfor n in range(50): touch(n)\nos._exit(0)")
    other.finish()
    assert (tally.count(), others.count()) == (51, 50)
    process.process.send_signal(signal.SIGKILL)
    assert process.process.wait(10) == -signal.SIGKILL


def test_a_run_may_make_as_many_operations_as_its_number(start):
    process, tally = start("begin()\nfor n in range(10): touch(n)\nos._exit(0)")
    tally.reset(10)
    process.finish()
    assert (tally.count(), tally.is_over_limit()) == (10, False)
    assert not readable(tally.alarm, 0)


@pytest.fixture
def start_on_disk(start):
    """A child with a private file system of its own: 64 KiB, or 20 files."""
    if os.getuid() != 0:
        pytest.skip("mounting a small file system needs root")
    prepare = """
        os.unshare(os.CLONE_NEWNS)
        libc.mount("none", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
        libc.mount("tmpfs", place, "tmpfs", 0, "size=64k,nr_inodes=20")
        def fill(name):
            file = os.open(f"{place}/{name}", os.O_CREAT | os.O_WRONLY)
            try:
                while os.write(file, bytes(4096)): pass
            except OSError:
                pass
        def crowd():
            try:
                for n in range(100): touch(n)
            except OSError:
                pass
        def end(*_): os._exit(0)
        begin(os.open(place, os.O_PATH))
    """
    return lambda source: start(textwrap.dedent(prepare) + source)


@pytest.mark.parametrize(
    "clean_up",
    [
        "os.unlink(f'{place}/big')",
        "os.truncate(f'{place}/big', 0)",
        "os.open(f'{place}/big', os.O_WRONLY | os.O_TRUNC)",
        "touch('small'); os.rename(f'{place}/small', f'{place}/big')",
    ],
)
def test_a_disk_that_was_full_is_noticed_though_it_is_cleaned_up(start_on_disk, clean_up):
    process, tally = start_on_disk(f"touch('small')\nfill('big')\n{clean_up}\nend()")
    assert not tally.full()
    process.finish()
    assert tally.full()
    assert not is_full(tally.directory)


def test_a_disk_without_inodes_left_is_full_too(start_on_disk):
    clean_up = "for name in os.listdir(place): os.unlink(f'{place}/{name}')\nend()"
    process, tally = start_on_disk(f"crowd()\n{clean_up}")
    process.finish()
    assert tally.full()
    assert not is_full(tally.directory)


def test_a_disk_that_is_full_at_the_end_is_noticed_by_looking(start_on_disk):
    process, tally = start_on_disk("fill('big')\nend()")
    process.finish()
    assert tally.full()


def test_a_disk_that_was_used_and_not_filled_is_not_full(start_on_disk):
    process, tally = start_on_disk("touch('a')\nos.unlink(f'{place}/a')\nend()")
    process.finish()
    assert not tally.full()
    assert tally.count() == 2


@pytest.mark.part("sandbox")
def test_a_counting_process_that_dies_is_replaced_and_nothing_is_lost(counter, start):
    process, tally = start("""
        begin()
        for n in range(3): touch(n)
        channel.send(b"3")
        channel.recv(1)
        for n in range(2): touch(n)
        os._exit(0)
    """)
    tally.reset(5)
    process.go()
    process.channel.recv(1)
    before = counter.pid
    os.kill(before, signal.SIGKILL)
    process.finish()
    assert (tally.count(), tally.is_over_limit()) == (5, False)
    assert counter.pid != before
    other, others = start("begin()\ntouch('x')\nos._exit(0)")
    other.finish()
    assert others.count() == 1


def test_a_place_that_is_used_again_starts_from_nothing(counter, child):
    one = child("begin()\nfor n in range(7): touch(n)\nos._exit(0)")
    first = counter.adopt(*one.descriptors())
    first.reset(3)
    one.go()
    assert readable(first.alarm)
    first.close()
    counter._free.rotate(1)
    other = child("begin()\nfor n in range(9): touch(n)\nos._exit(0)")
    second = counter.adopt(*other.descriptors())
    assert (second.place, second.count(), second.is_over_limit()) == (first.place, 0, False)
    other.finish()
    assert (second.count(), second.is_over_limit()) == (9, False)
    second.close()


def test_nothing_is_held_for_runs_that_are_over(counter, start, child):
    """The process that counts lets go when a run ends, sandboxd when the tally is closed."""
    witness, _ = start("begin()\nwhile channel.recv(1): touch('x'); channel.send(b'x')")
    witness.go()
    counts = []
    for _ in range(3):
        runs = [child("begin()\ntouch('x')\nos._exit(0)") for _ in range(4)]
        tallies = [counter.adopt(*run.descriptors()) for run in runs]
        for run in runs:
            run.finish()
            run.close()
        for _ in range(2):  # answered after the ends of the others were noticed
            witness.go()
            witness.channel.recv(1)
        held = descriptors_of(counter.pid)
        for tally in tallies:
            tally.close()
        counts.append((held, descriptors_of(os.getpid())))
    assert len(set(counts)) == 1


def test_without_operations_the_counting_process_sleeps(counter, start, child):
    start("begin()")
    process, _ = start("begin()\ntouch('x')\nos._exit(0)")
    process.finish()
    uncounted = "for n in range(1000): touch(n)\nos._exit(0)"
    child(uncounted).finish()  # by its end the other's has long been noticed
    before = wakings(counter.pid)
    child(uncounted).finish()
    assert wakings(counter.pid) == before


def wakings(pid: int) -> str:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(line for line in status.splitlines() if line.startswith("voluntary_ctxt"))


def test_it_ends_with_sandboxd():
    counter = Counter()
    counter.start()
    pidfd = os.pidfd_open(counter.pid)
    counter.close()
    assert readable(pidfd)
    os.close(pidfd)


def test_a_second_seccomp_listener_is_not_created(child):
    process = child("print(listen() is None, listen() is None)\nsys.stdout.flush()\nos._exit(0)")
    assert process.finish() == "False True\n"


@pytest.mark.parametrize("machine", syscalls.MACHINES)
def test_the_program_asks_about_the_counted_calls_and_passes_all_others_on(machine):
    program, table = seccomp.counting_program(machine), syscalls.table(machine)
    counted = {table[name] for name in seccomp.COUNTED if name in table}
    for number in range(600):
        expected = bpf.NOTIFY if number in counted else bpf.ALLOW
        assert execute(program, ARCHITECTURES[machine], number) == expected
        assert execute(program, 0x40000003, number) == bpf.ALLOW  # i386: the main filter kills it
