"""What attacks use inside. The text of this file stands in front of each of them."""

import ctypes
import errno
import importlib
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

type Parameters = dict[str, Any]
type Way = Callable[..., object]

NUMBERS: dict[
    str, int
] = {}  # of this machine's system calls; filled where the source is put together
NEW_NAMESPACES = {
    "mount": 0x20000,
    "cgroup": 0x2000000,
    "uts": 0x4000000,
    "ipc": 0x8000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
_REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)
_SET_NAME = 15

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(which: str | int, *arguments: object) -> int:
    """The kernel's answer, past Python and libc. Raises OSError."""
    number = NUMBERS.get(which, -1) if isinstance(which, str) else which
    ctypes.set_errno(0)
    answer = libc.syscall(ctypes.c_long(number), *map(_word, arguments))
    if answer == -1:
        raise OSError(ctypes.get_errno(), f"{which}: {os.strerror(ctypes.get_errno())}")
    return int(answer)


def _word(argument: object) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def prctl(option: int, *arguments: int) -> int:
    words = (*arguments, 0, 0, 0, 0)[:4]
    return call("prctl", option, *words)


def what_works(ways: dict[str, Way]) -> list[str]:
    """The names of the ways that were not refused."""
    return [name for name, way in ways.items() if succeeds(way)]


def succeeds(way: Way) -> bool:
    try:
        way()
    except (OSError, ValueError):
        return False
    return True


def reached_calls(calls: dict[str, tuple[object, ...]]) -> list[str]:
    """Those the kernel looked at: done, or wrong in their arguments, but not refused."""
    return [name for name, arguments in calls.items() if is_reached(name, arguments)]


def is_reached(name: str | int, arguments: tuple[object, ...]) -> bool:
    try:
        call(name, *arguments)
    except OSError as error:
        return error.errno not in _REFUSED
    return True


def texts_of(paths: Iterable[str], size: int = 65536) -> list[str]:
    """The beginnings of those that can be read; nothing of what is empty."""
    found = []
    for path in paths:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            found.append(os.read(file, size).decode("latin-1"))
            os.close(file)
        except OSError:
            continue
    return [text for text in found if text]


def brand(p: Parameters) -> None:
    """Outside this process and its children are known by a name of their own."""
    libc.prctl(_SET_NAME, p["marker"].encode(), 0, 0, 0)


def in_child(body: Way) -> int:
    """Its pid; the child never comes back from `body`."""
    child = os.fork()
    if child == 0:
        _last(body)
    return child


def _last(body: Way) -> NoReturn:
    try:
        body()
    finally:
        os._exit(0)


def forever() -> NoReturn:
    while True:
        libc.pause()


def rule_a_namespace(*kinds: str) -> None:
    """Become root of new namespaces, where that is allowed to ordinary users."""
    user, group = os.getuid(), os.getgid()
    flags = NEW_NAMESPACES["user"]
    for kind in kinds:
        flags |= NEW_NAMESPACES[kind]
    os.unshare(flags)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {user} 1"),
        ("gid_map", f"0 {group} 1"),
    ):
        file = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(file, text.encode())
        os.close(file)


def climbing(path: str) -> str:
    """The same place, reached from wherever one stands."""
    return "../" * 40 + path.lstrip("/")


def answer(*payloads: bytes) -> None:
    """Frames on the channel, past the code that should write the only one."""
    for payload in payloads:
        whole = len(payload).to_bytes(4, "big") + payload
        while whole:
            whole = whole[os.write(3, whole) :]


def ask(url: str, method: str = "GET", **options: Any) -> str:
    """What a server answers, by the helper for tools."""
    helper = importlib.import_module("sandbox_http")
    body: bytes = helper.request(method, url, **options).body
    return body.decode("latin-1")


def through_proxy(raw: bytes) -> str:
    """What the proxy answers to bytes as they are."""
    with socket.create_connection(("127.0.0.1", 3128), 1) as proxy:
        proxy.settimeout(0.5)
        try:
            proxy.sendall(raw)
            return proxy.recv(65536).decode("latin-1")
        except OSError:
            return ""


def report_ready(p: Parameters, word: str = "here") -> None:
    """To the other side of a duel: it begins when it has heard this."""
    fifo = os.open(f"{p['arena']}/ready", os.O_WRONLY)
    os.write(fifo, word.encode())
    os.close(fifo)


def hear(p: Parameters) -> None:
    """Waits until the other side has done its part."""
    fifo = os.open(f"{p['arena']}/answer", os.O_RDONLY)
    os.read(fifo, 1)
    os.close(fifo)


def ear(p: Parameters) -> int:
    """For `has_heard`."""
    return os.open(f"{p['arena']}/answer", os.O_RDONLY | os.O_NONBLOCK)


def has_heard(fifo: int) -> bool:
    """Whether the other side has done its part by now."""
    try:
        return os.read(fifo, 1) != b""
    except BlockingIOError:
        return False


def belongings() -> dict[str, str]:
    """Places by device and number, namespaces, where code lies, and the seed of hashes."""
    places = [at for at in ("/", "/tmp", "/dev/shm", ".") if os.path.isdir(at)]
    had = {at: f"{os.stat(at).st_dev} {os.stat(at).st_ino}" for at in places}
    for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        what_works({kind: lambda one=kind: had.update({one: os.readlink(f"/proc/self/ns/{one}")})})
    code = ctypes.cast(libc.getpid, ctypes.c_void_p).value
    return had | {"code": str(code), "seed": str(hash("siege"))}
