"""What a run may leave in a path that it shares with this machine: held while it writes."""

import os
import threading

import pytest

from sandbox.daemon.limits.quotas import Room, look_through
from sandbox.spec import MIB, IsolationLevel, Mount, Profile

LEVELS = (IsolationLevel.NONE, IsolationLevel.STANDARD)
HEAD = """
import os
from toolcrib import place as where
def place(name):
    return os.path.join(where("/shared"), name)
"""
WRITES = HEAD + (
    "def main(p):\n"
    "    for number in range(p['files']):\n"
    "        with open(place(p['name'] + str(number)), 'wb') as file:\n"
    "            file.write(bytes(p['bytes']))\n"
    "    return 'written'\n"
)
CLEARS = HEAD + (
    "def main(p):\n"
    "    print('there is much')\n"
    "    names = os.listdir(place(''))\n"
    "    [os.unlink(place(name)) for name in names]\n"
    "    return len(names)\n"
)
HIDES = HEAD + (
    "def main(p):\n"
    "    held = []\n"
    "    for number in range(8):\n"
    "        held.append(open(place('x'), 'wb', buffering=0))\n"
    "        os.unlink(place('x'))\n"
    "        held[-1].write(bytes(1 << 20))\n"
    "    return 'hidden'\n"
)
REWRITES = HEAD + (
    "def main(p):\n"
    "    for _ in range(32):\n"
    "        with open(place('same'), 'wb') as file:\n"
    "            file.write(bytes(1 << 20))\n"
    "    return 'rewritten'\n"
)
MAPS = HEAD + (
    "import mmap\n"
    "def main(p):\n"
    "    for number in range(8):\n"
    "        with open(place(str(number)), 'w+b') as file:\n"
    "            file.truncate(1 << 20)\n"
    "            with mmap.mmap(file.fileno(), 1 << 20) as memory:\n"
    "                memory[:] = bytes(1 << 20)\n"
    "    return 'mapped'\n"
)


@pytest.fixture
def shared(tmp_path):
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o777)
    return place


@pytest.fixture
def run(daemon, shared):
    """A run that may write there, with a quota of 4 MiB and 64 files."""

    def run(source, level=IsolationLevel.STANDARD, parameters=None, **limits):
        profile = Profile(level, (Mount(str(shared), "/shared", True),))
        quota = {"shared_bytes": 4 * MIB, "shared_files": 64, **limits}
        return daemon.run(source, parameters, profile=profile, **quota)

    return run


def room(place):
    return look_through(str(place), Room(1 << 40, 1 << 40))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("files", "size"), [(12, MIB), (200, 0), (200, 65536)])
def test_a_run_that_would_go_over_the_quota_is_ended_before_it_does(
    run, shared, level, files, size
):
    result = run(WRITES, level, {"files": files, "bytes": size, "name": "a"})
    assert result.error_code == "QUOTA_LIMIT", result
    assert room(shared).fits_in(Room(4 * MIB, 64))


def test_runs_one_after_the_other_have_one_quota(run, shared):
    """None of the four goes over it by itself."""
    ends = [
        run(WRITES, parameters={"files": 2, "bytes": MIB * 7 // 10, "name": name}).error_code
        for name in "abcd"
    ]
    assert ends[:2] == [None, None] and ends[3] is not None
    assert room(shared).fits_in(Room(4 * MIB, 64))


def test_runs_at_the_same_time_have_one_quota(run, shared):
    """A call of each of the three others may be under way, and not yet seen, when one looks."""
    ends = []
    runs = [
        threading.Thread(
            target=lambda n=name: ends.append(
                run(WRITES, parameters={"files": 3, "bytes": MIB, "name": n}).error_code
            )
        )
        for name in "abcd"
    ]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    assert any(ends) and room(shared).fits_in(Room((4 + 3) * MIB, 64))


@pytest.mark.parametrize("level", LEVELS)
def test_where_there_is_too_much_a_run_may_read_speak_and_take_away(run, shared, level):
    for number in range(6):
        (shared / f"{number}").write_bytes(bytes(MIB))
        os.chmod(shared / f"{number}", 0o666)
    refused = run(WRITES, level, {"files": 1, "bytes": 1, "name": "0"})
    assert refused.error_code == "QUOTA_LIMIT"
    cleared = run(CLEARS, level)
    assert (cleared.output, cleared.stdout.strip()) == (6, "there is much")
    again = run(WRITES, level, {"files": 1, "bytes": MIB, "name": "new"})
    assert again.output == "written"


def test_files_without_a_name_count(run):
    assert run(HIDES).error_code == "QUOTA_LIMIT"


def test_what_is_written_over_counts_once(run):
    assert run(REWRITES).output == "rewritten"


def test_a_file_that_is_written_through_memory_counts(run, shared):
    assert run(MAPS).error_code == "QUOTA_LIMIT"
    assert room(shared).fits_in(Room(4 * MIB, 64))


def test_words_that_are_no_file_use_up_no_quota(run):
    talks = "def main(p):\n    for _ in range(600): print('x' * 9999)\n    return 1"
    assert run(talks).output == 1


def test_a_program_that_is_started_counts_like_its_run(run, shared):
    fills = HEAD + (
        "import subprocess\n"
        "def main(p):\n"
        "    return subprocess.call(['/bin/dd', 'if=/dev/zero', 'of=' + place('x'),"
        " 'bs=1M', 'count=12'])\n"
    )
    assert run(fills).error_code == "QUOTA_LIMIT"
    assert room(shared).fits_in(Room(4 * MIB, 64))


def test_a_tree_is_looked_through_and_a_file_with_two_names_counts_once(tmp_path):
    deep = tmp_path
    for _ in range(40):
        deep = deep / "d"
        deep.mkdir()
    (deep / "file").write_bytes(bytes(MIB))
    os.link(deep / "file", tmp_path / "again")
    found = room(tmp_path)
    assert found.files == 42 and MIB <= found.bytes < 2 * MIB


def test_a_path_that_is_gone_holds_nothing(tmp_path):
    assert room(tmp_path / "none") == Room(0, 0)
