import json

import pytest

from tests import factories
from tools.catalog.sandbox import content_schemas

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}


def validated(call, content, schema=None, **parameters):
    done = call("validate_content", content=content, schema=schema or SCHEMA, **parameters)
    assert done.status == "Success", (done.error_code, done.error_message)
    return done.output


def test_content_that_fits_is_valid(call):
    assert validated(call, '{"name": "a", "age": 3}') == {
        "valid": True,
        "errors": [],
        "error_count": 0,
    }


def test_every_error_has_its_place(call):
    found = validated(call, '[{"name": 1}, {"age": -1}, 5]', {"type": "array", "items": SCHEMA})
    assert found["error_count"] == 4
    assert {error["path"] for error in found["errors"]} == {"/0/name", "/1", "/1/age", "/2"}


def test_yaml_is_held_against_the_same_schema(call):
    assert validated(call, "name: a\nage: 3\n", format="yaml")["valid"]
    assert [e["path"] for e in validated(call, "name: [1]\n", format="yaml")["errors"]] == ["/name"]


@pytest.mark.parametrize(
    ("content", "form", "line"),
    [
        ('{"a":\n1,}', "json", 2),
        ("", "json", 1),
        ("a: b\nc: [1\n", "yaml", 3),
        ("a: b\n\tc: d", "yaml", 2),
        ("a = 1\nb = [", "toml", 2),
        ("a = 1\nb = !", "toml", 2),
    ],
)
def test_content_that_cannot_be_read_names_its_line(call, content, form, line):
    found = validated(call, content, format=form)
    assert (found["valid"], found["errors"][0]["line"]) == (False, line)


@pytest.mark.parametrize(
    ("content", "form", "place"),
    [
        ('{"a": ["b", {"b": 1}],\n "b": {"c": 1, "a": 2, "\\u0063": 3}}', "json", (2, 24)),
        ('{"a": "NaN", "b":\n NaN}', "json", (2, 2)),
        ("[1, -Infinity]", "json", (1, 5)),
        ("[1e5, 1e999]", "json", (1, 7)),
        (f"[1.5, {'9' * 400}, {'9' * 400}.0]", "json", (1, 409)),
        ("a: 1\nb: {c: 1, d: 2, c: 3}\n", "yaml", (2, 17)),
        ("a: .nan", "yaml", (1, 4)),
        ("a: [-.Inf]", "yaml", (1, 5)),
        ("1: a\n'1': b", "yaml", (2, 1)),
        ("a = [-inf]", "toml", (None, None)),
    ],
)
def test_what_could_be_read_as_two_things_is_refused(call, content, form, place):
    found = validated(call, content, {}, format=form, give_document=True)
    (error,) = found["errors"]
    assert (found["valid"], "document" in found) == (False, False)
    assert (error["line"], error["column"]) == place, error


def test_keys_that_yaml_merges_are_not_there_twice(call):
    content = "a: &a {x: 1, y: 2}\nb: &b {<<: *a, x: 3}\nc: {<<: *b, y: 4}\n"
    found = validated(call, content, {"type": "object"}, format="yaml", give_document=True)
    assert found["document"]["c"] == {"x": 3, "y": 4}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *[(word, word) for word in ("NO", "no", "on", "Off", "yes", "y", "2026-01-01", "12:30")],
        ("true", True), ("False", False), ("~", None), ("1.5", 1.5), ("010", "010"), ("1_0", "1_0"),
        ("'.nan'", ".nan"),
    ],
)  # fmt: skip
def test_words_of_yaml_are_those_of_its_core_schema(call, written, meant):
    """Imports use the same YAML reader."""
    content = f"on: {written}\n2020-01-01: [{written}]\n"
    found = validated(call, content, {"type": "object"}, format="yaml", give_document=True)
    assert found["document"] == {"on": meant, "2020-01-01": [meant]}


def test_a_country_is_a_text(call):
    schema = {"type": "object", "properties": {"country": {"type": "string"}}}
    assert validated(call, "country: NO\n", schema, format="yaml")["valid"]


@pytest.mark.parametrize("content", ["<<: [*a]", "a: &a 1\nb: {<<: *a}"])
def test_what_cannot_be_merged_is_said(call, content):
    found = validated(call, content, {}, format="yaml")
    assert found["valid"] is False and found["errors"][0]["line"]


NAMES = {"fields": [{"name": "Name", "type": "string"}, {"name": "Age", "type": "integer"}]}


@pytest.mark.parametrize(
    ("content", "form", "schema"),
    [
        ("Name,Age\r\nAlice,30\r\n", "csv", NAMES),
        ('"Name","Age"\nBob,1\n', "csv", NAMES),
        ('{"name": "a"}', "json", SCHEMA),
        ("name: a", "yaml", SCHEMA),
        ('name = "a"', "toml", SCHEMA),
    ],
)
def test_a_byte_order_mark_is_no_part_of_the_content(call, content, form, schema):
    assert validated(call, f"\ufeff{content}", schema, format=form)["valid"]


def test_a_second_mark_is_part_of_the_content(call):
    assert not validated(call, "\ufeff\ufeffName,Age\nA,1\n", NAMES, format="csv")["valid"]


@pytest.mark.parametrize(
    "content", ["!!python/object/apply:os.system [id]", "!!python/name:os.system"]
)
def test_yaml_builds_no_objects(call, content):
    assert validated(call, content, {}, format="yaml")["valid"] is False


@pytest.mark.parametrize(
    "content", ["? [1, 2]\n: x", "{}: x", "&a [*a]", "a: 1\n---\na: 2", "a: !thing 1"]
)
def test_odd_yaml_is_answered(call, content):
    assert validated(call, content, True and {"type": "object"}, format="yaml")["valid"] is False


@pytest.mark.parametrize(
    ("content", "form", "places"),
    [
        ('{"age": 1,\n "name":\n  7, "x": "{\\"name\\": 1}"}', "json", [("/name", 3, 3)]),
        ("age: -1\nname:\n  - a\n", "yaml", [("/age", 1, 6), ("/name", 3, 3)]),
        ("name = 1\n", "toml", [("/name", 1, 8)]),
        ("age = 1 # = [\r\nname = [\n'a', # ]\n]\n", "toml", [("/name", 2, 8)]),
        ("\n  [name] # [\n a.b = 1\n", "toml", [("/name", 2, 3)]),
        ('x = """ \\" = 1\n[age]"""\nage = -1\nname = "a"', "toml", [("/age", 3, 7)]),
        ("x = 1", "toml", [("/", 1, 1)]),
    ],
)
def test_an_error_stands_where_it_is_in_the_text(call, content, form, places):
    found = validated(call, content, format=form)["errors"]
    assert sorted((e["path"], e["line"], e["column"]) for e in found) == places


def test_an_error_stands_where_it_is_in_tables_of_toml(call):
    content = """
[[orders]]
id = 1
[[orders.lines]]
sku = "a"
[[orders.lines]]
"sku" = 2
[orders.buyer]
name.first = 3
[[orders]]
id = "b"
lines = [{sku = "c"}, {sku = 4}]
"""
    text, number = {"type": "string"}, {"type": "integer"}
    lines = {"items": {"properties": {"sku": text}}}
    buyer = {"properties": {"name": {"properties": {"first": text}}}}
    order = {"properties": {"id": number, "lines": lines, "buyer": buyer}}
    found = validated(call, content, {"properties": {"orders": {"items": order}}}, format="toml")
    assert {e["path"]: (e["line"], e["column"]) for e in found["errors"]} == {
        "/orders/0/lines/1/sku": (7, 9),
        "/orders/0/buyer/name/first": (9, 14),
        "/orders/1/id": (11, 6),
        "/orders/1/lines/1/sku": (12, 9),
    }


def test_toml_is_held_against_the_same_schema(call):
    assert validated(call, 'name = "a"\nborn = 2020-01-01\n', format="toml")["valid"]


TABLE = {
    "fields": [
        {"name": "id", "type": "integer", "constraints": {"required": True, "unique": True}},
        {"name": "born", "type": "date", "constraints": {"minimum": "2000-01-01"}},
        {"name": "code", "constraints": {"pattern": "[a-z]+", "maxLength": 3}},
    ],
    "missingValues": ["", "-"],
}


@pytest.mark.parametrize(
    ("content", "places"),
    [
        ("id,born,code\n1,2001-02-03,abc\n2,-,\n", []),
        ("id,born,code\n1,1999-01-01,a\n", [(2, 2)]),
        ("id,born,code\n1,,ABC\n1,,abcd\nx,,a\n,,a\n", [(2, 3), (3, 1), (3, 3), (4, 1), (5, 1)]),
        ('id,born,code\n1,,"a\nb"\n2,soon,a\n', [(2, 3), (4, 2)]),
        ("id,born,code\n1,,a,b\n", [(2, None)]),
        ("id,born\n", [(1, None)]),
        ("id,born,code,id,more\n", [(1, 4), (1, 5)]),
        ('id,born,code\n1,,"a\n', [(2, None)]),
        ("", [(1, None)]),
    ],
)
def test_rows_are_held_against_a_table_schema(call, content, places):
    found = validated(call, content, TABLE, format="csv")
    assert sorted((e["line"], e["column"]) for e in found["errors"]) == places
    assert found["valid"] is (not places)


@pytest.mark.parametrize(
    ("kind", "enum", "good", "bad"),
    [
        ("boolean", [True], ["true", "1", "TRUE"], ["false", "0"]),
        ("integer", [1, "20"], ["1", "+1", "01", "20"], ["2"]),
        ("number", [1, 2.5], ["1.0", "1e0", "2.50"], ["2"]),
        ("date", ["2020-01-01"], ["2020-01-01", "20200101"], ["2020-01-02"]),
        ("string", ["1", "a"], ["1", "a"], ["01", "A"]),
    ],
)
def test_a_choice_is_met_by_every_way_to_write_it(call, kind, enum, good, bad):
    schema = {"fields": [{"name": "a", "type": kind, "constraints": {"enum": enum}}]}
    found = validated(call, "\n".join(["a", *good, *bad]), schema, format="csv")
    assert [e["line"] for e in found["errors"]] == [2 + len(good) + n for n in range(len(bad))]


def test_a_key_of_several_fields_is_there_once(call):
    schema = {"fields": [{"name": "a"}, {"name": "b"}], "primaryKey": ["a", "b"], "delimiter": ";"}
    found = validated(call, "a;b\n1;2\n1;3\n1;2\n", schema, format="csv")
    assert [e["line"] for e in found["errors"]] == [4]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"fields": []},
        {"fields": [{"name": "a"}, {"name": "a"}]},
        {"fields": [{"name": "a", "type": "color"}]},
        {"fields": [{"name": "a", "type": "date", "constraints": {"minimum": "soon"}}]},
        {"fields": [{"name": "a", "type": "date", "constraints": {"enum": ["soon"]}}]},
        {"fields": [{"name": "a", "constraints": {"minimum": 1}}]},
        {"fields": [{"name": "a", "constraints": {"pattern": "("}}]},
        {"fields": [{"name": "a"}], "primaryKey": "b"},
    ],
)
def test_a_table_schema_that_cannot_be_used_is_refused(call, schema):
    done = call("validate_content", content="a\n1\n", schema=schema, format="csv")
    assert (done.status, done.error_code) == ("Failed", "SCHEMA_INVALID"), done.output


XSD = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
<xs:element name="a"><xs:complexType><xs:sequence>
<xs:element name="n" type="xs:int" maxOccurs="unbounded"/>
</xs:sequence></xs:complexType></xs:element>{more}</xs:schema>"""


@pytest.mark.parametrize(
    ("content", "xsd", "lines"),
    [
        ("<a><b/></a>", None, []),
        ('<?xml version="1.0" encoding="latin1"?>\n<a>ü</a>', None, []),
        ("<a>\n<b>\n</a>", None, [3]),
        ("", None, [1]),
        ("<a><n>1</n></a>", XSD, []),
        ("<a>\n<n>1</n>\n<n>x</n>\n<n>y</n></a>", XSD, [3, 4]),
    ],
)
def test_xml_is_read_and_held_against_an_xml_schema(call, content, xsd, lines):
    given = {} if xsd is None else {"xsd": xsd.format(more="")}
    done = call("validate_content", content=content, format="xml", **given)
    assert done.status == "Success", done.error_message
    assert [e["line"] for e in done.output["errors"]] == lines


@pytest.mark.parametrize(
    "content",
    [
        '<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>',
        '<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>',
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
    ],
)
def test_xml_declares_nothing(call, content):
    found = call("validate_content", content=content, format="xml").output
    assert found["valid"] is False and "root:" not in str(found)


@pytest.mark.parametrize(
    "more",
    ['<xs:include schemaLocation="file:///etc/passwd"/>',
     '<xs:import namespace="x" schemaLocation="http://127.0.0.1:1/x"/>', "<xs:element/>", "<"],
)  # fmt: skip
def test_an_xml_schema_that_cannot_be_used_is_refused(call, more):
    xsd = XSD.format(more=more)
    done = call("validate_content", content="<a/>", format="xml", xsd=xsd)
    assert (done.status, done.error_code) == ("Failed", "SCHEMA_INVALID"), done.output


def test_schemas_of_the_catalog_are_known_by_name_and_version(run, organization):
    by = factories.actor(organization)
    row = content_schemas.create_schema(
        organization=organization, schema={"name": "order", "document": {"type": "object"}}, by=by
    )
    content_schemas.add_version(row=row, change={"document": {"type": "array"}}, by=by)
    assert run("validate_content", content="[]", schema_name="order").output["valid"]
    old = run("validate_content", content="[]", schema_name="order", schema_version=1)
    assert old.output["valid"] is False
    for name, version in (("order", 9), ("nothing", 1)):
        done = run("validate_content", content="[]", schema_name=name, schema_version=version)
        assert (done.status, done.error_code) == ("Failed", "SCHEMA_UNKNOWN")


def test_a_schema_of_another_organization_is_unknown(run):
    elsewhere = factories.organization("schemas-elsewhere")
    content_schemas.create_schema(
        organization=elsewhere,
        schema={"name": "theirs", "document": {}},
        by=factories.actor(elsewhere),
    )
    done = run("validate_content", content="[]", schema_name="theirs")
    assert (done.status, done.error_code) == ("Failed", "SCHEMA_UNKNOWN")


@pytest.mark.parametrize("count", [1_000, pytest.param(5_000, marks=pytest.mark.part("generated"))])
def test_many_errors_are_counted_and_the_first_are_shown(call, count):
    found = validated(call, json.dumps([1] * count), {"items": {"type": "string"}})
    assert (found["error_count"], len(found["errors"])) == (count, 100)


def test_a_named_schema_is_known(run):
    done = run("validate_content", content='{"type": "nonsense"}', schema_name="json-schema")
    assert done.output["valid"] is False
    parameters = '[{"name": "a", "description": "b", "type": "String"}]'
    done = run("validate_content", content=parameters, schema_name="tool-parameters")
    assert done.output["valid"] is True


def test_one_schema_is_needed(call, run):
    done = call("validate_content", content="{}")
    assert (done.status, done.error_code) == ("Failed", "SCHEMA_MISSING")
    done = run("validate_content", content="{}", schema={}, schema_name="json-schema")
    assert (done.status, done.error_code) == ("Failed", "SCHEMA_MISSING")


@pytest.mark.parametrize(
    ("way", "schema"),
    [
        ("call", {"type": "nonsense"}), ("call", {"$ref": "http://127.0.0.1:1/x"}),
        ("call", {"pattern": "("}), ("call", {"$ref": "file:///etc/passwd"}),
        ("run", {"$ref": "file:///etc/passwd"}),  # in the sandbox
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_used_is_refused(request, way, schema):
    done = request.getfixturevalue(way)("validate_content", content="{}", schema=schema)
    assert (done.status, done.error_code) == ("Failed", "SCHEMA_INVALID")


def laughs(width, depth):
    lines = [f"a0: &a0 [{', '.join(['lol'] * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, depth)]
    return "\n".join(lines)


def deep(levels, leaf):
    for _ in range(levels):
        leaf = {"a": leaf}
    return json.dumps(leaf)


@pytest.mark.parametrize("levels", [300, 900])
def test_a_document_that_is_nested_too_deeply_has_that_flaw(call, levels):
    found = validated(call, "[" * levels + "]" * levels, {"const": []})
    (error,) = found["errors"]
    assert (found["valid"], error["path"]) == (False, "/")
    assert error["message"].startswith("cannot be checked")


TWICE = {"type": "object", "allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}
HOSTILE = {
    "a deep document": ({"content": "<a>" * 200_000, "format": "xml"}),
    "a schema of a billion": (
        {
            "content": "<a/>",
            "format": "xml",
            "xsd": XSD.format(
                more='<xs:element name="b"><xs:complexType><xs:sequence><xs:element name="c" '
                'type="xs:int" minOccurs="1000000" maxOccurs="1000000"/></xs:sequence>'
                "</xs:complexType></xs:element>"
            ),
        }
    ),
    "a table of empty rows": (
        {"content": "a\n" + "\n" * 500_000, "format": "csv", "schema": {"fields": [{"name": "a"}]}}
    ),
    "a pattern of a table": (
        {
            "content": "a\n" + "a" * 50_000 + "!\n",
            "format": "csv",
            "schema": {"fields": [{"name": "a", "constraints": {"pattern": "(a+)+"}}]},
        }
    ),
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


@pytest.mark.part("generated")
def test_what_would_hang_ends_inside_its_limits_and_the_next_call_works(run):
    wrong = []
    for name, parameters in HOSTILE.items():
        done = run("validate_content", timeout_s=1, **parameters)
        ended = done.status in {"Success", "Failed", "Timeout"}
        if not ended or done.error_code == "INTERNAL_ERROR":
            wrong.append((name, done.status, done.error_code, done.error_message))
    assert wrong == []
    assert validated(run, '{"name": "a"}')["valid"]


IN_THE_SANDBOX = {
    "json": ({"content": '{"name": "a"}', "schema": SCHEMA}, True),
    "yaml": ({"content": "name: [1]", "schema": SCHEMA}, False),
    "toml": ({"content": "name = 1", "schema": SCHEMA}, False),
    "csv": ({"content": "a\n1\n", "schema": {"fields": [{"name": "a"}]}}, True),
    "xml": ({"content": "<a><n>1</n></a>", "xsd": XSD.format(more="")}, True),
}


def test_every_format_has_its_libraries_in_the_sandbox(run):
    found = {
        form: run("validate_content", format=form, **parameters).output["valid"]
        for form, (parameters, _) in IN_THE_SANDBOX.items()
    }
    assert found == {form: valid for form, (_, valid) in IN_THE_SANDBOX.items()}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"format": "json", "schema": {"pattern": "(?=x)"}}, "uses a lookahead"),
        ({"format": "yaml", "schema": {"patternProperties": {"(?<!x)": {}}}}, "a lookbehind"),
        (
            {
                "format": "csv",
                "schema": {"fields": [{"name": "a", "constraints": {"pattern": r"(.)\1"}}]},
            },
            "back-references",
        ),
    ],
)
def test_a_schema_says_which_part_of_a_pattern_is_not_supported(call, parameters, words):
    done = call("validate_content", content="a", **parameters)
    assert done.error_code == "SCHEMA_INVALID" and words in done.error_message
