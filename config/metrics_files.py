"""Metrics files of processes (prometheus_client's multiprocess mode), and how those of ended
processes are merged.

A process that starts merges files of ended processes in its account's directory, once there are
many. The totals are in `merged-<number>`, where the highest number counts: files of ended processes
are moved there, their totals are made beside it, and one rename puts the next number in its place.
If interrupted anywhere, each file counts exactly once. Readers and mergers hold a lock on the
directory.
"""

import fcntl
import logging
import math
import mmap
import os
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from prometheus_client.mmap_dict import MmapedDict

log = logging.getLogger(__name__)
MOST_ENDED = 16  # processes, of one account, before they are merged
LOCK_S = 5.0
_FILE = re.compile(r"(?P<kind>counter|histogram|summary|gauge_[a-z]+)_(?P<process>[0-9]+)\.db")
_MERGED = "merged-"
_UNFINISHED = "merged-unfinished"
_SUM = "_merged"
_SUMMED = frozenset({"counter", "histogram", "summary"})
_MOST_RECENT = "gauge_mostrecent"
_LIVE = "gauge_live"  # of processes that live: prometheus_client's `mark_process_dead` drops them
# More than what another order of additions changes: a counter that falls counts as begun again.
_ROUNDED_UP = 1 + 2.0**-40

type Values = dict[str, tuple[float, float]]  # by key: value and time


@contextmanager
def counted_files(root: Path) -> Iterator[list[Path]]:
    """The files that count, of all accounts; none is merged meanwhile. Raises `TimeoutError`."""
    with ExitStack() as held:
        held.enter_context(_locked(root, fcntl.LOCK_SH))
        found = _counted_files(root)
        for account in root.iterdir():
            if account.is_dir() and not account.name.startswith(_MERGED):
                held.enter_context(_locked(account, fcntl.LOCK_SH))
                found += _counted_files(account)
        yield sorted(found, key=_order)


def merge_ended(directory: Path) -> None:
    """Merge files of ended processes; a file that cannot be merged stays, and counts."""
    if not _is_due(directory):
        return
    try:
        with _locked(directory, fcntl.LOCK_EX):
            if _is_due(directory):  # no other process was faster
                _merge(directory)
    except (OSError, RuntimeError, ValueError) as error:
        log.warning("metrics of ended processes were not merged: %s", error)


def _counted_files(directory: Path) -> list[Path]:
    return [*_nonempty_files(directory), *_nonempty_files(_current_totals(directory))]


def _is_due(directory: Path) -> bool:
    """Where many have ended, or a merge was cut off."""
    begun = [
        file for file in _nonempty_files(_current_totals(directory)) if not file.stem.endswith(_SUM)
    ]
    return (
        bool(begun)
        or len({_kind_and_process(file)[1] for file in _ended_files(directory)}) > MOST_ENDED
    )


def _merge(directory: Path) -> None:
    current = _current_totals(directory)
    current.mkdir(exist_ok=True)
    for file in _ended_files(directory):
        if file.name.startswith(_LIVE):
            file.unlink()
        else:
            _move_ended(file, current)
    unfinished = directory / _UNFINISHED
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for kind, values in _read_values(current).items():
        _write(unfinished / f"{kind}{_SUM}.db", values)
    _sync(unfinished)
    unfinished.rename(directory / f"{_MERGED}{_generation_number(current) + 1}")
    _sync(directory)
    for old in _generations(directory)[:-1]:
        shutil.rmtree(old, ignore_errors=True)


def _move_ended(file: Path, into: Path) -> None:
    """Under a name of its own: another process may get the number of the one that ended. One that
    has got it by now may have opened the file, and goes on in it."""
    kind, process = _kind_and_process(file)
    taken = into / f"{kind}_{process}x{time.time_ns()}.db"
    file.rename(taken)
    if _is_running(process):
        with suppress(FileExistsError):
            os.link(taken, file)
            taken.unlink()


def _order(file: Path) -> tuple[str, int]:
    """The same wherever a file is, for the order of additions changes a sum of fractions."""
    kind, _, process = file.stem.rpartition("_")
    number = process.partition("x")[0]
    return kind, int(number) if number.isdecimal() else -1


def _read_values(directory: Path) -> dict[str, Values]:
    """By kind of file."""
    parts: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for file in _nonempty_files(directory):
        of_kind = parts.setdefault(file.stem.rpartition("_")[0], defaultdict(list))
        for key, value, at, _ in MmapedDict.read_all_values_from_file(str(file)):  # type: ignore[no-untyped-call]
            of_kind[key].append((value, at))
    return {
        kind: {key: _merge_values(kind, values) for key, values in found.items()}
        for kind, found in parts.items()
    }


def _merge_values(kind: str, values: list[tuple[float, float]]) -> tuple[float, float]:
    if kind == _MOST_RECENT:
        return max(values, key=lambda value: value[1])
    total = math.fsum(value for value, _ in values)
    exact = len(values) == 1 or total.is_integer()
    return total if exact else total * _ROUNDED_UP, 0.0


def _write(file: Path, values: Values) -> None:
    """Its room is taken first: a disk that is full would end a process that writes to a mapping."""
    size = sum(len(key.encode()) + 32 for key in values) + 8
    with file.open("xb") as made:
        os.posix_fallocate(made.fileno(), 0, math.ceil(size / mmap.PAGESIZE) * mmap.PAGESIZE)
    written = MmapedDict(str(file))  # type: ignore[no-untyped-call]
    for key, (value, at) in values.items():
        written.write_value(key, value, at)  # type: ignore[no-untyped-call]
    written.close()  # type: ignore[no-untyped-call]
    _sync(file)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _ended_files(directory: Path) -> list[Path]:
    return [
        file
        for file in directory.glob("*.db")
        if _is_mergeable(file) and not _is_running(_kind_and_process(file)[1])
    ]


def _is_mergeable(file: Path) -> bool:
    """Gauges of other kinds than ours say which process each value is of."""
    found = _FILE.fullmatch(file.name)
    return found is not None and (
        found["kind"] in {*_SUMMED, _MOST_RECENT} or found["kind"].startswith(_LIVE)
    )


def _kind_and_process(file: Path) -> tuple[str, int]:
    kind, _, process = file.stem.rpartition("_")
    return kind, int(process)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _nonempty_files(directory: Path) -> list[Path]:
    """A process that was killed while it made a file has left an empty one."""
    return [file for file in directory.glob("*.db") if file.stat().st_size]


def _current_totals(directory: Path) -> Path:
    """The current totals, and what is being added to them. It may not exist yet."""
    return next(reversed(_generations(directory)), directory / f"{_MERGED}0")


def _generations(directory: Path) -> list[Path]:
    found = (one for one in directory.glob(f"{_MERGED}*") if one.name != _UNFINISHED)
    return sorted(found, key=_generation_number)


def _generation_number(generation: Path) -> int:
    return int(generation.name.removeprefix(_MERGED))


@contextmanager
def _locked(directory: Path, kind: int) -> Iterator[None]:
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _wait_for_lock(opened, kind)
        yield
    finally:
        os.close(opened)


def _wait_for_lock(opened: int, kind: int) -> None:
    until = time.monotonic() + LOCK_S
    while True:
        try:
            return fcntl.flock(opened, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise TimeoutError("the directory of metrics is locked") from None
            time.sleep(0.01)
