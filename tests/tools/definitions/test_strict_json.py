import json

import pytest

from tools.definitions.strict_json import BadJson, check, leading, parse

HOSTILE = {
    "empty": b"",
    "two values": b"1 2",
    "comment": b"{} // x",
    "single quotes": b"{'a': 1}",
    "trailing comma": b"[1,]",
    "duplicate keys": b'{"a": 1, "a": 1}',
    "duplicate keys, deep": b'[{"x": {"a": 1, "b": 2, "a": 3}}]',
    "duplicate keys, escaped": b'{"a": 1, "\\u0061": 2}',
    "NUL": b'"\\u0000"',
    "NUL in a key": b'{"a\\u0000": 1}',
    "high surrogate": b'"\\ud800"',
    "low surrogate": b'{"a": ["\\udc00"]}',
    "NaN": b"NaN",
    "Infinity": b"[Infinity]",
    "-Infinity": b"-Infinity",
    "1e999": b"1e999",
    "2^53+1": b"9007199254740993",
    "-2^53-1": b"-9007199254740993",
    "a thousand digits": b"1" * 1_000,
    "ten thousand digits": b"1" * 10_000,
    "65 lists": b"[" * 65 + b"]" * 65,
    "65 objects": b'{"a":' * 65 + b"1" + b"}" * 65,
    "100,000 lists": b"[" * 100_000,
    "not UTF-8": b'"\xff"',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf{}",
    "control character": b'"\x01"',
}
FINE = [0, -(2**53), 2**53, 1.5, "ä🙂", None, True, {"a": [1, {"b": ""}]}, [], {}]


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE)
def test_what_two_readers_could_read_differently_is_refused(raw):
    with pytest.raises(BadJson):
        parse(raw)


@pytest.mark.parametrize("value", FINE, ids=repr)
def test_ordinary_json_is_read(value):
    assert parse(json.dumps(value).encode()) == value


def test_64_levels_are_enough():
    parse(b"[" * 64 + b"]" * 64)


def test_brackets_in_texts_are_no_levels():
    assert parse(json.dumps("[" * 1_000)) == "[" * 1_000


@pytest.mark.parametrize("value", [float("inf"), 2**54, ["\x00"], {"\ud800": 1}], ids=repr)
def test_a_value_that_came_another_way_meets_the_same_bounds(value):
    with pytest.raises(BadJson):
        check(value)


def test_a_refusal_says_where():
    with pytest.raises(BadJson, match="line 2, column 3"):
        parse(b"[\n1 x]")


@pytest.mark.part("generated", but_each=3)
@pytest.mark.parametrize(
    "document",
    ["[" + "[]," * 1_500_000 + "1]", "[" + '"",' * 1_500_000 + "1]", "[" + "1," * 600_000 + "1]"],
    ids=["lists", "texts", "numbers"],
)
def test_more_values_than_anybody_needs_are_refused(document):
    with pytest.raises(BadJson, match="more than 500000 values"):
        parse(document)


@pytest.mark.parametrize("document", ['"' + '\\"' * 500_000, '["a", "' + "\\\\" * 500_000, '"\\'])
def test_a_text_without_an_end_is_read_once(document):
    with pytest.raises(BadJson, match="not JSON"):
        parse(document)


@pytest.mark.parametrize("behind", ["", " ", "}", "]", '"', "[" * 1_000, '{"a": 1}', "\\", "x"])
def test_what_a_text_begins_with_is_read_whatever_stands_behind(behind):
    assert leading('{"a": ["}", "\\"{"]}' + behind) == {"a": ["}", '"{']}


@pytest.mark.parametrize("text", ["", "1", '"{}"', "{", '{"a": "}', "{]", "x{}", "{" * 10_000])
def test_what_begins_with_no_whole_object_is_refused(text):
    with pytest.raises(BadJson):
        leading(text)


def test_a_value_may_be_no_deeper_than_there_is_room_where_it_goes():
    check([[1]], depth=62)
    with pytest.raises(BadJson):
        check([[1]], depth=63)
