"""Schema compatibility: whether the output of one tool is a valid input of another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.definitions.schemas.compatibility import Misfit, find_misfits
from tools.definitions.schemas.json_schemas import Validator

TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
PAGE = {
    "type": "object",
    "properties": {"text": TEXT, "status": WHOLE},
    "required": ["text"],
    "additionalProperties": False,
}


def objects(required=(), **properties):
    return {"type": "object", "properties": properties, "required": [*required],
            "additionalProperties": False}  # fmt: skip


def kinds(found):
    return [(one.path, one.certain) for one in found]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (TEXT, TEXT), (WHOLE, NUMBER), (TEXT, True), (TEXT, {}), (False, TEXT),
        (TEXT, {"type": ["string", "null"]}), (TEXT, {"anyOf": [WHOLE, TEXT]}),
        ({"enum": ["a", "b"]}, TEXT), ({"enum": ["a"]}, {"enum": ["a", "b"]}),
        ({"const": 3}, {"minimum": 2}), ({"type": "integer", "minimum": 3}, {"minimum": 2}),
        (PAGE, {"type": "object"}), (PAGE, objects(["text"], text=TEXT, status=NUMBER)),
        ({"type": "array", "items": WHOLE}, {"type": "array", "items": NUMBER}),
        ({"$ref": "#/$defs/a", "$defs": {"a": TEXT}}, TEXT),
        (TEXT, {"$ref": "#/$defs/a", "$defs": {"a": TEXT}}),
        ({"allOf": [TEXT, {"maxLength": 3}]}, {"type": "string", "maxLength": 5}),
        ({"anyOf": [TEXT, WHOLE]}, {"type": ["string", "number"]}),
        ({"type": "string", "format": "uri"}, {"type": "string", "format": "uri"}),
        (TEXT, {"oneOf": [TEXT, WHOLE]}),
        (TEXT, {"type": "string", "description": "Words."}),
    ],
)  # fmt: skip
def test_what_always_fits(source, target):
    assert find_misfits(source, target) == []


@pytest.mark.parametrize(
    ("source", "target", "where"),
    [
        (TEXT, WHOLE, ""), (TEXT, False, ""), (TEXT, {"anyOf": [WHOLE, {"type": "null"}]}, ""),
        ({"enum": ["a"]}, {"enum": ["b"]}, ""), ({"enum": [1, 2]}, {"maximum": 0}, ""),
        (PAGE, objects(["text"], text=WHOLE, status=WHOLE), "/text"),
        (objects(["text"], text=TEXT), objects(["title"], text=TEXT, title=TEXT), "/title"),
        (objects(["more"], more=TEXT), objects(), "/more"),
        ({"type": "array", "items": TEXT}, {"type": "array", "items": WHOLE}, "/*"),
        (objects(["a"], a=objects(["b"], b=TEXT)), objects(a=objects(b=WHOLE)), "/a/b"),
        (objects(["a/b"], **{"a/b": TEXT}), objects(**{"a/b": WHOLE}), "/a~1b"),
    ],
)  # fmt: skip
def test_a_certain_mismatch_is_reported_with_its_path(source, target, where):
    assert (where, True) in kinds(find_misfits(source, target))


@pytest.mark.parametrize(
    ("source", "target", "where"),
    [
        ({"type": ["string", "null"]}, TEXT, ""), (NUMBER, WHOLE, ""), ({}, TEXT, ""),
        (TEXT, {"enum": ["a"]}, ""), (TEXT, {"type": "string", "pattern": "^a"}, ""),
        (TEXT, {"type": "string", "maxLength": 3}, ""), ({"enum": ["a", 1]}, TEXT, ""),
        (PAGE, objects(["text", "status"], text=TEXT, status=WHOLE), "/status"),
        (PAGE, objects(text=TEXT), "/status"),
        ({"anyOf": [TEXT, WHOLE]}, TEXT, ""), ({"type": "array"}, {"items": TEXT}, "/*"),
        (TEXT, {"not": {"const": "a"}}, ""), (TEXT, {"oneOf": [TEXT, {"maxLength": 3}]}, ""),
        ({"type": "object"}, PAGE, "/text"),
    ],
)  # fmt: skip
def test_what_may_not_fit_is_a_doubt(source, target, where):
    found = find_misfits(source, target)
    assert (where, False) in kinds(found) and not any(one.certain for one in found)


def test_the_words_name_what_is_given_and_what_is_taken():
    assert find_misfits(TEXT, WHOLE, "/parameters/count") == [
        Misfit("/parameters/count", "is string, and integer is taken", True)
    ]


def test_what_nests_without_end_is_a_doubt_and_ends():
    tree = {"type": "object", "properties": {"below": {"$ref": "#"}}}
    found = find_misfits(tree, {**tree, "required": ["below"]})
    assert found and not any(one.certain for one in found)
    loop = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    assert find_misfits(loop, TEXT) and find_misfits(TEXT, loop)


def test_what_branches_far_ends():
    wide = {"anyOf": [{"properties": {f"p{n}": TEXT}} for n in range(300)]}
    assert find_misfits(wide, {"allOf": [wide, wide]})


# --- for any schemas ------------------------------------------------------------------------------

words = st.sampled_from([0.5, "", "a", "bb"])
scalars = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), words)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("xy"), inner, max_size=2)
    ),
    max_leaves=4,
)
types = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
several = st.lists(types, min_size=1, max_size=3, unique=True)
bounds = {
    "minimum": st.integers(-2, 2),
    "maxLength": st.integers(0, 2),
    "minItems": st.integers(0, 2),
}
leaves = st.one_of(
    st.booleans(),
    st.fixed_dictionaries({"type": st.one_of(types, several)}, optional=bounds),
    st.fixed_dictionaries({"enum": st.lists(scalars, min_size=1, max_size=3)}),
)


def _containers(inner):
    members = st.dictionaries(st.sampled_from("xy"), inner, max_size=2)
    return st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": members},
            optional={"required": st.lists(st.sampled_from("xy"), unique=True),
                      "additionalProperties": inner},
        ),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"not": inner}),
    )  # fmt: skip


schemas = st.recursive(leaves, _containers, max_leaves=4)


@given(schemas, schemas, st.lists(values, min_size=1, max_size=6))
def test_what_is_said_to_fit_fits(source, target, some):
    if find_misfits(source, target):
        return
    gives, takes = Validator(source), Validator(target)
    for value in some:
        assert gives.flaws(value) or not takes.flaws(value)
