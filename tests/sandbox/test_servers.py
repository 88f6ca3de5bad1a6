"""Lasting servers: behind the same wall as a run, gone with the connection that asked for them."""

import os
import select
import signal
import sys
import uuid
from contextlib import closing, contextmanager

import pytest

from sandbox.errors import ErrorCode, RunRefused, SpecInvalid
from sandbox.server_client import start_server
from sandbox.spec import KEPT_WORDS, Limits, Mount, Network, ServerSpec
from tests.conditions import LIMIT_S, until
from tests.sandbox.conftest import GROUPS
from tests.sandbox.run_observer import all_end, pidfds_of
from tests.sandbox.test_endings import leaves

PYTHON = f"{sys.base_prefix}/bin/python3"
MIB = 1 << 20
ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
TELL = "print({0}, flush=True)\nimport sys; sys.stdin.read()"
FAMILY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print('ready', flush=True)
        time.sleep(86400)
    time.sleep(86400)
time.sleep(86400) # {0}
"""
BOMB = """
import os, sys
made = 0
while True:
    try:
        if os.fork() == 0:
            import time; time.sleep(86400)
    except OSError:
        break
    made += 1
print(made, flush=True)
sys.stdin.read()
"""


def spec(source, *words, organization="acme", **more):
    more = {"programs": (sys.base_prefix,)} | more
    return ServerSpec(organization, (PYTHON, "-u", "-c", source, *words), **more)


@contextmanager
def started(daemon, source, *words, **more):
    """Held until the block ends: a server without a holder is ended at once."""
    with closing(start_server(daemon.path, None, spec(source, *words, **more))) as process:
        process.stdio.settimeout(LIMIT_S)
        yield process


def heard(process):
    return process.stdio.makefile("rb").readline().strip().decode()


def evaluate(daemon, expression, **more):
    """What a server that evaluates this says."""
    with started(daemon, TELL.format(expression), **more) as process:
        return heard(process)


def read_to_end(process):
    """Its streams are at their end."""
    while process.stdio.recv(1 << 16):
        pass
    return process.last_words()


def servers(daemon):
    return daemon.client.ping()["servers"]


def test_a_server_reads_and_writes_for_as_long_as_it_is_held(daemon):
    with started(daemon, ECHO) as process:
        for number in range(3):
            process.stdio.sendall(b"%d\n" % number)
            assert heard(process) == str(number)


def test_a_server_gets_its_environment_and_nothing_of_ours(daemon):
    environment = evaluate(
        daemon,
        "(__import__('os').environ['KEY'], sorted(__import__('os').environ))",
        environment=(("KEY", "s3cret"),),
    )
    assert environment == "('s3cret', ['HOME', 'KEY', 'LANG', 'PATH', 'PWD', 'TMPDIR', 'TZ'])"


def test_a_secret_of_its_environment_is_in_no_argument_log_or_repr(daemon):
    server = spec(ECHO, environment=(("KEY", "sw0rdfish"),))
    assert "sw0rdfish" not in repr(server)
    with started(daemon, ECHO, environment=(("KEY", "sw0rdfish"),)):
        assert pidfds_of("sw0rdfish") == []
    assert not any("sw0rdfish" in line for line in daemon.log)


@pytest.mark.part("sandbox", but_each=3)
@pytest.mark.parametrize(
    "attempt",
    [
        "__import__('socket').socket()",
        "open('/etc/shadow')",
        "open('/usr/new', 'w')",
        "open(__import__('sys').executable, 'a')",
        "__import__('os').unshare(0x10000000)",
        "__import__('os').mkdir('/new')",
    ],
)
def test_it_has_no_network_and_nothing_of_the_machine(daemon, attempt):
    source = f"try:\n    {attempt}\nexcept OSError as e:\n    print('no', flush=True)\nimport sys"
    with started(daemon, source + "\nsys.stdin.read()") as process:
        assert heard(process) == "no"


def test_it_sees_no_process_but_its_own_and_has_no_capability(daemon):
    expression = (
        "(len([n for n in __import__('os').listdir('/proc') if n.isdigit()]),"
        " [l.split()[1] for l in open('/proc/self/status') if l[:6] in ('CapEff','Seccom')][:2])"
    )
    assert evaluate(daemon, expression) == "(1, ['0000000000000000', '2'])"


def test_directories_are_shown_read_only_or_writable_as_it_was_said(daemon, tmp_path):
    for place, mode in (("read", 0o755), ("write", 0o777)):
        (tmp_path / place).mkdir()
        (tmp_path / place).chmod(mode)
    mounts = (
        Mount(str(tmp_path / "read"), "/shown"),
        Mount(str(tmp_path / "write"), "/given", writable=True),
    )
    source = (
        "import os, sys\nopen('/given/a', 'w').write('x')\n"
        "try:\n    open('/shown/a', 'w')\nexcept OSError:\n    print('no', flush=True)\n"
        "sys.stdin.read()"
    )
    with started(daemon, source, mounts=mounts, directory="/given") as process:
        assert heard(process) == "no"
    assert (tmp_path / "write" / "a").read_text() == "x"


def test_its_tmp_is_private_and_bounded(daemon):
    source = (
        "import sys\n"
        "try:\n    [open(f'/tmp/{n}', 'wb', 0).write(bytes(1 << 20)) for n in range(64)]\n"
        "except OSError as e:\n    print(e.strerror, flush=True)\nsys.stdin.read()"
    )
    with started(daemon, source) as process:
        assert heard(process) == "No space left on device"


def test_hanging_up_kills_all_its_processes(daemon):
    marker = uuid.uuid4().hex
    with started(daemon, FAMILY.format(marker)) as process:
        assert heard(process) == "ready"
        members = pidfds_of(marker)
        assert len(members) == 3
    assert all_end(members)
    until(lambda: servers(daemon) == 0)


def test_a_server_that_ends_says_why_and_what_it_said_last(daemon):
    source = "import sys; sys.stderr.write('no such zone\\n'); sys.exit(3)"
    with started(daemon, source) as process:
        assert read_to_end(process) == ("it ended", "no such zone\n")
    until(lambda: servers(daemon) == 0)


def test_a_program_that_is_not_there_is_said_so(daemon):
    missing = ServerSpec("acme", ("/usr/bin/no-such-program",))
    with closing(start_server(daemon.path, None, missing)) as process:
        process.stdio.settimeout(LIMIT_S)
        assert "/usr/bin/no-such-program: No such file" in read_to_end(process)[1]


def test_what_floods_stderr_is_kept_to_its_last_words(daemon):
    source = (
        "import sys, threading\n"
        "threading.Thread(target=lambda: [sys.stderr.write('x' * 65536) for _ in iter(int, 1)],"
        " daemon=True).start()\n" + ECHO
    )
    with started(daemon, source) as process:
        process.stdio.sendall(b"hello\n")
        assert heard(process) == "hello"
        assert daemon.run("def main(p):\n    return 1").output == 1
        process.stdio.sendall(b"x\n")
        process.stdio.shutdown(1)
        assert len(read_to_end(process)[1]) <= KEPT_WORDS


def test_a_bomb_stops_at_its_limit_and_is_cleared_away(daemon):
    with started(daemon, BOMB, limits=Limits(processes=16)) as process:
        assert int(heard(process)) < 16
    until(lambda: servers(daemon) == 0)


def test_memory_beyond_its_limit_ends_it(daemon):
    if daemon.facts["cgroups"]["mode"] == "none":
        pytest.skip("nothing counts memory here")
    source = "held = [bytearray(1 << 20) for _ in range(512)]\nprint('kept', flush=True)"
    with started(daemon, source, limits=Limits(memory_bytes=64 * MIB)) as process:
        assert read_to_end(process)[0] == "it used more memory than it may"


@pytest.mark.part("generated")
def test_nothing_is_left_of_many_servers(own_daemon):
    daemon = own_daemon("--slots", "1")
    before = leaves(f"{GROUPS}-own")
    for _ in range(5):
        with started(daemon, ECHO) as process:
            process.stdio.sendall(b"x\n")
            assert heard(process) == "x"
    until(lambda: servers(daemon) == 0)
    until(lambda: len(leaves(f"{GROUPS}-own")) <= len(before))


@pytest.mark.part("generated")
def test_there_are_never_more_than_so_many(own_daemon):
    daemon = own_daemon("--servers", "2", "--servers-each", "1")
    with started(daemon, ECHO), started(daemon, ECHO, organization="other"):
        for organization in ("acme", "third"):
            with pytest.raises(RunRefused, match="too many servers"):
                start_server(daemon.path, None, spec(ECHO, organization=organization))
    until(lambda: servers(daemon) == 0)
    with started(daemon, ECHO) as process:
        process.stdio.sendall(b"x\n")
        assert heard(process) == "x"


@pytest.mark.part("sandbox")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_with_sandboxd_all_servers_end(own_daemon, number):
    daemon, marker = own_daemon(), uuid.uuid4().hex
    with started(daemon, FAMILY.format(marker)) as process:
        assert heard(process) == "ready"
        members = pidfds_of(marker)
        daemon.stop(number)
        assert len(members) == 3 and all_end(members)
        assert read_to_end(process)[1] == ""
    again = own_daemon()
    until(lambda: servers(again) == 0)


def test_with_the_process_that_asked_its_servers_end(daemon):
    marker = uuid.uuid4().hex
    near, far = os.pipe()
    worker = os.fork()
    if worker == 0:
        with started(daemon, FAMILY.format(marker)) as process:
            heard(process)
            os.write(far, b"x")
            signal.pause()
    assert select.select([near], [], [], LIMIT_S)[0]
    members = pidfds_of(marker)
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    assert members and all_end(members)
    os.close(near)
    os.close(far)


def test_without_a_broker_there_is_no_server_with_a_network(daemon):
    with pytest.raises(RunRefused) as refused:
        start_server(daemon.path, None, spec(ECHO, network=Network.PROXY))
    assert refused.value.code == ErrorCode.EGRESS_UNAVAILABLE


def test_a_directory_that_cannot_be_shown_is_a_refusal(daemon):
    mounts = (Mount("/no/such/place", "/shown"),)
    with pytest.raises(RunRefused) as refused:
        start_server(daemon.path, None, spec(ECHO, mounts=mounts))
    assert refused.value.code == ErrorCode.LAUNCH_FAILED
    until(lambda: servers(daemon) == 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"command": ()},
        {"command": ("relative",)},
        {"command": ("/a/../b",)},
        {"command": ("/a", "b\0c")},
        {"command": ("/a",) * 300},
        {"programs": ("/proc/1",)},
        {"programs": ("x",)},
        {"directory": "x"},
        {"environment": (("A", "b" * 300_000),)},
    ],
)
def test_what_no_server_can_be_is_refused_before_it_is_asked_for(wrong):
    with pytest.raises(SpecInvalid):
        ServerSpec("acme", **{"command": ("/bin/true",)} | wrong)


def test_two_of_them_do_not_wait_for_each_other(daemon):
    with started(daemon, ECHO) as one, started(daemon, ECHO) as other:
        for process in (other, one):
            process.stdio.sendall(b"x\n")
            assert heard(process) == "x"
