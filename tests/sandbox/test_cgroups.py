"""The driver by mode: whichever this machine has for real, v2 against a directory that looks so."""

import os
import subprocess

import pytest

from sandbox.daemon.limits import cgroup_leaves, cgroups
from tests.conditions import until
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
    weights = [root / name for root in trees.values() for name in cgroups._WEIGHTS]
    assert {file.stat().st_uid for file in weights if file.exists()} <= {0}
    assert {(root / "cgroup.procs").stat().st_uid for root in trees.values()} == {12345}
    for root in trees.values():
        (root / "daemon").rmdir()
        root.rmdir()


def test_runs_weigh_less_than_the_web_and_the_database(daemon):
    """Their group does where it can, and each of their processes where it cannot."""
    tree = cgroups.hierarchies(GROUPS).get("cpu") or cgroups.hierarchies(GROUPS)["v2"]
    weighted = daemon.client.ping()["weighted"]
    assert weighted == cgroups.has_lower_weight(tree)
    result = daemon.run("import os\ndef main(p):\n    return os.getpriority(os.PRIO_PROCESS, 0)")
    ours = os.getpriority(os.PRIO_PROCESS, daemon.process.pid)
    assert result.output == (ours if weighted else min(ours + 9, 19))


def test_each_run_has_a_group_of_its_own_in_the_tree_that_weighs_less(daemon):
    tree = cgroups.hierarchies(GROUPS).get("cpu")
    if tree is None:
        pytest.skip("the controller is not one of v1")
    daemon.run("def main(p):\n    return 1")
    until(lambda: any((run / "cgroup.procs").read_text() for run in tree.glob("run-*")))


@pytest.mark.parametrize(
    ("name", "text", "less"),
    [("cpu.weight", "100", False), ("cpu.weight", "50", True), ("cpu.shares", "1024", False)],
)
def test_only_a_weight_that_was_lowered_counts(tmp_path, name, text, less):
    (tmp_path / name).write_text(text)
    assert cgroups.has_lower_weight(tmp_path) is less


def test_without_a_weight_every_thread_of_a_run_is_nice():
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        cgroups.NoDriver().place(process.pid)
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(nice + 9, 19) > nice


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
    leaf = cgroup_leaves.V2Leaf(str(place))
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
