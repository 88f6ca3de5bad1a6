"""`POST /tools/import` and `GET /tools/export` as a client sees them."""

import json
import threading

import pytest
from django.db import transaction

from tests import factories
from tests.api import Api
from tests.conditions import blocks_another_connection, until
from tests.savepoints import rolled_back
from tests.tools.catalog.test_config_keys import FIVE
from tests.tools.database import tamper
from tools.catalog.actions import register_tool
from tools.errors import InvalidCall
from tools.execution.admit import admit
from tools.models import Tool


def tool(name, **fields):
    return {"name": name, "type": "text-completion", "description": "d", **fields}


def items(answer):
    assert answer.status_code == 200, answer.json()
    return [(one["name"], one["result"]) for one in answer.json()["items"]]


@pytest.fixture
def bring(admin_api):
    return lambda **body: admin_api.post("/tools/import", body)


def test_the_body_of_the_contract(bring):
    value = {"type": "knowledge-query", "name": "X", "description": "d"}
    answer = bring(
        source="items", server="", items=[{"key": "tool/x", "value": value}], pick=[],
        group=["g"], dry_run=True,
    )  # fmt: skip
    assert answer.json() == {
        "items": [
            {"key": "tool/x", "name": "x", "result": "created", "errors": [], "findings": []}
        ],
        "dry_run": True,
    }


def test_the_specifications_tools_import_as_they_stand(bring):
    answer = bring(document=FIVE, source="items").json()
    assert {one["result"] for one in answer["items"]} == {"created"}
    found = {one["name"]: [odd["code"] for odd in one["findings"]] for one in answer["items"]}
    assert found["complex-analysis"] == ["server_missing"]
    assert found["reset-workflow"] == ["server_unnamed"]
    assert found["knowledge-query"] == []


def test_a_document_may_be_text_or_json_and_its_source_is_recognized(bring):
    assert items(bring(document=[tool("a"), tool("b")])) == [("a", "created"), ("b", "created")]
    assert items(bring(document=json.dumps(tool("a")))) == [("a", "unchanged")]
    text = "name: c\ntype: text-completion\ndescription: d\ngrups: x\n"
    answer = bring(document=text, source="definitions")
    assert answer.json()["items"][0]["errors"] == [
        {"field": "grups", "message": "is not a field of a definition; is group meant?", "line": 4}
    ]


def test_what_was_imported_is_listed_at_once(bring, api):
    bring(document=[tool("a")])
    assert "a" in {one["name"] for one in api.get("/tools").json()["results"]}


def test_atomic_over_the_api(bring, admin_api):
    answer = bring(document=[tool("a"), tool("b", type="magic")], atomic=True)
    assert items(answer) == [("a", "refused"), ("b", "refused")]
    assert admin_api.get("/tools/a").status_code == 404


PERMITTED = [
    (("add_tool",), [tool("new")], 200),
    ((), [tool("new")], 403),
    (("change_tool",), [tool("new")], 403),
    (("add_tool",), [tool("there")], 403),
    (("add_tool", "change_tool"), [tool("there")], 200),
    (("add_tool",), {"mcpServers": {"x": {"command": "uvx"}}}, 403),
    (("add_tool", "add_mcpserver", "change_mcpserver"),
     {"mcpServers": {"x": {"command": "uvx"}}}, 200),
    (("add_tool",), {"id": "s", "request-queue": "a", "response-queue": "b"}, 403),
]  # fmt: skip


def test_who_may_import_what(bring, organization, settings, subtests):
    settings.MCP_STDIO_ALLOWED = factories.uvx_allowed()
    bring(document=[tool("there")])
    for permissions, document, status in PERMITTED:
        with (
            subtests.test(permissions=permissions, document=document, status=status),
            rolled_back(),
        ):
            person = factories.person(organization)
            factories.permit(person, *permissions)
            own = Api(factories.token(person, scopes=["read", "manage"]))
            answer = own.post("/tools/import", {"document": document})
            assert answer.status_code == status


def test_no_agent_imports_or_exports(api):
    assert api.post("/tools/import", {"document": [tool("a")]}).status_code == 403
    assert api.get("/tools/export").status_code == 403


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
LONG = f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]\n"


HOSTILE = [
    "", "   ", "{", "[", '{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 1e999}', "[" * 100_000,
    '{"a":' * 100 + "1" + "}" * 100, '"a text"', "17", "null", "true", "a: b: c", "\tx: 1",
    "a: [1", "a: 1\na: 2", "a: !!python/object/apply:os.system [ls]", "a: !x y", "<<: {a: 1}",
    "a: *b", "a: &a [*a]", BOMB, LONG, "? [a]\n: b", "1: a", "a: \x01", 'a: "\\u0000"',
    'a: "\\ud800"', "- " * 1_000 + "x", "--- \n" * 3_000, "a: " + "{b: " * 80, "%YAML 9.9",
    "\ufeff", "- &a\n" * 500 + "x", 17, True, "x", {"openapi": "3.1.0"},
    {"mcpServers": []}, {"tools": [], "services": 1},
]  # fmt: skip


def test_only_openapi_may_hold_what_json_cannot(bring):
    """As text, because the body itself must not contain them."""
    paths = {"/x": {"get": {"operationId": "large", "x-odd": "\ud800"}}}
    openapi = {"openapi": "3.1.0", "servers": [{"url": "https://x.example"}], "paths": paths}
    text = json.dumps(openapi | {"x-limit": 2**64}).replace('"3.1.0"', '"3.1.0", "x-nan": NaN')
    assert items(bring(document=text)) == [("large", "created")]
    assert items(bring(document=text, source="openapi")) == [("large", "unchanged")]
    server = {"openapi": "", "mcp/odd": {"url": "https://x.example/\ud800"}}
    for odd in (server, {"tools": [{"name": "x\ud800", "inputSchema": {}}]}):
        for source in ("items", "definitions", "mcp", "mcp-config"):
            answer = bring(document=json.dumps(odd), source=source)
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_document")


def test_a_hostile_document_is_refused_and_never_a_fault(bring):
    for document in HOSTILE:
        answer = bring(document=document)
        if answer.status_code == 200:
            assert all(one["result"] == "refused" for one in answer.json()["items"]), document
        else:
            assert (answer.status_code, bool(answer.json()["code"])) == (400, True), document


ODD = [
    [], {}, [1], [None], [[]], {"a": 1}, {"items": 1}, {"tools": {}}, [{"key": 1, "value": 2}],
    [{"key": "tool/x", "value": "{"}], [{"key": "", "value": {}}], {"mcpServers": {"a": 1}},
    {"servers": {"": {}}}, [{"name": []}], [{"name": {"a": 1}, "type": []}],
    {"tool/x": None}, {"tools": [{"name": 1, "inputSchema": 1}]},
    [{"key": "mcp/a", "value": 1}],
    [{"name": "x", "inputSchema": [], "annotations": [], "title": 5}],
    {"mcpServers": {"x": {"url": "http://[", "headers": {"a": 1}, "args": [1], "env": []}}},
    {"mcpServers": {"x": {"command": 1, "args": {"a": 1}, "env": {"": 5}, "type": []}}},
    [{"type": "tool-service", "service": [], "name": "x"}],
    [{"type": "mcp-tool", "mcp-tool": {}, "server": [], "name": "x"}],
    [{"type": "prompt", "template": [], "name": "x"}],
    [{"key": "prompt/x", "value": 7}, {"key": "prompt/system", "value": []}],
    [{"key": "tool-service/x", "value": {"id": 5, "config-params": [5, {"name": "state"}]}}],
]  # fmt: skip


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize("source", ["items", "definitions", "mcp", "openapi", "mcp-config"])
def test_odd_shapes_are_refused_item_by_item(bring, source):
    for document in ODD:
        answer = bring(source=source, document=document)
        assert answer.status_code in {200, 400}, document
        for one in answer.json().get("items", []):
            assert one["result"] in {"refused", "unchanged"} or source == "mcp", document


WRONG = [
    {}, {"document": [], "items": []}, {"document": [], "source": "magic"}, {"nonsense": 1},
    {"document": [], "dry_run": "yes"}, {"document": [], "group": "a"},
    {"document": [], "pick": "a"}, {"document": {"tools": []}, "source": "mcp", "pick": [5]},
    {"document": {"tools": []}, "source": "mcp", "pick": [{"name": "a", "as": 5}]},
    {"document": [], "server": 5},
]  # fmt: skip


def test_a_wrong_body_is_refused(bring):
    assert [body for body in WRONG if bring(**body).status_code != 400] == []


def test_too_much_at_once_is_said_to_be_too_much(bring):
    assert bring(document=[tool(f"t{at}") for at in range(1_001)]).status_code == 413
    assert bring(document="x" * (4 * 1024 * 1024 + 1)).status_code == 413
    assert bring(document=[{"x": "y" * (4 * 1024 * 1024)}]).status_code == 413


def test_an_export_in_each_format_comes_back_unchanged(bring, admin_api, organization):
    bring(document=[tool("a"), tool("b", group=[]), tool("c", available_in_states=["s"])])
    factories.tool(organization, "echo")
    for form in ("definitions", "trustgraph"):
        found = admin_api.get(f"/tools/export?format={form}").json()
        assert {result for _, result in items(bring(document=found))} == {"unchanged"}
    answer = admin_api.get("/tools/export?format=yaml")
    assert answer["Content-Type"] == "application/yaml; charset=utf-8"
    again = items(bring(document=answer.content.decode()))
    assert again == [(name, "unchanged") for name in ("a", "b", "c", "echo")]
    assert admin_api.get("/tools/export?format=magic").status_code == 400


def test_an_edited_row_is_left_out_of_the_export(admin_api, organization):
    tamper(factories.tool(organization).version, group=["everybody"])
    found = admin_api.get("/tools/export").json()
    assert (found["tools"], found["left_out"]) == ([], ["echo"])


def test_legacy_arguments_pass_as_they_came_and_required_ones_are_held_against(bring, agent):
    legacy = {"name": "legacy", "type": "mcp-tool", "description": "d", "mcp-tool": "x",
              "arguments": [{"name": "city", "type": "string", "description": "d"}]}  # fmt: skip
    strict = legacy | {"name": "strict"}
    strict["arguments"] = [legacy["arguments"][0] | {"required": True}]
    bring(document={"mcpServers": {"x": {"url": "https://x.example/mcp"}}})
    bring(document=[legacy, strict])
    caller, odd = factories.caller(agent), {"town": ["x"], "city": 5}
    assert admit(caller, factories.call("legacy", odd)).parameters == odd
    with pytest.raises(InvalidCall):
        admit(caller, factories.call("strict", odd))


PETS = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "https://pets.example"}],
    "paths": {
        "/pets/{id}": {
            "get": {
                "operationId": "getPet",
                "summary": "One pet.",
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
                ],
                "responses": {"200": {"description": "It."}},
            },
            "patch": {"responses": {"200": {"description": "-"}}, "requestBody": 7},
        }
    },
}


def test_an_openapi_document_is_imported_and_its_update_says_what_changed(admin_api):
    def sent(document, **more):
        body = {"document": document, "pick": ["getPet"], **more}
        answer = admin_api.post("/tools/import", body)
        assert answer.status_code == 200, answer.content
        return answer.json()["items"]

    [dry] = sent(PETS, dry_run=True)
    [made] = sent(PETS)
    assert (dry["result"], made["result"]) == ("created", "created")
    [same] = sent(PETS)
    assert same["result"] == "unchanged"
    text = json.dumps(PETS).replace("One pet.", "Exactly one pet.")
    [changed] = sent(text)
    assert changed["result"] == "updated"
    assert [one["field"] for one in changed["changes"]] == ["title", "description"]
    assert admin_api.get(f"/tools/{made['name']}").json()["type"] == "http"


def test_another_method_under_a_name_is_reviewed_as_any_change_of_an_upstream(admin_api, adding):
    def operation(method, operation_id="thing", path="/v1/things"):
        said = {"operationId": operation_id, "responses": {}}
        return PETS | {"paths": {path: {method: said}}}

    def sent(api, document):
        return api.post("/tools/import", {"document": document})

    [made] = sent(admin_api, operation("get")).json()["items"]
    assert made["result"] == "created"
    assert lacks_change(sent(adding, operation("delete")))
    [row] = sent(admin_api, operation("delete")).json()["items"]
    assert (row["name"], row["result"], row["errors"]) == ("thing", "review", [])
    assert {"implementation.method", "metadata.operation"} <= {
        one["field"] for one in row["changes"]
    }
    assert admin_api.get("/tools/thing").json()["implementation"]["method"] == "GET"
    [change] = admin_api.get("/tools/changes?decision=open").json()["results"]
    approved = admin_api.post(
        f"/tools/changes/{change['id']}/approve", {"digest": change["digest"]}
    )
    assert approved.status_code == 200, approved.content
    assert admin_api.get("/tools/thing").json()["implementation"]["method"] == "DELETE"


def test_variables_of_a_server_are_given(admin_api):
    server = {"url": "https://{host}/v1", "variables": {"host": {"enum": ["a.example"]}}}
    document = PETS | {"servers": [server]}

    def sent(**more):
        body = {"document": document, "pick": ["getPet"], **more}
        return admin_api.post("/tools/import", body)

    [refused] = sent().json()["items"]
    assert "no default" in refused["errors"][0]["message"]
    assert "one of a.example" in sent(variables={"host": "b.example"}).json()["message"]
    [made] = sent(variables={"host": "a.example"}).json()["items"]
    url = admin_api.get(f"/tools/{made['name']}").json()["implementation"]["url"]
    assert url.startswith("https://a.example/v1/")


@pytest.fixture
def adding(organization):
    """A person who may add tools and change none."""
    person = factories.person(organization)
    factories.permit(person, "add_tool")
    return Api(factories.token(person, scopes=["read", "catalog"]))


def lacks_change(answer):
    assert answer.status_code == 403, answer.content
    assert answer.json()["code"] == "not_permitted"
    return "change_tool" in answer.json()["message"]


@pytest.mark.parametrize("how", [{}, {"dry_run": True}, {"atomic": True}])
def test_an_import_changes_no_tool_for_who_may_only_add(bring, adding, admin_api, how):
    bring(document=[tool("there")])
    before = admin_api.get("/tools/there").json()
    document = [tool("new"), tool("there", description="Theirs.")]
    assert lacks_change(adding.post("/tools/import", {"document": document, **how}))
    assert admin_api.get("/tools/there").json() == before
    assert admin_api.get("/tools/new").status_code == 404


@pytest.mark.parametrize("how", [{}, {"dry_run": True}, {"atomic": True}])
def test_an_openapi_document_changes_no_tool_for_who_may_only_add(bring, adding, admin_api, how):
    [made] = bring(document=PETS, pick=["getPet"]).json()["items"]
    before = admin_api.get(f"/tools/{made['name']}").json()
    same = adding.post("/tools/import", {"document": PETS, "pick": ["getPet"]})
    assert items(same) == [(made["name"], "unchanged")]
    text = json.dumps(PETS).replace("One pet.", "Theirs.")
    text = text.replace('"patch"', '"put": {"operationId": "putPet", "responses": {}}, "patch"')
    wanted = {"document": text, "pick": ["getPet", "putPet"], **how}
    assert lacks_change(adding.post("/tools/import", wanted))
    assert admin_api.get(f"/tools/{made['name']}").json() == before
    listed = {one["name"] for one in admin_api.get("/tools").json()["results"]}
    assert not {one for one in listed if "putPet" in one}


def test_a_tool_that_comes_while_an_import_waits_is_not_changed(committed, organization, adding):
    document = [tool("new"), tool("there", description="Theirs.")]
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(adding.post("/tools/import", {"document": document}))
    )
    with transaction.atomic():
        ours = tool("there", description="Ours.")
        there = register_tool(
            organization=organization, definition=ours, by=factories.actor(organization)
        )
        thread.start()
        until(blocks_another_connection)
    thread.join()
    assert lacks_change(answers[0])
    there.refresh_from_db()
    assert there.version.definition["description"] == "Ours."
    assert not Tool.objects.filter(organization=organization, name="new").exists()
