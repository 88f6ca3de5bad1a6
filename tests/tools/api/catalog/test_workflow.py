"""The workflow linter and the state graph over REST."""

import pytest

from tests import factories
from tests.api import Api
from tests.tools import catalogs
from tests.tools.shapes import check_error
from tools.models import Tool


def codes(findings):
    return {finding["code"] for finding in findings}


@pytest.fixture
def _workflow(organization):
    catalogs.workflow(organization)


@pytest.mark.usefixtures("_workflow")
def test_the_graph_of_every_group_is_the_whole_workflow(admin_api):
    answer = admin_api.get("/states/graph").json()
    marks = {node["name"]: (node["reachable"], node["dead_end"]) for node in answer["nodes"]}
    assert marks["results"] == (True, None) and marks["modification"] == (False, None)
    edge = {"from": "analysis", "to": "results", "tool": "complex-analysis"}
    assert edge in answer["edges"] and answer["left_off"] == 0


@pytest.mark.usefixtures("_workflow")
def test_the_graph_of_some_groups_shows_where_they_end(admin_api):
    answer = admin_api.get("/states/graph?group=library&group=compute").json()
    ends = {node["name"]: node["dead_end"] for node in answer["nodes"]}
    assert ends["results"] == "no_tool"


def test_an_agent_reads_the_graph_of_what_it_was_granted(organization, subtests):
    factories.tool(organization, "begin", group=["desk"], state="begun")
    factories.tool(organization, "end", group=["desk"], available_in_states=["begun"])
    factories.tool(organization, "secret", group=["vault"], available_in_states=["hidden"])
    agent = factories.agent(organization, groups=["desk"])
    api = Api(factories.token(agent.service_account, scopes=["read"]))
    for query in ("", "?group=desk"):
        with subtests.test(query=query):
            answer = api.get(f"/states/graph{query}")
            assert answer.status_code == 200, answer.content
            nodes = {node["name"]: node["tools"] for node in answer.json()["nodes"]}
            assert nodes == {"undefined": ["begin"], "begun": ["end", "begin"]}
            assert answer.json()["edges"] == [{"from": None, "to": "begun", "tool": "begin"}]
    assert api.get("/states/graph?group=vault").status_code == 403
    deaf = Api(factories.token(agent.service_account, scopes=["execute"]))
    found = check_error(deaf.get("/states/graph"), 403, "scope_missing")
    assert "scope read" in found["message"]


def test_no_group_is_no_tool_and_an_unknown_one_a_warning(admin_api):
    (node,) = admin_api.get("/states/graph?group=").json()["nodes"]
    assert (node["name"], node["tool_count"], node["dead_end"]) == ("undefined", 0, "no_tool")
    warnings = admin_api.get("/states/graph?group=ghost").json()["warnings"]
    assert warnings == ["There is no group ghost; it was ignored."]


@pytest.mark.usefixtures("_workflow")
def test_the_linter_answers_with_the_gravest_first(admin_api):
    answer = admin_api.get("/tools/lint?group=library&group=compute").json()
    assert answer["results"][0]["severity"] == "error"
    assert {"dead_end", "empty_state", "unreachable_state"} <= codes(answer["results"])


@pytest.mark.usefixtures("_workflow")
def test_who_may_see_a_tool_is_asked_of_the_agents_there_are(admin_api, organization):
    assert "seen_by_nobody" not in codes(admin_api.get("/tools/lint").json()["results"])
    factories.agent(organization, groups=["default"])
    assert "seen_by_nobody" in codes(admin_api.get("/tools/lint").json()["results"])
    factories.agent(organization, groups=["*"])
    assert "seen_by_nobody" not in codes(admin_api.get("/tools/lint").json()["results"])


def test_a_tool_is_saved_and_answered_with_what_is_odd_about_it(admin_api):
    definition = factories.definition("lost", state="nowhere", available_in_states=["undefined"])
    made = admin_api.post("/tools", definition)
    assert made.status_code == 201
    assert "unknown_state" in codes(made.json()["findings"])
    mended = admin_api.patch("/tools/lost", {"state": None})
    assert mended.status_code == 200 and mended.json()["findings"] == []


def test_a_restored_version_is_judged_too(admin_api, organization):
    factories.tool(organization, "lost", state="nowhere", available_in_states=["undefined"])
    assert admin_api.patch("/tools/lost", {"state": None}).json()["findings"] == []
    restored = admin_api.post("/tools/lost/versions/1.0.0/restore")
    assert "unknown_state" in codes(restored.json()["findings"])


def test_what_was_answered_can_be_sent_back(admin_api):
    definition = factories.definition("lost", state="nowhere", available_in_states=["undefined"])
    made = admin_api.post("/tools", definition).json()
    assert made["findings"]
    assert admin_api.put("/tools/lost", made | {"title": "Found"}).status_code == 200


def test_a_definition_is_judged_without_being_saved(admin_api, organization):
    before = Tool.objects.filter(organization=organization).count()
    definition = factories.definition("lost", state="nowhere", available_in_states=["undefined"])
    answer = admin_api.post("/tools/lint", definition)
    assert answer.status_code == 200 and "unknown_state" in codes(answer.json()["findings"])
    assert Tool.objects.filter(organization=organization).count() == before


def test_a_definition_that_cannot_be_read_is_refused(admin_api):
    answer = admin_api.post("/tools/lint", {"name": "x"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_definition")


def test_no_tool_can_take_the_linters_address(admin_api):
    assert admin_api.post("/tools", factories.definition("lint")).status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("get", "/tools/lint", None), ("post", "/tools/lint", {})],
)
def test_only_people_who_view_tools_ask(api, method, path, body):
    assert getattr(api, method)(path, body).status_code == 403


def test_another_organization_is_not_judged(admin_api):
    other = factories.organization("other-workflow")
    factories.tool(other, "theirs", state="their-state")
    assert "their-state" not in admin_api.get("/states/graph").content.decode()
    assert "theirs" not in admin_api.get("/tools/lint").content.decode()
