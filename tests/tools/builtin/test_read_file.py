import base64
import hashlib
import os

import pytest

from tests import factories
from tools.execution import outputs
from tools.execution.perform import perform
from tools.models import Execution

CANARY = "c4nary-outside-the-workspace"
TEXT = "Grüße, 漢字 🙂\n"


def failed(execution, *codes):
    assert execution.status == "Failed", (execution.status, execution.output)
    assert execution.error_code in codes, (execution.error_code, execution.error_message)
    assert CANARY not in str(vars(execution))
    return True


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_text_is_read_in_its_encoding(call, put_file, encoding):
    raw = TEXT.encode(encoding)
    put_file("a.txt", raw)
    done = call("read_file", path="a.txt", encoding=encoding)
    assert done.output == {
        "content": TEXT,
        "size": len(raw),
        "encoding": encoding,
        "sha256": hashlib.sha256(raw).hexdigest(),
        "offset": 0,
        "next_offset": None,
    }


@pytest.mark.parametrize(
    ("given", "raw"),
    [
        ({"path": "a.txt", "encoding": "ascii"}, b"plain"),
        *(
            ({"path": path}, b"deep")
            for path in ("a/b/c.txt", "./a/b/c.txt", "a//b/./c.txt", "a/b/c.txt/")
        ),
        ({"path": "large"}, b"x" * 1_000_000),
        ({"path": "large"}, b"x" * 8 * 1024 * 1024),
    ],
    ids=range(7),
)
def test_a_file_is_read_whole(call, put_file, given, raw):
    put_file(given["path"].rstrip("/"), raw)
    assert call("read_file", **given).output["content"] == raw.decode()


def test_bytes_that_are_no_text_are_read_as_base64(call, put_file):
    raw = bytes(range(256))
    put_file("a.bin", raw)
    output = call("read_file", path="a.bin", encoding="base64").output
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
def test_the_wrong_encoding_says_so(call, put_file, raw, encoding):
    put_file("a", raw)
    assert failed(call("read_file", path="a", encoding=encoding), "ENCODING_MISMATCH")


@pytest.mark.parametrize(("raw", "given", "size"), [(b"", {}, 0), (b"abc", {"offset": 9}, 3)])
def test_an_empty_file_and_a_piece_past_the_end_are_empty(call, put_file, raw, given, size):
    put_file("a", raw)
    output = call("read_file", path="a", **given).output
    assert (output["content"], output["size"], output["next_offset"]) == ("", size, None)


def test_a_file_that_is_too_large_is_refused(call, put_file):
    put_file("large", b"x" * (8 * 1024 * 1024 + 1))
    assert failed(call("read_file", path="large"), "FILE_TOO_LARGE")


def test_a_file_that_is_not_there_is_said_to_be_missing(call):
    done = call("read_file", path="ghost.txt")
    assert failed(done, "FILE_NOT_FOUND")
    assert "Errno" not in done.error_message and "/workspace" not in done.error_message


def place_traps(workspace):
    """A file beside the workspace that is invisible inside the sandbox, and links that lead to
    it."""
    outside = workspace.parent / f"{workspace.name}-outside"
    outside.mkdir()
    (outside / "canary.txt").write_text(CANARY)
    (workspace / "link.txt").symlink_to(outside / "canary.txt")
    (workspace / "linked").symlink_to(outside)
    (workspace / "up").symlink_to("..")
    (workspace / "relative").symlink_to(f"../{outside.name}/canary.txt")
    (workspace / "self").symlink_to("self")
    (workspace / "inside-link").symlink_to("folder")
    (workspace / "folder").mkdir()
    (workspace / "folder" / "a.txt").write_text("inside")
    os.mkfifo(workspace / "fifo")
    return outside


HOSTILE = [
    "../{outside}/canary.txt", "folder/../../{outside}/canary.txt", "..", ".", "./", "/", "//",
    "folder/..", "/etc/passwd", "//etc/passwd", "/workspace/folder/a.txt", "{absolute}/canary.txt",
    "/proc/self/root/etc/passwd", "/proc/self/environ", "proc/self/environ", "link.txt",
    "linked/canary.txt", "up/{outside}/canary.txt", "relative", "self", "inside-link/a.txt", "fifo",
    "folder", "folder/", "folder/a.txt/b", "..\\canary.txt", "%2e%2e/canary.txt", "a" * 300,
    "a/" * 2_040 + "a", "..\uff0fcanary.txt", "~/canary.txt", "file:///etc/passwd", "/dev/zero",
]  # fmt: skip


LITERAL = {"..\\canary.txt", "%2e%2e/canary.txt", "..\uff0fcanary.txt", "~/canary.txt",
           "file:///etc/passwd", "proc/self/environ"}  # fmt: skip


def check_no_way_out(call, outside, workspace, tool, path):
    path = path.format(outside=outside.name, absolute=outside)
    content = {"content": "overwritten"} if tool == "write_file" else {}
    done = call(tool, path=path, **content)
    if not (path in LITERAL and tool == "write_file"):
        assert failed(done, "PATH_INVALID", "NOT_A_FILE", "FILE_NOT_FOUND", "FILE_FORBIDDEN")
    assert sorted(p.name for p in outside.iterdir()) == ["canary.txt"]
    assert (outside / "canary.txt").read_text() == CANARY
    assert (workspace / "folder" / "a.txt").read_text() == "inside"


@pytest.mark.parametrize("tool", ["read_file", "write_file"])
@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: path[:40])
def test_no_path_leads_out_of_the_workspace(call, workspace, tool, path):
    check_no_way_out(call, place_traps(workspace), workspace, tool, path)


@pytest.mark.parametrize("path", ["", "x" * 4097])
def test_a_path_of_no_sensible_length_is_no_call(api, path):
    response = api.execute("read_file", {"path": path}, group=["read-only"])
    assert (response.status_code, response.json()["code"]) == (400, "invalid_parameters")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "base64"])
@pytest.mark.parametrize("length", [5, 7, 1000])
def test_pieces_join_to_the_whole(call, put_file, encoding, length):
    raw = (TEXT * 3).encode("utf-8" if encoding == "base64" else encoding)
    put_file("a", raw)
    pieces, offset = [], 0
    while offset is not None:
        output = call("read_file", path="a", encoding=encoding, offset=offset, length=length).output
        pieces.append(output["content"])
        first = hashlib.sha256(raw).hexdigest() if offset == 0 else None
        assert output["sha256"] == first
        offset = output["next_offset"]
    if encoding == "base64":
        assert b"".join(map(base64.b64decode, pieces)) == raw
    else:
        assert "".join(pieces) == TEXT * 3


def test_a_piece_that_begins_inside_a_character_says_so(call, put_file):
    put_file("a", "ü".encode())
    assert failed(call("read_file", path="a", offset=1), "ENCODING_MISMATCH")


def test_a_file_that_is_too_large_at_once_is_read_in_pieces(call, put_file):
    put_file("a", b"x" * (8 * 1024 * 1024 + 10))
    assert failed(call("read_file", path="a"), "FILE_TOO_LARGE")
    output = call("read_file", path="a", offset=8 * 1024 * 1024).output
    assert (output["content"], output["next_offset"]) == ("x" * 10, None)


def test_a_directory_is_listed_by_name_and_in_pieces(call, put_file, workspace):
    for name in ("b.txt", "a.txt", "below/c.txt"):
        put_file(name, b"12345")
    (workspace / "link").symlink_to("/etc/passwd")
    output = call("read_file", path=".", what="listing").output
    found = [(entry["name"], entry["kind"]) for entry in output["entries"]]
    assert found == [
        ("a.txt", "file"), ("b.txt", "file"), ("below", "directory"), ("link", "link"),
    ]  # fmt: skip
    assert (output["path"], output["count"], output["next_offset"]) == (".", 4, None)
    assert output["entries"][0]["size"] == 5
    piece = call("read_file", path=".", what="listing", offset=1, length=2).output
    assert [entry["name"] for entry in piece["entries"]] == ["b.txt", "below"]
    assert piece["next_offset"] == 3
    assert call("read_file", path="below/", what="listing").output["path"] == "below"


@pytest.mark.parametrize("path", ["..", "/", "a.txt", "link", "nothing"])
def test_what_is_no_directory_here_is_not_listed(call, put_file, workspace, path):
    put_file("a.txt", b"")
    (workspace / "link").symlink_to(workspace.parent)
    done = call("read_file", path=path, what="listing")
    assert failed(done, "PATH_INVALID", "FILE_NOT_FOUND", "NOT_A_FILE")


def test_a_name_that_is_no_text_is_listed_as_far_as_it_is_one(call, workspace):
    (workspace / os.fsdecode(b"a\xff")).touch()
    (entry,) = call("read_file", path=".", what="listing").output["entries"]
    assert entry["name"] == "a\ufffd"


# Through the sandbox.


def test_a_file_is_read_in_the_sandbox(run, files):
    files("a/b/c.txt", TEXT.encode("utf-16"))
    done = run("read_file", path="a/b/c.txt", encoding="utf-16")
    assert (done.output["content"], done.output["encoding"]) == (TEXT, "utf-16")


def test_no_path_leads_out_of_the_sandbox(run, mounted):
    outside = place_traps(mounted)
    for tool in ("read_file", "write_file"):
        for path in ("link.txt", "folder/../../{outside}/canary.txt", "/proc/self/environ"):
            check_no_way_out(run, outside, mounted, tool, path)


@pytest.mark.part("generated")
def test_the_largest_file_is_read_whole_in_the_sandbox(run, files):
    files("large", b"x" * (8 * 1024 * 1024))
    assert outputs.load_output(run("read_file", path="large"))["content"] == "x" * (8 * 1024 * 1024)


def test_an_organization_reads_only_its_own_workspace(run, mounted):
    theirs = mounted.parent / "somebody-else"
    theirs.mkdir(exist_ok=True)
    (theirs / "a.txt").write_text(CANARY)
    assert failed(run("read_file", path="a.txt"), "FILE_NOT_FOUND")


CSV = """
import csv, io, statistics
from toolcrib import ToolError

def main(parameters):
    rows = list(csv.DictReader(io.StringIO(parameters["text"])))
    column = parameters["column"]
    if not rows or column not in rows[0]:
        raise ToolError("COLUMN_MISSING", f"There is no column {column}.")
    values = [float(row[column]) for row in rows]
    return {"rows": len(rows), "mean": statistics.fmean(values), "largest": max(values)}
"""
TABLE = 'city,people\\n"Berlin, Mitte",3.5\\nKöln,1.5\\n"Quote "" inside",1\\n'.replace("\\n", "\n")
PARAMETERS = [
    {"name": "text", "type": "String", "description": "The table as CSV.", "required": True},
    {"name": "column", "type": "String", "description": "Which column.", "default": "people"},
]
OUTPUT = {
    "type": "object",
    "properties": {"rows": {"type": "integer"}, "mean": {"type": "number"}},
    "required": ["rows", "mean", "largest"],
}


@pytest.fixture
def averages(committed, organization, agent):
    factories.tool(
        organization, "averages", implementation={"source": CSV}, parameters=PARAMETERS,
        output_schema=OUTPUT, delivery="pure",
    )  # fmt: skip

    def call(**parameters):
        execution = factories.execution(agent, "averages", **parameters)
        perform(execution.pk)
        return Execution.objects.get(pk=execution.pk)

    return call


def test_a_custom_tool_reads_a_real_table(averages):
    assert averages(text=TABLE).output == {"rows": 3, "mean": 2.0, "largest": 3.5}


def test_a_custom_tool_says_what_was_wrong_in_its_own_words(averages):
    done = averages(text=TABLE, column="area")
    assert (done.status, done.error_code) == ("Failed", "COLUMN_MISSING")
    assert done.error_message == "There is no column area."


ESCAPES = {
    "passwords": "open('/etc/passwd').read()",
    "files of the product": "__import__('os').listdir('/work')",
    "network": "__import__('socket').create_connection(('127.0.0.1', 22), 1)",
    "names": "__import__('socket').gethostbyname('example.com')",
    "Django": "__import__('django').VERSION",
}


@pytest.mark.parametrize("expression", ESCAPES.values(), ids=ESCAPES)
def test_a_custom_tool_sees_nothing_of_the_host(committed, organization, agent, expression):
    factories.tool(
        organization, "spy", implementation={"source": f"def main(p):\n    return {expression}"}
    )
    execution = factories.execution(agent, "spy")
    perform(execution.pk)
    done = Execution.objects.get(pk=execution.pk)
    assert (done.status, done.output) == ("Failed", None)


def test_a_custom_tool_inherits_no_environment(committed, organization, agent):
    source = "import os\ndef main(p):\n    return sorted(os.environ)"
    factories.tool(organization, "spy", implementation={"source": source})
    execution = factories.execution(agent, "spy")
    perform(execution.pk)
    names = set(Execution.objects.get(pk=execution.pk).output)
    assert "TOOLCRIB_DATA" in os.environ and "TOOLCRIB_DATA" not in names
    assert len(names) < 12, names
