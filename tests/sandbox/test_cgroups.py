"""The driver by mode: whichever this machine has for real, v2 against a directory that looks so."""

import os

import pytest

from sandbox.daemon import cgroups, leaves
from tests.sandbox.conftest import GROUPS

GIVEN = f"{GROUPS}-given"


def test_this_machine_has_the_mode_that_the_daemon_says(daemon):
    expected = cgroups._expected(cgroups.hierarchies(GROUPS))
    assert daemon.facts["cgroups"]["mode"] == expected


def test_delegation_names_the_mode_and_gives_the_trees_away():
    if os.getuid() != 0:
        pytest.skip("needs root")
    line = cgroups.delegate(GIVEN, 12345, 12345)
    trees = cgroups.hierarchies(GIVEN)
    assert line.startswith(f"cgroups for {GIVEN}: ")
    assert {root.stat().st_uid for root in trees.values()} == {12345}
    assert {(root / "cgroup.procs").stat().st_uid for root in trees.values()} == {12345}
    for root in trees.values():
        (root / "daemon").rmdir()
        root.rmdir()


def test_a_v2_leaf_reads_and_writes_the_files_of_v2(tmp_path):
    place = tmp_path / "run-x"
    place.mkdir()
    files = {
        "memory.max": "", "pids.max": "", "cgroup.kill": "", "cgroup.procs": "",
        "cpu.stat": "usage_usec 1500\nuser_usec 1000\n", "memory.peak": "4096\n",
        "memory.events": "low 0\noom 1\noom_kill 1\n", "pids.events": "max 3\n",
    }  # fmt: skip
    for name, text in files.items():
        (place / name).write_text(text)
    leaf = leaves.V2Leaf(str(place))
    leaf.limit(1 << 20, 7)
    leaf.kill()
    assert (place / "memory.max").read_text() == "1048576"
    assert (place / "pids.max").read_text() == "7"
    assert (place / "cgroup.kill").read_text() == "1"
    assert (leaf.cpu_ns(), leaf.peak_memory()) == (1_500_000, 4096)
    assert leaf.memory_exceeded() and leaf.processes_refused()


@pytest.mark.part("sandbox")
def test_without_cgroups_limits_still_hold_for_a_single_process(own_daemon):
    """A name no tree can have: no group can be made anywhere."""
    daemon = own_daemon(cgroup_root="no/such/tree")
    assert daemon.facts["cgroups"]["mode"] == "none"
    assert daemon.run("def main(p):\n    return 1").usage.approximate
    endless = "def main(p):\n    while True: pass"
    assert daemon.run(endless, cpu_s=0.3, wall_s=9).error_code == "CPU_LIMIT"
    assert daemon.run(endless, wall_s=0.3).error_code == "TIMEOUT"
    greedy = "def main(p):\n    x = []\n    while True: x.append(bytearray(1 << 20))"
    assert daemon.run(greedy, memory_bytes=32 << 20).error_code == "MEMORY_LIMIT"
    bomb = "import os, time\ndef main(p):\n    while True: os.fork() or time.sleep(60)"
    assert "BlockingIOError" in daemon.run(bomb, processes=16).error_message
