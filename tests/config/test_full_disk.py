"""A full disk keeps what must start from starting, and ends nothing that runs."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from config.local import orphans
from config.local.child_processes import MOST_BYTES, LogFile, ProcessSpec
from config.local.postgres import _write_access_files
from config.local.supervisor import Supervisor
from config.local.unix_accounts import current_account
from tests.conditions import until
from tests.config.local.processes import alive
from tests.faults import disks

DISK_BYTES = 16 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of the test's own."""
    place = tmp_path / "disk"
    place.mkdir()
    with disks.mounted(place, DISK_BYTES) as done:
        if not done:
            pytest.skip("NO DISK WAS FILLED: none could be mounted")
        yield place


def fill(disk: Path) -> Path:
    """Until not one byte more finds room."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as out, suppress(OSError):
        while True:
            out.write(bytes(4096))
    return filler


def sleeper(disk: Path, name: str, before_start: Callable[[], object] = list) -> ProcessSpec:
    return ProcessSpec(
        name=name,
        command=(sys.executable, "-c", "import signal; signal.pause()"),
        directory=disk,
        before_start=lambda: before_start() and None,
        grace_s=5,
    )


def test_what_cannot_start_for_want_of_room_comes_back_and_ends_no_other(disk: Path) -> None:
    reports: list[str] = []
    needy = sleeper(disk, "hungry", lambda: (disk / "note").write_bytes(os.urandom(70_000)))
    with Supervisor(disk, report=reports.append) as crib:
        crib.start(sleeper(disk, "other"), needy)
        other, hungry = crib.managed["other"].child, crib.managed["hungry"].child
        (disk / "note").unlink()
        filler = fill(disk)
        os.kill(hungry.pid, signal.SIGKILL)
        until(lambda: crib.run_pass() or any("could not be started" in one for one in reports))
        assert reports[-1] == "hungry could not be started: No space left on device"
        assert alive(other.pid)
        filler.unlink()
        until(lambda: crib.run_pass() or not hungry.has_ended())
        assert alive(other.pid)


def test_who_was_started_on_a_full_disk_is_noted_as_soon_as_there_is_room(disk: Path) -> None:
    with Supervisor(disk, report=lambda _: None) as crib:
        crib.start(sleeper(disk, "one"))
        child = crib.managed["one"].child
        filler = fill(disk)
        former = child.pid
        os.kill(former, signal.SIGKILL)
        until(lambda: crib.run_pass() or child.pid != former)
        assert alive(child.pid) and not orphans.survivors(crib.record)
        filler.unlink()
        crib.run_pass()
        assert [one.pid for one in orphans.survivors(crib.record)] == [child.pid]


def test_a_report_that_finds_no_room_is_dropped_and_stops_nothing(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        crib = Supervisor(tmp_path, report=lambda text: print(text, file=full, flush=True))
        crib.report("the disk is full")
        with suppress(OSError):
            full.close()


def test_a_log_that_cannot_be_set_aside_stays_and_takes_no_more_room(disk: Path) -> None:
    log = LogFile(disk / "web.log")
    (disk / "web.log").write_bytes(b"x" * (MOST_BYTES + 1))
    log.rotate()
    assert [path.name for path in disk.iterdir()] == ["web.log"]
    assert (disk / "web.log").stat().st_size == MOST_BYTES + 1


def test_who_may_come_into_the_database_is_not_written_again_on_a_full_disk(disk: Path) -> None:
    _write_access_files(disk, current_account(), current_account())
    before = (disk / "names.conf").read_text()
    fill(disk)
    _write_access_files(disk, current_account(), current_account())
    assert (disk / "names.conf").read_text() == before != ""
