"""Nothing passes from one run to another."""

import os
import threading

import pytest

from sandbox.spec import IsolationLevel, Mount, Profile
from tests.sandbox.run_observer import arrange

WAIT = "import os\ndef main(p):\n    {look}\n    open('/meet/fifo', 'w').write('here')\n"
WAIT += "    open('/meet/back').read()\n    return found"
KINDS = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
NAMESPACES = f"found = {{n: os.readlink(f'/proc/self/ns/{{n}}') for n in {KINDS}}}"


@pytest.mark.parametrize(
    ("source", "fresh"),
    [
        (
            "import json\ndef main(p):\n    seen = getattr(json, 'seen', 0)\n"
            "    json.seen = seen + 1\n    return seen",
            0,
        ),
        (
            "import os\ndef main(p):\n    seen = os.listdir('/tmp') + os.listdir('/dev/shm')\n"
            "    open('/tmp/left', 'w').write('secret')\n    return seen",
            [],
        ),
    ],
    ids=["state of a module", "files"],
)
def test_what_a_run_leaves_is_not_seen_by_the_next(run, source, fresh):
    assert [run(source).output for _ in range(8)] == [fresh] * 8


def test_two_runs_at_one_time_share_no_namespace(run, daemon, tmp_path):
    meeting = arrange(tmp_path)
    os.mkfifo(tmp_path / "back")
    (tmp_path / "back").chmod(0o666)
    first: list[dict[str, str]] = []
    source = WAIT.format(look=NAMESPACES)
    thread = threading.Thread(
        target=lambda: first.append(daemon.run(source, profile=meeting.profile).output)
    )
    thread.start()
    assert meeting.hear() == "here"
    look = f"import os\ndef main(p):\n    {NAMESPACES}\n    return found"
    second = daemon.run(look, profile=meeting.profile).output
    (tmp_path / "back").write_text("go")
    thread.join()
    for kind in KINDS:
        host = os.readlink(f"/proc/self/ns/{kind}")
        assert len({first[0][kind], second[kind], host}) == 3, kind


def test_a_run_sees_no_process_of_another_run(daemon, tmp_path):
    meeting = arrange(tmp_path)
    os.mkfifo(tmp_path / "back")
    (tmp_path / "back").chmod(0o666)
    source = WAIT.format(look="found = 1")
    thread = threading.Thread(target=lambda: daemon.run(source, profile=meeting.profile))
    thread.start()
    meeting.hear()
    look = "import os\ndef main(p):\n    return [n for n in os.listdir('/proc') if n.isdigit()]"
    seen = daemon.run(look, profile=meeting.profile).output
    (tmp_path / "back").write_text("go")
    thread.join()
    assert seen == ["1"]


def test_organizations_never_share_a_template(daemon):
    """The root of a template is a file system of its own, and its slots inherit it."""
    source = "import os\ndef main(p):\n    return os.stat('/').st_dev"
    roots = [daemon.run(source, organization=name).output for name in ("acme", "umbrella", "acme")]
    assert roots[0] == roots[2] != roots[1]


def test_profiles_never_share_a_template(daemon, tmp_path):
    source = "import os\ndef main(p):\n    return os.stat('/').st_dev"
    mounted = arrange(tmp_path).profile
    assert daemon.run(source).output != daemon.run(source, profile=mounted).output


def test_random_numbers_differ_between_runs(run):
    source = "import random, uuid, secrets\ndef main(p):\n"
    source += "    return [random.random(), str(uuid.uuid4()), secrets.token_hex()]"
    outputs = [run(source).output for _ in range(4)]
    assert all(len({one[n] for one in outputs}) == 4 for n in range(3))


def test_writable_mounts_are_written_and_read_only_ones_are_not(daemon, tmp_path):
    arrange(tmp_path)
    (tmp_path / "in").mkdir()
    mounts = (Mount(str(tmp_path), "/work", True), Mount(str(tmp_path / "in"), "/given"))
    profile = Profile(IsolationLevel.STANDARD, mounts)
    source = "def main(p):\n    open(p['path'], 'w').write('kept')"
    assert daemon.run(source, {"path": "/work/new"}, profile=profile).error_code is None
    assert (tmp_path / "new").read_text() == "kept"
    assert "OSError" in daemon.run(source, {"path": "/given/x"}, profile=profile).error_message
