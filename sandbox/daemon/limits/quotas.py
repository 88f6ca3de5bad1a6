"""Disk quotas of the paths that runs share with this machine, enforced while they write.

A run that can write to such a path asks before each call that may make it grow
(`operation_counter.py`), and goes on as long as it has been granted room. What was granted and what
was there when the path was
last looked through never come to more than the quota; where they would, the path is scanned again,
while the run is blocked, and a run that has no room left is ended.
"""

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from sandbox.daemon.limits.operations import RunOperations
from sandbox.spec import MIB, Limits, Profile

_DEEPEST = 512  # a descriptor for each; what lies deeper counts as more than any quota
_LARGEST = 64 * MIB
_LEAST_GRANT = (MIB, 64)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Room(NamedTuple):
    """Bytes and files: used, left or wanted."""

    bytes: int
    files: int

    def plus(self, other: "Room") -> "Room":
        return Room(self.bytes + other.bytes, self.files + other.files)

    def minus(self, other: "Room") -> "Room":
        return Room(self.bytes - other.bytes, self.files - other.files)

    def fits_in(self, other: "Room") -> bool:
        return self.bytes <= other.bytes and self.files <= other.files


NOTHING = Room(0, 0)
_ENDLESS = Room(1 << 62, 1 << 62)


class QuotaPath:
    """One shared path. `lock` is held for everything that is asked of it."""

    def __init__(self, path: str) -> None:
        self.path, self.lock = path, threading.RLock()
        self.shares: dict[Share, Room] = {}  # what each had used when the path was looked through
        self._known: Room | None = None

    def left(self, share: "Share", quota: Room) -> Room:
        """For this run, beside what others were granted. Looked through where that is too little
        for what it wants."""
        if self._known is None:
            self._look(quota)
        left = self._left(share, quota)
        if not share.wanted_room.fits_in(left) or not left.files or not left.bytes:
            self._look(quota)
            left = self._left(share, quota)
        return left

    def leave(self, share: "Share") -> None:
        """What it used stays counted until the path is looked through again."""
        known = self.shares.pop(share)
        if self._known is not None:
            self._known = self._known.plus(share.used.minus(known))

    def _left(self, share: "Share", quota: Room) -> Room:
        assert self._known is not None
        taken = self._known
        for other, known in self.shares.items():
            held = share.used if other is share else other.granted
            taken = taken.plus(held.minus(known))
        return quota.minus(taken)

    def _look(self, quota: Room) -> None:
        """Of runs that took something away all stays counted: it may be open still, and unseen."""
        used = {share: share.used for share in self.shares}
        before = self._known
        found = look_through(self.path, quota)
        if before is not None and any(share.has_taken_away for share in self.shares):
            for share, known in self.shares.items():
                before = before.plus(used[share].minus(known))
                if share.has_taken_away:
                    found = found.plus(used[share])
            found = Room(min(found.bytes, before.bytes), min(found.files, before.files))
        self._known, self.shares = found, used


class Share:
    """One run's part. `full` when there was no room from the start: it may read and take away."""

    def __init__(self, places: list[QuotaPath], limits: Limits, tally: RunOperations) -> None:
        self._places, self._limits, self._tally = places, limits, tally
        self._quota = Room(limits.shared_bytes, limits.shared_files)
        self._start = NOTHING
        self.granted = NOTHING
        self.full = False

    @property
    def used(self) -> Room:
        return Room(self._tally.bytes, self._tally.names).minus(self._start)

    @property
    def wanted_room(self) -> Room:
        return Room(self._tally.wanted_bytes, self._tally.wanted_names)

    @property
    def has_taken_away(self) -> bool:
        return self._tally.taken_names > 0

    def begin(self) -> None:
        """No call adds more bytes than the largest file may have."""
        self._start = Room(self._tally.bytes, self._tally.names)
        self._tally.no_larger_than(file_bytes(self._limits, self))
        with self._locked():
            for place in self._places:
                place.shares[self] = NOTHING
        self.full = not self.extend()
        if self.full:  # no file may grow at all, so its words are not counted
            self._tally.grant(_ENDLESS.bytes, self._start.files)

    def extend(self) -> bool:
        """False when there is no room for what it wants."""
        with self._locked():
            left = [place.left(self, self._quota) for place in self._places]
            least = Room(min(one.bytes for one in left), min(one.files for one in left))
            if (
                self.full
                or least.bytes <= 0
                or least.files < 0
                or not self.wanted_room.fits_in(least)
            ):
                return False
            more = Room(*map(_part, least, self.wanted_room, _LEAST_GRANT))
            self.granted = self.used.plus(more)
            self._tally.grant(*self._start.plus(self.granted))
            return True

    def end(self) -> None:
        with self._locked():
            for place in self._places:
                place.leave(self)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Always in the same order."""
        with ExitStack() as held:
            for place in self._places:
                held.enter_context(place.lock)
            yield


class Quotas:
    """The shared paths of this sandboxd."""

    def __init__(self) -> None:
        self._places: dict[str, QuotaPath] = {}
        self._lock = threading.Lock()

    @contextmanager
    def share(
        self, profile: Profile, limits: Limits, tally: RunOperations | None
    ) -> Iterator[Share | None]:
        """For one run; None where it can write to nothing shared, or operations are not counted."""
        paths = sorted({mount.source for mount in profile.mounts if mount.writable})
        if tally is None or not paths:
            yield None
            return
        with self._lock:
            places = [self._places.setdefault(path, QuotaPath(path)) for path in paths]
        share = Share(places, limits, tally)
        share.begin()
        try:
            yield share
        finally:
            share.end()


def file_bytes(limits: Limits, share: Share | None) -> int:
    """How large a file may be. One that a call may write without saying how much of it is not to
    be as large as a quota."""
    largest = max(limits.tmp_bytes, limits.output_bytes)
    if share is None:
        return largest
    return 0 if share.full else min(largest, _LARGEST)


def _part(left: int, wanted: int, least: int) -> int:
    """Half of what is left is for others, unless it is little or more is wanted."""
    return max(wanted, min(left, max(left // 2, least)))


def look_through(path: str, enough: Room) -> Room:
    """What lies there, by the size each file has or takes, whichever is more.

    It ends early where that is more than `enough`. A file with several names counts once; what is
    on the way to disappear may count or not.
    """
    look = _Look(enough)
    try:
        top = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return NOTHING  # it is gone; a run that has it open still is granted nothing new
    try:
        look.count(os.fstat(top))
        if stat.S_ISDIR(os.fstat(top).st_mode):
            look.descend(top)
    finally:
        os.close(top)
    return look.found


class _Look:
    def __init__(self, enough: Room) -> None:
        self.found = NOTHING
        self._enough = enough
        self._seen: set[tuple[int, int]] = set()

    def count(self, entry: os.stat_result) -> None:
        if entry.st_nlink > 1 and not stat.S_ISDIR(entry.st_mode):
            if (entry.st_dev, entry.st_ino) in self._seen:
                return
            self._seen.add((entry.st_dev, entry.st_ino))
        size = max(entry.st_blocks * 512, entry.st_size if stat.S_ISREG(entry.st_mode) else 0)
        self.found = self.found.plus(Room(size, 1))

    def descend(self, top: int) -> None:
        """Depth first, with a descriptor for each directory on the way."""
        with ExitStack() as opened:
            way: list[tuple[int, list[str], Callable[[], None]]] = []

            def enter(name: str, parent: int) -> None:
                directory = _opened(name, parent)
                if directory is not None:
                    way.append((directory, self._entries(directory), lambda: os.close(directory)))

            opened.callback(lambda: [close() for *_, close in way])
            enter(".", top)
            while way and self.found.fits_in(self._enough):
                directory, left, close = way[-1]
                if not left:
                    way.pop()
                    close()
                elif len(way) > _DEEPEST:
                    self.found = _ENDLESS
                else:
                    enter(left.pop(), directory)

    def _entries(self, directory: int) -> list[str]:
        """Counts them; the names of directories."""
        below = []
        with os.scandir(directory) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    self.count(entry.stat(follow_symlinks=False))
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.name)
                if not self.found.fits_in(self._enough):
                    break
        return below


def _opened(name: str, parent: int) -> int | None:
    """None for one that is gone, or that is closed to us and not ours: no run wrote there."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except OSError as error:
        if error.errno != errno.EACCES:
            return None
    with suppress(OSError):  # a run has closed what is its own
        mode = stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        os.chmod(name, mode | stat.S_IRWXU, dir_fd=parent)
        try:
            return os.open(name, _DIRECTORY, dir_fd=parent)
        finally:
            os.chmod(name, mode, dir_fd=parent)
    return None
