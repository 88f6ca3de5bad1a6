import io
import json
from types import SimpleNamespace

import pytest
import yaml

from tests import factories
from tests.tools.definitions.openapi.openapi_documents import one, petstore
from tools.models import Tool


@pytest.fixture
def document(tmp_path):
    def write(value, name="api.json"):
        path = tmp_path / name
        text = json.dumps(value) if name.endswith(".json") else yaml.safe_dump(value)
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize("name", ["api.json", "api.yaml"])
def test_a_file_becomes_tools(typed, document, here, organization, name):
    file = document(petstore(), name)
    ran = typed("import_openapi", file, *here, "--pick", "listPets", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert [(row["name"], row["result"]) for row in ran.json["items"]] == [("listPets", "created")]
    assert Tool.objects.filter(organization=organization, name="listPets").exists()


def test_a_dry_run_shows_what_would_change(typed, document, here, organization):
    typed("import_openapi", document(one()), *here)
    ran = typed("import_openapi", document(one(summary="New")), *here, "--dry-run")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "updated   one  (GET /x)",
        "    changes title",
        "    changes description",
        "1 updated.",
    ]
    assert Tool.objects.get(organization=organization, name="one").version.label == "1.0.0"


def test_what_the_linter_finds_about_a_saved_tool_is_printed(typed, document, here, organization):
    factories.agent(organization, groups=["known"])
    file = document(one())
    tried = typed("import_openapi", file, *here, "--group", "unknown", "--dry-run", "--json")
    assert tried.json["items"][0]["findings"] == []
    ran = typed("import_openapi", file, *here, "--group", "unknown")
    assert ran.code == 0
    assert "    one is in unknown, and no agent was granted it." in ran.out


def test_standard_input_is_read(typed, here, monkeypatch):
    stdin = SimpleNamespace(buffer=io.BytesIO(json.dumps(one()).encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    options = ("--server", "https://two.example.com", "--group", "a", "b")
    assert "created   one" in typed("import_openapi", "-", *here, *options).out


def test_an_operation_that_is_refused_is_a_failure(typed, document, here):
    ran = typed("import_openapi", document(petstore()), *here, "--pick", "upload", "addPet")
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
def test_what_is_no_document_is_refused(typed, here, tmp_path, text, words):
    (tmp_path / "x").write_text(text)
    ran = typed("import_openapi", str(tmp_path / "x"), *here)
    assert ran.code == 1 and words in ran.err


def test_words_of_yaml_are_read_as_everywhere(typed, here, tmp_path, organization):
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
    typed("import_openapi", str(tmp_path / "x.yaml"), *here)
    assert Tool.objects.filter(organization=organization, name="NO").exists()


def test_a_variable_of_the_server_is_given(typed, here, document, organization):
    server = {"url": "https://{host}/v1", "variables": {"host": {}}}
    file = document(one(servers=[server]))
    ran = typed("import_openapi", file, *here)
    assert ran.code == 1 and "host" in ran.out
    typed("import_openapi", file, *here, "--server-variable", "host=a.example")
    made = Tool.objects.select_related("version").get(organization=organization, name="one")
    assert made.version.definition["implementation"]["url"] == "https://a.example/v1/x"


def test_a_file_that_is_not_there_is_refused(typed, here):
    assert "cannot be read" in typed("import_openapi", "/nowhere", *here).err


def test_bad_usage_is_two(typed, here):
    assert typed("import_openapi", "-", *here, "--credential", "x").code == 2
