import base64
import threading

import pytest

from tests import factories
from tools.execution.pipeline import perform
from tools.models import Execution


def failed(execution, code):
    assert (execution.status, execution.error_code) == ("Failed", code), execution.error_message
    return True


def names(workspace):
    return sorted(path.name for path in workspace.iterdir())


def test_a_new_file_is_written_with_its_folders(run, workspace):
    done = run("write_file", path="a/b/c.txt", content="Grüße")
    assert (workspace / "a/b/c.txt").read_text() == "Grüße"
    assert done.output == {"path": "a/b/c.txt", "bytes_written": 7, "size": 7, "mode": "overwrite"}


def test_overwriting_replaces_the_whole_file_and_leaves_no_draft(run, workspace, files):
    files("a.txt", b"a much longer text")
    run("write_file", path="a.txt", content="short")
    assert (workspace / "a.txt").read_text() == "short"
    assert names(workspace) == ["a.txt"]


def test_appending_adds_to_the_end(run, workspace):
    for text in ("one\n", "two\n"):
        done = run("write_file", path="log", content=text, mode="append")
    assert (workspace / "log").read_text() == "one\ntwo\n"
    assert (done.output["bytes_written"], done.output["size"]) == (4, 8)


def test_creating_refuses_a_file_that_is_there(run, workspace):
    run("write_file", path="once", content="first", mode="create")
    assert failed(run("write_file", path="once", content="second", mode="create"), "FILE_EXISTS")
    assert (workspace / "once").read_text() == "first"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "ascii"])
def test_a_text_is_written_in_its_encoding(run, workspace, encoding):
    run("write_file", path="a", content="plain", encoding=encoding)
    assert (workspace / "a").read_bytes() == "plain".encode(encoding)


def test_base64_writes_any_bytes(run, workspace):
    raw = bytes(range(256))
    run("write_file", path="a", content=base64.b64encode(raw).decode(), encoding="base64")
    assert (workspace / "a").read_bytes() == raw


@pytest.mark.parametrize(
    ("content", "encoding"), [("ü", "ascii"), ("not base64!", "base64"), ("YQ", "base64")]
)
def test_content_that_does_not_fit_its_encoding_writes_nothing(run, workspace, content, encoding):
    assert failed(
        run("write_file", path="a", content=content, encoding=encoding), "ENCODING_MISMATCH"
    )
    assert names(workspace) == []


def test_content_that_is_too_large_writes_nothing(run, workspace):
    done = run("write_file", path="a", content="x" * (8 * 1024 * 1024 + 1))
    assert failed(done, "FILE_TOO_LARGE")
    assert names(workspace) == []


@pytest.mark.parametrize("mode", ["overwrite", "append", "create"])
def test_a_name_of_255_bytes_is_written(run, workspace, mode):
    name = "漢" * 85
    assert run("write_file", path=name, content="x", mode=mode).status == "Success"
    assert names(workspace) == [name]


@pytest.mark.parametrize("mode", ["overwrite", "append", "create"])
def test_a_link_is_never_written_through(run, workspace, mode):
    target = workspace.parent / f"{workspace.name}-target"
    target.write_text("untouched")
    (workspace / "link").symlink_to(target)
    done = run("write_file", path="link", content="x", mode=mode)
    assert done.status == "Failed"
    assert target.read_text() == "untouched" and (workspace / "link").is_symlink()


def test_a_reader_sees_the_old_file_or_the_new_one_and_never_half(agent, workspace, files):
    texts = {letter * 500_000 for letter in "ab"}
    files("shared", b"a" * 500_000)
    calls = [
        factories.execution(agent, "write_file", group=["write"], path="shared", content=text)
        for text in [*texts] * 5
    ]
    writer = threading.Thread(target=lambda: [perform(call.pk) for call in calls])
    writer.start()
    while writer.is_alive():
        assert (workspace / "shared").read_text() in texts
    writer.join()
    assert {Execution.objects.get(pk=call.pk).status for call in calls} == {"Success"}


def test_a_reader_may_not_write(agent, organization, workspace):
    reader = factories.agent(organization, groups=["read-only"])
    response = factories.api(reader).execute(
        "write_file", {"path": "a", "content": "x"}, group=["read-only"]
    )
    assert response.status_code == 403
    assert names(workspace) == []
