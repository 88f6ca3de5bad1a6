"""Definitions of http tools: what is accepted, and which fields are invalid."""

import pytest

from tools.definitions.tool import definition_digest, read_definition
from tools.errors import InvalidDefinition

ID = {"name": "id", "type": "String", "description": "Which.", "required": True}
TEXT = {"name": "text", "type": "String", "description": "What."}
URL = "https://api.example.com/v1/users/{id}"


def http(parameters=(ID, TEXT), **implementation):
    return {
        "name": "call",
        "type": "http",
        "description": "Calls.",
        "parameters": list(parameters),
        "implementation": {"method": "GET", "url": URL, **implementation},
    }


def flaws(*args, **implementation):
    with pytest.raises(InvalidDefinition) as refused:
        read_definition(http(*args, **implementation))
    return {flaw["field"] for flaw in refused.value.details["errors"]}


def test_a_tool_keeps_only_the_parts_it_has():
    read = read_definition(http(query={"q": "{text}"}, body=None))
    assert read["implementation"] == {"method": "GET", "url": URL, "query": {"q": "{text}"}}
    assert definition_digest(read) == definition_digest(read_definition(read))


def test_every_part_is_read():
    whole = {
        "method": "POST",
        "headers": {"X-Trace": "{text}"},
        "query": {"a": "1", "b": {"value": "{text}", "separator": ","}},
        "cookies": {"seen": "{text}"},
        "body": {"deep": [{"id": "{id}", "said": "it was {text}"}]},
        "select": {"name": "/data/0/na~1me"},
        "credential": "key",
    }
    assert read_definition(http(**whole))["implementation"] == {"url": URL, **whole}


@pytest.mark.parametrize(
    "url",
    [
        "https://{id}/v1",
        "https://{id}.example.com/v1",
        "https://example.com{id}/v1",
        "https://example.com:{id}/v1",
        "{id}://example.com/v1",
        "{id}",
        "https://user@example.com/{id}",
        "https://example.com@{id}/",
        "https://example.com\\{id}",
        "https://example.com\\@evil.example/{id}",
        "https://example.com/#{id}",
        "https://example.com/a/../{id}",
        "https://example.com/%2e%2e/{id}",
        "https://example.com/?q={id}",
        "https://example.com/{ id }",
        "https://example.com/{id",
        "https://2130706433/{id}",
        "https://0x7f.1/{id}",
        "ftp://example.com/{id}",
        "//example.com/{id}",
        "https:///{id}",
        "https://example.com/\n{id}",
        "https://example.com/ü/{id}",
    ],
)
def test_a_url_says_itself_where_it_leads(url):
    assert "implementation.url" in flaws(url=url)


@pytest.mark.parametrize(
    "name",
    [
        "Host", "content-length", "Authorization", "AUTHORIZATION", "Cookie", "Connection",
        "transfer_encoding", "Proxy-Authorization", "Sec-Fetch-Site", "Upgrade", "TE", "X Y",
        "X-A\r\nB", "Accept-Encoding",
    ],
)  # fmt: skip
def test_some_headers_are_not_a_tools_to_set(name):
    assert any(field.startswith("implementation.headers.") for field in flaws(headers={name: "x"}))


@pytest.mark.parametrize(
    ("implementation", "field"),
    [
        ({"headers": {"X-A": "a\r\nB: c"}}, "implementation.headers.X-A"),
        ({"headers": {"X-A": "a", "x-a": "b"}}, "implementation.headers"),
        ({"headers": ["X-A"]}, "implementation.headers"),
        ({"headers": {"X-A": 7}}, "implementation.headers.X-A"),
        ({"cookies": {"a=b": "x"}}, "implementation.cookies.a=b"),
        ({"query": {"": "x"}}, "implementation.query"),
        ({"query": {"a": ["x"]}}, "implementation.query.a"),
        ({"query": {"a": {"value": "x", "separator": "&"}}}, "implementation.query.a.separator"),
        ({"query": {str(n): "x" for n in range(101)}}, "implementation.query"),
        ({"body": {"a": 1}}, "implementation.body"),
        ({"method": "POST", "body": {}, "form": {"a": "b"}}, "implementation.form"),
        ({"method": "POST", "form": {"a": {"b": 1}}}, "implementation.form.a.value"),
        (
            {"query": {"a": {"value": "x{id}", "style": "deepObject"}}},
            "implementation.query.a.value",
        ),
        ({"query": {"a": {"value": "{id}", "style": "pipe"}}}, "implementation.query.a.style"),
        (
            {"query": {"a": {"value": "{id}", "style": "form", "separator": ","}}},
            "implementation.query.a.separator",
        ),
        ({"method": "POST", "body": {}, "text": "{id}"}, "implementation.text"),
        ({"text": "{id}"}, "implementation.text"),
        ({"method": "TRACE"}, "implementation.method"),
        ({"method": None}, "implementation.method"),
        ({"select": "data"}, "implementation.select"),
        ({"select": "/a~2"}, "implementation.select"),
        ({"select": []}, "implementation.select"),
        ({"select": {"a": 1}}, "implementation.select"),
        ({"credential": "a b"}, "implementation.credential"),
        ({"timeout": 3}, "implementation.timeout"),
        ({"query": {"q": "{other}"}}, "implementation.query"),
        ({"method": "PUT", "body": ["x", {"y": "{other}"}]}, "implementation.body"),
    ],
)
def test_a_wrong_part_is_named(implementation, field):
    assert field in flaws(**implementation)


def test_a_required_parameter_is_part_of_the_request():
    assert flaws([ID, TEXT | {"required": True}]) == {"parameters"}


def test_a_parameter_of_the_path_is_required_or_has_a_default():
    assert flaws([ID | {"required": False}]) == {"implementation.url"}
    assert read_definition(http([ID | {"required": False, "default": "me"}]))


def test_placeholders_are_held_against_a_schema_as_well():
    schema = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    assert read_definition(http([]) | {"input_schema": schema})
    other = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    with pytest.raises(InvalidDefinition) as refused:
        read_definition(http([]) | {"input_schema": other})
    fields = {flaw["field"] for flaw in refused.value.details["errors"]}
    assert fields == {"implementation.url", "parameters"}


@pytest.mark.parametrize("parameters", [7, ["id"], [{"name": ["id"]}], {"id": {}}])
def test_odd_parameters_are_flaws_and_no_accident(parameters):
    with pytest.raises(InvalidDefinition):
        read_definition(http([]) | {"parameters": parameters})
