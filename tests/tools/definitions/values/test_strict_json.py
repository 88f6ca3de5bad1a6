import json
from itertools import accumulate

import pytest

from tools.definitions.values.strict_json import BadJson, check, parse, parse_leading

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
DEEP = [*accumulate(range(63), lambda inner, _: [inner], initial=[])][-1]  # of 64 levels
FINE = [
    "[" * 1_000,
    DEEP,
    0,
    -(2**53),
    2**53,
    1.5,
    "ä🙂",
    None,
    True,
    {"a": [1, {"b": ""}]},
    [],
    {},
]


@pytest.mark.parametrize(
    ("read", "value"),
    [
        *(pytest.param(parse, raw, id=name) for name, raw in HOSTILE.items()),
        # The same bounds for a value that was not parsed.
        *((check, value) for value in (float("inf"), 10**300, ["\x00"], {"\ud800": 1})),
        # The text does not begin with a complete object.
        *((parse_leading, text) for text in (
            "", "1", '"{}"', "{", '{"a": "}', "{]", "x{}", "{" * 10_000,
        )),
    ],
)  # fmt: skip
def test_what_two_readers_could_read_differently_is_refused(read, value):
    with pytest.raises(BadJson):
        read(value)


@pytest.mark.parametrize("value", FINE, ids=lambda value: repr(value)[:40])
def test_ordinary_json_is_read(value):
    assert parse(json.dumps(value).encode()) == value


MANY, GENERATED = "more than 500000 values", pytest.mark.part("generated")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        pytest.param(b"[\n1 x]", "line 2, column 3", id="where"),
        pytest.param("[" + "[]," * 1_500_000 + "1]", MANY, id="lists"),
        pytest.param("[" + '"",' * 1_500_000 + "1]", MANY, id="texts", marks=GENERATED),
        pytest.param("[" + "1," * 600_000 + "1]", MANY, id="numbers", marks=GENERATED),
        pytest.param('"' + '\\"' * 500_000, "not JSON", id="quotes without an end"),
        pytest.param('["a", "' + "\\\\" * 500_000, "not JSON", id="backslashes without an end"),
        pytest.param('"\\', "not JSON", id="a backslash without an end"),
    ],
)
def test_a_refusal_says_where_and_comes_after_one_reading(document, said):
    with pytest.raises(BadJson, match=said):
        parse(document)


@pytest.mark.parametrize("behind", ["", " ", "}", "]", '"', "[" * 1_000, '{"a": 1}', "\\", "x"])
def test_what_a_text_begins_with_is_read_whatever_stands_behind(behind):
    assert parse_leading('{"a": ["}", "\\"{"]}' + behind) == {"a": ["}", '"{']}


def test_a_value_may_be_no_deeper_than_there_is_room_where_it_goes():
    check([[1]], depth=62)
    with pytest.raises(BadJson):
        check([[1]], depth=63)
