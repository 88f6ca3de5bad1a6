import base64
import hashlib
import itertools
import threading
from contextlib import closing, contextmanager
from functools import partial

import pytest
from django.db import connection

from sandbox.spec import Limits
from tests import factories
from tests.tools.shapes import check_error
from tools.accounts import account_actions
from tools.builtin.workspaces import workspace_lock
from tools.execution.perform import perform
from tools.models import Execution


def failed(execution, code):
    assert (execution.status, execution.error_code) == ("Failed", code), execution.error_message
    return True


def sha256(raw):
    return hashlib.sha256(raw).hexdigest()


def names(workspace):
    return sorted(path.name for path in workspace.iterdir())


def test_a_new_file_is_written_with_its_folders(call, workspace):
    done = call("write_file", path="a/b/c.txt", content="Grüße")
    assert (workspace / "a/b/c.txt").read_text() == "Grüße"
    assert done.output == {
        "path": "a/b/c.txt",
        "bytes_written": 7,
        "size": 7,
        "mode": "overwrite",
        "sha256": sha256("Grüße".encode()),
    }


def test_overwriting_replaces_the_whole_file_and_leaves_no_draft(call, workspace, put_file):
    put_file("a.txt", b"a much longer text")
    call("write_file", path="a.txt", content="short")
    assert (workspace / "a.txt").read_text() == "short"
    assert names(workspace) == ["a.txt"]


def test_appending_adds_to_the_end(call, workspace):
    for text in ("one\n", "two\n"):
        done = call("write_file", path="log", content=text, mode="append")
    assert (workspace / "log").read_text() == "one\ntwo\n"
    assert (done.output["bytes_written"], done.output["size"]) == (4, 8)


def test_creating_refuses_a_file_that_is_there(call, workspace):
    call("write_file", path="once", content="first", mode="create")
    assert failed(call("write_file", path="once", content="second", mode="create"), "FILE_EXISTS")
    assert (workspace / "once").read_text() == "first"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "ascii"])
def test_a_text_is_written_in_its_encoding(call, workspace, encoding):
    call("write_file", path="a", content="plain", encoding=encoding)
    assert (workspace / "a").read_bytes() == "plain".encode(encoding)


def test_base64_writes_any_bytes(call, workspace):
    raw = bytes(range(256))
    call("write_file", path="a", content=base64.b64encode(raw).decode(), encoding="base64")
    assert (workspace / "a").read_bytes() == raw


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"content": "ü", "encoding": "ascii"}, "ENCODING_MISMATCH"),
        ({"content": "not base64!", "encoding": "base64"}, "ENCODING_MISMATCH"),
        ({"content": "YQ", "encoding": "base64"}, "ENCODING_MISMATCH"),
        ({"content": "x" * (8 * 1024 * 1024 + 1)}, "FILE_TOO_LARGE"),
        ({"content": "x", "if_hash": sha256(b"")}, "FILE_CHANGED"),  # the file does not exist
    ],
    ids=["no ASCII", "no base64", "unpadded base64", "too large", "gone"],
)
def test_what_is_refused_writes_nothing(call, workspace, given, code):
    assert failed(call("write_file", path="a", **given), code)
    assert names(workspace) == []


@pytest.mark.parametrize("mode", ["overwrite", "append", "create"])
def test_a_name_of_255_bytes_is_written(call, workspace, mode):
    name = "漢" * 85
    assert call("write_file", path=name, content="x", mode=mode).status == "Success"
    assert names(workspace) == [name]


@pytest.mark.parametrize("mode", ["overwrite", "append", "create"])
def test_a_link_is_never_written_through(call, workspace, mode):
    target = workspace.parent / f"{workspace.name}-target"
    target.write_text("untouched")
    (workspace / "link").symlink_to(target)
    done = call("write_file", path="link", content="x", mode=mode)
    assert done.status == "Failed"
    assert target.read_text() == "untouched" and (workspace / "link").is_symlink()


def test_who_has_a_file_open_reads_on_what_it_was_before_more_was_appended(
    call, workspace, put_file
):
    put_file("log", b"one\n")
    with (workspace / "log").open() as reader:
        call("write_file", path="log", content="two\n", mode="append")
        assert reader.read() == "one\n"
    assert (workspace / "log").read_text() == "one\ntwo\n" and names(workspace) == ["log"]


@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_what_another_call_wrote_meanwhile_is_not_overwritten(call, workspace, put_file, mode):
    put_file("a", b"theirs")
    done = call("write_file", path="a", content="mine", mode=mode, if_hash=sha256(b"older"))
    assert failed(done, "FILE_CHANGED") and sha256(b"theirs") in done.error_message
    assert (workspace / "a").read_text() == "theirs"
    done = call(
        "write_file", path="a", content="mine", mode=mode, if_hash=sha256(b"theirs").upper()
    )
    assert done.output["sha256"] == sha256((workspace / "a").read_bytes())


def allowed(call, files, size):
    """Writes into a workspace with a quota of so many files and bytes."""
    return partial(call, "write_file", quota={"files": files, "bytes": size})


def test_a_workspace_holds_no_more_bytes_than_it_may(call, workspace, put_file):
    write = allowed(call, 10, 10)
    put_file("a", b"123456")
    done = write(path="b", content="12345")
    assert failed(done, "QUOTA_EXCEEDED") and "4 are left" in done.error_message
    assert write(path="b", content="1234").status == "Success"
    assert write(path="a", content="654321").status == "Success"
    assert failed(write(path="a", content="7", mode="append"), "QUOTA_EXCEEDED")
    assert (workspace / "a").read_text() == "654321"


@pytest.mark.parametrize("more", [{}, {"if_hash": "0" * 64}])
def test_folders_count_and_a_refused_write_makes_none(call, workspace, put_file, more):
    write = allowed(call, 3, 1000)
    put_file("a/b", b"1")
    done = write(path="c/d/e", content="2", **more)
    assert failed(done, "FILE_CHANGED" if more else "QUOTA_EXCEEDED") and names(workspace) == ["a"]
    assert write(path="a/c", content="2").status == "Success"


def test_a_workspace_holds_no_more_files_than_it_may(call, put_file):
    write = allowed(call, 3, 1000)
    put_file("a", b"1")
    put_file("below/b", b"2")
    assert failed(write(path="c", content="3"), "QUOTA_EXCEEDED")
    assert write(path="below/b", content="3").status == "Success"


# Through the sandbox, with the worker's part.


def test_a_file_is_written_in_the_sandbox(run, mounted):
    done = run("write_file", path="a/b/c.txt", content="Grüße")
    assert (mounted / "a/b/c.txt").read_text() == "Grüße"
    assert done.output["sha256"] == sha256("Grüße".encode())


def test_a_link_is_not_written_through_in_the_sandbox(run, mounted):
    target = mounted.parent / f"{mounted.name}-target"
    target.write_text("untouched")
    (mounted / "link").symlink_to(target)
    assert failed(run("write_file", path="link", content="x"), "PATH_INVALID")
    assert target.read_text() == "untouched" and (mounted / "link").is_symlink()


def test_a_workspace_holds_no_more_than_its_organization_may(run, organization, files):
    account_actions.set_workspace_quota(
        organization=organization, by=factories.actor(organization),
        workspace_max_files=10, workspace_max_bytes=10,
    )  # fmt: skip
    files("a", b"123456")
    done = run("write_file", path="b", content="12345")
    assert failed(done, "QUOTA_EXCEEDED") and "4 are left" in done.error_message
    assert run("write_file", path="b", content="1234").status == "Success"


@contextmanager
def written_one_after_the_other(agent, asked):
    """While a thread performs each call as soon as it is accepted: a call that waited longer would
    be claimed by the crib's worker, which runs beside the tests."""
    statuses = []

    def write():
        with closing(connection):
            for parameters in asked:
                call = factories.execution(agent, "write_file", group=["write"], **parameters)
                perform(call.pk)
                statuses.append(Execution.objects.get(pk=call.pk).status)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield writer.is_alive, statuses
    finally:
        writer.join()


@pytest.mark.part("calls")
@pytest.mark.usefixtures("committed")
def test_a_reader_sees_the_old_file_or_the_new_one_and_never_half(agent, mounted, files):
    texts = {letter * 500_000 for letter in "ab"}
    files("shared", b"a" * 500_000)
    asked = [{"path": "shared", "content": text} for text in [*texts] * 5]
    with written_one_after_the_other(agent, asked) as (busy, statuses):
        while busy():
            assert (mounted / "shared").read_text() in texts
    assert statuses == ["Success"] * len(asked)


@pytest.mark.part("generated")
@pytest.mark.usefixtures("committed")
def test_a_new_file_is_there_only_with_all_that_is_in_it(agent, mounted):
    size, seen = 8_000_000, set()
    names_of = [f"new-{number}" for number in range(4)]
    asked = [
        {"path": name, "content": "x" * size, "mode": mode}
        for name, mode in zip(names_of, itertools.cycle(["create", "append"]))
    ]
    with written_one_after_the_other(agent, asked) as (busy, statuses):
        while busy():
            seen |= {file.stat().st_size for name in names_of if (file := mounted / name).exists()}
    assert statuses == ["Success"] * len(asked)
    assert seen == {size} and names(mounted) == names_of


def test_what_cannot_be_appended_whole_is_not_appended_in_part(run, mounted, files):
    size = Limits().tmp_bytes - 1000  # slightly less than the largest file that a run may write
    files("log", b"x" * size)
    done = run("write_file", path="log", content="y" * 5000, mode="append")
    assert failed(done, "FILE_TOO_LARGE")
    assert (mounted / "log").stat().st_size == size and names(mounted) == ["log"]


def test_a_reader_may_not_write(agent, organization, mounted):
    reader = factories.agent(organization, groups=["read-only"])
    response = factories.api(reader).execute(
        "write_file", {"path": "a", "content": "x"}, group=["read-only"]
    )
    assert response.status_code == 403
    assert names(mounted) == []


@pytest.mark.usefixtures("committed")
def test_of_two_writers_that_read_the_same_one_writes(agent, mounted, files):
    files("a", b"read by both")
    expected = sha256(b"read by both")
    calls = [
        factories.execution(
            agent, "write_file", group=["write"], path="a", content=text, if_hash=expected
        )
        for text in ("first", "second")
    ]
    threads = [threading.Thread(target=perform, args=(call.pk,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ends = sorted(Execution.objects.get(pk=call.pk).error_code or "" for call in calls)
    assert ends == ["", "FILE_CHANGED"]


def test_no_caller_sets_the_quota(organization, agent, mounted):
    writer = factories.api(agent)
    answer = writer.execute(
        "write_file", {"path": "a", "content": "x", "quota": {"files": 9, "bytes": 9}},
        group=["write"],
    )  # fmt: skip
    check_error(answer, 400, "invalid_parameters")


@pytest.mark.part("calls")
def test_a_locked_workspace_is_busy_and_not_forever(run, mounted):
    with workspace_lock(mounted.name, 1, lambda: False):
        assert failed(run("write_file", path="a", content="x", timeout_s=1), "WORKSPACE_BUSY")
    assert run("write_file", path="a", content="x").status == "Success"
