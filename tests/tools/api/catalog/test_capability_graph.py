"""The capability graph over REST: which tools fit each other, and proposed chains."""

import pytest

from tests import factories
from tests.api import Api
from tests.tools.shapes import check_error
from tools.models import Execution

TEXT = {"type": "string"}
ANY: dict = {}


def texts(*names):
    return {"type": "object", "properties": dict.fromkeys(names, TEXT), "required": [*names],
            "additionalProperties": False}  # fmt: skip


def tool(organization, name, takes, gives, **fields):
    return factories.tool(organization, name, parameters=None, input_schema=texts(*takes),
                          output_schema=texts(*gives), **fields)  # fmt: skip


@pytest.fixture
def reading(organization):
    tool(organization, "fetch", ["url"], ["html"], capabilities=["web"])
    tool(organization, "strip", ["html"], ["text"], category="Network")
    tool(organization, "shorten", ["text"], ["summary"])


def propose(api, have, want, **more):
    response = api.post("/chains/proposals", {"have": have, "want": want, **more})
    assert response.status_code == 200, response.content
    return response.json()


def graph(api, query=""):
    response = api.get(f"/tools/graph{query}")
    assert response.status_code == 200, response.content
    return response.json()


# The graph.


@pytest.mark.usefixtures("reading")
def test_the_graph_has_what_each_tool_consumes_and_produces(api):
    nodes = {one["name"]: one for one in graph(api)["nodes"]}
    assert [*nodes] == ["fetch", "shorten", "strip"]
    assert nodes["fetch"]["consumes"] == [{"name": "url", "required": True, "means": None}]
    assert nodes["fetch"]["produces"] == [
        {"name": "html", "path": "/output/html", "always": True, "means": None}
    ]
    assert nodes["fetch"]["capabilities"] == ["web"]


@pytest.mark.usefixtures("reading")
def test_its_edges_say_what_goes_where_and_how_well_it_fits(api):
    found = graph(api)
    assert {"from": "fetch", "path": "/output/html", "to": "strip", "parameter": "html",
            "fit": "exact", "why": []} in found["edges"]  # fmt: skip
    assert (len(found["edges"]), found["more_edges"]) == (2, False)


@pytest.mark.usefixtures("reading")
@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("?category=Network", ["strip"]), ("?capability=web", ["fetch"]), ("?group=", []),
        ("?q=shorten", ["shorten"]), ("?page_size=1", ["fetch"]),
    ],
)  # fmt: skip
def test_it_takes_the_query_of_the_list_of_tools(api, query, names):
    assert [one["name"] for one in graph(api, query)["nodes"]] == names


@pytest.mark.usefixtures("reading")
def test_a_page_has_the_edges_from_and_to_its_tools(api):
    found = graph(api, "?category=Network")
    assert [(one["from"], one["to"]) for one in found["edges"]] == [
        ("strip", "shorten"), ("fetch", "strip"),
]  # fmt: skip


@pytest.mark.usefixtures("reading")
def test_its_pages_lead_on(api):
    first = graph(api, "?page_size=2")
    rest = api.get(first["next"].split("/api/v1")[1]).json()
    assert [one["name"] for one in rest["nodes"]] == ["strip"]


@pytest.mark.usefixtures("reading")
def test_a_tool_that_one_may_not_use_is_no_node_and_no_end_of_an_edge(api, organization):
    tool(organization, "secret", ["text"], ["html"], group=["vault"])
    tool(organization, "guarded", ["text"], ["html"], required_permissions=["tool.deploy"])
    found = graph(api)
    assert "secret" not in str(found) and "guarded" not in str(found)


@pytest.mark.usefixtures("reading")
def test_tools_of_other_organizations_are_not_there(api):
    other = factories.organization("elsewhere")
    tool(other, "theirs", ["summary"], ["verdict"])
    assert "theirs" not in str(graph(api))
    assert propose(api, {"summary": ANY}, {"value": "verdict"})["results"] == []


def test_groups_that_were_not_granted_are_refused(api):
    check_error(api.get("/tools/graph?group=vault"), 403, "group_not_granted")
    body = {"have": {}, "want": {"value": "x"}, "group": ["vault"]}
    check_error(api.post("/chains/proposals", body), 403, "group_not_granted")


# Proposals.


@pytest.mark.usefixtures("reading")
def test_a_chain_is_proposed_from_what_one_has_to_what_one_wants(api):
    (found,) = propose(api, {"url": ANY}, {"value": "summary"})["results"]
    assert found["tools"] == ["fetch", "strip", "shorten"]
    assert [one["fit"] for one in found["links"]] == ["exact"] * 3
    assert found["links"][0]["from"] == {"given": "url"}
    assert found["links"][1]["from"] == {"step": "fetch", "path": "/output/html"}
    assert (found["lacks"], found["warnings"], found["cost"]) == ([], [], "0")


@pytest.mark.usefixtures("reading")
def test_its_document_can_be_kept_as_it_is(api, admin_api):
    (found,) = propose(api, {"url": ANY}, {"value": "summary"})["results"]
    made = admin_api.post("/chains", found["document"])
    assert made.status_code == 201, made.json()
    assert made.json()["warnings"] == []
    dry = api.post(f"/chains/{made.json()['name']}/rehearse", {"parameters": {"url": "x"}})
    assert [one["tool_name"] for one in dry.json()["steps"]] == found["tools"]


@pytest.mark.usefixtures("reading")
def test_what_it_still_lacks_is_said(api, organization):
    tool(organization, "send", ["summary", "recipient"], [])
    (found,) = propose(api, {"text": ANY}, {"tool": "send"})["results"]
    (lack,) = found["lacks"]
    assert (lack["name"], lack["step"], lack["parameter"]) == ("recipient", "send", "recipient")


@pytest.mark.usefixtures("reading")
def test_a_capability_or_a_tool_may_be_wanted(api):
    assert propose(api, {"url": ANY}, {"capability": "web"})["results"][0]["tools"] == ["fetch"]
    found = propose(api, {"html": ANY}, {"tool": "shorten"})["results"]
    assert found[0]["tools"] == ["strip", "shorten"]


@pytest.mark.usefixtures("reading")
@pytest.mark.parametrize("known", [{"schema": {"type": "integer"}}, {"example": 7}])
def test_what_is_known_of_a_value_must_fit(api, known):
    (found,) = propose(api, {"text": known}, {"value": "summary"})["results"]
    assert [one["parameter"] for one in found["lacks"]] == ["text"]


@pytest.mark.usefixtures("reading")
def test_it_says_what_would_happen_and_where_a_person_is_asked(api, organization):
    tool(organization, "publish", ["summary"], ["link"], requires_confirmation=True)
    (found,) = propose(api, {"text": ANY}, {"value": "link"})["results"]
    assert (found["side_effects"], found["confirmations"]) == (True, ["publish"])


@pytest.mark.usefixtures("reading")
def test_only_tools_that_the_caller_may_use_in_this_request_are_proposed(api, organization):
    tool(organization, "digest", ["url"], ["summary"], group=["vault"])
    agent = factories.agent(organization, groups=["vault", "default"])
    both = Api(factories.token(agent.service_account))
    wish = ({"url": ANY}, {"value": "summary"})
    assert "digest" not in str(propose(api, *wish))
    assert "digest" not in str(propose(both, *wish))
    (found,) = propose(both, *wish, group=["vault"])["results"]
    assert found["tools"] == ["digest"]


@pytest.mark.usefixtures("reading")
def test_a_disabled_tool_is_not_proposed(api, admin_api):
    admin_api.post("/tools/strip/disable")
    assert propose(api, {"url": ANY}, {"tool": "strip"})["results"] == []


def test_a_tool_that_may_not_be_used_and_one_that_is_not_there_are_the_same(api, organization):
    tool(organization, "secret", ["text"], ["html"], group=["vault"])
    answers = [propose(api, {}, {"tool": name}) for name in ("secret", "absent")]
    assert answers[0]["warnings"] == ["There is no tool secret for this request."]
    assert answers[1]["warnings"] == ["There is no tool absent for this request."]
    assert answers[0]["results"] == answers[1]["results"] == []


@pytest.mark.usefixtures("reading")
def test_what_is_already_there_or_cannot_be_had_is_said(api):
    assert propose(api, {"Summary": ANY}, {"value": "summary"})["warnings"] == [
        "summary is among what you have."
    ]
    assert propose(api, {}, {"value": "gold"})["warnings"] == [
        "No tool that exists for this request gives gold."
    ]


@pytest.mark.usefixtures("reading")
def test_nothing_is_called_and_nothing_kept(api, organization):
    before = [one["name"] for one in api.get("/tools").json()["results"]]
    propose(api, {"url": ANY}, {"value": "summary"})
    assert [one["name"] for one in api.get("/tools").json()["results"]] == before
    assert not Execution.objects.filter(organization=organization).exists()


WRONG = [
    ({}, "want"), ({"want": 7}, "want"), ({"want": {}}, "want"),
    ({"want": {"value": "a", "tool": "b"}}, "want"), ({"want": {"value": ""}}, "want"),
    ({"want": {"value": "--"}}, "want"), ({"want": {"value": "x" * 101}}, "want"),
    ({"want": {"value": "a\u202eb"}}, "want"), ({"want": {"ghost": 1}}, "want"),
    ({"want": {"value": "a", "schema": {"type": "ghost"}}}, "want"),
    ({"want": {"tool": "a", "schema": {}}}, "want"),
    ({"have": [], "want": {"value": "a"}}, "have"),
    ({"have": {"a": 1}, "want": {"value": "a"}}, "have"),
    ({"have": {"": {}}, "want": {"value": "a"}}, "have"),
    ({"have": {"a": {"schema": []}}, "want": {"value": "a"}}, "have"),
    ({"have": {"a": {"schema": {"$ref": "http://x"}}}, "want": {"value": "a"}}, "have"),
    ({"have": {"a": {"schema": {"items": {"$ref": "#"}}}}, "want": {"value": "a"}}, "have"),
    ({"want": {"value": "a", "schema": {"enum": ["x" * 20_001]}}}, "want"),
    ({"have": {"a": {"schema": {}, "example": 1}}, "want": {"value": "a"}}, "have"),
    ({"have": {"a": {"ghost": 1}}, "want": {"value": "a"}}, "have"),
    ({"have": {f"a{at}": {} for at in range(51)}, "want": {"value": "a"}}, "have"),
    ({"have": {"a": {"example": "x" * 20_001}}, "want": {"value": "a"}}, "have"),
    ({"want": {"value": "a"}, "group": "x"}, "group"),
    ({"want": {"value": "a"}, "state": 1}, "state"), ({"want": {"value": "a"}, "x": 1}, "x"),
]  # fmt: skip


def test_each_wrong_field_is_named(api, subtests):
    for body, field in WRONG:
        with subtests.test(body=body, field=field):
            answer = check_error(api.post("/chains/proposals", body), 400)
            assert field in str(answer["details"]), answer


EXAMPLES = [None, [], {}, [[[[[[[[1]]]]]]]], {"a": {"b": [None]}}, 1e300]


@pytest.mark.usefixtures("reading")
def test_any_example_will_do(api, subtests):
    for example in EXAMPLES:
        with subtests.test(example=example):
            propose(api, {"html": {"example": example}}, {"value": "summary"})


def test_no_tool_can_take_the_name_of_a_place(admin_api):
    check_error(admin_api.post("/tools", factories.definition("graph")), 400)
