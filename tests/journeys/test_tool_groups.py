"""Sections 9.1 to 9.3 of the tool groups specification, over HTTP, with the tools of its 5.1.

Where its examples contradict its algorithm (4.2), ruling 1 corrects them: what stands here follows
the algorithm.
"""

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.journeys.client import Http
from tests.tools.shapes import check_error
from tools.models import RequestRecord

TOOLS = {
    "knowledge-query": {
        "group": ["read-only", "knowledge", "basic"],
        "state": "analysis",
        "available_in_states": ["undefined", "research"],
    },
    "graph-update": {
        "group": ["write", "knowledge", "admin"],
        "available_in_states": ["analysis", "modification"],
    },
    "text-completion": {"group": ["read-only", "text", "basic"], "state": "undefined"},
    "complex-analysis": {
        "group": ["advanced", "compute", "expensive"],
        "state": "results",
        "available_in_states": ["analysis"],
    },
    "reset-workflow": {
        "group": ["admin"],
        "state": "undefined",
        "available_in_states": ["analysis", "results"],
    },
    "legacy": {},
}
EVERY = [
    "default", "read-only", "knowledge", "basic", "write", "admin", "text", "advanced", "compute",
    "expensive", "nobody",
]  # fmt: skip
BREAKS = "def main(parameters):\n    raise ValueError('no')\n"


@pytest.fixture
def shop(crib, committed, organization):
    for name, fields in TOOLS.items():
        factories.tool(organization, name, **fields)


def agent_client(crib, organization, groups):
    agent = factories.agent(organization, groups=groups)
    return Http(crib.url, factories.token(agent.service_account))


def names(http, query):
    answer = http("GET", f"/api/v1/tools{query}")
    assert answer.status_code == 200, answer.json()
    return {tool["name"] for tool in answer.json()["results"]} & TOOLS.keys()


# 9.1: the filter, from outside.


@pytest.mark.part("walks", but_each=4)
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?group=read-only&group=knowledge", {"knowledge-query", "text-completion"}),
        ("?group=read-only&group=knowledge&state=undefined",
         {"knowledge-query", "text-completion"}),
        ("?group=advanced&group=compute&group=write&state=analysis",
         {"complex-analysis", "graph-update"}),
        ("?group=admin&state=results", {"reset-workflow"}),
        ("?group=admin&state=analysis", {"reset-workflow", "graph-update"}),
        ("?group=knowledge&state=research", {"knowledge-query"}),
        ("?group=knowledge&state=nowhere", set()),
        ("", {"legacy"}),
        ("?state=analysis", {"legacy"}),
        ("?group=default", {"legacy"}),
        ("?group=", set()),
        ("?group=&state=analysis", set()),
        ("?group=nobody", set()),
        ("?group=Read-Only", None),
        ("?group=read", None),
    ],
)  # fmt: skip
def test_only_what_matches_groups_and_state_is_there(crib, shop, organization, query, expected):
    http = agent_client(crib, organization, EVERY)
    if expected is None:  # names match exactly, so this one was never granted
        check_error(http("GET", f"/api/v1/tools{query}"), 403, "group_not_granted")
    else:
        assert names(http, query) == expected


@pytest.mark.part("walks")
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("undefined", {"knowledge-query", "text-completion", "legacy"}),
        ("analysis",
         {"graph-update", "complex-analysis", "reset-workflow", "text-completion", "legacy"}),
        ("*", {"text-completion", "legacy"}),
    ],
)  # fmt: skip
def test_the_wildcard_opens_every_group_and_no_state(crib, shop, organization, state, expected):
    http = agent_client(crib, organization, ["*"])
    assert names(http, f"?group=*&state={state}") == expected


def test_a_definition_with_a_malformed_group_or_state_is_refused(admin):
    for fields in ({"group": "read"}, {"group": [1]}, {"state": []}, {"available_in_states": "a"},
                   {"avaliable_in_states": ["a"]}, {"groups_": ["a"]}):  # fmt: skip
        answer = admin("POST", "/api/v1/tools", factories.definition("odd", **fields))
        assert answer.status_code == 400, fields


# 9.2: in use, and under attack.


def test_the_state_moves_with_each_success_and_not_without(crib, shop, organization):
    http = agent_client(crib, organization, EVERY)
    factories.tool(
        organization, "broken", group=["text"], state="results", implementation={"source": BREAKS}
    )
    failed = http.execute("broken", {"text": "x"}, group=["text"]).json()
    done = http.execute("knowledge-query", {"text": "x"}, group=["knowledge"]).json()
    assert (failed["status"], failed["session"]["state_after"]) == ("Failed", "undefined")
    assert (done["status"], done["session"]["state_after"]) == ("Success", "analysis")


def test_a_request_that_finds_no_tool_is_answered_and_not_an_error(crib, shop, organization):
    http = agent_client(crib, organization, EVERY)
    answer = http("GET", "/api/v1/tools?group=")
    assert (answer.status_code, answer.json()["results"]) == (200, [])


def test_a_tool_that_is_hidden_is_refused_when_it_is_called(crib, shop, organization):
    http = agent_client(crib, organization, EVERY)
    call = {"text": "x"}
    check_error(http.execute("graph-update", call, group=["write"]), 403, "tool_not_in_state")
    check_error(http.execute("graph-update", call, group=["text"]), 403, "tool_not_in_group")
    check_error(http.execute("graph-update", call, group=[]), 403, "tool_not_in_group")
    check_error(http.execute("graph-update", call), 403, "tool_not_in_group")


@pytest.mark.part("walks")
@pytest.mark.parametrize("wanted", [["write"], ["*"], ["read-only", "write"]])
def test_privileges_do_not_come_from_the_request(crib, shop, organization, wanted):
    http = agent_client(crib, organization, ["read-only"])
    query = "&".join(f"group={name}" for name in wanted)
    check_error(http("GET", f"/api/v1/tools?{query}"), 403, "group_not_granted")
    refused = http.execute("graph-update", {"text": "x"}, group=wanted, state="analysis")
    check_error(refused, 403, "group_not_granted")
    records = AuditRecord.objects.filter(organization=organization.slug, reason="group_not_granted")
    assert {record.code for record in records} == {"LIST.DENY", "TOOL.DENY"}
    assert all(record.details["granted_groups"] == ["read-only"] for record in records)


# 9.3: from end to end.


def test_two_users_with_their_own_groups_states_and_sessions(crib, shop, organization):
    reader = agent_client(crib, organization, ["read-only"])
    writer = agent_client(crib, organization, ["write"])
    mine = open_session(reader, ["read-only"], "undefined")
    theirs = open_session(writer, ["write"], "analysis")
    assert names(reader, f"?session={mine}") == {"knowledge-query", "text-completion"}
    assert names(writer, f"?session={theirs}") == {"graph-update"}
    reader.execute("knowledge-query", {"text": "x"}, session=mine)
    assert names(reader, f"?session={mine}") == {"text-completion"}
    assert names(writer, f"?session={theirs}") == {"graph-update"}
    check_error(writer("GET", f"/api/v1/sessions/{mine}"), 404)
    steps = AuditRecord.objects.filter(organization=organization.slug, code="STATE.TRANSITION")
    assert [step.subject for step in steps] == ["knowledge-query"]


@pytest.mark.part("walks")
def test_a_whole_workflow_begins_again_where_it_began(crib, shop, organization):
    groups = ["knowledge", "compute", "admin"]
    http = agent_client(crib, organization, groups)
    session = open_session(http, groups, "undefined")
    seen = []
    for tool in ("knowledge-query", "complex-analysis", "reset-workflow"):
        seen.append(names(http, f"?session={session}"))
        answer = http.execute(tool, {"text": "x"}, session=session).json()
        assert answer["status"] == "Success", answer
    assert seen == [
        {"knowledge-query"},
        {"complex-analysis", "graph-update", "reset-workflow"},
        {"reset-workflow"},
    ]
    state = http("GET", f"/api/v1/sessions/{session}").json()
    assert state["state"] == "undefined"
    assert [(step["from"], step["to"]) for step in state["transitions"]] == [
        ("undefined", "analysis"),
        ("analysis", "results"),
        ("results", "undefined"),
    ]
    assert names(http, f"?session={session}") == {"knowledge-query"}
    rows = RequestRecord.objects.filter(organization=organization, session_id=session)
    assert {row.kind for row in rows} >= {"execute"}


def test_the_workflow_stops_where_a_group_is_missing(crib, shop, organization):
    """The specification's own [knowledge, compute] cannot reset: that tool is in `admin` alone."""
    http = agent_client(crib, organization, ["knowledge", "compute"])
    session = open_session(http, ["knowledge", "compute"], "undefined")
    for tool in ("knowledge-query", "complex-analysis"):
        http.execute(tool, {"text": "x"}, session=session)
    refused = http.execute("reset-workflow", {"text": "x"}, session=session)
    check_error(refused, 403, "tool_not_in_group")
    assert http("GET", f"/api/v1/sessions/{session}").json()["state"] == "results"


def open_session(http, group, state):
    answer = http("POST", "/api/v1/sessions", {"group": group, "state": state})
    assert answer.status_code == 201, answer.json()
    return answer.json()["id"]
