"""Parsing of JSON and YAML documents from outside, with the line of each error."""

import pytest

from tools.definitions.dialects import import_documents
from tools.definitions.dialects.import_entries import (
    MAX_ITEMS,
    ImportSource,
    detect_source,
    split_document,
)
from tools.errors import Malformed, TooLarge


def values(text):
    return [document.value for document in import_documents.parse_documents(text)]


def complaint(text):
    with pytest.raises(Malformed) as caught:
        import_documents.parse_documents(text)
    (flaw,) = caught.value.details["errors"]
    return flaw["line"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("off", "off"), ("y", "y"), ("No", "No"),
        ("true", True), ("FALSE", False), ("null", None), ("~", None), ("", None),
        ("'true'", "true"), ('"5"', "5"), ("!!str 5", "5"), ("5", 5), ("-5", -5), ("0", 0),
        ("010", "010"), ("0o10", "0o10"), ("0x10", "0x10"), ("1_000", "1_000"), ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"), ("1.5", 1.5), ("1e3", 1000.0), (".nan", ".nan"),
        (".inf", ".inf"), ("=", "="), ("1.10", 1.1),
    ],
)  # fmt: skip
def test_a_yaml_scalar_is_what_yaml_1_2_says_or_a_text(written, meant):
    ((found,),) = [value.values() for value in values(f"a: {written}\n")]
    assert (type(found), found) == (type(meant), meant)


def test_documents_of_one_text_know_their_lines_each():
    first, second = import_documents.parse_documents("a: 1\n---\nb:\n- c: 2\n- d-e: 3\n")
    assert (
        first.lines.field_line("a"),
        second.lines.field_line("b[1].d_e"),
        second.lines.field_line("b[7].x"),
    ) == (
        1,
        5,
        3,
    )


def test_json_knows_its_lines_too():
    (document,) = import_documents.parse_documents(
        '{"a": [\n {"b,}": 1},\n {"c":\n "\\"]"}],\n "d": 2}'
    )
    places = ("a", "a[0]", "a[1].c", "d", "nowhere")
    assert [document.lines.field_line(place) for place in places] == [1, 2, 3, 5, 1]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"a": 1,\n\n"a": 2}', 3), ('{\n"a": ]', 2), ("a: 1\nb: 2\na: 3", 3), ("a:\n  - ]", 2),
        ("a: 1\nb: *x", 2), ("a: 1\n<<: {b: 2}", 2), ("a: 1\nb: !!float 2", 2), ("a: &a [\n*a]", 2),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_line(text, line):
    assert complaint(text) == line


def test_a_whole_number_as_a_key_is_its_text():
    """OpenAPI documents name responses by status: 200, without quotes."""
    assert values("200: a\n'201': b\n") == [{"200": "a", "201": "b"}]
    for key in ("1.5", "true", "null", "~", "[1]"):
        assert complaint(f"{key}: a\n") == 1


def test_an_anchor_stands_for_a_bounded_amount():
    assert values("a: &a [1, 2]\nb: *a\n") == [{"a": [1, 2], "b": [1, 2]}]
    assert complaint(f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 50)}]\n") == 2
    rows = [
        f"{n}: &{n} [{', '.join(['*' + b] * 10)}]" for b, n in zip("abcdef", "bcdefg", strict=True)
    ]
    assert complaint("\n".join(["a: &a [1]", *rows])) is not None


def test_a_document_has_bounds():
    with pytest.raises(TooLarge):
        import_documents.parse_documents("x" * (import_documents.MAX_BYTES + 1))
    with pytest.raises(TooLarge):
        import_documents.decode_document(b"x" * (import_documents.MAX_BYTES + 1))
    (document,) = import_documents.parse_documents([{}] * (MAX_ITEMS + 1))
    with pytest.raises(TooLarge):
        split_document(document, ImportSource.DEFINITIONS)


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(Malformed):
        import_documents.decode_document(b"\xff\xfe")


@pytest.mark.parametrize(
    ("value", "source"),
    [
        ({"openapi": "3.1.0"}, "openapi"), ({"mcpServers": {}}, "mcp-config"),
        ({"servers": {}}, "mcp-config"), ({"openapi": "3.1.0", "servers": []}, "openapi"),
        ({"tools": [{"name": "a", "inputSchema": {}}]}, "mcp"),
        ({"tools": [{"name": "a", "type": "code"}]}, "definitions"),
        ([{"key": "tool/a", "value": {}}], "items"), ({"tool/a": {}}, "items"),
        ({"config": {"tool": {}}}, "items"), ({"key": "tool/a", "value": {}}, "items"),
        ([{"name": "a"}], "definitions"), ([], "definitions"), ({"name": "a"}, "definitions"),
    ],
)  # fmt: skip
def test_what_a_document_is_shows_in_its_looks(value, source):
    (document,) = import_documents.parse_documents(value)
    assert detect_source(document) == source


VS_CODE = """\ufeff// See the README
{
  /* of "our" servers, */
  "servers": {
    "docs": {"type": "http", "url": "http://127.0.0.1:8232/mcp//plain",}, // the , and } stay
    "odd": {"command": "x", "args": ["/* none */", "a,]", "\\"//\\\\", ",}"],},
  },
}
"""


def test_what_desktop_clients_write_may_have_comments_and_commas_at_the_end():
    (document,) = import_documents.parse_documents(VS_CODE)
    assert document.value["servers"] == {
        "docs": {"type": "http", "url": "http://127.0.0.1:8232/mcp//plain"},
        "odd": {"command": "x", "args": ["/* none */", "a,]", '"//\\', ",}"]},
    }
    assert detect_source(document) == ImportSource.CLIENT
    assert document.lines.find_line(("servers", "odd", "args")) == 6


@pytest.mark.parametrize(
    "text",
    [
        '{"mcpServers": {"a": {"command": "x"}}, }',
        '// one\n// two\n{"mcpServers": {"a": {"command": "x"}}}',
        '{"mcpServers": {"a": {"command": "x" /* why */ , }, }, } // the end',
        '{"mcpServers"://\n{"a":/**/{"command":/***/"x"}}}',
    ],
)
def test_comments_stand_anywhere_between(text):
    assert values(text) == [{"mcpServers": {"a": {"command": "x"}}}]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"servers": {"a": {}},\n "servers": {}}', 2),
        ('{"servers": {"a": {},, }}', 1),
        ('{"servers": {"a": {}} /* no end', 1),
        ('{"servers": {, }}', 1),
        ('{\n// a definition is plain JSON\n"name": "x"}', 2),
        ('[{"name": "x"},]', 1),
        ("// nothing", 1),
    ],
)
def test_what_is_wrong_with_it_all_the_same_is_said(text, line):
    assert complaint(text) == line


def test_no_document_is_searched_again_behind_each_of_its_marks():
    """In quadratic time none of them would finish before pytest's timeout."""
    for piece in ("/*", "//\n/", ", ", '"', '\\"'):
        assert complaint('{"servers": {' + piece * 300_000) is not None
