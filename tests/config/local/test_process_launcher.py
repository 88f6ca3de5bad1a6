import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from config.local.child_processes import ProcessSpec, launch_command
from config.local.process_specs import interpreter
from config.local.unix_accounts import UnixAccount

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
STRANGER = UnixAccount(64333, 64333)
REPORT = """
import json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
print(json.dumps({
    "uid": os.getresuid(), "groups": os.getgroups(), "listing": sorted(os.listdir(HIDDEN)),
    "privileges": status["CapEff"].strip(), "no_new_privileges": status["NoNewPrivs"].strip(),
    "environment": sorted(os.environ.keys() - {"LC_CTYPE"}),
}))
"""


def run(
    script: str, directory: Path, *reach: Path, keeps_root: bool = False
) -> subprocess.CompletedProcess[str]:
    spec = ProcessSpec(
        name="probe",
        command=(sys.executable, "-c", script),
        directory=directory,
        account=STRANGER,
        keeps_root=keeps_root,
        reach=(*interpreter(), *reach),
    )
    return subprocess.run(launch_command(spec), env={}, capture_output=True, text=True, check=False)


@as_root
def test_below_a_private_directory_only_what_is_named_can_be_seen(tmp_path: Path) -> None:
    private = tmp_path / "private clone"
    (private / "code").mkdir(parents=True)
    (private / "keys").mkdir()
    private.chmod(0o700)
    done = run(f"HIDDEN = {str(private)!r}\n{REPORT}", private / "code", private / "code")
    assert not done.stderr
    seen = json.loads(done.stdout)
    assert seen["listing"] == ["code"]
    assert seen["uid"] == [64333] * 3
    assert seen["groups"] == []
    assert int(seen["privileges"], 16) == 0
    assert seen["no_new_privileges"] == "1"
    assert seen["environment"] == []
    assert (private / "keys").is_dir()


@as_root
def test_a_command_that_becomes_the_user_by_itself_keeps_root_and_sees_the_same(
    tmp_path: Path,
) -> None:
    private = tmp_path / "private clone"
    (private / "code").mkdir(parents=True)
    (private / "keys").mkdir()
    private.chmod(0o700)
    done = run(
        f"HIDDEN = {str(private)!r}\n{REPORT}", private / "code", private / "code", keeps_root=True
    )
    seen = json.loads(done.stdout)
    assert (seen["uid"], seen["groups"], seen["listing"]) == ([0] * 3, [], ["code"])
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    done = run("print('ran')", tmp_path, closed, keeps_root=True)
    assert (done.returncode, done.stdout) == (126, "")


@as_root
def test_a_directory_closed_itself_is_one_sentence(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    done = run("print('ran')", tmp_path, closed)
    assert (done.returncode, done.stdout) == (126, "")
    assert done.stderr == f"User 64333 may not read {closed}: run chmod -R go+rX on it.\n"


def test_the_command_gets_its_signal_when_the_parent_is_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]
    parent = f"""
import subprocess, sys
from pathlib import Path
from config.local.child_processes import ProcessSpec, launch_command
spec = ProcessSpec(name="child", command={tuple(words)!r}, directory=Path("/"))
child = subprocess.Popen(launch_command(spec), env={{}})
print(child.pid, flush=True)
child.wait()
"""
    checkout = Path(__file__).resolve().parents[3]
    process = subprocess.Popen(
        [sys.executable, "-c", parent], cwd=checkout, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    child = os.pidfd_open(int(process.stdout.readline()))
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGKILL)
    assert process.stdout.read() == ""  # the end of the last writer, which is the child
    process.wait()
    process.stdout.close()
    os.close(child)
