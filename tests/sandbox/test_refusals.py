"""Where a run cannot have its wall it is refused; it never runs with less."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import wire
from sandbox.client import SandboxClient
from sandbox.spec import CodeSource, IsolationLevel, Limits, Profile, RunOutcome, SandboxSpec
from tests.sandbox.conftest import GROUPS, ROOT

SPEC = SandboxSpec("acme", Profile(IsolationLevel.STANDARD), Limits(), CodeSource(""), {})
TELL = "def main(p):\n    open('/meet/ran', 'w')"


@pytest.fixture
def broken_bwrap(tmp_path) -> str:
    """What bwrap says and does where user namespaces are forbidden."""
    script = tmp_path / "bwrap"
    script.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"
    )
    script.chmod(0o755)
    return str(script)


@pytest.mark.part("sandbox")
def test_without_user_namespaces_every_run_is_refused_for_one_reason(own_daemon, broken_bwrap):
    daemon = own_daemon("--bwrap", broken_bwrap)
    assert daemon.client.ping()["level_ceiling"] == "None"
    results = [daemon.run("def main(p):\n    return 1") for _ in range(3)]
    assert {one.error_code for one in results} == {"ISOLATION_UNAVAILABLE"}
    assert "No permissions to create new namespace" in results[0].error_message
    assert len({one.error_message for one in results}) == 1


def test_the_probe_prints_what_can_be_had(broken_bwrap):
    command = [
        sys.executable,
        "-m",
        "sandbox.daemon",
        "--probe",
        "--cgroup-root",
        f"{GROUPS}-probe",
    ]
    good = subprocess.run(command, cwd=ROOT, env={}, capture_output=True, check=False)
    bad = subprocess.run(
        [*command, "--bwrap", broken_bwrap], cwd=ROOT, env={}, capture_output=True, check=False
    )
    assert json.loads(good.stdout)["level_ceiling"] == "Restricted" and good.returncode == 0
    assert json.loads(bad.stdout)["levels"]["Standard"]["available"] is False
    assert bad.returncode == 1


@pytest.mark.parametrize(
    ("loads", "reason"),
    [
        ({"libraries": ("/nowhere/at/all",)}, "/nowhere/at/all"),
        ({"preload": (("broken", "1 / 0"),)}, "ZeroDivision"),
    ],
)
def test_what_cannot_be_loaded_is_a_failed_launch_with_a_reason(daemon, loads, reason):
    profile = Profile(IsolationLevel.STANDARD, **loads)
    result = daemon.run("def main(p):\n    return 1", profile=profile)
    assert (result.outcome, result.error_code) == (RunOutcome.SANDBOX_ERROR, "LAUNCH_FAILED")
    assert reason in result.error_message


def test_no_daemon_is_an_answer_not_an_exception(tmp_path):
    result = SandboxClient(str(tmp_path / "none"), reach_s=0.3).run(SPEC)
    assert (result.outcome, result.error_code) == (RunOutcome.SANDBOX_ERROR, "SANDBOX_UNREACHABLE")


def test_a_daemon_that_hangs_up_is_asked_once_only(short_directory):
    """The job may have begun: it is not sent again."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{short_directory}/rude")
        listener.listen()
        pid = os.fork()
        if pid == 0:
            peer, _ = listener.accept()
            peer.recv(1 << 20)
            wire.send(peer, b"{}")
            peer.recv(1 << 20)
            os._exit(0)
        result = SandboxClient(f"{short_directory}/rude").run(SPEC)
        os.waitpid(pid, 0)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert (result.outcome, result.error_code) == (RunOutcome.SANDBOX_ERROR, "LOST")


def test_a_user_who_is_not_allowed_is_turned_away(daemon):
    if os.getuid() != 0:
        pytest.skip("needs root to come as somebody else")
    code = "import sys\nfrom sandbox.client import SandboxClient\nSandboxClient(sys.argv[1]).ping()"
    knock = [sys.executable, "-c", code, daemon.path]
    reachable = "import os,sys; from sandbox.daemon import privileges;"
    reachable += "os.unshare(os.CLONE_NEWNS); privileges.stay_reachable();"
    reachable += "os.setgid(12345); os.setuid(12345); os.execv(sys.argv[1], sys.argv[1:])"
    ended = subprocess.run(
        [sys.executable, "-c", reachable, *knock], cwd=ROOT, capture_output=True, check=False
    )
    assert b"ConnectionResetError" in ended.stderr or b"BrokenPipeError" in ended.stderr
    assert daemon.facts["peer_refused"]["uid"] == 12345


@pytest.mark.parametrize(
    "frames",
    [
        [b"not json"], [b"[]"], [b'{"type":"dance"}'], [b"{}"],
        [b'{"type":"run","organization":"a","profile":"x","limits":{}}', b"{}"],
        [b'{"type":"profile","profile":{"level":"Standard"}}'],
    ],
)  # fmt: skip
def test_a_malformed_request_ends_that_conversation_only(daemon, frames):
    with socket.socket(socket.AF_UNIX) as worker:
        worker.connect(daemon.path)
        wire.send(worker, *frames)
        assert worker.recv(1) == b""
    assert daemon.run("def main(p):\n    return 1").output == 1


def test_logs_hold_neither_parameters_nor_outputs_nor_source(daemon):
    secret = "s3cret-parameter"
    daemon.run(f"def main(p):\n    print(p)\n    return p  # {secret}", {"key": secret})
    daemon.run("def main(p):\n    raise ValueError(p['key'])", {"key": secret})
    daemon.client.ping()
    assert secret not in "".join(daemon.log)


def test_the_daemon_runs_with_an_empty_environment(daemon):
    environment = Path(f"/proc/{daemon.process.pid}/environ").read_bytes()
    assert b"PATH" not in environment and b"SECRET" not in environment


@pytest.mark.part("generated")
def test_more_profiles_than_a_connection_remembers_are_sent_again(daemon):
    profiles = [
        Profile(IsolationLevel.STRICT, preload=((f"module_{n}", "x = 1"),))
        for n in range(wire.PROFILES_PER_CONNECTION + 6)
    ]
    results = [daemon.run("", profile=profile) for profile in [*profiles, *profiles[:3]]]
    assert {result.error_code for result in results} == {"TOOL_ERROR"}  # they have no main
