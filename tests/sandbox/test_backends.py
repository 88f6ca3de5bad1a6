"""Containers, and what all backends have in common. What a runtime says is checked, not believed.

Each test that needs one starts real containers with the runtimes this machine has.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from sandbox.backends import deno, oci_bundle
from sandbox.backends.backend_registry import BackendRegistry
from sandbox.backends.container import ContainerBackend, Containers
from sandbox.backends.oci_bundle import Bundle
from sandbox.backends.runtimes import OciRuntime, installed
from sandbox.daemon.limits.cgroups import NoDriver
from sandbox.daemon.runs.janitor import clean_up_run
from sandbox.daemon.runs.sandbox_run import SandboxRun
from sandbox.daemon.runs.slot import SlotDisk
from sandbox.daemon.worker_channel import WorkerChannel
from sandbox.errors import RunRefused
from sandbox.inside.filter import call_rules, syscalls
from sandbox.inside.filter.arguments import NO
from sandbox.spec import (
    Backend,
    IsolationLevel,
    Language,
    Limits,
    Mount,
    Network,
    Profile,
    RunOutcome,
    SandboxResult,
)
from tests.conditions import LIMIT_S
from tests.sandbox.conftest import ROOT
from tests.sandbox.run_observer import all_end

LEVELS = (IsolationLevel.STANDARD, IsolationLevel.STRICT, IsolationLevel.RESTRICTED)
PROFILE = Profile(IsolationLevel.STANDARD, backend=Backend.CONTAINER)
NAMES = [runtime.name for runtime in installed()]

RUNTIMES = pytest.mark.part("runtimes")

# crun before 1.9 refuses machines that have both versions of control groups mounted.
HERE = [name for name in NAMES if name != "crun"]

type RunIt = Callable[..., SandboxResult]


def installed_runtime(name: str) -> OciRuntime:
    return next(runtime for runtime in installed() if runtime.name == name)


def container(level: IsolationLevel = IsolationLevel.STANDARD, *mounts: Mount) -> Profile:
    return Profile(level, mounts, backend=Backend.CONTAINER)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """For the bundles. Runtimes pass to it as another user than the one who made it."""
    return str(tmp_path / "bundles")


@pytest.fixture
def run(root: str) -> Iterator[RunIt]:
    """One run in a container of the named runtime, cleared away when its result is there."""
    made: list[Containers] = []
    Path(root).mkdir()

    def run_once(
        runtime: OciRuntime | str, source: str, profile: Profile = PROFILE, **limits: object
    ) -> SandboxResult:
        wanted = installed_runtime(runtime) if isinstance(runtime, str) else runtime
        containers = Containers(wanted, profile, root, NoDriver())
        made.append(containers)
        return perform(containers, source, Limits(**limits))

    yield run_once
    for containers in made:
        containers.join(LIMIT_S)
    assert os.listdir(root) == []


def perform(containers: Containers, source: str, limits: Limits) -> SandboxResult:
    program = {"source": source, "entry_point": "main"}
    body = json.dumps({"program": program, "parameters": {}}).encode()
    slot = containers.take(SlotDisk.from_limits(limits), 20)
    worker, far = socket.socketpair()
    with worker, far:
        try:
            result, output = SandboxRun(slot, limits, WorkerChannel(far)).perform(body, 0, "test")
        finally:
            slot.kill()
            clean_up_run(slot)
    return SandboxResult(**vars(result) | {"output": json.loads(output or "null")})


# What a run sees.


@RUNTIMES
@pytest.mark.parametrize("runtime", HERE)
def test_a_tool_in_a_container_has_its_result_and_both_its_streams(run, runtime):
    source = "import sys\ndef main(p):\n    print('out')\n    print('err', file=sys.stderr)\n"
    result = run(runtime, source + "    return {'twice': 42}")
    assert (result.outcome, result.output) == (RunOutcome.SUCCESS, {"twice": 42})
    assert (result.stdout, result.stderr) == ("out\n", "err\n")


KNOWN_VARIABLES = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ")
LOOK = """
import os
def main(p):
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return {
        "pid": os.getpid(),
        "capabilities": [status[name].strip() for name in ("CapPrm", "CapEff", "CapBnd")],
        "no_new_privs": status["NoNewPrivs"].strip(),
        "environment": sorted(os.environ),
        "others": [name for name in os.listdir("/proc") if name.isdigit()],
    }
"""


@RUNTIMES
@pytest.mark.skipif("runc" not in HERE, reason="runc is not installed")
def test_a_tool_is_alone_in_its_container_and_without_power(run):
    seen = run("runc", LOOK).output
    assert (seen["pid"], seen["others"], seen["no_new_privs"]) == (1, ["1"], "1")
    assert seen["capabilities"] == ["0" * 16] * 3
    assert {"PATH", "HOME"} <= {*seen["environment"]} <= {*KNOWN_VARIABLES}


@RUNTIMES
@pytest.mark.skipif("runc" not in HERE, reason="runc is not installed")
@pytest.mark.parametrize("level", LEVELS[1:])
def test_above_standard_a_container_shows_no_processes_and_no_programs(run, level):
    source = "import os\ndef main(p):\n    found = []\n    for path in ('/proc', '/usr/bin'):\n"
    source += "        try: found.append(os.listdir(path))\n"
    source += "        except OSError as error: found.append(type(error).__name__)\n"
    seen = run("runc", source + "    return found", container(level)).output
    assert seen == ["PermissionError", "FileNotFoundError"]


@RUNTIMES
@pytest.mark.parametrize("runtime", HERE)
def test_a_container_has_no_network(run, runtime):
    source = "import socket\ndef main(p):\n    s = socket.socket()\n"
    result = run(runtime, source + "    s.connect(('127.0.0.1', 80))")
    assert result.error_code == "TOOL_ERROR"
    assert result.error_message.startswith("PermissionError")


@RUNTIMES
@pytest.mark.parametrize("runtime", HERE)
def test_the_private_place_of_a_container_is_small_and_runs_nothing(run, runtime):
    source = "import os, errno\ndef main(p):\n    file = open('/tmp/big', 'wb')\n"
    source += "    try:\n        while True: file.write(bytes(1 << 16)); file.flush()\n"
    source += "    except OSError as error: return errno.errorcode[error.errno]"
    assert run(runtime, source, tmp_bytes=1 << 20).output == "ENOSPC"


@RUNTIMES
@pytest.mark.parametrize("runtime", HERE)
def test_a_library_of_the_profile_can_be_imported_in_a_container(run, runtime):
    profile = Profile(
        IsolationLevel.STANDARD, libraries=(yaml.__path__[0],), backend=Backend.CONTAINER
    )
    source = "import yaml\ndef main(p):\n    return yaml.safe_load('a: [1]')"
    assert run(runtime, source, profile).output == {"a": [1]}


@RUNTIMES
def test_gvisor_does_not_have_what_restricted_needs(run):
    if "runsc" not in HERE:
        pytest.skip("runsc is not installed")
    with pytest.raises(RunRefused, match="prctl 65"):
        run("runsc", "def main(p): return 1", container(IsolationLevel.RESTRICTED))


# Paths of the profile.


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory with a file in it, and something else mounted below."""
    directory = tmp_path / "shared"
    directory.mkdir()
    (directory / "file").write_text("hello")
    return directory


runc_only = pytest.mark.skipif("runc" not in HERE, reason="runc is not installed")
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount something")
WRITE = "def main(p):\n    open('/data/{}', 'w').write('x')"


@RUNTIMES
@runc_only
def test_what_a_run_writes_to_a_writable_path_is_there_afterwards(run, shared):
    profile = container(IsolationLevel.STRICT, Mount(str(shared), "/data", writable=True))
    assert run("runc", WRITE.format("new"), profile).outcome == RunOutcome.SUCCESS
    assert (shared / "new").read_text() == "x"


@RUNTIMES
@runc_only
def test_a_path_that_is_not_writable_can_be_read_only(run, shared):
    profile = container(IsolationLevel.STANDARD, Mount(str(shared), "/data"))
    reading = "def main(p):\n    return open('/data/file').read()"
    assert run("runc", reading, profile).output == "hello"
    assert run("runc", WRITE.format("file"), profile).error_code == "TOOL_ERROR"
    assert (shared / "file").read_text() == "hello"


@RUNTIMES
@runc_only
@as_root
def test_what_is_mounted_below_a_path_is_shut_as_well(run, shared):
    (shared / "below").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", shared / "below"], check=True)
    try:
        profile = container(IsolationLevel.STANDARD, Mount(str(shared), "/data"))
        result = run("runc", WRITE.format("below/file"), profile)
    finally:
        subprocess.run(["umount", shared / "below"], check=True)
    assert result.error_message.startswith("OSError: [Errno 30]")


def lying(tmp_path: Path, lie: str) -> OciRuntime:
    """runc, after a change of the bundle that sandboxd did not ask for."""
    program = tmp_path / "lying-runc"
    change = f"import json, os, pathlib, sys\nif 'run' in sys.argv:\n{lie}\n"
    change += f"os.execv({shutil.which('runc')!r}, ['runc', *sys.argv[1:]])\n"
    program.write_text(f"#!{sys.executable}\n{change}")
    program.chmod(0o755)
    return OciRuntime("runc", str(program))


FORGET_READ_ONLY = """
    path = pathlib.Path(sys.argv[-2], "config.json")
    config = json.loads(path.read_text())
    for mount in config["mounts"]:
        if mount["destination"] == "/data":
            mount["options"] = ["rbind"]
    path.write_text(json.dumps(config))
"""


@RUNTIMES
@runc_only
def test_a_runtime_that_leaves_a_path_open_gets_no_job(run, shared, tmp_path):
    profile = container(IsolationLevel.STANDARD, Mount(str(shared), "/data"))
    with pytest.raises(RunRefused, match="/data was mounted without nodev, noexec, nosuid, ro"):
        run(lying(tmp_path, FORGET_READ_ONLY), WRITE.format("new"), profile)
    assert not (shared / "new").exists()


EXCHANGE = """
    os.rename({shared!r}, {shared!r} + ".away")
    os.symlink({other!r}, {shared!r})
"""


@RUNTIMES
@runc_only
def test_a_path_that_is_exchanged_for_a_link_in_the_meantime_is_refused(run, shared, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    profile = container(IsolationLevel.STANDARD, Mount(str(shared), "/data", writable=True))
    runtime = lying(tmp_path, EXCHANGE.format(shared=str(shared), other=str(other)))
    with pytest.raises(RunRefused, match="/data was exchanged"):
        run(runtime, WRITE.format("new"), profile)
    assert os.listdir(other) == []


@RUNTIMES
def test_gvisor_gets_no_paths_because_its_mounts_cannot_be_inspected(run, shared):
    if "runsc" not in HERE:
        pytest.skip("runsc is not installed")
    with pytest.raises(RunRefused, match="cannot be looked at"):
        run("runsc", "def main(p): return 1", container(LEVELS[0], Mount(str(shared), "/data")))


# Its end.


@RUNTIMES
@pytest.mark.parametrize("runtime", HERE)
def test_a_run_that_takes_too_long_is_killed_with_its_container(run, runtime):
    source = "import time\ndef main(p):\n    time.sleep(86400)"
    assert run(runtime, source, wall_s=0.2).outcome == RunOutcome.TIMEOUT


@RUNTIMES
@pytest.mark.parametrize("runtime", HERE)
def test_retiring_ends_containers_that_are_still_at_work(root, runtime):
    Path(root).mkdir()
    containers = Containers(installed_runtime(runtime), PROFILE, root, NoDriver())
    slot = containers.take(SlotDisk.from_limits(Limits()), LIMIT_S)
    containers.retire()
    assert all_end([slot.pidfd])
    clean_up_run(slot)
    containers.join(LIMIT_S)
    assert not containers.alive and os.listdir(root) == []


# A sandboxd that has one container and waits for its end.
HOLD = """
import json, os, signal, sys
from sandbox.backends.container import Containers
from sandbox.backends.runtimes import installed
from sandbox.daemon.limits.cgroups import NoDriver
from sandbox.daemon.subprocesses import become_subreaper
from sandbox.daemon.runs.slot import SlotDisk
from sandbox.inside import frames
from sandbox.spec import Backend, IsolationLevel, Limits, Profile
become_subreaper()
runtime = next(one for one in installed() if one.name == sys.argv[2])
profile = Profile(IsolationLevel.STANDARD, backend=Backend.CONTAINER)
containers = Containers(runtime, profile, sys.argv[1], NoDriver())
slot = containers.take(SlotDisk.from_limits(Limits()), 20)
source = "def main(p):\\n    print('begun', flush=True)\\n    while True: pass"
job = {"program": {"source": source, "entry_point": "main"}, "parameters": {}}
for frame in (Limits().to_wire(), job):
    frames.send(slot.channel, json.dumps(frame).encode())
os.read(slot.stdout, 100)
print(slot.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def killed(root: str) -> Callable[[str], bool]:
    """Kill a sandboxd whose container is at work; True when the container ended with it."""
    Path(root).mkdir()

    def kill(runtime: str) -> bool:
        command = [sys.executable, "-c", HOLD, root, runtime]
        holder = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert holder.stdout is not None
        with holder.stdout:
            pidfd = os.pidfd_open(int(holder.stdout.readline()))
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        return all_end([pidfd])

    return kill


@RUNTIMES
@pytest.mark.parametrize("runtime", HERE)
def test_no_container_survives_a_sandboxd_that_is_killed(killed, root, runtime):
    assert killed(runtime)
    assert len(os.listdir(root)) == 1
    assert ContainerBackend(root, NoDriver()).remove_orphans() == 1
    assert os.listdir(root) == []


def test_the_bundles_of_another_living_sandboxd_are_left_alone(root):
    Path(root).mkdir()
    bundle = Bundle.make(root, OciRuntime("runc", "runc"))
    owner = subprocess.Popen(["sleep", "60"])
    try:
        bundle.path.rename(bundle.path.with_name(f"toolcrib-{owner.pid}-1"))
        assert ContainerBackend(root, NoDriver()).remove_orphans() == 0
    finally:
        owner.kill()
        owner.wait()


# The backend as a whole.


@RUNTIMES
@pytest.mark.skipif(not HERE, reason="no OCI runtime is installed")
def test_the_container_backend_finds_a_runtime_that_really_works(root):
    backend = ContainerBackend(root, NoDriver())
    assert backend.flaw() is None
    assert backend.ceiling in {IsolationLevel.STRICT, IsolationLevel.RESTRICTED}


def test_a_runtime_that_is_there_and_does_nothing_is_a_flaw_with_a_fix(root):
    idle = OciRuntime("idle", "/bin/true")
    flaw = ContainerBackend(root, NoDriver(), lambda: [idle]).flaw()
    assert flaw.startswith("no container can be made here (idle: no container: ")
    assert "Install an OCI runtime" in flaw


def test_a_machine_without_a_runtime_says_so(root):
    assert "(no runtime)" in ContainerBackend(root, NoDriver(), list).flaw()


class Counted:
    """A backend of which only the description matters."""

    ceiling, network = IsolationLevel.STRICT, False

    def __init__(self, flaw: str | None = None, name: Backend = Backend.MONTY) -> None:
        self.asked, self._flaw, self.name = 0, flaw, name

    def flaw(self) -> str | None:
        self.asked += 1
        return self._flaw

    def template(self, profile: Profile) -> Containers:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        (Profile(IsolationLevel.RESTRICTED, backend=Backend.MONTY), "ends at isolation level"),
        (
            Profile(IsolationLevel.STRICT, backend=Backend.MONTY, network=Network.HELPER),
            "has no network",
        ),
        (
            Profile(IsolationLevel.STRICT, backend=Backend.MONTY, language=Language.JAVASCRIPT),
            "runs Python only",
        ),
        (Profile(IsolationLevel.STRICT, backend=Backend.CONTAINER), "there is no backend"),
    ],
)
def test_what_a_backend_does_not_have_is_refused_with_the_reason(profile, reason):
    assert reason in BackendRegistry([Counted()]).refusal(profile)


def test_a_backend_is_tried_once_and_its_flaw_refuses_everything():
    backend = Counted("it is broken")
    registry = BackendRegistry([backend])
    profile = Profile(IsolationLevel.STRICT, backend=Backend.MONTY)
    assert [registry.refusal(profile) for _ in range(3)] == ["it is broken"] * 3
    assert backend.asked == 1


def javascript_by_process(network: Network = Network.NONE) -> Profile:
    return Profile(IsolationLevel.STRICT, network=network, language=Language.JAVASCRIPT)


def test_javascript_that_does_not_run_here_is_refused_with_the_reason():
    process = Counted(name=Backend.PROCESS)
    assert BackendRegistry([process], lambda: None).refusal(javascript_by_process()) is None
    refusal = BackendRegistry([process], lambda: "there is no Deno").refusal(
        javascript_by_process()
    )
    assert refusal == "there is no Deno"


def test_javascript_has_no_network_whatever_its_backend_has():
    process = Counted(name=Backend.PROCESS)
    process.network = True
    refusal = BackendRegistry([process]).refusal(javascript_by_process(Network.PROXY))
    assert refusal == "tools in JavaScript have no network"


# The filter of a container, and the loaders of programs.


def test_every_call_of_the_levels_can_be_made_in_a_container_or_is_refused_alike():
    rules = oci_bundle.seccomp_profile("x86_64")["syscalls"]
    known = {name for rule in rules for name in rule["names"]}
    named = call_rules.rules(call_rules.FilterRequirements("usual", programs=True, new_code=True))
    assert known >= {name for name, rule in named.items() if rule.otherwise != NO or rule.cases}
    assert known <= {*syscalls.NUMBERS}


def test_a_container_may_not_make_namespaces_nor_sockets():
    rules = oci_bundle.seccomp_profile("x86_64")["syscalls"]
    assert not {"unshare", "setns", "mount", "socket", "bpf"} & {*rules[0]["names"]}
    (clone,) = [rule for rule in rules if rule["names"] == ["clone"]]
    (condition,) = clone["args"]
    assert (condition["op"], condition["valueTwo"]) == ("SCMP_CMP_MASKED_EQ", 0)
    assert condition["value"] & 0x10000000  # a user namespace


def test_a_machine_without_a_table_gets_no_filter():
    with pytest.raises(KeyError):
        oci_bundle.seccomp_profile("riscv64")


def test_the_loader_of_a_program_is_what_the_program_says():
    loader = deno.loader_of(deno.runtime())
    assert loader is not None and Path(loader).exists()


def test_what_is_not_a_program_has_no_loader(tmp_path):
    (tmp_path / "text").write_text("#!/bin/sh\n" * 20)
    with pytest.raises(ValueError, match="not a program"):
        deno.loader_of(str(tmp_path / "text"))


# Through sandboxd, as a worker asks for it.


@RUNTIMES
@pytest.mark.skipif(not HERE, reason="no OCI runtime is installed")
@pytest.mark.parametrize("level", LEVELS[:2])
def test_sandboxd_runs_a_tool_in_a_container(daemon, level):
    result = daemon.run("def main(p):\n    return p", {"n": 1}, profile=container(level))
    assert (result.output, result.error_code) == ({"n": 1}, None)
    assert not result.usage.approximate


@RUNTIMES
@pytest.mark.skipif(not HERE, reason="no OCI runtime is installed")
@pytest.mark.parametrize(
    ("source", "limits", "code"),
    [
        ("x = bytearray(99 << 20)", {"memory_bytes": 64 << 20}, "MEMORY_LIMIT"),
        ("while True: pass", {"cpu_s": 0.2}, "CPU_LIMIT"),
        ("while True: print('x' * 9999)", {"output_bytes": 1 << 16}, "OUTPUT_LIMIT"),
        ("import os\n    while True: os.fork()", {"wall_s": 20}, "PROCESS_LIMIT"),
    ],
)
def test_limits_hold_in_a_container(daemon, source, limits, code):
    source = f"def main(p):\n    {source}"
    assert daemon.run(source, profile=container(), **limits).error_code == code


@RUNTIMES
@pytest.mark.skipif(not HERE, reason="no OCI runtime is installed")
def test_cancelling_ends_a_run_in_a_container(daemon):
    cancelled = threading.Event()
    cancelled.set()
    source = "def main(p):\n    while True: pass"
    result = daemon.run(source, profile=container(), cancelled=cancelled)
    assert result.outcome == RunOutcome.CANCELLED
