"""Files beyond the limits: bytes, names, depth, width. A clean-up must survive them all."""

import os
from collections.abc import Callable
from typing import Any

from sandbox.spec import IsolationLevel
from tests.attacks.attack import ALL, NONE, SANDBOXED, attack
from tests.attacks.kit import Parameters
from tests.attacks.sources import Body

_FULL = ("TOOL_ERROR", "DISK_LIMIT", "MEMORY_LIMIT", "EXITED", "OPERATIONS_LIMIT", "QUOTA_LIMIT")
_QUOTA = {"shared_bytes": 16 << 20, "shared_files": 1024}


def greedy(levels: tuple[IsolationLevel, ...] = SANDBOXED, **limits: Any) -> Callable[[Body], Body]:
    return attack(levels=levels, ends=_FULL, **limits)


@greedy()
def fills_its_scratch_place_with_one_file(p: Parameters) -> object:
    with open("/tmp/full", "wb") as file:
        for _ in range(2 * p["limits"]["tmp_bytes"] >> 20):
            file.write(bytes(1 << 20))
    return os.path.getsize("/tmp/full")


@greedy()
def fills_its_scratch_place_with_many_files(p: Parameters) -> object:
    for number in range(2 * p["limits"]["tmp_bytes"] >> 16):
        with open(f"/tmp/{number}", "wb") as file:
            file.write(bytes(1 << 16))
    return ["files in small"]


@greedy()
def fills_its_scratch_place_through_a_hole(p: Parameters) -> object:
    """Space reserved without a byte being written."""
    file = os.open("/tmp/reserved", os.O_CREAT | os.O_RDWR)
    os.posix_fallocate(file, 0, 2 * p["limits"]["tmp_bytes"])
    return os.fstat(file).st_blocks * 512


@greedy()
def writes_beyond_its_place_to_shared_memory(p: Parameters) -> object:
    """Two private places are not twice as much."""
    written = 0
    for place in ("/tmp/a", "/dev/shm/b"):
        with open(place, "wb", buffering=0) as file:
            written += sum(file.write(bytes(1 << 20)) for _ in range(12))
    return written >> 20


@greedy(levels=ALL)
def makes_one_enormous_file(p: Parameters) -> object:
    """It takes no room, and a program that copies it fills a disk."""
    name = os.path.join(os.environ.get("TMPDIR", "/tmp"), "enormous")
    with open(name, "wb") as file:
        file.truncate(1 << 40)
    return os.path.getsize(name)


@greedy(levels=ALL)
def makes_an_enormous_file_where_the_host_will_read_it(p: Parameters) -> object:
    name = f"{p['arena']}/enormous"
    with open(name, "wb") as file:
        file.seek(1 << 33)
        file.write(b"x")
    return os.path.getsize(name)


@greedy()
def uses_up_all_names(p: Parameters) -> object:
    many = 2 * p["limits"]["tmp_inodes"] + 64
    for number in range(many):
        os.close(os.open(f"/tmp/{number}", os.O_CREAT))
    return [many]


@greedy()
def uses_up_all_names_with_links(p: Parameters) -> object:
    many = 2 * p["limits"]["tmp_inodes"] + 64
    for number in range(many):
        os.symlink("/", f"/tmp/{number}")
    return [many]


@greedy()
def uses_up_all_names_with_directories(p: Parameters) -> object:
    many = 2 * p["limits"]["tmp_inodes"] + 64
    for number in range(many):
        os.mkdir(f"/tmp/{number}")
    return [many]


@greedy()
def keeps_files_without_names(p: Parameters) -> object:
    """Unlinked and open: no listing shows them, and they take their room."""
    held = []
    for _ in range(200):
        held.append(os.open("/tmp", os.O_TMPFILE | os.O_RDWR))
        os.write(held[-1], bytes(1 << 17))
    return len(held)


@greedy(levels=ALL, **_QUOTA)
def shares_a_lot_of_large_files(p: Parameters) -> object:
    """In a shared place each file counts, and so does their sum."""
    limit = p["limits"]["tmp_bytes"]
    for number in range(24):
        with open(f"{p['arena']}/{number}", "wb") as file:
            file.write(bytes(limit // 4))
    return sum(entry.stat().st_size for entry in os.scandir(p["arena"])) > limit


@greedy(levels=ALL, **_QUOTA)
def shares_a_lot_of_names(p: Parameters) -> object:
    many = 2 * p["limits"]["tmp_inodes"] + 64
    for number in range(many):
        os.close(os.open(f"{p['arena']}/{number}", os.O_CREAT))
    return [many]


@attack(
    levels=ALL,
    tmp_inodes=5_000,
    tmp_bytes=64 << 20,
    toothless="nothing is asked for but to be cleared away",
)
def leaves_a_tree_three_thousand_deep(p: Parameters) -> object:
    """Recursion in a clean-up ends at a thousand."""
    for _ in range(3_000):
        os.mkdir("d")
        os.chdir("d")
    return []


@attack(levels=(NONE,), tmp_inodes=110_000, tmp_bytes=64 << 20, memory_bytes=512 << 20,
        filesystem_operations=1_000_000, wall_s=90, cpu_s=90,
        toothless="nothing is asked for but to be cleared away")  # fmt: skip
def leaves_a_hundred_thousand_directories(p: Parameters) -> object:
    for number in range(100_000):
        os.mkdir(f"{number}")
    return []


@attack(levels=ALL, tmp_inodes=5_000, toothless="nothing is asked for but to be cleared away")
def leaves_names_that_are_hard_to_remove(p: Parameters) -> object:
    """Closed to their owner, not text, as long as can be, and named like a clean-up's own."""
    for name in (b"\xff\xfe", b"-rf", b"new\nline", b"x" * 255, b".moved-0", b"..."):
        os.mkdir(name)
        os.mkdir(name + b"/inner" if len(name) < 200 else b"y" * 250)
        os.chmod(name, 0)
    return []


@attack(levels=ALL, toothless="nothing is asked for but to be cleared away")
def leaves_links_for_a_clean_up_to_follow(p: Parameters) -> object:
    os.symlink(p["base"], "base")
    os.symlink("/", "root")
    os.symlink(".", "self")
    os.symlink(p["open"], "open")
    return []


@attack(
    levels=SANDBOXED,
    tmp_inodes=11_000,
    tmp_bytes=64 << 20,
    toothless="nothing is asked for but to be cleared away",
)
def leaves_ten_thousand_directories(p: Parameters) -> object:
    for number in range(10_000):
        os.mkdir(f"{number}")
    return []
