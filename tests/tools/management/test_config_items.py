import io
import json
import sys

import pytest

from tests import factories
from tests.tools.database import tamper
from tools.catalog.actions import find_tool
from tools.models import McpServer, Tool, ToolService

SERVICE = {"id": "jokes", "request-queue": "in", "response-queue": "out"}
JOKE = {
    "type": "tool-service", "name": "tell-joke", "description": "d", "service": "jokes",
    "arguments": [{"name": "topic", "type": "string", "description": "What about."}],
}  # fmt: skip


@pytest.fixture
def put(typed, here, monkeypatch):
    """An item from standard input."""

    def run(key, value, *words):
        text = value if isinstance(value, str) else json.dumps(value)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return typed("put_config_item", key, *here, *words)

    return run


def test_a_service_and_its_tool_are_put_one_after_the_other(put, organization):
    assert put("tool-service/jokes", SERVICE).code == 0
    ran = put("tool/tell-joke", JOKE)
    assert (ran.code, ran.err) == (0, "")
    assert "CREATED  tool/tell-joke  tell-joke" in ran.out
    assert ToolService.objects.filter(organization=organization, name="jokes").exists()
    definition = find_tool(organization, "tell-joke").version.definition
    assert definition["implementation"] == {"service": "jokes", "config": {}}
    assert definition["argument_validation"] == "off"


def test_what_get_prints_put_takes_as_unchanged(put, typed, here, organization):
    put("tool-service/jokes", SERVICE)
    put("tool/tell-joke", JOKE)
    factories.tool(organization, "echo")
    for key in ("tool/tell-joke", "tool/echo", "tool/read_file"):
        shown = typed("get_config_item", key, *here)
        assert shown.code == 0
        assert put(key, shown.out, "--json").json["items"][0]["result"] == "unchanged"


def test_an_item_comes_from_a_file_too(typed, here, tmp_path):
    (tmp_path / "a.yaml").write_text("type: text-completion\ndescription: d\n")
    ran = typed("put_config_item", "tool/a", str(tmp_path / "a.yaml"), *here)
    assert (ran.code, ran.err) == (0, "")


def test_what_is_wrong_is_said_on_standard_error_with_its_line(put):
    ran = put("tool/a", '{"type": "text-completion",\n "description": "d",\n "grups": []}')
    assert ran.code == 1
    assert ran.err == (
        "-: tool/a: line 3: grups: is not a field of a definition; is group meant?\n"
    )
    assert put("tool/a", '{"type":').code == 1
    assert put("tool/a", "").code == 1


def test_an_unknown_file_or_item_is_a_failure(typed, here, tmp_path):
    assert typed("put_config_item", "tool/a", str(tmp_path / "none"), *here).code == 1
    for command in ("get_config_item", "delete_config_item"):
        for key in ("tool/none", "tool-service/none", "mcp/none"):
            ran = typed(command, key, *here)
            assert (ran.code, ran.out) == (1, "")


@pytest.mark.parametrize("key", ["tool", "tool/", "flow/x", "x"])
@pytest.mark.parametrize("command", ["put", "get", "delete"])
def test_a_key_of_another_kind_is_bad_usage(typed, command, key):
    assert typed(f"{command}_config_item", key).code == 2


def test_keys_are_listed(put, typed, here):
    put("tool-service/jokes", SERVICE)
    put("mcp/clock", {"url": "https://clock.example/mcp"})
    put("tool/tell-joke", JOKE)
    keys = typed("list_config_items", *here, "--json").json["results"]
    assert {"tool/tell-joke", "tool/read_file", "tool-service/jokes", "mcp/clock"} <= set(keys)
    assert typed("list_config_items", *here).out.splitlines() == keys


def test_what_tools_name_is_not_deleted(put, typed, here, organization):
    put("tool-service/jokes", SERVICE)
    put("mcp/clock", {"url": "https://clock.example/mcp"})
    put("tool/tell-joke", JOKE)
    ran = typed("delete_config_item", "tool-service/jokes", *here, "--json")
    assert (ran.code, ran.error["code"]) == (1, "has_dependants")
    for key in ("tool/tell-joke", "tool-service/jokes", "mcp/clock"):
        assert typed("delete_config_item", key, *here).code == 0
    assert not Tool.objects.present().filter(organization=organization, name="tell-joke").exists()
    assert not ToolService.objects.filter(organization=organization).exists()
    assert not McpServer.objects.filter(organization=organization).exists()


def test_a_builtin_tool_is_not_deleted(typed, here):
    assert typed("delete_config_item", "tool/read_file", *here).code == 1


def test_an_edited_row_is_not_handed_on(typed, here, organization):
    tool = factories.tool(organization)
    tamper(tool.version, group=["everybody"])
    ran = typed("get_config_item", "tool/echo", *here, "--json")
    assert (ran.code, ran.error["code"]) == (1, "SIGNATURE_INVALID")
