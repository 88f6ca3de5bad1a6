"""However a run ends, nothing of it stays."""

import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from sandbox.client import SandboxClient
from sandbox.daemon.limits import cgroups
from sandbox.spec import RunOutcome
from tests.conditions import LIMIT_S, until
from tests.sandbox.conftest import GROUPS, ROOT
from tests.sandbox.run_observer import ENDLESS_S, SPAWN_AND_TELL, all_end, arrange, pidfds_of

CALLER = """
import sys
from sandbox.client import SandboxClient
from sandbox.spec import *
profile = Profile(IsolationLevel.STANDARD, (Mount(sys.argv[2], "/meet", True),))
program = CodeSource(sys.argv[4])
spec = SandboxSpec("acme", profile, Limits(wall_s=3600), program, {"marker": sys.argv[3]})
SandboxClient(sys.argv[1]).run(spec)
"""


def leaves(root: str) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"*/{root}/run-*"))


def test_the_death_of_the_worker_ends_every_process_of_its_run(daemon, tmp_path):
    meeting, marker = arrange(tmp_path), uuid.uuid4().hex
    command = [sys.executable, "-c", CALLER, daemon.path, str(tmp_path), marker, SPAWN_AND_TELL]
    caller = subprocess.Popen(command, cwd=ROOT)
    meeting.hear()
    pidfds = pidfds_of(marker)
    caller.kill()
    caller.wait()
    assert len(pidfds) >= 4  # the caller itself, two children, the double-forked one
    assert all_end(pidfds)


def test_cancelling_ends_a_run_long_before_its_time(daemon, tmp_path):
    meeting, marker, cancelled = arrange(tmp_path), uuid.uuid4().hex, threading.Event()
    results = []
    thread = threading.Thread(
        target=lambda: results.append(
            daemon.run(
                SPAWN_AND_TELL, {"marker": marker}, profile=meeting.profile,
                cancelled=cancelled, wall_s=ENDLESS_S,
            )
        )
    )  # fmt: skip
    thread.start()
    meeting.hear()
    pidfds = pidfds_of(marker)
    cancelled.set()
    thread.join(LIMIT_S)
    assert results[0].outcome == RunOutcome.CANCELLED and results[0].usage.wall_ms > 0
    assert len(pidfds) >= 3 and all_end(pidfds)


def test_a_daemonized_process_does_not_outlive_its_run(daemon, tmp_path):
    """The run ends well; what it left in the background ends with it."""
    meeting, marker, pidfds = arrange(tmp_path), uuid.uuid4().hex, []
    source = SPAWN_AND_TELL.replace("    time.sleep(86400)\n", "    open('/meet/fifo').read()\n")
    results = []
    thread = threading.Thread(
        target=lambda: results.append(
            daemon.run(source, {"marker": marker}, profile=meeting.profile)
        )
    )
    thread.start()
    meeting.hear()
    pidfds = pidfds_of(marker)
    (tmp_path / "fifo").write_text("go on")
    thread.join(LIMIT_S)
    assert results[0].outcome == RunOutcome.SUCCESS
    assert len(pidfds) >= 3 and all_end(pidfds)


@pytest.mark.part("sandbox")
def test_killing_sandboxd_ends_everything_below_and_a_restart_clears_up(own_daemon, tmp_path):
    meeting, marker, daemon = arrange(tmp_path), uuid.uuid4().hex, own_daemon()
    results = []
    thread = threading.Thread(
        target=lambda: results.append(
            daemon.run(
                SPAWN_AND_TELL, {"marker": marker}, profile=meeting.profile, wall_s=ENDLESS_S
            )
        )
    )
    thread.start()
    meeting.hear()
    pidfds = pidfds_of(marker)
    daemon.stop(signal.SIGKILL)
    assert len(pidfds) >= 3 and all_end(pidfds)
    thread.join(LIMIT_S)
    assert results[0].error_code == "LOST"
    again = own_daemon()
    assert again.facts["cgroups"]["leftovers_removed"] > 0
    assert not [
        path for path in leaves(f"{GROUPS}-own") if f"run-{daemon.process.pid}" in str(path)
    ]
    again.stop()
    assert leaves(f"{GROUPS}-own") == []


def test_groups_and_zombies_do_not_pile_up(daemon):
    for _ in range(40):
        daemon.run("import os\ndef main(p):\n    os.fork()\n    os.fork()\n    return 1")
    several = 2 * len(cgroups.hierarchies(GROUPS))
    until(lambda: len(leaves(GROUPS)) <= several * daemon.client.ping()["slots"])
    command = ["ps", "-o", "stat=", "--ppid", str(daemon.process.pid)]
    until(lambda: b"Z" not in subprocess.check_output(command))


@pytest.mark.part("sandbox")
def test_a_kept_connection_serves_the_next_run_after_a_restart(own_daemon):
    first = own_daemon()
    assert first.run("def main(p):\n    return 1").output == 1
    client: SandboxClient = first.client
    first.process.kill()
    first.process.wait()
    own_daemon().client.close()
    first.client = client
    assert first.run("def main(p):\n    return 2").output == 2


def test_descriptors_of_the_daemon_do_not_leak(daemon):
    def open_descriptors() -> int:
        return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))

    daemon.run("def main(p):\n    return 1")
    before = open_descriptors()
    for _ in range(60):
        daemon.run("def main(p):\n    return 1")
    until(lambda: open_descriptors() <= before + 30)  # ready slots come and go; each holds six


@pytest.mark.part("sandbox")
def test_a_probe_beside_a_working_daemon_leaves_its_slots_alone(daemon):
    daemon.run("def main(p):\n    return 1")
    held = set(leaves(GROUPS))
    command = [sys.executable, "-m", "sandbox.daemon", "--probe", "--cgroup-root", GROUPS]
    subprocess.run(command, cwd=ROOT, env={}, check=True, capture_output=True)
    assert len(held & set(leaves(GROUPS))) > 0
    assert all(daemon.run("def main(p):\n    return 1").output == 1 for _ in range(6))
