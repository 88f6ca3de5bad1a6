import io
import json
import sys

import pytest

from tests import factories
from tests.tools.database import tamper
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
