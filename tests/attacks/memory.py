"""More memory than the limit, in every place where the kernel keeps bytes for a process.

Each stops by itself at twice the limit, and says so.
"""

import ctypes
import mmap
import os
import socket
import sys
import threading
import zlib
from collections.abc import Callable
from typing import Any

from sandbox.spec import MIB, IsolationLevel
from tests.attacks.attack import ALL, NONE, SANDBOXED, STANDARD, attack
from tests.attacks.kit import Parameters, call, forever, in_child
from tests.attacks.sources import Body

_ENDS = ("MEMORY_LIMIT", "TOOL_ERROR", "EXITED", "DISK_LIMIT", "PROCESS_LIMIT")


def hungry(
    levels: tuple[IsolationLevel, ...] = ALL, toothless: str = "", **limits: int
) -> Callable[[Body], Body]:
    small: dict[str, Any] = {
        "memory_bytes": 48 * MIB,
        "tmp_bytes": 256 * MIB,
        "output_bytes": 256 * MIB,
    }
    return attack(levels=levels, ends=_ENDS, toothless=toothless, counted=True, **(small | limits))


@hungry()
def takes_memory_bit_by_bit(p: Parameters) -> object:
    taken: list[bytearray] = []
    while len(taken) << 20 < 2 * p["limits"]["memory_bytes"]:
        taken.append(bytearray(os.urandom(16)) * (1 << 16))
    return [len(taken)]


@hungry()
def takes_memory_at_once(p: Parameters) -> object:
    return len(b"x" * (2 * p["limits"]["memory_bytes"]))


@hungry()
def takes_memory_that_processes_share(p: Parameters) -> object:
    """It is data of no process, so limits that count data do not see it."""
    shared = mmap.mmap(-1, 2 * p["limits"]["memory_bytes"])
    for at in range(0, len(shared), 4096):
        shared[at] = 1
    return len(shared)


@hungry()
def takes_memory_in_children(p: Parameters) -> object:
    """Each of them stays far below the limit."""
    hears, says = os.pipe()
    part = p["limits"]["memory_bytes"] // 4

    def child() -> None:
        kept = b"x" * part
        os.write(says, kept[:1])
        forever()

    for _ in range(8):
        in_child(child)
    return [len([os.read(hears, 1) for _ in range(8)])]


@hungry()
def writes_to_pages_it_shares_with_its_parent(p: Parameters) -> object:
    """Copied on the first write: what was there once is there eight times."""
    hears, says = os.pipe()
    page = mmap.mmap(
        -1, p["limits"]["memory_bytes"] // 3, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )
    page.write(b"x" * len(page))

    def child() -> None:
        page[:] = b"y" * len(page)
        os.write(says, b"x")
        forever()

    for _ in range(6):
        in_child(child)
    return [len([os.read(hears, 1) for _ in range(6)])]


@hungry(levels=SANDBOXED)
def fills_its_scratch_files(p: Parameters) -> object:
    with open("/tmp/full", "wb") as file:
        for _ in range(2 * p["limits"]["memory_bytes"] >> 20):
            file.write(bytes(1 << 20))
    return os.path.getsize("/tmp/full") >> 20


@hungry(levels=SANDBOXED)
def fills_shared_memory_files(p: Parameters) -> object:
    with open("/dev/shm/full", "wb") as file:
        for _ in range(2 * p["limits"]["memory_bytes"] >> 20):
            file.write(bytes(1 << 20))
    os.unlink("/dev/shm/full")
    return ["shared memory"]


@hungry()
def fills_files_without_a_name(p: Parameters) -> object:
    file = os.memfd_create("full", 0)
    for _ in range(2 * p["limits"]["memory_bytes"] >> 20):
        os.write(file, bytes(1 << 20))
    return os.fstat(file).st_size >> 20


@hungry(memory_bytes=24 * MIB)
def fills_pipes(p: Parameters) -> object:
    """64 KiB each, held by the kernel."""
    hears, says = os.pipe()

    def child() -> None:
        pipes = [os.pipe() for _ in range(100)]
        for _, writing in pipes:
            os.set_blocking(writing, False)
        total = sum(os.write(writing, bytes(65536)) for _, writing in pipes)
        os.write(says, total.to_bytes(8, "big"))
        forever()

    for _ in range(16):
        in_child(child)
    total = sum(int.from_bytes(os.read(hears, 8), "big") for _ in range(16))
    return [total] if total > p["limits"]["memory_bytes"] else []


@hungry()
def fills_sockets(p: Parameters) -> object:
    hears, says = os.pipe()

    def child() -> None:
        kept = [socket.socketpair() for _ in range(60)]
        for one, _ in kept:
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            try:
                one.send(bytes(1 << 18))
            except BlockingIOError:
                continue
        os.write(says, b"x")
        forever()

    for _ in range(12):
        in_child(child)
    return [len([os.read(hears, 1) for _ in range(12)])]


@hungry()
def calls_itself_for_ever(p: Parameters) -> object:
    def deeper(level: int) -> int:
        return deeper(level - 1) + 1 if level else 0

    sys.setrecursionlimit(1 << 30)
    return deeper(1_000_000)


@hungry()
def grows_stacks_of_threads(p: Parameters) -> object:
    threading.stack_size(16 << 20)
    ready = threading.Semaphore(0)

    def fill() -> None:
        room = ctypes.create_string_buffer(12 << 20)
        ctypes.memset(room, 1, len(room))
        ready.release()
        forever()

    for _ in range(10):
        threading.Thread(target=fill, daemon=True).start()
    return [all(ready.acquire() for _ in range(10))]


@hungry(toothless="this machine has no huge pages set aside, and few have")
def takes_huge_pages(p: Parameters) -> object:
    """Set aside at start, they belong to no memory group."""
    pages = mmap.mmap(-1, 2 << 20, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | 0x40000)
    pages[0] = 1
    return len(pages)


@hungry()
def asks_for_large_pages_and_touches_one_byte_of_each(p: Parameters) -> object:
    size = 2 * p["limits"]["memory_bytes"]
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, size, 4096):
        pages[at] = 1
    return size >> 20


@hungry()
def has_the_kernel_fill_its_pages(p: Parameters) -> object:
    size = 2 * p["limits"]["memory_bytes"]
    pages = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    call("madvise", address, size, 23)  # MADV_POPULATE_WRITE
    return size >> 20


@hungry(toothless="the control's own hard limit of addresses is in the way")
def fills_page_tables(p: Parameters) -> object:
    """One byte read in each two megabytes: hardly any memory, but a table for each."""
    size, step = 64 << 30, 2 << 20
    pages = mmap.mmap(
        -1, size, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | mmap.MAP_NORESERVE, prot=1
    )
    total = sum(pages[at] for at in range(0, size, step))
    return [total, size // step * 4096 >> 20]


@hungry(toothless="an ordinary user may lock very little")
def locks_its_memory(p: Parameters) -> object:
    size = 2 * p["limits"]["memory_bytes"]
    pages = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    call("mlock", address, size)
    return size >> 20


@hungry()
def unpacks_a_small_thing_that_is_large(p: Parameters) -> object:
    small = zlib.compress(bytes(2 * p["limits"]["memory_bytes"]), 1)
    return len(zlib.decompress(small)) >> 20


@hungry()
def moves_its_heap_upwards(p: Parameters) -> object:
    size = 2 * p["limits"]["memory_bytes"]
    first = call("brk", 0)
    if call("brk", first + size) < first + size:
        raise OSError("refused")
    ctypes.memset(first, 1, size)
    return size >> 20


@hungry()
def lets_a_mapping_grow(p: Parameters) -> object:
    size = 2 * p["limits"]["memory_bytes"]
    pages = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    here = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    ctypes.memset(call("mremap", here, 1 << 20, size, 1), 1, size)
    return size >> 20


@hungry(levels=(NONE, STANDARD))
def fills_message_queues(p: Parameters) -> object:
    """System V: they stay when the process has gone."""
    queue = call("msgget", 0, 0o1600)
    message = (8).to_bytes(8, "little") + bytes(8192)
    call("msgsnd", queue, message, 8192, 0o4000)
    call("msgctl", queue, 0, 0)
    return ["a queue"]


@hungry(levels=(NONE, STANDARD))
def fills_shared_segments(p: Parameters) -> object:
    size = 2 * p["limits"]["memory_bytes"]
    segment = call("shmget", 0, size, 0o1600)
    address = call("shmat", segment, 0, 0)
    call("shmctl", segment, 0, 0)
    ctypes.memset(address, 1, size)
    return size >> 20


@hungry()
def builds_one_enormous_number(p: Parameters) -> object:
    return (1 << (16 * p["limits"]["memory_bytes"])).bit_length()
