import os
import shutil
from pathlib import Path

import pytest

from sandbox.daemon.runs import scratch


@pytest.fixture
def root(tmp_path) -> Path:
    return Path(scratch.make_root(str(tmp_path / "scratch")))


def remove(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    scratch.remove(descriptor)
    os.close(descriptor)


def deepen(place: Path, depth: int) -> None:
    """Deeper than any path name can say."""
    before = os.open(".", os.O_RDONLY)
    os.chdir(place)
    for _ in range(depth):
        os.mkdir("d")
        os.chdir("d")
    os.fchdir(before)
    os.close(before)


@pytest.mark.part("generated")
def test_a_tree_of_any_depth_is_removed(root):
    (root / "run").mkdir()
    deepen(root / "run", 5000)
    remove(root / "run")
    assert os.listdir(root) == []


@pytest.mark.part("generated")
def test_a_tree_of_any_width_is_removed(root):
    (root / "run").mkdir()
    for number in range(3000):
        (root / "run" / f"{number}").mkdir()
        (root / "run" / f"{number}" / "file").touch()
    remove(root / "run")
    assert os.listdir(root) == []


def test_what_links_lead_to_stays(root, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (root / "run").mkdir()
    (root / "run" / "link").symlink_to(tmp_path / "precious")
    remove(root / "run")
    assert (tmp_path / "precious" / "file").exists()


def test_directories_closed_to_their_owner_and_clashing_names_are_removed(root):
    for name in (".moved-0", ".moved-1"):
        (root / "run" / name / "deep" / "deeper").mkdir(parents=True)
        (root / "run" / name / "deep").chmod(0)
    remove(root / "run")
    assert os.listdir(root) == []


def test_what_an_earlier_sandboxd_left_is_removed_at_the_start(root):
    (root / "run" / "x").mkdir(parents=True)
    scratch.make_root(str(root))
    assert os.listdir(root) == []


def test_a_root_of_another_user_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(PermissionError):
        scratch.make_root(str(tmp_path / "link"))


@pytest.mark.parametrize("step", ["chmod", "rename", "unlink"])
def test_what_a_run_removes_meanwhile_is_not_missed(root, monkeypatch, step):
    (root / "runs" / "one" / "below").mkdir(parents=True)
    (root / "file").touch()
    real, done = getattr(os, step), []

    def late(*arguments, **options):
        if not done:
            done.append(step)
            shutil.rmtree(root / "runs")
            (root / "file").unlink(missing_ok=True)
        return real(*arguments, **options)

    monkeypatch.setattr(os, step, late)
    scratch.make_root(str(root))
    assert done and os.listdir(root) == []


def test_who_is_stopped_leaves_the_rest_to_the_end(root, capfd):
    for number in range(3):
        (root / "run" / str(number)).mkdir(parents=True)
    answers = iter([False, True, True])
    directory = os.open(root / "run", os.O_RDONLY)
    scratch.remove(directory, lambda: next(answers))
    os.close(directory)
    assert len(list((root / "run").iterdir())) == 2
    scratch.clear(str(root), whole=True)
    assert not root.exists() and not capfd.readouterr().err


@pytest.mark.parametrize("whole", [True, False])
def test_at_the_end_it_is_cleared_and_removed_where_it_is_ours(root, whole):
    (root / "run").mkdir()
    scratch.clear(str(root), whole=whole)
    assert root.exists() != whole and (whole or not list(root.iterdir()))


def test_what_cannot_be_cleared_at_the_end_is_logged_and_stops_nothing(tmp_path, capfd):
    (tmp_path / "file").write_text("somebody's")
    scratch.clear(str(tmp_path / "file"), whole=True)
    assert "scratch_left_behind" in capfd.readouterr().err


def test_what_is_put_there_meanwhile_is_cleared_with_the_next_try(root, monkeypatch):
    late = [root / "late"]
    removed = os.rmdir

    def with_a_run(path, **where):
        if late and path == str(root):
            late.pop().mkdir()
        removed(path, **where)

    monkeypatch.setattr(scratch.os, "rmdir", with_a_run)
    scratch.clear(str(root), whole=True)
    assert not root.exists()
