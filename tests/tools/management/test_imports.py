import io
import json
import sys
from types import SimpleNamespace

import pytest
import yaml

from tests import factories
from tests.tools.database import tamper
from tests.tools.definitions.openapi.openapi_documents import document_of_one, petstore
from tools.models import Tool


@pytest.fixture(autouse=True)
def _allowed(settings):
    settings.MCP_STDIO_ALLOWED = factories.uvx_allowed()


def tool(name, **fields):
    return {"name": name, "type": "text-completion", "description": "d", **fields}


@pytest.fixture
def bring(typed, organization):
    return lambda *words: typed("import_tools", *words, "--organization", organization.slug)


@pytest.fixture
def folder(tmp_path):
    """A folder with files of several dialects."""
    (tmp_path / "one.json").write_text(json.dumps(tool("one")))
    (tmp_path / "more.yaml").write_text(
        "- {name: two, type: text-completion, description: d}\n"
        "- {name: three, type: tool-service, description: d, service: jokes}\n"
    )
    (tmp_path / "tool-service").mkdir()
    (tmp_path / "tool-service" / "jokes.json").write_text(
        '{"request-queue": "in", "response-queue": "out"}'
    )
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp" / "clock.json").write_text('{"url": "https://clock.example/mcp"}')
    (tmp_path / "claude.json").write_text('{"mcpServers": {"time": {"command": "uvx"}}}')
    (tmp_path / ".hidden.json").write_text("{")
    (tmp_path / "readme.txt").write_text("nothing")
    return tmp_path


def custom(organization):
    rows = Tool.objects.custom().filter(organization=organization)
    return set(rows.values_list("name", flat=True))


def test_a_folder_is_imported_whatever_the_order_of_its_files(bring, folder, organization):
    ran = bring(str(folder), "--json")
    assert (ran.code, ran.err) == (0, "")
    assert {one["key"]: one["result"] for one in ran.json["items"]} == dict.fromkeys(
        ["tool/one", "tool/two", "tool/three", "tool-service/jokes", "mcp/clock", "mcp/time"],
        "created",
    )
    assert custom(organization) == {"one", "two", "three"}
    assert "6 unchanged" in bring(str(folder)).out


def test_a_file_that_cannot_be_read_does_not_keep_the_others_back(bring, folder, organization):
    (folder / "broken.json").write_text('{\n"a": }')
    ran = bring(str(folder))
    assert ran.code == 1
    place = folder / "broken.json"
    assert ran.err.startswith(f"{place}: {place}: The document cannot be used: not JSON")
    assert "line 2" in ran.err
    assert custom(organization) == {"one", "two", "three"}


def test_a_dry_run_and_a_refused_atomic_import_write_nothing(bring, folder, organization):
    assert bring(str(folder), "--dry-run").code == 0
    assert custom(organization) == set()
    (folder / "bad.json").write_text(json.dumps(tool("bad", grups=[])))
    assert bring(str(folder), "--atomic").code == 1
    assert custom(organization) == set()


def test_standard_input_is_a_file_too(bring, monkeypatch, organization):
    text = json.dumps([tool("a"), tool("b")]).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert bring("-").code == 0
    assert custom(organization) == {"a", "b"}


def test_a_list_of_a_servers_tools_is_picked_from(bring, tmp_path, organization):
    listed = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in "ab"]}
    (tmp_path / "list.json").write_text(json.dumps(listed))
    words = (str(tmp_path / "list.json"), "--server", "clock", "--pick", "a", "--group", "g")
    ran = bring(*words)
    assert ran.code == 0 and "the tool is pending" in ran.out
    (tmp_path / "clock.json").write_text('{"mcpServers": {"clock": {"command": "uvx"}}}')
    assert bring(str(tmp_path / "clock.json")).code == 0
    assert bring(*words).code == 0
    (found,) = Tool.objects.custom().filter(organization=organization)
    assert found.version.definition["implementation"] == {"server": "clock", "tool": "a"}
    assert found.version.definition["group"] == ["g"]


def test_no_such_path_is_a_failure_and_none_at_all_bad_usage(bring, tmp_path):
    assert bring(str(tmp_path / "none")).code == 1
    assert bring(str(tmp_path)).code == 1
    assert bring().code == 2
    assert bring("x", "--source", "magic").code == 2


@pytest.mark.parametrize("form", ["definitions", "yaml", "trustgraph"])
def test_what_is_exported_is_imported_as_unchanged(
    bring, typed, organization, folder, tmp_path_factory, form
):
    bring(str(folder))
    factories.tool(organization, "echo", metadata={"no": "yes", "n": 1.5})
    ran = typed("export_tools", "--format", form, "--organization", organization.slug)
    assert (ran.code, ran.err) == (0, "")
    place = tmp_path_factory.mktemp("out") / "all.yaml"
    place.write_text(ran.out)
    again = bring(str(place), "--json")
    assert {one["result"] for one in again.json["items"]} == {"unchanged"}
    assert len(again.json["items"]) >= 4


def test_an_edited_row_is_left_out_and_said(typed, organization):
    tamper(factories.tool(organization).version, group=["everybody"])
    ran = typed("export_tools", "--organization", organization.slug)
    assert (ran.code, ran.json["tools"]) == (1, [])
    assert "echo was left out" in ran.err


@pytest.fixture
def document(tmp_path):
    def write(value, name="api.json"):
        path = tmp_path / name
        text = json.dumps(value) if name.endswith(".json") else yaml.safe_dump(value)
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize("name", ["api.json", "api.yaml"])
def test_a_file_becomes_tools(typed, document, organization_arguments, organization, name):
    file = document(petstore(), name)
    ran = typed("import_openapi", file, *organization_arguments, "--pick", "listPets", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert [(row["name"], row["result"]) for row in ran.json["items"]] == [("listPets", "created")]
    assert Tool.objects.filter(organization=organization, name="listPets").exists()


def test_a_dry_run_shows_what_would_change(typed, document, organization_arguments, organization):
    typed("import_openapi", document(document_of_one()), *organization_arguments)
    ran = typed(
        "import_openapi",
        document(document_of_one(summary="New")),
        *organization_arguments,
        "--dry-run",
    )
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "updated   one  (GET /x)",
        "    changes title",
        "    changes description",
        "1 updated.",
    ]
    assert Tool.objects.get(organization=organization, name="one").version.label == "1.0.0"


def test_what_the_linter_finds_about_a_saved_tool_is_printed(
    typed, document, organization_arguments, organization
):
    factories.agent(organization, groups=["known"])
    file = document(document_of_one())
    tried = typed(
        "import_openapi", file, *organization_arguments, "--group", "unknown", "--dry-run", "--json"
    )
    assert tried.json["items"][0]["findings"] == []
    ran = typed("import_openapi", file, *organization_arguments, "--group", "unknown")
    assert ran.code == 0
    assert "    one is in unknown, and no agent was granted it." in ran.out


def test_standard_input_is_read(typed, organization_arguments, monkeypatch):
    stdin = SimpleNamespace(buffer=io.BytesIO(json.dumps(document_of_one()).encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    options = ("--server", "https://two.example.com", "--group", "a", "b")
    assert "created   one" in typed("import_openapi", "-", *organization_arguments, *options).out


def test_an_operation_that_is_refused_is_a_failure(typed, document, organization_arguments):
    ran = typed(
        "import_openapi",
        document(petstore()),
        *organization_arguments,
        "--pick",
        "upload",
        "addPet",
    )
    assert ran.code == 1
    assert "multipart" in ran.out and "2 refused." in ran.out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ('{"a": 1, "a": 2}', "stands twice"),
        ("a: [", "is not YAML"),
        ("a: &a [*a]", "not there yet"),
        ("!!python/object/apply:os.system [ls]", "holds a tag"),
        ("hello", "no OpenAPI document"),
        ("a: 1\n---\na: 2", "holds 2 documents"),
        ("a: 1\na: 2", "twice"),
    ],
)
def test_what_is_no_document_is_refused(typed, organization_arguments, tmp_path, text, words):
    (tmp_path / "x").write_text(text)
    ran = typed("import_openapi", str(tmp_path / "x"), *organization_arguments)
    assert ran.code == 1 and words in ran.err


def test_words_of_yaml_are_read_as_everywhere(
    typed, organization_arguments, tmp_path, organization
):
    """In the core schema of YAML 1.2 `NO` is not a boolean."""
    text = """\ufeff
openapi: 3.0.3
info: {title: T, version: 1.0}
servers: [{url: "https://one.example.com"}]
paths:
  /x:
    get:
      operationId: NO
      responses: {200: {description: Good.}}
"""
    (tmp_path / "x.yaml").write_text(text)
    typed("import_openapi", str(tmp_path / "x.yaml"), *organization_arguments)
    assert Tool.objects.filter(organization=organization, name="NO").exists()


def test_a_variable_of_the_server_is_given(typed, organization_arguments, document, organization):
    server = {"url": "https://{host}/v1", "variables": {"host": {}}}
    file = document(document_of_one(servers=[server]))
    ran = typed("import_openapi", file, *organization_arguments)
    assert ran.code == 1 and "host" in ran.out
    typed("import_openapi", file, *organization_arguments, "--server-variable", "host=a.example")
    made = Tool.objects.select_related("version").get(organization=organization, name="one")
    assert made.version.definition["implementation"]["url"] == "https://a.example/v1/x"


def test_a_file_that_is_not_there_is_refused(typed, organization_arguments):
    assert "cannot be read" in typed("import_openapi", "/nowhere", *organization_arguments).err


def test_bad_usage_is_two(typed, organization_arguments):
    assert typed("import_openapi", "-", *organization_arguments, "--credential", "x").code == 2
