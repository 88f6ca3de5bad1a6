"""What a profile names on the host: opened without a link, mounted without programs."""

import json
import os
import shutil
import stat
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.daemon.runs.profile_paths import (
    Sources,
    flaw_of,
    open_mounts,
    open_plainly,
    sources_of,
    unchanged,
)
from sandbox.daemon.runs.template_process import close_all
from sandbox.spec import Backend, IsolationLevel, Mount, Profile, RunOutcome, SandboxResult
from tests.sandbox.run_observer import arrange


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
    assert (result.outcome, result.error_code) == (RunOutcome.SANDBOX_ERROR, "LAUNCH_FAILED")
    assert "symbolic link" in result.error_message


@pytest.fixture(params=[Backend.PROCESS, Backend.DEGRADED])
def read(request, run, tmp_path) -> Callable[[], SandboxResult]:
    """What a run finds in `place`, or in the file `name` below it."""
    source = """
import os
from toolcrib import place
def main(p):
    given = place("/shared")
    return open(given + "/name" if os.path.isdir(given) else given).read()
"""
    given = replace(profile(tmp_path / "place", writable=False), backend=request.param)
    return lambda: run(source, profile=given)


def filled(directory: Path, text: str) -> Path:
    directory.mkdir()
    (directory / "name").write_text(text)
    return directory


def test_a_directory_that_was_made_again_is_the_one_that_the_next_run_has(read, tmp_path):
    place = filled(tmp_path / "place", "first")
    assert read().output == "first"
    shutil.rmtree(place)
    filled(place, "second")
    assert read().output == "second"


def test_a_directory_that_is_exchanged_is_the_one_that_the_next_run_has(read, tmp_path):
    place = filled(tmp_path / "place", "first")
    assert read().output == "first"
    place.rename(tmp_path / "moved")
    filled(tmp_path / "other", "second").rename(place)
    assert read().output == "second"


def test_a_file_that_was_saved_by_renaming_is_the_one_that_the_next_run_has(read, tmp_path):
    place = tmp_path / "place"
    for text in ("first", "second", "third"):
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(place)
        assert read().output == text


def test_a_path_that_vanished_is_named_and_works_when_it_is_back(read, tmp_path):
    place = filled(tmp_path / "place", "first")
    assert read().output == "first"
    shutil.rmtree(place)
    for _ in range(2):
        result = read()
        assert (result.outcome, result.error_code) == (RunOutcome.SANDBOX_ERROR, "LAUNCH_FAILED")
        assert result.error_message == "/shared cannot be mounted: there is no such path"
    filled(place, "second")
    assert read().output == "second"


def test_a_path_that_came_later_works_from_then_on(read, tmp_path):
    assert "there is no such path" in read().error_message
    filled(tmp_path / "place", "late")
    assert read().output == "late"


@pytest.mark.parametrize("at", ["place", "."], ids=["the path itself", "a directory above it"])
def test_a_link_in_place_of_a_mounted_path_opens_nothing(read, tmp_path, at):
    """Also not where the link leads to what was mounted: a first run would refuse it as well."""
    filled(tmp_path / "place", "mounted")
    filled(tmp_path / "secret", "secret")
    assert read().output == "mounted"
    moved = (tmp_path / at).resolve()
    target = moved.with_name(f"{moved.name}-moved")
    moved.rename(target)
    moved.symlink_to(tmp_path / "secret" if at == "place" else target)
    result = read()
    assert (result.output, result.error_code) == (None, "LAUNCH_FAILED")
    assert "symbolic link" in result.error_message
    moved.unlink()
    target.rename(moved)
    assert read().output == "mounted"


def test_a_link_that_was_there_for_a_moment_opens_nothing(read, run, tmp_path):
    """The slots of the next runs were made meanwhile."""
    place, secret = filled(tmp_path / "place", "mounted"), filled(tmp_path / "secret", "secret")
    assert read().output == "mounted"
    place.rename(tmp_path / "moved")
    place.symlink_to(secret)
    for _ in range(4):
        read()
    place.unlink()
    (tmp_path / "moved").rename(place)
    taken = replace(profile(place, writable=False), backend=Backend.DEGRADED)
    source = "def main(p):\n    return open(p['path']).read()"
    for _ in range(4):
        result = run(source, {"path": f"{secret}/name"}, profile=taken)
        assert result.output is None and "Permission denied" in result.error_message
    assert read().output == "mounted"


def test_a_file_system_that_was_mounted_there_later_is_the_one_that_the_next_run_has(
    own_daemon, mounted_below
):
    """As on most machines, where a mount is seen in all namespaces that follow the first."""
    subprocess.run(["mount", "--make-shared", mounted_below], check=True)
    place, other = (
        filled(mounted_below / "place", "below"),
        filled(mounted_below / "other", "above"),
    )
    daemon, given = own_daemon("--allow-degraded"), profile(place, writable=False)
    source = "def main(p):\n    return open('/shared/name').read()"
    assert daemon.run(source, profile=given).output == "below"
    subprocess.run(["mount", "--bind", other, place], check=True)
    try:
        assert daemon.run(source, profile=given).output == "above"
    finally:
        subprocess.run(["umount", "-l", place], check=True)
    assert daemon.run(source, profile=given).output == "below"


def test_what_a_path_leads_to_is_another_thing_by_another_mount(tmp_path):
    place = filled(tmp_path / "place", "the same")
    known = found_by(place)
    assert unchanged(known) and found_by(place) == known
    subprocess.run(["mount", "--bind", place, place], check=True)
    try:
        assert not unchanged(known)
        assert found_by(place)[0][1][:2] == known[0][1][:2]
    finally:
        subprocess.run(["umount", "-l", place], check=True)
    assert unchanged(known)


def found_by(place: Path) -> Sources:
    opened = open_mounts(profile(place))
    try:
        return sources_of(profile(place), opened)
    finally:
        close_all(opened)


def test_a_run_that_has_begun_keeps_the_directory_that_it_began_with(daemon, tmp_path):
    meeting = arrange(tmp_path)
    os.mkfifo(tmp_path / "back")
    (tmp_path / "back").chmod(0o666)
    (place := filled(tmp_path / "place", "first")).chmod(0o755)
    source = """
def main(p):
    open('/meet/fifo', 'w').write('here')
    open('/meet/back').read()
    return open('/shared/name').read()
"""
    given = replace(
        meeting.profile, mounts=(*meeting.profile.mounts, *profile(place, writable=False).mounts)
    )
    results: list[SandboxResult] = []
    thread = threading.Thread(target=lambda: results.append(daemon.run(source, profile=given)))
    thread.start()
    assert meeting.hear(results) == "here"
    place.rename(tmp_path / "moved")
    filled(place, "second")
    look = "def main(p):\n    return open('/shared/name').read()"
    assert daemon.run(look, profile=given).output == "second"
    (tmp_path / "back").write_text("go")
    thread.join()
    assert results[0].output == "first"


def test_a_path_that_stays_what_it_is_costs_no_new_template(own_daemon, tmp_path):
    one = own_daemon("--allow-degraded")
    given = profile(filled(tmp_path / "place", "text"), writable=False)
    for _ in range(3):
        assert one.run("def main(p):\n    return 1", profile=given).output == 1
        (tmp_path / "place" / "name").write_text("other words")
    started = [json.loads(line) for line in one.log if "template_started" in line]
    assert [fact["organization"] for fact in started].count("acme") == 1


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


def test_a_directory_of_its_own_is_made_and_no_other(tmp_path):
    wanted = Mount(str(tmp_path / "new"), "/there", writable=True, make=True)
    assert flaw_of(Mount(str(tmp_path / "new"), "/there")) is not None
    assert flaw_of(wanted) is None and (tmp_path / "new").is_dir()
    assert flaw_of(wanted) is None
    (tmp_path / "link").symlink_to(tmp_path / "new")
    assert flaw_of(Mount(str(tmp_path / "link" / "below"), "/there", make=True)) is not None
    assert not any((tmp_path / "new").iterdir())
