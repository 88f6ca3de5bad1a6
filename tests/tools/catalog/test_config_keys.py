"""Items under keys: the identifier is the tool's name, `name` its title (S1, 5.1; S2)."""

import json

import pytest

from audit.actions import Actor
from tests import factories
from tools.catalog import actions
from tools.catalog.imports.catalog_import import import_items
from tools.definitions.dialects import import_documents, import_entries
from tools.models import Tool

FIVE = """
tool:
  knowledge-query:
    type: knowledge-query
    name: "Knowledge Graph Query"
    description: "Query the knowledge graph for entities and relationships"
    group: ["read-only", "knowledge", "basic"]
    state: "analysis"
    available_in_states: ["undefined", "research"]
  graph-update:
    type: graph-update
    name: "Graph Update"
    description: "Add or modify entities in the knowledge graph"
    group: ["write", "knowledge", "admin"]
    available_in_states: ["analysis", "modification"]
  text-completion:
    type: text-completion
    name: "Text Completion"
    description: "Generate text using language models"
    group: ["read-only", "text", "basic"]
    state: "undefined"
  complex-analysis:
    type: mcp-tool
    name: "Complex Analysis Tool"
    description: "Perform complex data analysis"
    group: ["advanced", "compute", "expensive"]
    state: "results"
    available_in_states: ["analysis"]
    mcp_tool_id: "analysis-server"
  reset-workflow:
    type: mcp-tool
    name: "Reset Workflow"
    description: "Reset to initial state"
    group: ["admin"]
    state: "undefined"
    available_in_states: ["analysis", "results"]
"""
SERVER = {"key": "mcp/analysis-server", "value": {"url": "https://analysis.example/mcp"}}
SERVICE = {"id": "jokes", "request-queue": "in", "response-queue": "out"}


@pytest.fixture
def put_items(organization):
    """Imports items and returns the results by key."""

    def run(source):
        (document,) = import_documents.parse_documents(source)
        found = import_entries.split_document(document, import_entries.detect_source(document))
        by = factories.actor(organization)
        done = import_items(organization=organization, items=found, by=by)
        return {one.key: one for one in done}

    return run


@pytest.fixture
def old(organization):
    """A tool imported by an earlier version of the command: under the `name` of its value."""

    def make(name, *, by=("system", "command:operator"), **fields):
        raw = {"name": name, "type": "text-completion", "description": "d", **fields}
        author = Actor(*by, organization.slug)
        return actions.register_tool(organization=organization, definition=raw, by=author)

    return make


def item(key, name, **fields):
    value = {"type": "text-completion", "description": "d", "name": name, **fields}
    return {"key": f"tool/{key}", "value": value}


def imported_tools(organization):
    rows = Tool.objects.custom().filter(organization=organization).select_related("version")
    return {row.name: (row.version.definition["title"], row.status) for row in rows}


def codes(one):
    return [found["code"] for found in one.findings]


def test_the_five_tools_of_the_specification_import_as_they_stand(organization, put_items):
    done = put_items(FIVE)
    assert {one.result for one in done.values()} == {"created"}, done
    assert imported_tools(organization) == {
        "knowledge-query": ("Knowledge Graph Query", "active"),
        "graph-update": ("Graph Update", "active"),
        "text-completion": ("Text Completion", "active"),
        "complex-analysis": ("Complex Analysis Tool", "pending"),
        "reset-workflow": ("Reset Workflow", "pending"),
    }
    assert codes(done["tool/complex-analysis"]) == ["server_missing"]
    assert done["tool/complex-analysis"].findings[0]["field"] == "mcp_tool_id"
    assert codes(done["tool/reset-workflow"]) == ["server_unnamed"]
    assert {one.result for one in put_items(FIVE).values()} == {"unchanged"}


def test_a_pending_tool_is_active_once_its_server_is_there(organization, put_items):
    put_items(FIVE)
    tool = actions.find_tool(organization, "complex-analysis")
    with pytest.raises(actions.Conflict, match="no MCP server analysis-server"):
        actions.set_enabled(tool=tool, enabled=True, by=factories.actor(organization))
    put_items([SERVER])
    done = put_items(FIVE)
    assert done["tool/complex-analysis"].result == "updated"
    assert imported_tools(organization)["complex-analysis"][1] == "active"
    assert imported_tools(organization)["reset-workflow"][1] == "pending"


def test_a_pending_tool_is_enabled_by_a_person_once_its_server_is_there(organization, put_items):
    put_items(FIVE)
    put_items([SERVER])
    tool = actions.find_tool(organization, "complex-analysis")
    actions.set_enabled(tool=tool, enabled=True, by=factories.actor(organization))
    assert imported_tools(organization)["complex-analysis"][1] == "active"


def test_an_enabled_tool_of_no_server_is_pending_all_the_same(organization, put_items):
    value = {"type": "mcp-tool", "description": "d", "name": "T", "enabled": True,
             "mcp-tool": "a", "server": "nowhere"}  # fmt: skip
    done = put_items([{"key": "tool/t", "value": value}])["tool/t"]
    assert (done.result, codes(done)) == ("created", ["server_missing"])
    assert imported_tools(organization) == {"t": ("T", "pending")}


def test_two_keys_are_two_tools_and_equal_titles_a_finding(organization, put_items):
    done = put_items([item("one", "Same"), item("two", "same"), item("three", "Other")])
    assert set(imported_tools(organization)) == {"one", "two", "three"}
    assert [codes(one) for one in done.values()] == [["same_title"], ["same_title"], []]
    assert "two" in done["tool/one"].findings[0]["message"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_title_that_is_anothers_identifier_leaves_both_alone(organization, put_items, order):
    both = [item("a", "b"), item("b", "c")]
    for at in order:
        assert put_items([both[at]])[both[at]["key"]].result == "created"
    assert {name: title for name, (title, _) in imported_tools(organization).items()} == {
        "a": "b",
        "b": "c",
    }


def test_a_tool_is_found_by_the_name_under_which_it_was_imported(organization, put_items, old):
    old("forecast")
    done = put_items([item("weather", "forecast", group=["g"])])["tool/weather"]
    assert (done.result, done.name, codes(done)) == ("updated", "forecast", ["old_name"])
    assert set(imported_tools(organization)) == {"forecast"}
    again = put_items([item("weather", "Tomorrow's weather")])["tool/weather"]
    assert (again.result, again.name, codes(again)) == ("updated", "forecast", [])
    assert imported_tools(organization) == {"forecast": ("Tomorrow's weather", "active")}


@pytest.mark.parametrize(
    "actor",
    [
        ("person", "ada"),
        ("agent", "scout"),
        ("system", "service command:x"),
        ("person", "command:x"),
    ],
)
def test_a_tool_that_no_import_wrote_is_left_alone_and_named(organization, put_items, old, actor):
    mine = old("forecast", by=actor, description="Of another hand.")
    done = put_items([item("weather", "forecast", group=["g"])])["tool/weather"]
    assert (done.result, done.name, codes(done)) == ("created", "weather", ["name_of_another"])
    assert "no import wrote forecast" in done.findings[0]["message"]
    assert set(imported_tools(organization)) == {"forecast", "weather"}
    kept = actions.find_tool(organization, "forecast")
    assert (kept.version_id, kept.config_key) == (mine.version_id, "")
    assert codes(put_items([item("weather", "forecast", group=["g"])])["tool/weather"]) == []


def test_a_tool_that_a_person_imported_over_rest_is_found_by_its_description(
    organization, put_items, old
):
    old("forecast", by=("person", "ada"))
    done = put_items([item("weather", "forecast", group=["g"])])["tool/weather"]
    assert (done.result, done.name, codes(done)) == ("updated", "forecast", ["old_name"])
    assert set(imported_tools(organization)) == {"forecast"}


def test_an_imported_tool_that_a_person_edited_is_still_found(organization, put_items, old):
    raw = {"name": "forecast", "type": "text-completion", "description": "edited"}
    by = Actor("person", "ada", organization.slug)
    actions.update_tool(tool=old("forecast"), definition=raw, by=by)
    done = put_items([item("weather", "forecast")])["tool/weather"]
    assert (done.result, done.name, codes(done)) == ("updated", "forecast", ["old_name"])


def test_a_tool_of_another_type_is_no_old_one(organization, put_items, old):
    old("forecast", type="knowledge-query")
    assert put_items([item("weather", "forecast")])["tool/weather"].result == "created"
    assert set(imported_tools(organization)) == {"forecast", "weather"}


def test_an_old_tool_goes_to_the_item_of_its_own_name(organization, put_items, old):
    old("forecast")
    done = put_items([item("weather", "forecast"), item("forecast", "Forecast")])
    assert [one.result for one in done.values()] == ["created", "updated"]


@pytest.mark.parametrize(
    ("key", "value", "field", "message"),
    [
        ("tool/t", {"type": "tool-service", "description": "d", "service": "jokes"}, "name",
         "is required"),
        ("tool/t", {"type": "tool-service", "description": "d", "name": "T"}, "service",
         "is required"),
        ("tool/t", {"type": "text-completion", "description": "d", "name": ""}, "name",
         "must not be empty"),
        ("tool/t", {"type": "text-completion", "description": "d", "name": 7}, "name",
         "must be a text"),
        ("tool/t", {"type": "text-completion", "description": "d", "name": "x" * 201}, "name",
         "is longer than 200 characters"),
        ("tool/a b", {"type": "text-completion", "description": "d", "name": "T"}, "key",
         "may hold only letters, digits, '_', '.' and '-', at most 128"),
        ("tool-service/s", {"request-queue": "in", "response-queue": "out"}, "id", "is required"),
        ("tool-service/s", SERVICE, "id", "must be the identifier of its key: s"),
        ("tool-service/jokes", {"id": "jokes", "response-queue": "out"}, "request-queue",
         "is required"),
        ("tool-service/jokes", {"id": "jokes", "request_queue": "in"}, "response-queue",
         "is required"),
        ("mcp/clock", {"name": "watch", "url": "https://clock.example/mcp"}, "name",
         "must be the identifier of its key: clock"),
    ],
)  # fmt: skip
def test_what_is_required_is_refused_by_its_field(put_items, key, value, field, message):
    put_items([{"key": "tool-service/jokes", "value": SERVICE}])
    done = put_items([{"key": key, "value": json.dumps(value)}])[key]
    assert done.result == "refused"
    assert [(flaw["field"], flaw["message"]) for flaw in done.errors] == [(field, message)]


def test_a_name_beside_a_title_is_a_finding(organization, put_items):
    done = put_items([item("t", "Name", title="Title")])["tool/t"]
    assert (done.result, codes(done)) == ("created", ["title_beside_name"])
    assert imported_tools(organization)["t"][0] == "Title"
