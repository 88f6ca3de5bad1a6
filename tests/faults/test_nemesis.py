import random
import threading
from itertools import islice

import pytest
from celery import Celery

from tests.faults import disks
from tests.faults.clocks import Clock
from tests.faults.house import House
from tests.faults.nemesis import (
    AWAY,
    DATABASE_DEATHS,
    KILLS,
    KINDS,
    Fault,
    Nemesis,
    impossible,
    schedule,
)
from tests.faults.service import Service


def drawn(seed, kinds=tuple(KINDS), count=500):
    return list(islice(schedule(seed, list(kinds), 3), count))


def test_a_seed_gives_one_schedule():
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def house(data, *, disk=True, clock=None):
    return House(data, "", None, disk, clock, {})


def nemesis(house):
    return Nemesis(
        house,
        random.Random(1),
        Celery("faults", set_as_current=False),
        Service("http://127.0.0.1:1/"),
    )


def test_each_kind_is_drawn_once_before_any_comes_again():
    drawn_first = [fault.kind for fault in drawn(1)][: len(KINDS)]
    assert sorted(drawn_first) == sorted(KINDS)


def test_what_cannot_be_done_here_says_why(tmp_path):
    assert impossible(house(tmp_path, disk=False)).keys() == {"disk full", "clock jump"}
    assert all(impossible(house(tmp_path, disk=False)).values())


def test_a_second_jump_of_the_clock_is_not_ended_by_the_first_one(tmp_path):
    (tmp_path / "clock").write_bytes(bytes(8))
    clocked = nemesis(house(tmp_path, clock=Clock(tmp_path / "none", tmp_path / "clock")))
    clocked.strike(Fault("clock jump", 0, 0.05))
    clocked.strike(Fault("clock jump", 0, 600))
    first, second = clocked._ends
    first.join()
    assert (tmp_path / "clock").read_bytes() != bytes(8)
    second.cancel()


@pytest.fixture
def disk(tmp_path):
    (tmp_path / "disk").mkdir()
    with disks.mounted(tmp_path / "disk", 80 << 20) as done:
        if not done:
            pytest.skip("NO DISK WAS FILLED: none could be mounted")
        yield tmp_path / "disk"


def test_a_full_disk_has_no_room_left_and_then_all_of_it(disk):
    (disk / "other").write_bytes(bytes(3_000_000))  # the room is no number of large pieces
    filled = nemesis(house(disk))
    filled.strike(Fault("disk full", 0, 0.2))
    assert [one.kind for one in filled.struck] == ["disk full"]
    with pytest.raises(OSError, match="No space left"):
        (disk / "more").write_bytes(bytes(4096))
    filled.calm()
    (disk / "more").write_bytes(bytes(60 << 20))


def test_a_fault_of_which_the_end_fails_is_heard_of(tmp_path, monkeypatch):
    heard = []
    monkeypatch.setattr(threading, "excepthook", heard.append)
    one = nemesis(house(tmp_path))
    one.later(0, (tmp_path / "gone").unlink)
    one.calm()
    assert [death.exc_type for death in heard] == [FileNotFoundError]


def test_only_what_was_asked_for_is_drawn():
    assert {fault.kind for fault in drawn(1, ["kill web"])} == {"kill web"}


def test_a_fault_lasts_as_long_as_its_kind_does():
    for fault in drawn(3):
        least, most = KINDS[fault.kind].lasts_s
        assert least <= fault.lasts_s <= most
        assert 0 < fault.pause_s < 6  # lint: it is drawn by lot and not measured


def test_what_is_counted_is_a_kind():
    assert KINDS.keys() >= KILLS | AWAY | DATABASE_DEATHS
