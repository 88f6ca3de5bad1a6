"""Attacks on the host's files, and by files of its own."""

import errno
import mmap
import os
import stat
from collections.abc import Callable

from sandbox.inside.attacks import EVERY, SANDBOXED, Bait, attack, done, listed

_SYSTEM = ("", "/usr", "/usr/lib", "/python", "/python/lib", "/libraries", "/toolcrib", "/dev")


@attack("read a file of the host", SANDBOXED, loot=True)
def read_file(bait: Bait) -> str | None:
    with open(bait["file"], encoding="utf-8", errors="replace") as file:
        return file.read(4096) or None


@attack("write to a file of the host", SANDBOXED)
def write_file(bait: Bait) -> str | None:
    with open(bait["file"], "ab") as file:
        file.write(b"changed")
    return "it was written to"


@attack("open the host's passwords", SANDBOXED)
def open_passwords(bait: Bait) -> str | None:
    return _opened("/etc/shadow", os.O_RDONLY)


@attack("write to the system and the interpreter", SANDBOXED)
def write_to_system(bait: Bait) -> str | None:
    return listed(place or "/" for place in _SYSTEM if _can_create(f"{place}/.{bait['mark']}"))


@attack("open the machine's memory", EVERY)
def open_machine(bait: Bait) -> str | None:
    return _opened("/dev/mem", os.O_RDWR)


@attack("choose what the kernel runs after a crash", EVERY)
def choose_core_pattern(bait: Bait) -> str | None:
    return _opened("/proc/sys/kernel/core_pattern", os.O_WRONLY)


@attack("start a program from a place it can write", SANDBOXED)
def start_own_program(bait: Bait) -> str | None:
    return listed(place for place in _writable(bait) if _starts(_dropped(place)))


@attack("load code from a place it can write", SANDBOXED, alone=True)
def load_own_code(bait: Bait) -> str | None:
    return listed(place for place in _writable(bait) if _can_load(_dropped(place)))


@attack("leave a set-id file", SANDBOXED)
def leave_set_id(bait: Bait) -> str | None:
    return listed(place for place in _writable(bait) if _can_set_id(place))


@attack("open what is closed to everybody", EVERY)
def open_closed(bait: Bait) -> str | None:
    """Only a capability does it; where it may not ask for its capabilities this shows them."""
    path = _dropped(os.getcwd())
    os.chmod(path, 0)
    try:
        return _opened(path, os.O_RDONLY)
    finally:
        os.unlink(path)


@attack("make a device", SANDBOXED)
def make_device(bait: Bait) -> str | None:
    os.mknod(f"{_writable(bait)[-1]}/device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    return "a device was made"


@attack("follow a link out of a shared directory", SANDBOXED, loot=True)
def follow_link(bait: Bait) -> str | None:
    link = f"{_writable(bait)[-1]}/link"
    os.symlink(bait["file"], link)
    with open(link, encoding="utf-8", errors="replace") as file:
        return file.read(4096) or None


def _opened(path: str, flags: int) -> str:
    """Nothing is read or written: where this gets through, the host must not suffer."""
    os.close(os.open(path, flags))
    return "it was opened"


def _can_create(path: str) -> bool:
    if not done(lambda: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))):
        return False
    os.unlink(path)
    return True


def _writable(bait: Bait) -> list[str]:
    """Its private place, and the directory that sandboxd shares, where it does."""
    return [os.getcwd(), *([bait["shared"]] if bait["shared"] else [])]


def _dropped(place: str) -> str:
    path = f"{place}/dropped"
    with open(path, "wb") as file:
        file.write(bytes(mmap.PAGESIZE))
    os.chmod(path, 0o755)
    return path


def _starts(path: str) -> bool:
    """The kernel looks whether a file may be executed before it looks what it is."""
    try:
        os.execv(path, [path])
    except OSError as error:
        return error.errno == errno.ENOEXEC


def _can_load(path: str) -> bool:
    file = os.open(path, os.O_RDONLY)
    kind, rights = mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC
    try:
        return done(lambda: mmap.mmap(file, mmap.PAGESIZE, kind, rights).close())
    finally:
        os.close(file)


def _can_set_id(place: str) -> bool:
    """By changing a file, by making one, and by making a directory."""
    path = _dropped(place)
    ways: tuple[Callable[[], object], ...] = (
        lambda: os.chmod(path, 0o4755),
        lambda: os.close(os.open(f"{place}/made", os.O_CREAT | os.O_WRONLY, 0o6755)),
        lambda: os.mkdir(f"{place}/directory", 0o2755),
    )
    return sum(done(way) for way in ways) > 0
