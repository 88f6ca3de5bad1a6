"""Open files that came along, that go out, or that run out."""

import array
import fcntl
import os
import socket

from tests.attacks.attack import ALL, SANDBOXED, STANDARD, attack
from tests.attacks.evidence import got_something, leaked_the_secret
from tests.attacks.kit import Parameters, Way, succeeds, what_works


@attack(levels=ALL, seen=(leaked_the_secret,))
def reads_every_descriptor_it_has(p: Parameters) -> object:
    found: list[bytes] = []
    for number in range(4, 1024):
        succeeds(lambda n=number: found.append(os.pread(n, 99, 0)))
    return [one.decode("latin-1") for one in found]


@attack(levels=ALL)
def counts_descriptors_it_should_not_have(p: Parameters) -> object:
    """Three streams and the channel."""
    return [n for n in range(4, 4096) if succeeds(lambda one=n: os.fstat(one))]


@attack(levels=ALL)
def leaves_its_root_by_a_descriptor_of_a_directory(p: Parameters) -> object:
    ways = {
        n: lambda one=n: os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=one)
        for n in range(4096)
    }
    return what_works({str(n): way for n, way in ways.items()})


@attack(levels=ALL, toothless="nobody sends any")
def takes_descriptors_off_the_channel(p: Parameters) -> object:
    channel = socket.socket(fileno=os.dup(3))
    channel.setblocking(False)
    size = socket.CMSG_SPACE(64)
    try:
        return [kind for _, kind, _ in channel.recvmsg(64, size)[1]]
    except BlockingIOError:
        return []


@attack(levels=SANDBOXED)
def learns_who_is_at_the_other_end_of_the_channel(p: Parameters) -> object:
    """Credentials of the maker: its own when it made both ends."""
    channel = socket.socket(fileno=os.dup(3))
    pid = int.from_bytes(
        channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], "little"
    )
    return [pid] if pid not in (0, os.getpid()) else []


@attack(levels=SANDBOXED)
def gets_a_handle_of_who_is_at_the_other_end(p: Parameters) -> object:
    """SO_PEERPIDFD: a descriptor of the peer's process, which signals can be sent by."""
    channel = socket.socket(fileno=os.dup(3))
    held = int.from_bytes(channel.getsockopt(socket.SOL_SOCKET, 77, 4), "little")
    own = os.pidfd_open(os.getpid())
    return [held] if os.fstat(held).st_ino != os.fstat(own).st_ino else []


@attack(levels=ALL, seen=(got_something,))
def opens_more_files_than_it_may(p: Parameters) -> object:
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(4 * 256)]
    return [len(held)]


@attack(levels=ALL, seen=(got_something,))
def keeps_files_open_in_flight(p: Parameters) -> object:
    """Sent and never received, only the kernel counts such a descriptor."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    held = array.array("i", [os.open("/dev/null", os.O_RDONLY)] * 250)
    for _ in range(9):
        here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, held)])
    return [9 * len(held), there.fileno()]


@attack(
    levels=ALL,
    ends=("EXITED", "INVALID_RESULT", "TOOL_ERROR"),
    toothless="the other end must ask for descriptors to get them",
)
def sends_descriptors_to_sandboxd(p: Parameters) -> object:
    """It must not end up with them: the number it may have is limited too."""
    channel = socket.socket(fileno=os.dup(3))
    held = array.array("i", [os.open("/dev/null", os.O_RDONLY)] * 200)
    channel.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, held)])
    os._exit(0)


@attack(levels=ALL, toothless="in the control there is no terminal either")
def types_into_the_terminal(p: Parameters) -> object:
    """TIOCSTI puts characters where the next program of a terminal's owner reads them."""
    ways: dict[str, Way] = {}
    for number in range(3):
        ways[f"push {number}"] = lambda n=number: fcntl.ioctl(n, 0x5412, b"x")
        ways[f"own {number}"] = lambda n=number: fcntl.ioctl(n, 0x540E, 1)
        ways[f"paste {number}"] = lambda n=number: fcntl.ioctl(n, 0x541C, b"\3")
    return what_works(ways | {"tty": lambda: os.open("/dev/tty", os.O_RDWR)})


@attack(levels=(STANDARD,))
def speaks_to_device_drivers(p: Parameters) -> object:
    """Requests beyond the few that file objects of Python need."""
    null = os.open("/dev/null", os.O_RDWR)
    file = os.open(f"{p['arena']}/file", os.O_CREAT | os.O_RDWR)
    reading, _ = os.pipe()
    return what_works(
        {
            "async": lambda: fcntl.ioctl(reading, 0x5452, 1),
            "flags": lambda: fcntl.ioctl(file, 0x80086601, bytes(8)),
            "clone": lambda: fcntl.ioctl(null, 0x40049409, file),
            "size": lambda: fcntl.ioctl(file, 0x5460, bytes(8)),
        }
    )
