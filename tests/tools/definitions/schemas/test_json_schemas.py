"""JSON schemas of tool authors are untrusted: compiling and validating never fetch and never
hang."""

import re
import socket

import pytest

from tools.definitions.schemas.json_schemas import BadSchema, compile_schema


def nested(depth, leaf):
    for _ in range(depth):
        leaf = {"a": leaf}
    return leaf


def doubling(levels):
    """Each level refers twice to the next: 2^levels in all."""
    defs = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": defs | {f"d{levels}": {"type": "string"}}}


def twice(target):
    return {"allOf": [{"properties": {"a": {"$ref": target}}}] * 2}


def doubling_downwards(levels):
    defs = {f"d{n}": twice(f"#/$defs/d{n + 1}") for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": defs | {f"d{levels}": {"type": "string"}}}


HOSTILE = {
    "no schema": 5,
    "a list": [],
    "unknown type": {"type": "nonsense"},
    "bad pattern": {"pattern": "("},
    "long pattern": {"pattern": "a" * 513},
    "look-around": {"pattern": "(?=a)b"},
    "back reference": {"pattern": r"(a)\1"},
    "remote reference": {"$ref": "http://127.0.0.1:9/x"},
    "file reference": {"$ref": "file:///etc/passwd"},
    "relative reference": {"$ref": "other.json"},
    "remote meta-schema": {"$schema": "http://127.0.0.1:9/x"},
    "missing target": {"$ref": "#/$defs/none"},
    "missing anchor": {"$ref": "#none"},
    "itself": {"$ref": "#"},
    "itself, older": {
        "$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "#",
    },
    "itself, by dependency": {"dependencies": {"a": {"$ref": "#"}}},
    "circle": {"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}},
    "2^24 references": doubling(24),
    "2^64 downwards": twice("#"),
    "2^30 downwards": doubling_downwards(30),
    "too deep": nested(70, {}),
    "too wide": {"properties": {f"p{n}": {} for n in range(201)}},
    "too many values": {"enum": list(range(1_001))},
    "too large": {"description": "x" * 300_000},
    "too many parts": {"allOf": [{"enum": list(range(900))} for _ in range(30)]},
}  # fmt: skip
HARMLESS = {
    "anything": True,
    "any JSON": {
        "$ref": "#/$defs/v",
        "$defs": {"v": {"anyOf": [
            {"type": "object", "additionalProperties": {"$ref": "#/$defs/v"}},
            {"type": "array", "items": {"$ref": "#/$defs/v"}},
            {"type": ["string", "number", "boolean", "null"]},
        ]}},
    },
    "a tree": {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}},
    "an expression": {
        "$ref": "#/$defs/e",
        "$defs": {"e": {"anyOf": [
            {"properties": {"left": {"$ref": "#/$defs/e"}, "right": {"$ref": "#/$defs/e"}}},
            {"properties": {"argument": {"$ref": "#/$defs/e"}}},
        ]}},
    },
    "an anchor": {"$ref": "#name", "$defs": {"a": {"$anchor": "name", "type": "object"}}},
    "a property called $ref": {"properties": {"$ref": {"type": "string"}}},
    "many fields": {"properties": {f"p{n}": {"type": "string"} for n in range(200)}},
}  # fmt: skip


@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE)
def test_a_schema_that_could_hang_or_fetch_is_refused(schema):
    """Compiling one of the schemas that hang would exceed pytest's timeout."""
    with pytest.raises(BadSchema):
        compile_schema(schema)


@pytest.mark.parametrize("schema", HARMLESS.values(), ids=HARMLESS)
def test_an_ordinary_schema_is_accepted(schema):
    assert compile_schema(schema).flaws({}) == []


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"^(?=.*\d)[a-z\d]{4,}$", "/properties/t/pattern: uses a lookahead, (?=…)"),
        ("a(?!b)", "a lookahead, (?!…)"),
        ("(?<=a)b", "a lookbehind, (?<=…)"),
        (r"[(?=]\((?<!a)b", "a lookbehind, (?<!…)"),
        (r"(a)\1", "back-references are not supported"),
        (r"(?<n>a)\k<n>", "back-references are not supported"),
    ],
)
def test_what_patterns_cannot_hold_is_said(pattern, words):
    with pytest.raises(BadSchema, match=re.escape(words)):
        compile_schema({"properties": {"t": {"pattern": pattern}}})
    with pytest.raises(BadSchema, match=re.escape(words.rpartition(": ")[2])):
        compile_schema({"patternProperties": {pattern: True}})


@pytest.mark.parametrize("pattern", ["(", "[a", r"[(?=]\(", r"(?:\\1"])
def test_a_pattern_that_is_wrong_otherwise_is_no_look_around(pattern):
    try:
        compile_schema({"pattern": pattern})
    except BadSchema as error:
        assert "not supported" not in str(error)  # noqa: PT017 - one of them is valid


def test_what_looks_like_a_look_around_in_a_class_is_none():
    assert compile_schema({"pattern": r"^[(?=]+\(\?=$"}).flaws("(?=(?=") == []


def test_a_pattern_that_explodes_elsewhere_is_linear_here():
    """2^50,000 steps would exceed pytest's timeout."""
    assert compile_schema({"pattern": "^(a+)+$"}).flaws("a" * 50_000 + "!")


@pytest.mark.parametrize("keyword", ["$ref", "$schema", "$id", "$dynamicRef"])
def test_nothing_a_schema_names_is_fetched(keyword):
    with socket.create_server(("127.0.0.1", 0)) as canary:
        canary.settimeout(0.2)
        url = f"http://127.0.0.1:{canary.getsockname()[1]}/schema"
        try:
            compile_schema({keyword: url, "properties": {"a": {"type": "string"}}}).flaws({"a": 1})
        except BadSchema:
            pass
        with pytest.raises(TimeoutError):
            canary.accept()


def test_a_file_a_schema_names_is_not_opened(tmp_path):
    (tmp_path / "s.json").write_text('{"type": "string"}')
    with pytest.raises(BadSchema):
        compile_schema({"allOf": [{"$ref": (tmp_path / "s.json").as_uri()}]})


def test_every_wrong_place_is_named_as_a_pointer():
    schema = {"properties": {"a/b": {"type": "string"}, "c": {"items": {"minimum": 3}}}}
    found = compile_schema(schema).flaws({"a/b": 1, "c": [5, 1]})
    assert {flaw.place for flaw in found} == {"/a~1b", "/c/1"}


def test_the_places_that_are_named_are_bounded():
    assert len(compile_schema({"items": {"type": "string"}}).flaws(list(range(5_000)))) == 50


@pytest.mark.parametrize("value", [10**400, 1e308, -1])
def test_odd_numbers_are_held_against_a_schema_without_a_fault(value):
    compile_schema({"multipleOf": 0.1, "maximum": 5}).flaws(value)
