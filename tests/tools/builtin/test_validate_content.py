import json
import time

import pytest

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}


def validated(run, content, schema=None, **parameters):
    done = run("validate_content", content=content, schema=schema or SCHEMA, **parameters)
    assert done.status == "Success", (done.error_code, done.error_message)
    return done.output


def test_content_that_fits_is_valid(run):
    assert validated(run, '{"name": "a", "age": 3}') == {
        "valid": True,
        "errors": [],
        "error_count": 0,
    }


def test_every_error_has_its_place(run):
    found = validated(run, '[{"name": 1}, {"age": -1}, 5]', {"type": "array", "items": SCHEMA})
    assert found["error_count"] == 4
    assert {error["path"] for error in found["errors"]} == {"/0/name", "/1", "/1/age", "/2"}


def test_yaml_is_held_against_the_same_schema(run):
    assert validated(run, "name: a\nage: 3\n", format="yaml")["valid"]
    assert [e["path"] for e in validated(run, "name: [1]\n", format="yaml")["errors"]] == ["/name"]


@pytest.mark.parametrize(
    ("content", "form", "line"),
    [
        ('{"a":\n1,}', "json", 2),
        ("", "json", 1),
        ("a: b\nc: [1\n", "yaml", 3),
        ("a: b\n\tc: d", "yaml", 2),
    ],
)
def test_content_that_cannot_be_read_names_its_line(run, content, form, line):
    found = validated(run, content, format=form)
    assert (found["valid"], found["errors"][0]["line"]) == (False, line)


@pytest.mark.parametrize(
    "content", ["!!python/object/apply:os.system [id]", "!!python/name:os.system"]
)
def test_yaml_builds_no_objects(run, content):
    assert validated(run, content, {}, format="yaml")["valid"] is False


@pytest.mark.parametrize("content", ["2020-01-01: x", "? [1, 2]\n: x", "{}: x", "&a [*a]"])
def test_odd_yaml_is_answered(run, content):
    assert validated(run, content, True and {"type": "object"}, format="yaml")["valid"] is False


def test_many_errors_are_counted_and_the_first_are_shown(run):
    found = validated(run, json.dumps([1] * 5_000), {"items": {"type": "string"}})
    assert (found["error_count"], len(found["errors"])) == (5_000, 100)


def test_a_named_schema_is_known(run):
    done = run("validate_content", content='{"type": "nonsense"}', schema_name="json-schema")
    assert done.output["valid"] is False
    parameters = '[{"name": "a", "description": "b", "type": "String"}]'
    done = run("validate_content", content=parameters, schema_name="tool-parameters")
    assert done.output["valid"] is True


@pytest.mark.parametrize("schemas", [{}, {"schema": {}, "schema_name": "json-schema"}])
def test_one_schema_is_needed(run, schemas):
    done = run("validate_content", content="{}", **schemas)
    assert (done.status, done.error_code) == ("Failed", "SCHEMA_MISSING")


@pytest.mark.parametrize(
    "schema", [{"type": "nonsense"}, {"$ref": "http://127.0.0.1:1/x"}, {"pattern": "("},
               {"$ref": "file:///etc/passwd"}]
)  # fmt: skip
def test_a_schema_that_cannot_be_used_is_refused(run, schema):
    done = run("validate_content", content="{}", schema=schema)
    assert (done.status, done.error_code) == ("Failed", "SCHEMA_INVALID")


def laughs(width, depth):
    lines = [f"a0: &a0 [{', '.join(['lol'] * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, depth)]
    return "\n".join(lines)


def deep(levels, leaf):
    for _ in range(levels):
        leaf = {"a": leaf}
    return json.dumps(leaf)


TWICE = {"type": "object", "allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}
HOSTILE = {
    "billion laughs": ({"content": laughs(9, 9), "schema": {}, "format": "yaml"}),
    "many laughs": ({"content": laughs(200, 3), "schema": {}, "format": "yaml"}),
    "a reference bomb": ({"content": deep(40, 1), "schema": TWICE}),
    "an endless reference": ({"content": "{}", "schema": {"$ref": "#"}}),
    "an exploding pattern": (
        {"content": json.dumps("a" * 5_000 + "!"), "schema": {"pattern": "^(a+)+$"}}
    ),
    "100,000 lists": ({"content": "[" * 100_000 + "]" * 100_000, "schema": {}}),
    "100,000 YAML lists": ({"content": "[" * 100_000, "schema": {}, "format": "yaml"}),
    "a number without end": ({"content": "9" * 1_000_000, "schema": {"multipleOf": 0.1}}),
}


@pytest.mark.parametrize("parameters", HOSTILE.values(), ids=HOSTILE)
def test_what_would_hang_ends_inside_its_limits(run, parameters):
    began = time.monotonic()
    done = run("validate_content", timeout_s=3, **parameters)
    assert done.status in {"Success", "Failed", "Timeout"}
    assert done.error_code != "INTERNAL_ERROR"
    assert time.monotonic() - began < 8


def test_after_the_hostile_ones_the_next_call_works(run):
    run("validate_content", timeout_s=1, **HOSTILE["a reference bomb"])
    assert validated(run, '{"name": "a"}')["valid"]
