"""Imports of tool definitions: which items are written, and the result that is reported for
each."""

import json

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.tools.database import tamper
from tools.catalog import actions
from tools.catalog.imports import catalog_export
from tools.catalog.imports.catalog_import import ImportOptions, import_items
from tools.catalog.registry import registry
from tools.definitions.dialects import import_documents, import_entries
from tools.definitions.dialects.import_entries import ImportSelection, ImportSource
from tools.models import McpServer, Organization, Tool, ToolService, ToolVersion

SERVICE = {
    "id": "joke-service",
    "request-queue": "non-persistent://tg/request/joke",
    "response-queue": "non-persistent://tg/response/joke",
    "config-params": [{"name": "style", "required": False}],
}
JOKE = {
    "type": "tool-service",
    "name": "tell-joke",
    "description": "Tell a joke on a given topic",
    "service": "joke-service",
    "style": "pun",
    "arguments": [{"name": "topic", "type": "string", "description": "The topic for the joke"}],
}
TRUSTGRAPH = [
    {"key": "tool/tell-joke", "value": json.dumps(JOKE)},
    {"key": "tool/forecast", "value": {
        "type": "mcp-tool", "name": "forecast", "description": "d", "mcp-tool": "weather",
        "applicable-states": ["research"], "group": ["a"], "state": "done",
    }},
    {"key": "tool/shorten", "value": {
        "type": "prompt", "name": "shorten", "description": "d", "template": "short",
        "arguments": [{"name": "text", "type": "string", "description": "t"}],
    }},
    {"key": "tool/ask", "value": {
        "type": "knowledge-query", "name": "ask", "description": "d", "collection": "c",
    }},
    {"key": "tool-service/joke-service", "value": SERVICE},
    {"key": "mcp/weather", "value": {
        "url": "http://weather.example/mcp", "remote-name": "get_forecast", "auth-token": "s3cret",
    }},
    {"key": "prompt/template.short", "value": json.dumps({"prompt": "Shorten {{text}}"})},
]  # fmt: skip


def text_tool(name, **fields):
    return {"name": name, "type": "text-completion", "description": "d", **fields}


@pytest.fixture
def bring(organization):
    def run(source, kind=None, *, server="", pick=(), **way):
        found = []
        for document in import_documents.parse_documents(source):
            as_what = kind or import_entries.detect_source(document)
            found += import_entries.split_document(document, as_what, ImportSelection(server, pick))
        return import_items(
            organization=organization, items=found, by=factories.actor(organization),
            way=ImportOptions(server=server, **way),
        )  # fmt: skip

    return run


def results(imported):
    return [one.result for one in imported]


def made_of(organization, name):
    tool = (
        Tool.objects.present().select_related("version").get(organization=organization, name=name)
    )
    return tool.version.definition["implementation"]


def everything(organization):
    return (
        Tool.objects.filter(organization=organization).count(),
        ToolVersion.objects.filter(tool__organization=organization).count(),
        ToolService.objects.filter(organization=organization).count(),
        McpServer.objects.filter(organization=organization).count(),
        AuditRecord.objects.filter(organization=organization.slug).count(),
        Organization.objects.get(pk=organization.pk).revision,
    )


def test_a_trustgraph_configuration_is_imported_whatever_its_order(organization, bring):
    done = bring(TRUSTGRAPH)
    assert [one.errors for one in done] == [[]] * 7
    assert results(done) == ["created"] * 7
    assert made_of(organization, "tell-joke") == {
        "service": "joke-service", "config": {"style": "pun"}
    }  # fmt: skip
    assert made_of(organization, "forecast") == {"server": "weather", "tool": "get_forecast"}
    assert made_of(organization, "shorten")["template"] == "Shorten {{text}}"
    assert made_of(organization, "ask") == {"collection": "c", "limit": None}


def test_importing_it_again_writes_nothing(organization, bring):
    bring(TRUSTGRAPH)
    before = everything(organization)
    assert results(bring(TRUSTGRAPH)) == ["unchanged"] * 7
    assert everything(organization) == before


def test_a_configuration_shown_as_a_whole_is_imported_as_well(organization, bring):
    whole = {
        "version": 7,
        "config": {
            "tool": {"tell-joke": json.dumps(JOKE)},
            "tool-service": {"joke-service": json.dumps(SERVICE)},
        },
    }
    assert results(bring(whole)) == ["created", "created"]


def test_a_dry_run_says_the_same_and_writes_nothing(organization, bring):
    wanted = [*TRUSTGRAPH, {"key": "tool/bad", "value": {"type": "magic"}}]
    before = everything(organization)
    said = bring(wanted, dry_run=True)
    assert everything(organization) == before
    assert [one.as_dict() for one in bring(wanted)] == [one.as_dict() for one in said]


def test_one_bad_item_does_not_keep_the_good_ones_back(organization, bring):
    done = bring([text_tool("a"), text_tool("b", grups=["x"]), text_tool("c")])
    assert results(done) == ["created", "refused", "created"]
    assert done[1].errors == [
        {"field": "grups", "message": "is not a field of a definition; is group meant?",
         "line": None}
    ]  # fmt: skip
    assert Tool.objects.custom().filter(organization=organization).count() == 2


def test_atomic_is_all_or_nothing(organization, bring):
    before = everything(organization)
    done = bring([text_tool("a"), text_tool("b", type="magic")], atomic=True)
    assert results(done) == ["refused", "refused"]
    assert "nothing of this import was written" in done[0].errors[0]["message"]
    assert everything(organization) == before
    assert results(bring([text_tool("a"), text_tool("b")], atomic=True)) == ["created"] * 2


def test_a_tool_of_a_service_that_was_refused_is_refused(organization, bring):
    done = bring([SERVICE | {"request-queue": ""}, JOKE], ImportSource.DEFINITIONS)
    assert results(done) == ["refused", "refused"]
    assert done[0].errors[0]["field"] == "request-queue"
    assert {"field": "service", "message": "names no tool service that is there", "line": None} in (
        done[1].errors
    )
    assert not ToolService.objects.filter(organization=organization).exists()


def test_errors_name_the_line_of_the_document(bring):
    text = """[
  {"name": "a", "type": "text-completion", "description": "d"},
  {"name": "b",
   "type": "text-completion",
   "descripton": "d"},
  7
]"""
    done = bring(text)
    assert results(done) == ["created", "refused", "refused"]
    assert [(flaw["field"], flaw["line"]) for flaw in done[1].errors] == [
        ("descripton", 5), ("description", 3)
    ]  # fmt: skip
    assert [flaw["line"] for flaw in done[2].errors] == [6]


def test_several_yaml_documents_keep_their_lines(bring):
    text = """name: a
type: text-completion
description: d
---
name: b
type: text-completion
description: d
group: default
"""
    done = bring(text)
    assert results(done) == ["created", "refused"]
    assert [(flaw["field"], flaw["line"]) for flaw in done[1].errors] == [("group", 8)]


def test_a_name_stands_once_in_an_import(bring):
    done = bring([text_tool("a"), text_tool("A"), text_tool("a", title="other")])
    assert results(done) == ["created", "refused", "refused"]


@pytest.mark.part("generated")
def test_a_hundred_items_in_one_import(organization, bring):
    done = bring([text_tool(f"t{at}") for at in range(100)])
    assert results(done) == ["created"] * 100
    assert Tool.objects.custom().filter(organization=organization).count() == 100


def test_what_was_imported_is_in_the_next_snapshot(organization, bring):
    bring([text_tool("a")])
    revision = Organization.objects.get(pk=organization.pk).revision
    assert "a" in registry.snapshot(organization.pk, revision).tools


def test_a_change_is_a_new_version_and_a_switch_is_thrown(organization, bring):
    bring([text_tool("a", version="1.0.0")])
    assert results(bring([text_tool("a", version="1.0.0", title="A")])) == ["updated"]
    assert results(bring([text_tool("a", version="1.0.0", title="B")])) == ["updated"]
    assert results(bring([text_tool("a", title="B", enabled=False)])) == ["updated"]
    tool = Tool.objects.get(organization=organization, name="a")
    assert (tool.versions.count(), tool.enabled) == (3, False)


def test_a_disabled_tool_is_imported_disabled(organization, bring):
    bring([text_tool("a", enabled=False)])
    assert not Tool.objects.get(organization=organization, name="a").enabled


def test_a_builtin_tool_cannot_be_imported_but_changed(organization, bring):
    new = text_tool("mine") | {"type": "builtin"}
    assert results(bring([new])) == ["refused"]
    tool = actions.find_tool(organization, "read_file")
    assert results(bring([catalog_export.written(tool)])) == ["unchanged"]


def test_groups_are_given_to_tools_that_name_none(organization, bring):
    bring([text_tool("a"), text_tool("b", group=["own"]), text_tool("c", group=[])], group=["g"])
    found = {
        tool.name: tool.version.definition["group"]
        for tool in Tool.objects.custom().filter(organization=organization)
    }
    assert found == {"a": ["g"], "b": ["own"], "c": []}


def test_a_tools_list_is_imported_with_what_was_picked(organization, bring):
    listed = {"tools": [
        {"name": "get/time", "description": "Time.", "annotations": {"readOnlyHint": True},
         "inputSchema": {"type": "object", "properties": {"zone": {"type": "string"}}}},
        {"name": "convert", "inputSchema": {"type": "object"}},
        {"name": "odd", "inputSchema": {"type": "object"}, "group": ["*"]},
        {"name": "other", "inputSchema": {"type": "object"}},
    ]}  # fmt: skip
    bring({"mcpServers": {"clock": {"url": "https://clock.example/mcp"}}})
    pick = (
        {"name": "get/time", "as": "get_time", "group": ["time"], "requires_confirmation": True},
        {"name": "convert", "arguments": [{"name": "x", "type": "number", "description": "d"}]},
        "odd",
        "gone",
    )
    done = bring(listed, server="clock", pick=pick)
    assert [(one.name, one.result) for one in done] == [
        ("get_time", "created"), ("convert", "created"), ("odd", "refused"), ("gone", "refused")
    ]  # fmt: skip
    assert made_of(organization, "get_time") == {"server": "clock", "tool": "get/time"}
    definition = Tool.objects.get(organization=organization, name="get_time").version.definition
    assert definition["input_schema"]["properties"] == {"zone": {"type": "string"}}
    assert (definition["delivery"], definition["argument_validation"]) == ("external", "enforce")
    assert definition["requires_confirmation"]
    by_hand = Tool.objects.get(organization=organization, name="convert").version.definition
    assert [one["type"] for one in by_hand["parameters"]] == ["Number"]


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
def test_servers_of_desktop_clients_are_imported(organization, bring, key, settings):
    settings.MCP_STDIO_ALLOWED = factories.uvx_allowed()
    done = bring({key: {
        "time": {"command": "uvx", "args": ["mcp-server-time"], "env": {"TOKEN": "s3cret"}},
        "web": {"type": "http", "url": "https://web.example/mcp", "headers": {"X-Key": "s3cret"}},
        "old": {"url": "https://old.example/sse"},
        "asks": {"type": "http", "url": "https://a.example", "headers": {"X": "${input:key}"}},
        "odd": {"command": "uvx", "url": "https://odd.example"},
        "slip": {"command": "uvx", "allowed_groups": ["a"]},
    }})  # fmt: skip
    assert results(done) == ["created"] * 3 + ["refused"] * 3
    assert [one.errors[0]["field"] for one in done[3:]] == ["headers.X", "url", "allowed_groups"]
    assert McpServer.objects.filter(organization=organization).count() == 3
    assert "s3cret" not in repr(done)


def test_a_prompt_that_no_tool_names_is_refused(bring):
    done = bring([{"key": "prompt/lonely", "value": {"prompt": "Hi"}}])
    assert results(done) == ["refused"]


def test_an_edited_row_is_neither_exported_nor_taken_for_unchanged(organization, bring):
    bring([text_tool("a"), text_tool("b")])
    version = Tool.objects.get(organization=organization, name="a").version
    tamper(version, group=["everybody"])
    found = catalog_export.exported(organization)
    assert ([tool["name"] for tool in found.tools], found.left_out) == (["b"], ["a"])
    done = bring([text_tool("a"), text_tool("a2")])
    assert results(done) == ["refused", "created"]


def test_an_export_in_each_format_is_imported_as_unchanged(organization, bring):
    bring(TRUSTGRAPH)
    factories.tool(organization, "code", group=[], metadata={"no": ["on", "1.0", None, 1.5]})
    factories.tool(organization, "off")
    actions.set_enabled(
        tool=actions.find_tool(organization, "off"), enabled=False, by=factories.actor(organization)
    )
    before = everything(organization)
    found = catalog_export.exported(organization)
    for document in (found.document, json.dumps(found.document), found.yaml(), found.items()):
        done = bring(document)
        assert [one.errors for one in done] == [[]] * len(done)
        assert set(results(done)) == {"unchanged"}
    assert len(found.tools) == 6
    assert everything(organization) == before


def test_an_export_is_created_in_another_organization(organization, bring):
    bring([text_tool("a"), text_tool("b", group=["x"], version="3.1.4")])
    other = factories.organization(f"{organization.slug[:20]}-b")
    (document,) = import_documents.parse_documents(catalog_export.exported(organization).yaml())
    done = import_items(
        organization=other, items=import_entries.split_document(document, ImportSource.DEFINITIONS),
        by=factories.actor(other),
    )  # fmt: skip
    assert results(done) == ["created", "created"]
    assert actions.find_tool(other, "b").version.label == "3.1.4"
