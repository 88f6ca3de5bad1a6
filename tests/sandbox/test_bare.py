"""Runs without namespaces: level None, and the degraded backend's Standard."""

import os
import signal
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.spec import Backend, IsolationLevel, Mount, Profile
from tests.sandbox.run_observer import ENDLESS_S, all_end, all_pidfds_of, arrange

ENVIRONMENT = {"HOME", "LANG", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "PWD", "TMPDIR", "TZ"}
LEAVE = """
import os, sys, time
from toolcrib import place
CODE = "import time; time.sleep(86400) # "
def stay(marker):
    os.execv(sys.executable, [sys.executable, "-S", "-c", CODE + marker])
def main(p):
    for leave in (os.setsid, lambda: os.setpgid(0, 0)):
        if os.fork() == 0:
            try:
                leave()
            except OSError:
                pass
            if os.fork() == 0:
                stay(p["marker"])
            stay(p["marker"])
    open(place("/meet") + "/fifo", "w").write("started")
    time.sleep(86400)
"""
NONE = Profile(IsolationLevel.NONE)
DEGRADED = Profile(IsolationLevel.STANDARD, backend=Backend.DEGRADED)
EACH = pytest.mark.parametrize("profile", [NONE, DEGRADED], ids=["None", "degraded"])


@EACH
def test_environment_and_descriptors_are_its_own(run, profile):
    names = run("import os\ndef main(p):\n    return sorted(os.environ)", profile=profile).output
    assert set(names) <= ENVIRONMENT
    source = """
import os
def main(p):
    found = []
    for descriptor in range(4, 256):
        try:
            os.fstat(descriptor)
            found.append(descriptor)
        except OSError:
            pass
    return found
"""
    assert run(source, profile=profile).output == []


@pytest.mark.part("sandbox")
@EACH
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["cancelled", "killed"])
def test_no_process_of_a_run_outlives_it(own_daemon, tmp_path, profile, how):
    daemon, meeting = own_daemon("--allow-degraded"), arrange(tmp_path)
    profile = replace(profile, mounts=meeting.profile.mounts)
    marker, cancelled = f"marker-{os.urandom(6).hex()}", threading.Event()
    work = {"profile": profile, "cancelled": cancelled, "wall_s": ENDLESS_S}
    ended: list[object] = []
    thread = threading.Thread(
        target=lambda: ended.append(daemon.run(LEAVE, {"marker": marker}, **work))
    )
    thread.start()
    assert meeting.hear(ended) == "started"
    members = all_pidfds_of(marker, 4)
    cancelled.set() if how == signal.SIGTERM else daemon.process.kill()
    assert all_end(members)
    daemon.process.poll()
    thread.join()


@pytest.mark.part("sandbox")
@EACH
def test_its_scratch_directory_is_gone_afterwards(own_daemon, profile):
    daemon = own_daemon("--allow-degraded")
    source = """
import os, tempfile
def main(p):
    here = os.getcwd()
    for _ in range(2000):
        os.mkdir("deep")
        os.chdir("deep")
    return [here, os.environ["TMPDIR"], tempfile.gettempdir()]
"""
    result = daemon.run(source, profile=profile, wall_s=ENDLESS_S)
    assert result.output is not None, result
    here, *others = result.output
    assert others == [here, here]
    daemon.stop()
    assert not Path(here).exists()


def test_the_degraded_backend_reads_nothing_of_the_host(run, short_directory):
    secret = Path(short_directory, "secret")
    secret.write_text("secret")
    source = "def main(p):\n    return open(p['path']).read()"
    for path in (secret, "/etc/passwd", "/proc/self/environ", f"/proc/{os.getpid()}/cmdline"):
        result = run(source, {"path": str(path)}, profile=DEGRADED)
        assert "Permission denied" in (result.error_message or ""), path


def test_the_degraded_backend_finds_its_paths_by_asking(run, short_directory):
    place = Path(short_directory, "given")
    place.mkdir(exist_ok=True)
    (place / "name").write_text("found")
    profile = Profile(
        IsolationLevel.STANDARD, (Mount(str(place), "/given"),), backend=Backend.DEGRADED
    )
    source = "from toolcrib import place\n"
    source += "def main(p):\n    return open(place('/given') + '/name').read()"
    assert run(source, profile=profile).output == "found"


def test_the_degraded_backend_cannot_signal_other_processes(run):
    source = "import os, signal\ndef main(p):\n    os.kill(p['pid'], 0)"
    result = run(source, {"pid": os.getpid()}, profile=DEGRADED)
    assert "not permitted" in result.error_message


@pytest.mark.part("sandbox")
def test_the_degraded_backend_has_no_network(run):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        source = (
            "import socket\ndef main(p):\n    socket.create_connection(('127.0.0.1', p['port']))"
        )
        result = run(source, {"port": listener.getsockname()[1]}, profile=DEGRADED)
    assert "not permitted" in result.error_message
