import base64
import os

import pytest

CANARY = "c4nary-outside-the-workspace"
TEXT = "Grüße, 漢字 🙂\n"


def failed(execution, *codes):
    assert execution.status == "Failed", (execution.status, execution.output)
    assert execution.error_code in codes, (execution.error_code, execution.error_message)
    assert CANARY not in str([execution.output, execution.observation, execution.error_message])
    return True


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_text_is_read_in_its_encoding(run, files, encoding):
    raw = TEXT.encode(encoding)
    files("a.txt", raw)
    done = run("read_file", path="a.txt", encoding=encoding)
    assert done.output == {"content": TEXT, "size": len(raw), "encoding": encoding}


def test_ascii_is_read_as_ascii(run, files):
    files("a.txt", b"plain")
    assert run("read_file", path="a.txt", encoding="ascii").output["content"] == "plain"


def test_bytes_that_are_no_text_are_read_as_base64(run, files):
    raw = bytes(range(256))
    files("a.bin", raw)
    output = run("read_file", path="a.bin", encoding="base64").output
    assert (base64.b64decode(output["content"]), output["size"]) == (raw, 256)


@pytest.mark.parametrize(
    ("raw", "encoding"),
    [
        (b"\xff\xfe\xff", "utf-8"),
        (TEXT.encode(), "ascii"),
        (b"a\x00b", "utf-8"),
        (b"abc", "utf-16"),
    ],
)
def test_the_wrong_encoding_says_so(run, files, raw, encoding):
    files("a", raw)
    assert failed(run("read_file", path="a", encoding=encoding), "ENCODING_MISMATCH")


@pytest.mark.parametrize("path", ["a/b/c.txt", "./a/b/c.txt", "a//b/./c.txt", "a/b/c.txt/"])
def test_a_file_in_folders_is_read(run, files, path):
    files("a/b/c.txt", b"deep")
    assert run("read_file", path=path).output["content"] == "deep"


def test_an_empty_file_is_read(run, files):
    files("empty", b"")
    assert run("read_file", path="empty").output == {"content": "", "size": 0, "encoding": "utf-8"}


@pytest.mark.parametrize("size", [1_000_000, 8 * 1024 * 1024])
def test_a_large_file_is_read_whole(run, files, size):
    files("large", b"x" * size)
    assert len(run("read_file", path="large").output["content"]) == size


def test_a_file_that_is_too_large_is_refused(run, files):
    files("large", b"x" * (8 * 1024 * 1024 + 1))
    assert failed(run("read_file", path="large"), "FILE_TOO_LARGE")


def test_a_file_that_is_not_there_is_said_to_be_missing(run):
    done = run("read_file", path="ghost.txt")
    assert failed(done, "FILE_NOT_FOUND")
    assert "Errno" not in done.error_message and "/workspace" not in done.error_message


@pytest.fixture
def outside(workspace):
    """A file beside the workspace that nobody inside may see, and ways that lead there."""
    secret = workspace.parent / f"{workspace.name}-outside"
    secret.mkdir()
    (secret / "canary.txt").write_text(CANARY)
    (workspace / "link.txt").symlink_to(secret / "canary.txt")
    (workspace / "linked").symlink_to(secret)
    (workspace / "up").symlink_to("..")
    (workspace / "relative").symlink_to(f"../{secret.name}/canary.txt")
    (workspace / "self").symlink_to("self")
    (workspace / "inside-link").symlink_to("folder")
    (workspace / "folder").mkdir()
    (workspace / "folder" / "a.txt").write_text("inside")
    os.mkfifo(workspace / "fifo")
    return secret


HOSTILE = [
    "../{outside}/canary.txt", "folder/../../{outside}/canary.txt", "..", ".", "./", "/", "//",
    "folder/..", "/etc/passwd", "//etc/passwd", "/workspace/folder/a.txt", "{absolute}/canary.txt",
    "/proc/self/root/etc/passwd", "/proc/self/environ", "proc/self/environ", "link.txt",
    "linked/canary.txt", "up/{outside}/canary.txt", "relative", "self", "inside-link/a.txt", "fifo",
    "folder", "folder/", "folder/a.txt/b", "..\\canary.txt", "%2e%2e/canary.txt", "a" * 300,
    "a/" * 2_040 + "a", "..\uff0fcanary.txt", "~/canary.txt", "file:///etc/passwd", "/dev/zero",
]  # fmt: skip


@pytest.mark.parametrize("tool", ["read_file", "write_file"])
@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: path[:40])
def test_no_path_leads_out_of_the_workspace(run, outside, workspace, tool, path):
    path = path.format(outside=outside.name, absolute=outside)
    content = {"content": "overwritten"} if tool == "write_file" else {}
    done = run(tool, path=path, **content)
    literal = path in {"..\\canary.txt", "%2e%2e/canary.txt", "..\uff0fcanary.txt", "~/canary.txt",
                       "file:///etc/passwd", "proc/self/environ"}  # fmt: skip
    if not (literal and tool == "write_file"):
        assert failed(done, "PATH_INVALID", "NOT_A_FILE", "FILE_NOT_FOUND", "FILE_FORBIDDEN")
    assert sorted(p.name for p in outside.iterdir()) == ["canary.txt"]
    assert (outside / "canary.txt").read_text() == CANARY
    assert (workspace / "folder" / "a.txt").read_text() == "inside"


@pytest.mark.parametrize("path", ["", "x" * 4097])
def test_a_path_of_no_sensible_length_is_no_call(api, path):
    response = api.execute("read_file", {"path": path}, group=["read-only"])
    assert (response.status_code, response.json()["code"]) == (400, "invalid_parameters")


def test_an_organization_reads_only_its_own_workspace(run, files, workspace):
    theirs = workspace.parent / "somebody-else"
    theirs.mkdir(exist_ok=True)
    (theirs / "a.txt").write_text(CANARY)
    assert failed(run("read_file", path="a.txt"), "FILE_NOT_FOUND")
