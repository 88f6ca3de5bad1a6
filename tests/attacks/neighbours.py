"""Two runs: what one leaves or holds, the other must not find.

They belong to two organizations, or else to two callers of one.
"""

import array
import ctypes
import errno
import fcntl
import json
import mmap
import os
import re
import signal
import socket
import struct
import time

from tests.attacks.attack import ALL, SANDBOXED, STANDARD, STRICT, Hole, duel
from tests.attacks.kit import (
    NUMBERS,
    Parameters,
    call,
    ear,
    forever,
    has_heard,
    hear,
    in_child,
    libc,
    report_ready,
    succeeds,
    what_works,
)

_SHARED_PAGES = Hole(
    "processes of one run wait for each other in the same way",
    r"one of them got \['somebody waited'\]",
)


def lists_scratch_places(p: Parameters) -> object:
    places = ("/tmp", "/dev/shm", "/var/tmp", os.environ.get("TMPDIR", "/tmp"), ".")
    there = [place for place in places if os.path.isdir(place)]
    return [name for place in there for name in os.listdir(place) if name.startswith("from-")]


@duel(lists_scratch_places, levels=SANDBOXED, at_once=False, same_organization=True)
def leaves_files(p: Parameters) -> object:
    for place in ("/tmp", "/dev/shm"):
        what_works({place: lambda at=place: os.mkdir(f"{at}/from-{p['marker']}")})
    return []


@duel(lists_scratch_places, levels=ALL, at_once=False, same_organization=True)
def leaves_files_where_it_stands(p: Parameters) -> object:
    os.mkdir(f"from-{p['marker']}")
    return []


@duel(lists_scratch_places)
def keeps_files_while_another_looks(p: Parameters) -> object:
    for place in ("/tmp", "/dev/shm"):
        what_works({place: lambda at=place: os.mkdir(f"{at}/from-{p['marker']}")})
    report_ready(p)
    hear(p)
    return []


def tries_the_locks(p: Parameters) -> object:
    found = []
    for name in ("/usr/lib/os-release", "/dev/null", os.__file__):
        file = os.open(name, os.O_RDWR if name == "/dev/null" else os.O_RDONLY)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found.append(name)
    return found


@duel(tries_the_locks)
def locks_files_that_all_share(p: Parameters) -> object:
    held = [
        os.open(name, os.O_RDONLY) for name in ("/usr/lib/os-release", "/dev/null", os.__file__)
    ]
    for file in held:
        fcntl.flock(file, fcntl.LOCK_EX)
    report_ready(p)
    hear(p)
    return []


def tries_the_record_locks(p: Parameters) -> object:
    """F_GETLK even names the process that has the lock."""
    file = os.open("/dev/null", os.O_RDWR)
    about = struct.pack("=hh4xqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
    kind = struct.unpack_from("=h", fcntl.fcntl(file, fcntl.F_GETLK, about))[0]
    return ["/dev/null is locked"] if kind != fcntl.F_UNLCK else []


@duel(tries_the_record_locks)
def locks_records_of_a_device(p: Parameters) -> object:
    file = os.open("/dev/null", os.O_RDWR)
    fcntl.lockf(file, fcntl.LOCK_EX)
    report_ready(p)
    hear(p)
    return []


@duel(tries_the_record_locks)
def locks_records_by_descriptor(p: Parameters) -> object:
    """Locks of an open file are seen even by other files of the same process."""
    file = os.open("/dev/null", os.O_RDWR)
    fcntl.fcntl(file, 37, struct.pack("=hh4xqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))  # F_OFD_SETLK
    report_ready(p)
    hear(p)
    return []


def reads_a_directory_of_the_system(p: Parameters) -> object:
    os.listdir("/usr/lib")
    with open(os.__file__) as file:
        file.read(1)
    return []


@duel(reads_a_directory_of_the_system)
def is_notified_when_another_reads(p: Parameters) -> object:
    """A signal for each access to a directory, by any process."""
    heard: list[int] = []
    signal.signal(signal.SIGIO, lambda *_: heard.append(1))
    for name in ("/usr/lib", os.path.dirname(os.__file__)):
        fcntl.fcntl(
            os.open(name, os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_ACCESS | fcntl.DN_MULTISHOT
        )
    report_ready(p)
    hear(p)
    return heard


def wakes_all_waiters(p: Parameters) -> object:
    file = os.open("/usr/lib/os-release", os.O_RDONLY)
    libc.mmap.restype = ctypes.c_void_p
    page = libc.mmap(None, ctypes.c_size_t(4096), 1, mmap.MAP_SHARED, file, ctypes.c_long(0))
    for _ in range(20):  # a waiter may be on the way there
        if call("futex", page, 1, 100, 0, 0, 0):
            return ["somebody waited"]
        time.sleep(0.02)  # lint: inside the sandbox
    return []


@duel(wakes_all_waiters, unsolved=_SHARED_PAGES, unsolved_at=(STANDARD,))
def waits_at_an_address_of_a_shared_file(p: Parameters) -> object:
    """Two processes that map one file may wait for each other there, without writing to it. The
    one that wakes knows whether another waited."""
    file = os.open("/usr/lib/os-release", os.O_RDONLY)
    libc.mmap.restype = ctypes.c_void_p
    page = libc.mmap(None, ctypes.c_size_t(4096), 1, mmap.MAP_SHARED, file, ctypes.c_long(0))
    value = ctypes.c_uint.from_address(page).value
    patience, other = struct.pack("=qq", 0, 200_000_000), ear(p)
    report_ready(p)
    while not has_heard(other):
        succeeds(lambda: call("futex", page, 0, value, patience, 0, 0))
    return []


def looks_which_pages_are_in_memory(p: Parameters) -> object:
    file = os.open("/usr/lib/os-release", os.O_RDONLY)
    try:
        os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return ["another has put it out of memory"]
    return []


@duel(looks_which_pages_are_in_memory)
def puts_pages_out_of_memory(p: Parameters) -> object:
    file = os.open("/usr/lib/os-release", os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    report_ready(p)
    hear(p)
    return []


def calls_a_neighbour(p: Parameters) -> object:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.connect("\0siege-neighbour")
    return ["a neighbour"]


@duel(calls_a_neighbour, levels=SANDBOXED)
def listens_for_a_neighbour(p: Parameters) -> object:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.bind("\0siege-neighbour")
    one.listen()
    report_ready(p)
    hear(p)
    return []


def calls_a_neighbours_port(p: Parameters) -> object:
    socket.create_connection(("127.0.0.1", 47123), 1)
    return ["a neighbour"]


@duel(calls_a_neighbours_port, levels=SANDBOXED)
def listens_on_a_port_for_a_neighbour(p: Parameters) -> object:
    held = socket.create_server(("127.0.0.1", 47123))
    held.listen()
    report_ready(p)
    hear(p)
    return []


def finds_objects_by_key(p: Parameters) -> object:
    return what_works(
        {
            "segment": lambda: call("shmget", 0x51E6E, 0, 0),
            "semaphores": lambda: call("semget", 0x51E6E, 0, 0),
            "queue": lambda: call("msgget", 0x51E6E, 0),
        }
    )


@duel(finds_objects_by_key, at_once=False)
def leaves_objects_under_a_key(p: Parameters) -> object:
    """System V: a process that has the number has the object, and none has to hold it."""
    return what_works(
        {
            "segment": lambda: call("shmget", 0x51E6E, 4096, 0o1666),
            "semaphores": lambda: call("semget", 0x51E6E, 1, 0o1666),
            "queue": lambda: call("msgget", 0x51E6E, 0o1666),
        }
    )


def finds_a_key(p: Parameters) -> object:
    return [call("keyctl", 10, -4, b"user", b"siege-neighbour", 0)]


@duel(finds_a_key, levels=ALL, at_once=False)
def leaves_a_key(p: Parameters) -> object:
    """In the keyring of its user, who is the same in all runs."""
    what_works({"key": lambda: call("add_key", b"user", b"siege-neighbour", b"x", 1, -4)})
    return []


def opens_a_queue_by_name(p: Parameters) -> object:
    return [call("mq_open", b"siege-neighbour", 0, 0, 0)]


@duel(opens_a_queue_by_name, at_once=False)
def leaves_a_queue_with_a_name(p: Parameters) -> object:
    what_works(
        {"queue": lambda: call("mq_open", b"siege-neighbour", os.O_CREAT | os.O_RDWR, 0o666, 0)}
    )
    return []


def opens_a_semaphore_by_name(p: Parameters) -> object:
    libc.sem_open.restype = ctypes.c_void_p
    return ["a semaphore"] if libc.sem_open(b"/siege-neighbour", 0) else []


@duel(opens_a_semaphore_by_name)
def holds_a_semaphore_with_a_name(p: Parameters) -> object:
    libc.sem_open.restype = ctypes.c_void_p
    libc.sem_open(b"/siege-neighbour", os.O_CREAT, 0o666, 1)
    report_ready(p)
    hear(p)
    return []


def sends_a_descriptor(p: Parameters) -> object:
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
    except OSError as error:
        return ["another has used them up"] if error.errno == errno.ETOOMANYREFS else []
    return []


@duel(sends_a_descriptor, levels=ALL, newcomer=True)
def has_all_descriptors_in_flight(p: Parameters) -> object:
    """Their number is counted for the user, and sandboxd needs some to begin a run."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(6)]
    message = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 253))]
    for here, _ in pairs:
        what_works({str(n): lambda one=here: one.sendmsg([b"x"], message) for n in range(8)})
    report_ready(p)
    hear(p)
    return []


def makes_a_pipe(p: Parameters) -> object:
    _, says = os.pipe()
    os.set_blocking(says, False)
    room = os.write(says, bytes(65536))
    return [f"pipes have room for {room} bytes now"] if room < 65536 else []


@duel(makes_a_pipe, levels=(STANDARD, STRICT))
def uses_up_the_pages_of_pipes(p: Parameters) -> object:
    """So many for each user; who has more gets small ones, also for output of a next run."""
    hears, says = os.pipe()

    def child() -> None:
        held: list[tuple[int, int]] = []
        while len(held) < 240 and succeeds(lambda: held.append(os.pipe())):
            continue
        os.write(says, b"x")
        forever()

    for _ in range(16):
        in_child(child)
    for _ in range(16):
        os.read(hears, 1)
    report_ready(p)
    hear(p)
    return []


def makes_a_timer(p: Parameters) -> object:
    number = ctypes.c_int()
    try:
        call("timer_create", 1, 0, ctypes.byref(number))
    except BlockingIOError:
        return ["another has used up all timers"]
    return []


@duel(makes_a_timer, levels=ALL, memory_bytes=256 << 20)
def uses_up_all_timers(p: Parameters) -> object:
    """As many as signals may be queued for one user."""
    hears, says = os.pipe()

    def child() -> None:
        number = ctypes.c_int()
        while libc.syscall(NUMBERS["timer_create"], 1, None, ctypes.byref(number)) == 0:
            continue
        os.write(says, b"x")
        forever()

    for _ in range(4):
        in_child(child)
    for _ in range(4):
        os.read(hears, 1)
    report_ready(p)
    hear(p)
    return []


def makes_a_few_processes(p: Parameters) -> object:
    try:
        for _ in range(5):
            in_child(forever)
    except BlockingIOError:
        return ["another has used up all processes"]
    return []


@duel(makes_a_few_processes, levels=ALL, counted=True)
def uses_up_all_processes(p: Parameters) -> object:
    what_works({"fork": lambda: [in_child(forever) for _ in range(400)]})
    report_ready(p)
    hear(p)
    return []


def writes_a_scratch_file(p: Parameters) -> object:
    name = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"mine-{p['marker']}")
    try:
        with open(name, "wb") as file:
            file.write(bytes(1 << 20))
    except OSError as error:
        return [f"another has filled the disk: {error.strerror}"]
    os.unlink(name)
    return []


@duel(writes_a_scratch_file, levels=SANDBOXED)
def fills_the_disk(p: Parameters) -> object:
    with open("/tmp/full", "wb", buffering=0) as file:
        while file.tell() < 300 << 20 and succeeds(lambda: file.write(bytes(1 << 20))):
            continue
    report_ready(p)
    hear(p)
    os.unlink("/tmp/full")
    return []


def looks_at_its_input(p: Parameters) -> object:
    flags = fcntl.fcntl(0, fcntl.F_GETFL)
    return [f"its flags are {flags:o}"] if flags & (os.O_NONBLOCK | os.O_APPEND) else []


@duel(looks_at_its_input, levels=ALL, at_once=False, same_organization=True)
def marks_its_input(p: Parameters) -> object:
    """An open file that was inherited has one set of flags for all who inherited it."""
    flags = fcntl.fcntl(0, fcntl.F_GETFL)
    fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_NONBLOCK | os.O_APPEND)
    return []


def searches_its_memory(p: Parameters) -> object:
    """For markers of other runs: they begin alike."""
    with open("/proc/self/maps") as maps:
        lines = [line.split() for line in maps]
    areas = [
        line[0].split("-") for line in lines if line[1].startswith("rw") and "[v" not in line[-1]
    ]
    found: set[bytes] = set()
    for first, last in areas:
        start, size = int(first, 16), int(last, 16) - int(first, 16)
        found |= set(
            re.findall(p["marker"][:8].encode() + rb"\d{5}", ctypes.string_at(start, size))
        )
    return sorted(one.decode() for one in found if one.decode() != p["marker"])


@duel(searches_its_memory, levels=(STANDARD,), at_once=False, same_organization=True)
def is_remembered(p: Parameters) -> object:
    return []


def looks_for_state_of_modules(p: Parameters) -> object:
    return [vars(json).get("siege")] if "siege" in vars(json) or "SIEGE" in os.environ else []


@duel(looks_for_state_of_modules, levels=ALL, at_once=False, same_organization=True,
      toothless="in the control, too, each run is a process of its own")  # fmt: skip
def leaves_state_in_modules(p: Parameters) -> object:
    json.siege = p["marker"]  # type: ignore[attr-defined]
    os.environ["SIEGE"] = p["marker"]
    return []


def signals_everybody(p: Parameters) -> object:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    what_works({"all": lambda: os.kill(-1, signal.SIGUSR1)})
    return []


@duel(signals_everybody, levels=SANDBOXED)
def waits_for_a_signal_from_another_run(p: Parameters) -> object:
    heard: list[int] = []
    signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    report_ready(p)
    hear(p)
    return heard


def signals_its_group(p: Parameters) -> object:
    """Groups of processes reach beyond namespaces, when they were made before them."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    what_works({"group": lambda: os.kill(0, signal.SIGUSR1)})
    return []


@duel(signals_its_group, levels=ALL, same_organization=True)
def waits_for_a_signal_from_its_group(p: Parameters) -> object:
    heard: list[int] = []
    signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    report_ready(p)
    hear(p)
    return heard


def looks_for_processes_of_others(p: Parameters) -> object:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and succeeds(lambda pid=name: os.stat(f"/proc/{pid}")):
            with open(f"/proc/{name}/comm") as file:
                found.append(file.read().strip())
    return [one for one in found if one.startswith("siege-holder")]


@duel(looks_for_processes_of_others)
def can_be_seen(p: Parameters) -> object:
    libc.prctl(15, b"siege-holder", 0, 0, 0)
    report_ready(p)
    hear(p)
    return []


def looks_at_times_of_devices(p: Parameters) -> object:
    return [
        name for name in ("null", "zero", "urandom") if os.stat(f"/dev/{name}").st_mtime == 86400
    ]


@duel(
    looks_at_times_of_devices,
    at_once=False,
    toothless="only the present can be written there, and its time tells nothing for sure",
)
def writes_times_of_devices(p: Parameters) -> object:
    for name in ("null", "zero", "urandom"):
        what_works({name: lambda n=name: os.utime(f"/dev/{n}", (86400, 86400))})
    return []
