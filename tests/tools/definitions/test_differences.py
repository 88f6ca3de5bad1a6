"""The difference of two definitions, field by field."""

from tests.factories import definition
from tools.definitions.differences import MOST_DIFFERENCES, compare_definitions, diff_words
from tools.definitions.tool import read_definition


def rows(old, new):
    return [(one.path, str(one.kind)) for one in compare_definitions(old, new)]


def parameter(name, **fields):
    return {"name": name, "type": "String", "description": f"The {name}.", **fields}


def test_equal_definitions_differ_in_nothing():
    one = read_definition(definition())
    assert compare_definitions(one, one) == []


def test_each_field_stands_under_its_own_path():
    old = {"a": 1, "b": {"c": [1, 2], "gone": None}}
    new = {"a": 2, "b": {"c": [1], "new/~": True}}
    assert rows(old, new) == [
        ("/a", "changed"),
        ("/b/c/1", "removed"),
        ("/b/new~1~0", "added"),
        ("/b/gone", "removed"),
    ]


def test_parameters_are_known_by_their_names():
    old = {"parameters": [parameter("a"), parameter("b")]}
    new = {"parameters": [parameter("n"), parameter("a"), parameter("b", required=True)]}
    assert rows(old, new) == [("/parameters/n", "added"), ("/parameters/b/required", "added")]


def test_parameters_that_changed_places_say_so():
    old = {"parameters": [parameter("a"), parameter("b")]}
    new = {"parameters": [parameter("b"), parameter("a")]}
    assert rows(old, new) == [("/parameters/order", "changed")]


def test_true_is_not_one():
    assert rows({"a": 1}, {"a": True}) == [("/a", "changed")]
    assert rows({"a": [1]}, {"a": [1.0]}) == []


def test_what_is_hidden_in_a_text_is_shown_and_warned_of():
    [found] = compare_definitions(
        {"description": "Reads."}, {"description": "Re\u200bads \u0430ll."}
    )
    assert found.after == "Re‹U+200B ZERO WIDTH SPACE›ads \u0430ll."
    assert len(found.warnings) == 2
    assert "cannot be seen" in found.warnings[0] and "looks like 'a'" in found.warnings[1]


def test_what_was_hidden_before_is_no_news():
    [found] = compare_definitions({"d": "a\u200b"}, {"d": "b\u200b"})
    assert found.warnings == ()


def test_a_flood_of_differences_is_cut():
    assert (
        len(compare_definitions({}, {str(n): n for n in range(MOST_DIFFERENCES * 2)}))
        == MOST_DIFFERENCES
    )


def test_texts_are_compared_by_words():
    assert diff_words("Reads a file.", "Reads any file.") == [
        ("same", "Reads"),
        ("removed", "a"),
        ("added", "any"),
        ("same", "file."),
    ]
