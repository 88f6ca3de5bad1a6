"""Semantic versions: how a change of a definition affects its callers."""

import pytest

from tests.factories import definition
from tools.definitions.tool import read_definition
from tools.definitions.values.semver import VersionChange, definition_change, parse_version

PLAIN = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}


def change(old, new):
    base = {"parameters": None, "input_schema": PLAIN}
    return definition_change(
        read_definition(definition(**base | old)), read_definition(definition(**base | new))
    ).name


def inputs(**fields):
    return {"input_schema": PLAIN | fields}


def outputs(*names, required=(), **fields):
    properties = {name: {"type": "string"} for name in names}
    return {"output_schema": {"type": "object", "properties": properties,
                              "required": list(required)} | fields}  # fmt: skip


CASES = [
    ({}, {}, "PATCH"),
    ({}, {"description": "Other words."}, "PATCH"),
    ({}, {"capabilities": ["x"]}, "PATCH"),
    ({}, inputs(properties={"a": {"type": "string", "description": "Now told."}}), "PATCH"),
    ({}, inputs(properties={"a": {"type": "string"}, "b": {"type": "integer"}}), "MINOR"),
    ({}, inputs(required=["a"]), "MAJOR"),
    (inputs(required=["a"]), {}, "MINOR"),
    ({}, inputs(properties={}), "MAJOR"),
    ({}, inputs(properties={"a": {"type": "integer"}}), "MAJOR"),
    ({}, inputs(properties={"a": {"type": "string", "maxLength": 3}}), "MAJOR"),
    (inputs(properties={"a": {"enum": [1]}}), inputs(properties={"a": {"enum": [1, 2]}}), "MINOR"),
    (inputs(properties={"a": {"enum": [1, 2]}}), inputs(properties={"a": {"enum": [1]}}), "MAJOR"),
    (inputs(properties={"a": {"enum": [1]}}), inputs(properties={"a": {}}), "MINOR"),
    (inputs(additionalProperties=True), {}, "MAJOR"),
    ({}, inputs(additionalProperties=True), "PATCH"),
    ({}, outputs("x"), "MINOR"),
    (outputs("x"), outputs("x", "y"), "MINOR"),
    (outputs("x", "y"), outputs("x"), "MAJOR"),
    (outputs("x", required=["x"]), outputs("x"), "MAJOR"),
    (outputs("x"), {}, "MAJOR"),
    ({"delivery": "idempotent"}, {"delivery": "external"}, "MAJOR"),
    ({"delivery": "external"}, {"delivery": "idempotent"}, "MINOR"),
    ({"group": ["a", "b"]}, {"group": ["a"]}, "MAJOR"),
    ({"group": ["a"]}, {"group": ["a", "b"]}, "MINOR"),
    ({}, {"group": ["default"]}, "MINOR"),
    ({"available_in_states": ["s"]}, {}, "MINOR"),
    ({}, {"available_in_states": ["s"]}, "MAJOR"),
    ({}, {"required_permissions": ["p"]}, "MAJOR"),
    ({}, {"requires_confirmation": True}, "MAJOR"),
    ({}, {"state": "next"}, "MAJOR"),
    ({}, {"cost_per_invocation": "0.5"}, "MINOR"),
]


@pytest.mark.parametrize(("old", "new", "level"), CASES, ids=range(len(CASES)))
def test_a_change_is_as_grave_as_it_is_for_callers(old, new, level):
    assert change(old, new) == level


@pytest.mark.parametrize(
    "label",
    [
        "1",
        "1.0",
        "01.0.0",
        "1.0.0-",
        "v1.0.0",
        "1.0.0 ",
        "",
        "1.0.0-a..b",
        "١.0.0",
        "1.0.0-01",
        "1.0.0+a..b",
    ],
)
def test_what_is_no_semantic_version(label):
    assert parse_version(label) is None


def test_versions_are_ordered_as_the_standard_says():
    labels = [
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0-rc.1",
        "1.0.0",
        "1.0.1",
        "1.2.0",
        "1.10.0",
        "2.0.0",
    ]
    versions = [parse_version(one) for one in labels]
    assert sorted(versions, key=lambda one: one) == versions
    assert versions[0] < versions[7] and not versions[7] < versions[0]


@pytest.mark.parametrize(
    ("label", "level", "after"),
    [("1.2.3", VersionChange.PATCH, "1.2.4"), ("1.2.3", VersionChange.MINOR, "1.3.0"),
     ("1.2.3", VersionChange.MAJOR, "2.0.0"), ("2.0.0-rc.1", VersionChange.PATCH, "2.0.0")],
)  # fmt: skip
def test_the_next_version_follows_from_the_change(label, level, after):
    assert parse_version(label).bumped(level).label == after
