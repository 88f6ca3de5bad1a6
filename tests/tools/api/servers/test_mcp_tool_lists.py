"""Tool lists of real MCP servers: one invalid tool does not make a server unusable, and no poisoned
tool reaches an agent before a person has reviewed it."""

import json

import pytest

from tests import factories
from tests.stubs.mcp import as_json, mcp_serving
from tests.tools.api.poisoned_tools import POISONED
from tools.catalog.mcp.mcp_catalog import catalog_servers
from tools.catalog.mcp.upstreams import client_pool
from tools.models import Tool as ToolRow

PLACE = "/mcp-servers"
GOOD = {"name": "good_one", "description": "Good.", "inputSchema": {"type": "object"}}


@pytest.fixture
def stub():
    with mcp_serving() as server:
        yield server


@pytest.fixture
def far(admin_api, organization, stub, loopback_is_open):
    answer = admin_api.post(PLACE, {"name": "far", "url": stub.url})
    assert answer.status_code == 201, answer.json()
    yield f"{PLACE}/far"
    for one in catalog_servers(organization.pk).values():
        client_pool().forget_server(str(one.id))


@pytest.fixture
def listed(admin_api, far, stub):
    """The result of refreshing a server that lists these tools."""

    def refresh(*tools, **more):
        stub.list_more = {"tools": [*tools], **more}
        answer = admin_api.post(f"{far}/refresh", {})
        assert answer.status_code == 200, answer.json()
        return answer.json()

    return refresh


def import_tools(admin_api, far, *items):
    answer = admin_api.post(f"{far}/import", {"tools": list(items)})
    assert answer.status_code == 200, answer.json()
    return answer.json()["items"]


def findings_by_tool(answer, result="refused"):
    return {one["tool"]: one["message"] for one in answer["findings"] if one["result"] == result}


def tool(name="bad", **fields):
    return GOOD | {"name": name} | fields


BAD = {
    "long-name": (tool("n" * 140), "n" * 140, "1 to 128"),
    "no-name": ({"description": "?"}, "#2", "1 to 128"),
    "no-object": (17, "#2", "is no object"),
    "description-no-text": (tool(description={"en": "x"}), "bad", "description must be a text"),
    "description-too-long": (tool(description="x" * 100_001), "bad", "longer than 100000"),
    "schema-no-object": (tool(inputSchema=["x"]), "bad", "inputSchema must be an object"),
    "too-large": (tool(annotations={"x": "y" * 600_000}), "bad", "longer than"),
    "header-mark": (
        tool(inputSchema={"type": "object", "properties": {"a": {"x-mcp-header": "a b"}}}),
        "bad",
        "x-mcp-header",
    ),
}


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize(("bad", "name", "why"), BAD.values(), ids=BAD)
def test_one_bad_tool_is_refused_by_name_and_the_others_are_imported(
    admin_api, far, listed, bad, name, why
):
    answer = listed(GOOD, bad)
    assert answer["tools"] == 1
    assert why in findings_by_tool(answer)[name]
    answer = admin_api.post(f"{far}/import", {"tools": [{"tool": "good_one"}, {"tool": name}]})
    good, refused = answer.json()["items"]
    assert (good["result"], refused["result"]) == ("created", "refused")
    assert why in refused["errors"][0]["message"]
    assert findings_by_tool(answer.json()) == findings_by_tool(admin_api.get(far).json())


def test_two_tools_of_one_name_are_refused_by_it_and_the_others_imported(admin_api, far, listed):
    one, other = tool("search", description="One."), tool("search", description="Other.")
    answer = listed(GOOD, one, other)
    assert (answer["tools"], findings_by_tool(answer)) == (
        1, {"search": "is listed twice, and differently each time"}
    )  # fmt: skip
    done = import_tools(admin_api, far, {"tool": "search"}, {"tool": "good_one"})
    assert [item["result"] for item in done] == ["refused", "created"]


def test_a_tool_that_is_listed_twice_alike_is_listed_once(listed):
    answer = listed(GOOD, GOOD)
    assert (answer["tools"], answer["findings"]) == (1, [])


def test_a_list_whose_last_page_comes_again_is_listed_once(stub, listed):
    answer = listed(GOOD, nextCursor="")
    assert answer["tools"] == 1
    assert "the list was ended" in findings_by_tool(answer, "repaired")[""]
    assert len(stub.requests_for("tools/list")) == 2


def test_a_list_that_ends_by_false_or_null_has_ended(stub, listed):
    assert listed(GOOD, nextCursor=False)["tools"] == 1
    assert listed(GOOD, nextCursor=None)["tools"] == 1
    assert len(stub.requests_for("tools/list")) == 2


def test_a_list_of_a_server_without_tools_may_be_null(admin_api, far, stub):
    for nothing in (None, {}):
        stub.list_more = {"tools": nothing}
        answer = admin_api.post(f"{far}/refresh", {})
        assert (answer.status_code, answer.json()["tools"]) == (200, 0)


def test_the_answers_of_php_to_a_request_without_a_result_are_read(stub, listed):
    stub.instead["server/discover"] = lambda message: as_json(
        {"jsonrpc": "2.0", "id": message["id"], "result": []}
    )
    stub.era = "2025-11-25"
    assert listed(GOOD)["tools"] == 1


EMPTY = {"type": "object", "properties": {}, "required": []}
SCHEMAS = {
    "properties": ({"type": "object", "properties": [], "required": []}, EMPTY),
    "whole": ([], {"type": "object"}),
    "defs": ({"type": "object", "$defs": []}, {"type": "object", "$defs": {}}),
    "patterns": (
        {"type": "object", "patternProperties": [], "definitions": []},
        {"type": "object", "patternProperties": {}, "definitions": {}},
    ),
    "below": (
        {"type": "object", "properties": {"a": {"type": "object", "properties": []}, "b": []}},
        {"type": "object", "properties": {"a": {"type": "object", "properties": {}}, "b": {}}},
    ),
    "items": (
        {"type": "object", "properties": {"a": {"type": "array", "items": []}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {}}}},
    ),
    "additional": (
        {"type": "object", "additionalProperties": [], "dependentRequired": []},
        {"type": "object", "additionalProperties": {}, "dependentRequired": {}},
    ),
    "any-of": (
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "null"}, []]}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "null"}, {}]}}},
    ),
    "forced-object": (
        {"type": "object", "properties": {"a": {"type": "string", "enum": {"0": "x", "2": "y"}}},
         "required": {"1": "a"}},
        {"type": "object", "properties": {"a": {"type": "string", "enum": ["x", "y"]}},
         "required": ["a"]},
    ),
    "nulls-of-go": (
        {"type": "object", "properties": {"a": {"type": "string", "description": None,
         "enum": None, "default": None}}, "required": None, "$defs": None},
        {"type": "object", "properties": {"a": {"type": "string", "default": None}}},
    ),
    "required-in-place": (
        {"type": "object", "properties": {"a": {"type": "string", "required": True},
         "b": {"type": "string", "required": False}}},
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
         "required": ["a"]},
    ),
}  # fmt: skip


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize(("sent", "expected"), SCHEMAS.values(), ids=SCHEMAS)
def test_a_schema_is_read_as_it_is_meant(admin_api, far, listed, sent, expected):
    answer = listed(GOOD, tool("user_info", inputSchema=sent))
    assert "/inputSchema" in findings_by_tool(answer, "repaired")["user_info"]
    assert [one["result"] for one in import_tools(admin_api, far, {"tool": "user_info"})] == [
        "created"
    ]
    assert admin_api.get("/tools/user_info").json()["input_schema"] == expected


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"properties": {"type": "array", "default": []}}},
        {"type": "object", "properties": {"required": {"const": None}, "x": {"enum": [None]}}},
        {"type": "object", "properties": {"a": {"examples": [[], None]}}, "required": []},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
         "properties": {"a": {"type": "array", "items": [{"type": "string"}]}}},
        {"type": "object", "properties": {"a": {"default": [], "x-own": None}}},
    ],
)  # fmt: skip
def test_a_well_formed_schema_stays_as_it_is(admin_api, far, listed, schema):
    answer = listed(tool("plain", inputSchema=schema))
    assert answer["findings"] == []
    import_tools(admin_api, far, {"tool": "plain"})
    assert admin_api.get("/tools/plain").json()["input_schema"] == schema


def test_empty_lists_for_annotations_meta_and_output_schema_are_objects(admin_api, far, listed):
    answer = listed(GOOD, tool("php_hints", annotations=[], _meta=[], outputSchema=[], icons={}))
    assert answer["tools"] == 2
    kept = {one["tool"] for one in answer["findings"]}
    assert kept == {"php_hints"} and len(answer["findings"]) == 4
    done = import_tools(admin_api, far, {"tool": "php_hints"}, {"tool": "good_one"})
    assert [one["result"] for one in done] == ["created", "created"]
    upstream = admin_api.get("/tools/php_hints").json()["metadata"]["upstream"]
    assert (upstream["annotations"], upstream["_meta"], upstream["icons"]) == ({}, {}, [])


def test_what_is_no_annotation_and_no_schema_is_left_out(admin_api, far, listed):
    answer = listed(tool("odd", annotations="safe", outputSchema="any", icons="x", title=7))
    assert len(answer["findings"]) == 4
    assert import_tools(admin_api, far, {"tool": "odd"})[0]["result"] == "created"
    assert "annotations" not in admin_api.get("/tools/odd").json()["metadata"]["upstream"]


def test_the_names_of_another_form_are_read(admin_api, far, listed):
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    listed({"name": "snake", "description": "S.", "input_schema": schema})
    import_tools(admin_api, far, {"tool": "snake"})
    assert admin_api.get("/tools/snake").json()["input_schema"] == schema


def test_a_name_of_another_script_asks_for_one_of_ours(admin_api, far, listed):
    listed(tool("поиск"), tool("поиск_2"), tool("café search"))
    done = import_tools(
        admin_api, far, {"tool": "поиск"}, {"tool": "поиск_2"},
        {"tool": "поиск", "name": "search_ru"}, {"tool": "café search"},
    )  # fmt: skip
    assert [one["result"] for one in done] == ["refused", "refused", "created", "created"]
    assert {one["errors"][0]["field"] for one in done[:2]} == {"name"}
    assert [one["name"] for one in done[2:]] == ["search_ru", "cafe-search"]


FOR_CLIENTS = {
    "annotations": {
        "title": "Card", "readOnlyHint": True, "destructiveHint": False, "idempotentHint": True,
        "openWorldHint": False,
    },
    "_meta": {"com.example/view": "card"},
    "icons": [{"src": "https://mcp.example/icon.png", "mimeType": "image/png"}],
}  # fmt: skip


def test_annotations_meta_and_icons_reach_clients_as_they_were_approved(
    admin_api, agent, far, listed
):
    listed(tool("card", **FOR_CLIENTS))
    import_tools(admin_api, far, {"tool": "card", "group": ["default"]})
    shown = factories.api(agent).get("/tools?format=mcp").json()["results"]
    (card,) = [one for one in shown if one["name"] == "card"]
    assert {key: card[key] for key in FOR_CLIENTS} == FOR_CLIENTS
    listed(tool("card", **FOR_CLIENTS | {"_meta": {"com.example/view": "other"}}))
    again = factories.api(agent).get("/tools?format=mcp").json()["results"]
    assert again == shown


@pytest.mark.parametrize(
    "annotation", ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"]
)
def test_every_annotation_is_part_of_what_was_approved(admin_api, far, listed, annotation):
    listed(tool("card", annotations={annotation: False}))
    import_tools(admin_api, far, {"tool": "card"})
    listed(tool("card", annotations={annotation: True}))
    (entry,) = admin_api.get(f"{far}/difference").json()["tools"]
    assert (entry["change"], entry["fields"][0]["field"]) == ("changed", "annotations")


def test_meta_that_came_since_it_was_read_is_not_taken_over(admin_api, far, listed):
    listed(tool("card", _meta={"a": 1}))
    read = admin_api.get(f"{far}/difference").json()["tools"][0]["digest"]
    listed(tool("card", _meta={"a": 2}))
    (done,) = import_tools(admin_api, far, {"tool": "card", "digest": read})
    assert (done["result"], done["errors"][0]["field"]) == ("refused", "digest")


@pytest.mark.part("calls", but_each=4)
@pytest.mark.parametrize("poisoned", POISONED.values(), ids=POISONED)
def test_a_poisoned_definition_reaches_no_agent_without_a_review(
    admin_api, organization, far, listed, poisoned
):
    name = poisoned["name"]
    listed(GOOD, poisoned)
    item = {"tool": name, "name": "bait"}
    done = import_tools(admin_api, far, item, {"tool": "good_one"})
    assert [one["result"] for one in done] == ["refused", "created"]
    assert done[0]["errors"][0]["field"] == "digest"
    assert not ToolRow.objects.filter(organization=organization, name="bait").exists()
    entries = {one["tool"]: one for one in admin_api.get(f"{far}/difference").json()["tools"]}
    assert entries[name]["suspicions"]
    assert not entries["good_one"]["suspicions"]
    (done,) = import_tools(admin_api, far, item | {"digest": entries[name]["digest"]})
    # Invisible characters are refused in every definition, also after a review.
    assert done["result"] == "created" or "invisible" in done["errors"][0]["message"]


def test_a_tool_that_is_poisoned_later_is_not_taken_over_unread(admin_api, far, listed):
    listed(tool("weather"))
    import_tools(admin_api, far, {"tool": "weather"})
    listed(tool("weather", description=POISONED["orders"]["description"]))
    assert import_tools(admin_api, far, {"tool": "weather"})[0]["result"] == "refused"
    assert admin_api.get("/tools/weather").json()["description"] == "Good."


@pytest.mark.parametrize("name", ["read-file", "Read_File", "read_fi1e", "readfile"])
def test_a_name_that_looks_like_another_tools_is_refused(admin_api, far, listed, name):
    before = admin_api.get("/tools/read_file").json()
    listed(tool(name))
    (done,) = import_tools(admin_api, far, {"tool": name})
    assert done["result"] == "refused"
    assert admin_api.get("/tools/read_file").json() == before


@pytest.mark.parametrize(
    "description",
    [
        "Gets the weather. ⚠️ Costs money. Units: °C, km/h – see https://example.com/?a=b.",
        "Returns the family 👨‍👩‍👧 of a person. Never fails.",
        "Reads a file from the workspace and returns its text. Call it again to read more.",
        "Sends an e-mail to a user; the password of the mailbox is not needed.",
        "Получает погоду по названию города.",
    ],
)
def test_an_ordinary_description_has_no_sign(admin_api, far, listed, description):
    listed(tool("plain", description=description))
    (entry,) = admin_api.get(f"{far}/difference").json()["tools"]
    assert entry["suspicions"] == []


def test_a_list_that_is_imported_as_a_document_is_read_and_held_to_the_same(admin_api, far):
    php = {"name": "user_info", "inputSchema": {"type": "object", "properties": []}}
    document = {"tools": [php | FOR_CLIENTS, POISONED["orders"], tool("n" * 140)]}
    body = {"source": "mcp", "server": "far", "document": document}
    done = {one["name"]: one for one in admin_api.post("/tools/import", body).json()["items"]}
    poisoned = done[POISONED["orders"]["name"]]
    assert done["user_info"]["result"] == "created"
    assert (poisoned["result"], done["n" * 140]["result"]) == ("refused", "refused")
    assert "sha256:" in json.dumps(poisoned["errors"])
    assert admin_api.get("/tools/user_info").json()["metadata"]["mcp"] == FOR_CLIENTS
