"""Files of processes that ended become one, and no sum falls meanwhile."""

import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector

from config import metrics_files

NOT_A_PROCESS = 1 << 22  # above the highest that Linux gives
MOST = metrics_files.MOST_ENDED
MANY = 4
LABELS = {"tool": "echo"}


def write(place: Path, kind: str, name: str, value: float, at: float = 0.0, **labels: str) -> None:
    file = MmapedDict(str(place))
    file.write_value(mmap_key(kind, name, [*labels], [*labels.values()], "Help."), value, at)
    file.close()


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What many processes that ended have left, and one that lives."""
    monkeypatch.setattr(metrics_files, "MOST_ENDED", MANY - 1)
    numbers = random.Random(7)
    for process in (*range(NOT_A_PROCESS, NOT_A_PROCESS + MANY), os.getpid()):
        write(tmp_path / f"counter_{process}.db", "calls", "calls_total", 3.0, **LABELS)
        spent = numbers.uniform(0, 1e4)
        write(tmp_path / f"histogram_{process}.db", "spent", "spent_sum", spent)
        write(tmp_path / f"histogram_{process}.db", "spent", "spent_bucket", 2.0, le="1.0")
        write(tmp_path / f"histogram_{process}.db", "spent", "spent_bucket", 1.0, le="+Inf")
    for process, slots in enumerate((5.0, 7.0, 6.0)):
        file = tmp_path / f"gauge_mostrecent_{NOT_A_PROCESS + process}.db"
        write(file, "slots", "slots", slots, at=10.0 - process)
        write(tmp_path / f"gauge_livesum_{NOT_A_PROCESS + process}.db", "open", "open", 4.0)
    return tmp_path


def read(directory: Path) -> dict[str, float]:
    with metrics_files.counted_files(directory) as files:
        merged: Any = MultiProcessCollector.merge([str(file) for file in files])
    return {
        f"{one.name}{one.labels}": one.value
        for metric in merged
        for one in metric.samples
        if metric.name != "open"  # of processes that live
    }


def assert_no_less(found: dict[str, float], before: dict[str, float]) -> None:
    assert found == pytest.approx(before, rel=1e-9)
    assert all(value >= before[name] for name, value in found.items())


def test_files_of_ended_processes_become_one_of_each_kind(counted: Path) -> None:
    before = read(counted)
    metrics_files.merge_ended(counted)
    assert_no_less(read(counted), before)
    assert before["slots{}"] == 5.0
    mine = {f"counter_{os.getpid()}.db", f"histogram_{os.getpid()}.db"}
    assert {file.name for file in counted.glob("*.db")} == mine
    merged = {"counter_merged.db", "histogram_merged.db", "gauge_mostrecent_merged.db"}
    assert {file.name for file in counted.glob("*/*")} == merged


@pytest.mark.usefixtures("counted")
def test_no_sum_of_fractions_falls(tmp_path: Path) -> None:
    """(0.1 + 0.2) + 0.3 is more than 0.1 + (0.2 + 0.3)."""
    for process, value in ((os.getpid(), 0.1), (NOT_A_PROCESS, 0.2), (NOT_A_PROCESS + 1, 0.3)):
        write(tmp_path / f"summary_{process}.db", "a", "a_sum", value)
    before = read(tmp_path)
    assert before["a_sum{}"] > 0.1 + (0.2 + 0.3)
    metrics_files.merge_ended(tmp_path)
    assert_no_less(read(tmp_path), before)


def test_few_are_left_as_they_are(tmp_path: Path) -> None:
    for process in range(MOST):
        write(tmp_path / f"counter_{NOT_A_PROCESS + process}.db", "a", "a_total", 1.0)
    metrics_files.merge_ended(tmp_path)
    assert len([*tmp_path.iterdir()]) == MOST


def test_what_was_merged_is_merged_with_what_ends_later(counted: Path) -> None:
    for turn in range(3):
        before = read(counted)
        metrics_files.merge_ended(counted)
        assert_no_less(read(counted), before)
        for process in range(MANY):
            file = counted / f"counter_{NOT_A_PROCESS + process}.db"  # numbers come again
            write(file, "calls", "calls_total", 1.0 + turn, **LABELS)
    assert read(counted)[f"calls_total{LABELS}"] == 3 * (MANY + 1) + (1 + 2 + 3) * MANY
    assert len([*counted.glob("merged-*")]) == 1


class Killed(BaseException):
    pass


def killed_at(step: int, patched: pytest.MonkeyPatch) -> None:
    """The process is killed before this change of the file system."""
    done = 0

    def instead_of(usual: Callable[..., Any]) -> Callable[..., Any]:
        def change(*given: Any, **named: Any) -> Any:
            nonlocal done
            done += 1
            if done > step:
                raise Killed
            return usual(*given, **named)

        return change

    for name in ("rename", "mkdir", "unlink", "rmdir", "posix_fallocate", "fsync"):
        patched.setattr(os, name, instead_of(getattr(os, name)))


def test_a_merge_that_is_killed_loses_nothing_and_counts_nothing_twice(
    counted: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = read(counted)
    for step in range(1000):
        place = tmp_path_factory.mktemp("killed") / "metrics"
        shutil.copytree(counted, place)
        with pytest.MonkeyPatch.context() as patched:
            killed_at(step, patched)
            try:
                metrics_files.merge_ended(place)
            except Killed:
                ended = False
            else:
                ended = True
        found = read(place)
        assert_no_less(found, before)
        metrics_files.merge_ended(place)
        assert_no_less(read(place), found)
        if ended:
            break
    assert ended and step > MANY
    assert len([*place.glob("merged-*")]) == 1


def test_readers_see_the_same_sums_while_files_are_merged(counted: Path) -> None:
    before, over, problems = read(counted), threading.Event(), []

    def look() -> None:
        while not over.is_set():
            try:
                assert_no_less(read(counted), before)
            except (AssertionError, OSError) as problem:
                problems.append(problem)

    readers = [threading.Thread(target=look) for _ in range(2)]
    for one in readers:
        one.start()
    for process in range(1, 6):
        for zero in range(MANY):
            file = counted / f"counter_{NOT_A_PROCESS + process * MANY + zero}.db"
            write(file, "calls", "calls_total", 0.0, **LABELS)
        metrics_files.merge_ended(counted)
    over.set()
    for one in readers:
        one.join()
    assert not problems


def test_a_process_that_got_the_number_meanwhile_keeps_its_file(
    counted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = NOT_A_PROCESS + 1
    asked: list[int] = []

    def lives(process: int, _: int) -> None:
        asked.append(process)
        if process != os.getpid() and not (process == number and asked.count(number) > 4):
            raise ProcessLookupError

    before = read(counted)
    monkeypatch.setattr(os, "kill", lives)
    metrics_files.merge_ended(counted)
    assert (counted / f"counter_{number}.db").exists()
    assert_no_less(read(counted), before)


def test_a_file_that_cannot_be_read_keeps_no_process_from_starting(counted: Path) -> None:
    (counted / f"counter_{NOT_A_PROCESS}.db").write_bytes(b"\xff\xff\x00\x00" * 4)
    metrics_files.merge_ended(counted)
    assert not (counted / "merged-1").exists()


def test_a_process_that_starts_merges_those_of_its_directory(tmp_path: Path) -> None:
    for process in range(MOST + 1):
        write(tmp_path / f"counter_{NOT_A_PROCESS + process}.db", "a", "a_total", 1.0)
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    command = [sys.executable, "-c", "import django; django.setup()"]
    subprocess.run(command, env=environment, check=True)
    assert [*(tmp_path / "merged-1").iterdir()] == [tmp_path / "merged-1" / "counter_merged.db"]
