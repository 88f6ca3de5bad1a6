"""What a profile names on the host: opened without a link, mounted without programs."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from sandbox.daemon.paths import flaw_of, open_plainly
from sandbox.spec import IsolationLevel, Mount, Outcome, Profile


def profile(place: Path, *, writable: bool = True) -> Profile:
    return Profile(IsolationLevel.STANDARD, (Mount(str(place), "/shared", writable),))


@pytest.mark.parametrize("below", ["link", "link/below", "directory/../link"])
def test_a_path_through_a_link_is_refused(tmp_path, below):
    (tmp_path / "directory" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to("directory")
    with pytest.raises(OSError, match="symbolic links"):
        open_plainly(f"{tmp_path}/{below}")


def test_a_magic_link_is_refused():
    with pytest.raises(OSError, match="symbolic links"):
        open_plainly("/proc/self/cwd")


@pytest.mark.parametrize(
    ("make", "flaw"),
    [
        (lambda place: None, "there is no such path"),
        (os.mkfifo, "neither a file nor a directory"),
        (lambda place: place.symlink_to("/"), "symbolic link"),
    ],
)
def test_what_cannot_be_mounted_is_said(tmp_path, make, flaw):
    place = tmp_path / "place"
    make(place)
    assert flaw in (flaw_of(Mount(str(place), "/p")) or "")


def test_sandboxd_says_what_its_user_cannot_reach(daemon, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    mounts = [Mount(str(tmp_path), "/a", True), Mount(str(closed), "/b")]
    flaws = daemon.client.examine(mounts)
    assert flaws == {str(closed): "the sandbox's user may not read it"}


def test_a_run_whose_path_is_a_link_by_now_is_not_started(run, tmp_path):
    (tmp_path / "place").symlink_to("/etc")
    result = run("def main(p): pass", profile=profile(tmp_path / "place"))
    assert (result.outcome, result.error_code) == (Outcome.SANDBOX_ERROR, "LAUNCH_FAILED")
    assert "symbolic link" in result.error_message


def test_a_directory_that_is_exchanged_after_it_was_opened_changes_nothing(run, tmp_path):
    place, other = tmp_path / "place", tmp_path / "other"
    for one in (place, other):
        one.mkdir()
        (one / "name").write_text(one.name)
    read = "def main(p):\n    return open('/shared/name').read()"
    assert run(read, profile=profile(place, writable=False)).output == "place"
    place.rename(tmp_path / "moved")
    other.rename(place)
    assert run(read, profile=profile(place, writable=False)).output == "place"


def test_a_file_can_be_shared_by_itself(run, tmp_path):
    (tmp_path / "one").write_text("text")
    mounted = Profile(IsolationLevel.STRICT, (Mount(f"{tmp_path}/one", "/given/one"),))
    source = "def main(p):\n    return open('/given/one').read()"
    assert run(source, profile=mounted).output == "text"


@pytest.fixture
def mounted_below(tmp_path) -> Path:
    """A file system of its own below the shared directory, as a container's volumes are."""
    below = tmp_path / "below"
    below.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=777", "none", below], check=True)
    yield below
    subprocess.run(["umount", "-l", below], check=True)


def test_what_is_mounted_below_a_read_only_path_is_read_only_too(run, tmp_path, mounted_below):
    source = "def main(p):\n    open('/shared/below/x', 'w')"
    result = run(source, profile=profile(tmp_path, writable=False))
    assert "Read-only file system" in result.error_message


@pytest.mark.parametrize("place", ["/shared", "/shared/below"])
def test_no_program_can_be_run_from_a_writable_path(run, tmp_path, mounted_below, place):
    source = """
import shutil, subprocess
def main(p):
    shutil.copy("/usr/bin/env", p["place"] + "/env")
    subprocess.run([p["place"] + "/env"])
"""
    result = run(source, {"place": place}, profile=profile(tmp_path))
    assert "Permission denied" in result.error_message


def test_what_is_mounted_on_the_host_later_does_not_appear(run, tmp_path):
    (tmp_path / "later").mkdir()
    source = "import os\ndef main(p):\n    return os.listdir('/shared/later')"
    assert run(source, profile=profile(tmp_path)).output == []
    subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path / "later"], check=True)
    try:
        (tmp_path / "later" / "secret").touch()
        assert run(source, profile=profile(tmp_path)).output == []
    finally:
        subprocess.run(["umount", "-l", tmp_path / "later"], check=True)


def test_no_set_id_bit_is_left_in_a_writable_path(run, tmp_path):
    source = """
import os
def main(p):
    open("/shared/x", "w").close()
    tried = []
    for change in (
        lambda: os.chmod("/shared/x", 0o6755),
        lambda: os.open("/shared/y", os.O_CREAT, 0o4755),
        lambda: os.mkdir("/shared/z", 0o2755),
    ):
        try: change()
        except PermissionError: tried.append("refused")
    return len(tried)
"""
    assert run(source, profile=profile(tmp_path)).output == 3
    assert not any(one.stat().st_mode & (stat.S_ISUID | stat.S_ISGID) for one in tmp_path.iterdir())
