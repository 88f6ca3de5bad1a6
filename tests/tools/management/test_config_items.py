import io
import json
import sys

import pytest
import yaml

from tests import factories
from tests.tools.catalog.test_config_keys import FIVE
from tests.tools.database import tamper
from tools.catalog.actions import find_tool
from tools.models import McpServer, Tool, ToolService

SERVICE = {"id": "jokes", "request-queue": "in", "response-queue": "out"}
JOKE = {
    "type": "tool-service", "name": "tell-joke", "description": "d", "service": "jokes",
    "arguments": [{"name": "topic", "type": "string", "description": "What about."}],
}  # fmt: skip


@pytest.fixture
def put_item(typed, organization_arguments, monkeypatch):
    """An item from standard input."""

    def run(key, value, *words):
        text = value if isinstance(value, str) else json.dumps(value)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return typed("put_config_item", key, *organization_arguments, *words)

    return run


def test_a_service_and_its_tool_are_put_one_after_the_other(put_item, organization):
    assert put_item("tool-service/jokes", SERVICE).code == 0
    ran = put_item("tool/tell-joke", JOKE)
    assert (ran.code, ran.err) == (0, "")
    assert "CREATED  tool/tell-joke  tell-joke" in ran.out
    assert ToolService.objects.filter(organization=organization, name="jokes").exists()
    definition = find_tool(organization, "tell-joke").version.definition
    assert definition["implementation"] == {"service": "jokes", "config": {}}
    assert definition["argument_validation"] == "off"


def test_what_get_prints_put_takes_as_unchanged(
    put_item, typed, organization_arguments, organization
):
    put_item("tool-service/jokes", SERVICE)
    put_item("tool/tell-joke", JOKE)
    factories.tool(organization, "echo")
    for key in ("tool/tell-joke", "tool/echo", "tool/read_file"):
        shown = typed("get_config_item", key, *organization_arguments)
        assert shown.code == 0
        assert put_item(key, shown.out, "--json").json["items"][0]["result"] == "unchanged"


def test_an_item_comes_from_a_file_too(typed, organization_arguments, tmp_path):
    (tmp_path / "a.yaml").write_text("type: text-completion\ndescription: d\n")
    ran = typed("put_config_item", "tool/a", str(tmp_path / "a.yaml"), *organization_arguments)
    assert (ran.code, ran.err) == (0, "")


def test_what_is_wrong_is_said_on_standard_error_with_its_line(put_item):
    ran = put_item("tool/a", '{"type": "text-completion",\n "description": "d",\n "grups": []}')
    assert ran.code == 1
    assert ran.err == (
        "-: tool/a: line 3: grups: is not a field of a definition; is group meant?\n"
    )
    assert put_item("tool/a", '{"type":').code == 1
    assert put_item("tool/a", "").code == 1


def test_an_unknown_file_or_item_is_a_failure(typed, organization_arguments, tmp_path):
    assert (
        typed("put_config_item", "tool/a", str(tmp_path / "none"), *organization_arguments).code
        == 1
    )
    for command in ("get_config_item", "delete_config_item"):
        for key in ("tool/none", "tool-service/none", "mcp/none"):
            ran = typed(command, key, *organization_arguments)
            assert (ran.code, ran.out) == (1, "")


@pytest.mark.parametrize("key", ["tool", "tool/", "flow/x", "x"])
@pytest.mark.parametrize("command", ["put", "get", "delete"])
def test_a_key_of_another_kind_is_bad_usage(typed, command, key):
    assert typed(f"{command}_config_item", key).code == 2


def test_keys_are_listed(put_item, typed, organization_arguments):
    put_item("tool-service/jokes", SERVICE)
    put_item("mcp/clock", {"url": "https://clock.example/mcp"})
    put_item("tool/tell-joke", JOKE)
    keys = typed("list_config_items", *organization_arguments, "--json").json["results"]
    assert {"tool/tell-joke", "tool/read_file", "tool-service/jokes", "mcp/clock"} <= set(keys)
    assert typed("list_config_items", *organization_arguments).out.splitlines() == keys


def test_what_tools_name_is_not_deleted(put_item, typed, organization_arguments, organization):
    put_item("tool-service/jokes", SERVICE)
    put_item("mcp/clock", {"url": "https://clock.example/mcp"})
    put_item("tool/tell-joke", JOKE)
    ran = typed("delete_config_item", "tool-service/jokes", *organization_arguments, "--json")
    assert (ran.code, ran.error["code"]) == (1, "has_dependants")
    for key in ("tool/tell-joke", "tool-service/jokes", "mcp/clock"):
        assert typed("delete_config_item", key, *organization_arguments).code == 0
    assert not Tool.objects.present().filter(organization=organization, name="tell-joke").exists()
    assert not ToolService.objects.filter(organization=organization).exists()
    assert not McpServer.objects.filter(organization=organization).exists()


def test_a_builtin_tool_is_not_deleted(typed, organization_arguments):
    assert typed("delete_config_item", "tool/read_file", *organization_arguments).code == 1


def test_an_edited_row_is_not_handed_on(typed, organization_arguments, organization):
    tool = factories.tool(organization)
    tamper(tool.version, group=["everybody"])
    ran = typed("get_config_item", "tool/echo", *organization_arguments, "--json")
    assert (ran.code, ran.error["code"]) == (1, "SIGNATURE_INVALID")


def test_the_specifications_tools_are_put_found_and_deleted_by_their_keys(
    put_item, typed, organization_arguments
):
    for key, value in yaml.safe_load(FIVE)["tool"].items():
        ran = put_item(f"tool/{key}", value, "--json")
        assert (ran.code, ran.json["items"][0]["name"]) == (0, key)
        shown = typed("get_config_item", f"tool/{key}", *organization_arguments)
        assert json.loads(shown.out)["name"] == value["name"]
        again = put_item(f"tool/{key}", shown.out, "--json").json["items"][0]
        assert again["result"] == "unchanged"
    assert "pending" in put_item("tool/reset-workflow", value).out
    keys = typed("list_config_items", *organization_arguments).out
    assert "tool/complex-analysis\n" in keys
    assert typed("delete_config_item", "tool/complex-analysis", *organization_arguments).code == 0
    assert "tool/complex-analysis\n" not in typed("list_config_items", *organization_arguments).out


def test_a_tool_with_an_old_name_is_found_by_its_key(
    put_item, typed, organization_arguments, organization
):
    typed(
        "set_tool",
        "--name",
        "forecast",
        "--type",
        "text-completion",
        "--description",
        "d",
        *organization_arguments,
    )
    value = {"type": "text-completion", "name": "forecast", "description": "d"}
    assert "is the old name of this tool" in put_item("tool/weather", value).out
    assert "tool/weather\n" in typed("list_config_items", *organization_arguments).out
    shown = typed("get_config_item", "tool/weather", *organization_arguments)
    assert put_item("tool/weather", shown.out, "--json").json["items"][0]["result"] == "unchanged"
    assert typed("get_config_item", "tool/forecast", *organization_arguments).code == 1
    assert typed("delete_config_item", "tool/weather", *organization_arguments).code == 0
    assert not Tool.objects.present().filter(organization=organization, name="forecast").exists()


def test_services_and_servers_are_taken_back_unchanged(put_item, typed, organization_arguments):
    put_item(
        "tool-service/jokes", SERVICE | {"config-params": [{"name": "style", "required": True}]}
    )
    put_item("mcp/clock", {"url": "https://clock.example/mcp", "auth-token": "s3cret",
                      "remote-name": "now", "group": ["g"]})  # fmt: skip
    for key in ("tool-service/jokes", "mcp/clock"):
        shown = typed("get_config_item", key, *organization_arguments)
        assert "s3cret" not in shown.out
        assert put_item(key, shown.out, "--json").json["items"][0]["result"] == "unchanged"


def test_findings_are_printed_by_what_saves(
    put_item, typed, organization_arguments, tmp_path, organization
):
    odd = {"type": "text-completion", "description": "d", "state": "nowhere",
           "available_in_states": ["never-reached"]}  # fmt: skip
    expected = "never-reached"
    assert expected in put_item("tool/a", odd).out.partition("created")[2]
    (tmp_path / "b.json").write_text(json.dumps(odd | {"name": "b"}))
    ran = typed("import_tools", str(tmp_path / "b.json"), *organization_arguments)
    assert expected in ran.out.partition("created")[2]
    ran = typed("set_tool", "--name", "c", "--type", "text-completion", "--description", "d",
                "--available-in", "never-reached", *organization_arguments)  # fmt: skip
    assert expected in ran.out.partition("created")[2]
