"""Transforms of a tool's output: valid definitions, and the bounded work of each path."""

import pytest

from tests.factories import definition
from tools.definitions.tool import ToolDefinition, definition_digest, read_definition
from tools.definitions.transforms import CannotSelect, Transform
from tools.errors import InvalidDefinition

DATA = {
    "items": [{"id": 1, "kind": "a", "secret": "s"}, {"id": 2, "kind": "b", "secret": "t"}],
    "deep": {"secret": {"in": 1}},
}


def test_definitions_without_one_keep_their_digest():
    plain = read_definition(definition())
    assert "transform" not in plain
    assert definition_digest(read_definition(definition(transform={}))) == definition_digest(plain)


def test_it_is_part_of_what_is_signed_and_comes_back_as_it_was_written():
    transform = {"select": "$.a", "redact": ["$..b"], "observation": "{{ output }}"}
    read = read_definition(definition(transform=transform))
    assert read["transform"] == transform
    assert ToolDefinition(read).transform == Transform("$.a", ("$..b",), "{{ output }}")


@pytest.mark.parametrize(
    ("transform", "field"),
    [
        ("$", "transform"),
        ({"select": 1}, "transform.select"),
        ({"select": "items"}, "transform.select"),
        ({"select": "$" + ".a" * 300}, "transform.select"),
        ({"select": "$" + "[*]" * 21}, "transform.select"),
        ({"select": "$..*..*"}, "transform.select"),
        ({"select": "$[0,0,0,0,0][0,0,0,0,0]"}, "transform.select"),
        ({"select": "$[?@..a]"}, "transform.select"),
        ({"select": "$[?@.a == $.b]"}, "transform.select"),
        ({"select": "$[?match(@.a, '(a+)+b')]"}, "transform.select"),
        ({"select": "$[?length(@.a) > 1]"}, "transform.select"),
        ({"select": "$[?@[?@.a]]"}, "transform.select"),
        ({"select": "$[?" + "(" * 200 + "@.a" + ")" * 200 + "]"}, "transform.select"),
        ({"select": "$[?@.a" + " || @.a" * 30 + "]"}, "transform.select"),
        ({"redact": "$.a"}, "transform.redact"),
        ({"redact": ["$..a", "nonsense"]}, "transform.redact"),
        ({"redact": ["$.a"] * 2}, "transform.redact"),
        ({"redact": [f"$.a{n}" for n in range(21)]}, "transform.redact"),
        ({"observation": "{{ parameters }}"}, "transform.observation"),
        ({"observation": "{{ output.__class__ }}"}, "transform.observation"),
        ({"observe": "x"}, "transform.observe"),
    ],
)
def test_what_is_wrong_is_named(transform, field):
    with pytest.raises(InvalidDefinition) as refusal:
        read_definition(definition(transform=transform))
    assert {flaw["field"] for flaw in refusal.value.details["errors"]} == {field}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.items[0].kind", "a"),
        ("$.items[-1]['id']", 2),
        ("$.items[*].id", [1, 2]),
        ("$.items[?@.kind == 'b'].id", [2]),
        ("$.items[?@.id > 1 && !(@.kind == 'a')].id", [2]),
        ("$.none[*]", []),
        ("$", DATA),
    ],
)
def test_a_path_that_can_mean_one_value_gives_it_and_others_a_list(path, value):
    assert Transform(path).select(DATA) == value


@pytest.mark.parametrize(
    ("path", "data"), [("$.items[5]", DATA), ("$[*]", [0] * 100_001)], ids=["none", "many"]
)
def test_a_value_that_is_not_there_and_more_than_a_bounded_number_are_errors(path, data):
    with pytest.raises(CannotSelect):
        Transform(path).select(data)


def test_everything_a_path_finds_is_redacted_also_within_what_was_redacted():
    found = Transform(redacted=("$..secret", "$.deep.secret.in")).redact(
        {"items": [{"secret": "s"}], "deep": {"secret": {"in": 1}}}
    )
    assert found == {"items": [{"secret": "[redacted]"}], "deep": {"secret": "[redacted]"}}


def test_a_filter_finds_its_values_though_another_path_redacts_what_it_asks_about():
    paths = ("$[*].kind", "$[?@.kind == 'card'].number")
    found = Transform(redacted=paths).redact([{"kind": "card", "number": 1}])
    assert found == [{"kind": "[redacted]", "number": "[redacted]"}]


def test_the_whole_output_may_be_redacted():
    assert Transform(redacted=("$",)).redact(DATA) == "[redacted]"
