import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from tests.tools.api import document as api_document
from tools.api import documentation
from tools.api.urls import urlpatterns

NULL = ({"type": "null"}, {"$ref": "#/components/schemas/NullEnum"})
VERBS = {"get", "post", "put", "patch", "delete"}


@pytest.fixture
def document() -> dict[str, Any]:
    return api_document.document()


@pytest.fixture
def operations(document):
    return [
        (f"{verb} {path}", operation)
        for path, item in document["paths"].items()
        for verb, operation in item.items()
        if verb in VERBS
    ]


def test_the_document_is_valid_and_has_no_warnings(tmp_path):
    place = tmp_path / "schema.yaml"
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(place))
    assert place.stat().st_size > 10_000


def test_every_address_of_the_api_is_in_it(document):
    there = {re.sub(r"<\w+:(\w+)>", r"{\1}", str(url.pattern)) for url in urlpatterns}
    assert {f"/api/v1/{path}" for path in there} == set(document["paths"])


def test_operation_ids_are_words_and_used_once(operations):
    names = [operation["operationId"] for _, operation in operations]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)+", name) for name in names)


def test_every_operation_stands_under_its_resource_with_a_summary(operations):
    for place, operation in operations:
        assert operation["tags"] == [place.split("/")[3]], place
        assert operation["summary"], place


def test_every_operation_but_the_login_wants_a_token_or_a_session(operations):
    open_to_all = [place for place, operation in operations if "security" not in operation]
    assert sorted(open_to_all) == [
        "post /api/v1/channels/{channel_id}/bounces",  # signed with the channel's own key
        "post /api/v1/tokens",
    ]
    secured = [operation["security"] for _, operation in operations if "security" in operation]
    assert all(schemes == [{"bearer": []}, {"session": []}] for schemes in secured)


def test_every_error_is_described_and_has_the_one_shape(document, operations):
    for place, operation in operations:
        errors = {code: answer for code, answer in operation["responses"].items() if code >= "4"}
        assert {"400", "401", "404", "406", "503"} <= errors.keys(), place
        for code, answer in errors.items():
            assert answer == {"$ref": f"#/components/responses/Error{code}"}, place
    for code, answer in document["components"]["responses"].items():
        shapes = {kind: one["schema"]["$ref"] for kind, one in answer["content"].items()}
        assert shapes == {
            "application/json": "#/components/schemas/ErrorAnswer",
            "application/problem+json": "#/components/schemas/ProblemAnswer",
        }, code
        assert answer["description"], code


def test_each_closed_set_is_named_by_what_it_is_of(document):
    """Where two enumerations share a field name, the generator uses the serializer's name or a
    digest: `SPECTACULAR_SETTINGS["ENUM_NAME_OVERRIDES"]` names the enumeration."""
    names = [name for name, one in document["components"]["schemas"].items() if "enum" in one]
    assert len(names) > 40
    odd = re.compile(r"Answer|Body|Request(?!Kind)|[0-9]|(?P<word>[A-Z][a-z]+)(?P=word)")
    assert [name for name in names if odd.search(name) or not name.endswith("Enum")] == []


def test_one_of_is_said_only_where_a_member_tells_which(document):
    for name, component in _nodes(document):
        assert "discriminator" in component or len(component.get("oneOf", [])) != 1, name
        alternatives = [one for one in component.get("oneOf", []) if one not in NULL]
        assert "discriminator" in component or len(alternatives) < 2, (name, component)
        assert {} not in alternatives, name  # an empty schema would accept null too


def test_the_document_says_where_its_paths_begin(document):
    assert [one["url"] for one in document["servers"]] == ["/"]


def test_what_is_no_json_is_typed_as_it_is(operations):
    said = dict(operations)
    for place, kinds in {
        "get /api/v1/tools/export": {"application/json", "application/yaml"},
        "get /api/v1/executions/{execution_id}/output": {"application/json", "text/plain"},
        "get /api/v1/executions/{execution_id}/events": {"text/event-stream"},
        "get /api/v1/audit/export": {"application/x-ndjson", "text/csv"},
        "get /api/v1/audit/records/{record_id}/proof": {"text/plain"},
    }.items():
        assert said[place]["responses"]["200"]["content"].keys() == kinds, place


def test_every_reference_leads_somewhere(document):
    named = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document))
    assert set(named) <= document["components"]["schemas"].keys()


def test_what_one_tries_first_has_an_example(document):
    for path in ("/tools", "/tools/{name}/execute", "/executions"):
        body = document["paths"][f"/api/v1{path}"]["post"]["requestBody"]
        assert body["content"]["application/json"]["examples"], path


def test_anybody_is_served_the_generated_document_as_json_or_yaml(db, document):
    served = Client().get("/api/schema/")
    assert served.json() == json.loads(json.dumps(document))
    for how in ({"path": "/api/schema/?format=yaml"},
                {"path": "/api/schema/", "headers": {"Accept": "application/yaml"}}):  # fmt: skip
        assert Client().get(**how).content.startswith(b"openapi: 3.")


def test_the_document_is_computed_for_no_user(db, monkeypatch):
    first = Client().get("/api/schema/")
    monkeypatch.setattr(documentation, "SchemaGenerator", None)
    again = Client().get("/api/schema/", headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "max-age" in first["Cache-Control"]
    documentation.openapi_document.cache_clear()  # as in another process
    assert Client().get("/api/schema/").content == first.content


def test_another_release_of_what_makes_the_document_makes_it_again(monkeypatch):
    before = documentation._release_fingerprint()
    assert documentation._release_fingerprint() == before
    monkeypatch.setattr(documentation, "MADE_BY", ("1", "2"))
    assert documentation._release_fingerprint() != before


def test_the_example_of_a_tool_can_be_registered(document, admin_api):
    body = document["paths"]["/api/v1/tools"]["post"]["requestBody"]
    (example,) = body["content"]["application/json"]["examples"].values()
    assert admin_api.post("/tools", example["value"]).status_code == 201


def test_the_page_needs_no_exception_from_the_strict_policy(db):
    answer = Client().get("/api/docs/")
    policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy and "style-src 'self'" in policy
    page = answer.content.decode()
    assert "<style" not in page and not re.search(r"<script(?![^>]*\bsrc=)", page)


def test_the_page_and_its_script_lead_to_the_document(db):
    page = Client().get("/api/docs/").content.decode()
    script = re.findall(r'src="(/api/docs/\?[^"]+)"', page)
    assert b"/api/schema/" in Client().get(script[0]).content


def test_every_change_says_that_it_takes_a_condition(operations):
    for place, operation in operations:
        verb = place.split()[0]
        if verb in {"put", "patch", "delete"}:
            names = [part["name"] for part in operation["parameters"] if part["in"] == "header"]
            assert names == ["If-Match"], place
            assert {"400", "412"} <= operation["responses"].keys(), place
        if verb in {"put", "patch"}:
            assert "ETag" in operation["responses"]["200"]["headers"], place


def test_what_can_be_changed_says_that_it_is_read_with_its_tag(operations):
    said = dict(operations)
    for place in ("get /api/v1/tools/{name}", "post /api/v1/tools/{name}/disable"):
        assert "ETag" in said[place]["responses"]["200"]["headers"]
    assert "ETag" in said["post /api/v1/agents"]["responses"]["201"]["headers"]
    assert "ETag" not in said["get /api/v1/tools"]["responses"]["200"]["headers"]
    assert "304" in said["get /api/v1/tools/{name}"]["responses"]


def _nodes(node: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(node, dict | list):
        return
    if isinstance(node, dict):
        yield place, node
    children = node.items() if isinstance(node, dict) else enumerate(node)
    for key, child in children:
        yield from _nodes(child, f"{place}/{key}")
