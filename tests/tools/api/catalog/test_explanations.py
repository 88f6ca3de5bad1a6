"""`GET /tools/explain`: agents explain their own access, administrators that of any agent."""

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tools.execution.admit import admit
from tools.models import Execution, Session


def rows(response):
    assert response.status_code == 200, response.content
    return {row["tool"]: row for row in response.json()["results"]}


def gate(row, name):
    return next(one for one in row["gates"] if one["gate"] == name)


@pytest.fixture
def person_api(organization):
    """A client of a person who may view agents and tools."""
    user = factories.person(organization)
    factories.permit(user, "view_agent", "view_tool")
    return Api(factories.token(user, scopes=["read", "manage"]))


def test_every_gate_stands_in_its_order_with_a_remedy(api, organization):
    factories.tool(organization, "later", group=["write"], available_in_states=["analysis"])
    row = rows(api.get("/tools/explain"))["later"]
    passed = {one["gate"]: one["passed"] for one in row["gates"]}
    assert [name for name in passed if name in ORDER] == ORDER
    assert (row["available"], row["refused_by"], row["held"]) == (False, "group", False)
    assert gate(row, "group")["remedy"] == "Request the group write."
    assert passed["license"] and not passed["state"]


ORDER = [
    "status", "group", "state", "object_permission", "required_permissions", "license",
    "load", "rate", "budget", "confirmation",
]  # fmt: skip


def test_an_agent_learns_nothing_of_tools_it_may_not_know(api, organization):
    factories.tool(organization, "secret", group=["admin"])
    response = api.get("/tools/explain")
    assert "secret" not in rows(response)
    assert b"admin" not in response.content.replace(b"administrator", b"")


def test_an_agent_may_name_itself_and_no_user_else(api, agent, organization):
    other = factories.agent(organization)
    assert api.get(f"/tools/explain?agent={agent.slug}").status_code == 200
    for slug in (other.slug, "nobody"):
        assert api.get(f"/tools/explain?agent={slug}").status_code == 403


@pytest.mark.parametrize("query", ["grant_group=admin", "tier=Core", "grant_permission=x"])
def test_an_agent_may_suppose_nothing(api, query):
    assert api.get(f"/tools/explain?{query}").status_code == 403


def test_an_agent_that_asks_beyond_its_grants_is_refused_and_recorded(api, organization):
    response = api.get("/tools/explain?group=admin")
    assert (response.status_code, response.json()["code"]) == (403, "group_not_granted")
    assert AuditRecord.objects.filter(organization=organization.slug, code="LIST.DENY").exists()


def test_an_administrator_sees_why_the_whole_request_is_refused(person_api, agent, organization):
    factories.tool(organization, "secret", group=["admin"])
    answer = person_api.get(f"/tools/explain?agent={agent.slug}&group=admin")
    request = answer.json()["request"]
    refusals = [one["code"] for one in request["gates"] if not one["passed"]]
    assert (request["caller"], refusals) == (agent.slug, ["group_not_granted"])
    assert gate(rows(answer)["secret"], "group")["passed"]
    assert rows(answer)["secret"]["available"] is False
    assert not AuditRecord.objects.filter(organization=organization.slug, code="LIST.DENY").exists()


def test_a_supposed_grant_is_explained_before_it_is_given(person_api, agent, organization):
    factories.tool(organization, "secret", group=["admin"], required_permissions=["tool.x"])
    query = f"agent={agent.slug}&group=admin&tool=secret"
    supposed = f"{query}&grant_group=admin&grant_permission=tool.x"
    assert rows(person_api.get(f"/tools/explain?{query}"))["secret"]["available"] is False
    assert rows(person_api.get(f"/tools/explain?{supposed}"))["secret"]["available"] is True
    assert agent.service_account.granted_groups == ["default", "read-only", "write"]


def test_a_supposed_tool_and_tier_are_explained(person_api, organization):
    narrow = factories.agent(organization, groups=["default"], tools=["read_file"])
    factories.tool(organization, "wanted")
    query = f"/tools/explain?agent={narrow.slug}&tool=wanted"
    assert rows(person_api.get(query))["wanted"]["refused_by"] == "object_permission"
    assert rows(person_api.get(f"{query}&grant_tool=wanted"))["wanted"]["available"]
    small = rows(person_api.get(f"{query}&grant_tool=wanted&tier=Core"))["wanted"]
    assert small["refused_by"] == "license"


ABSENT = [
    ("agent=ghost", 404), ("tier=ghost", 404), ("agent={}&grant_tool=ghost", 404),
    ("session=x", 404), ("agent={}&session=x", 404), ("grant_group=a", 400),
]  # fmt: skip


def test_what_is_not_there_is_said(person_api, agent, subtests):
    for query, status in ABSENT:
        with subtests.test(query=query, status=status):
            response = person_api.get(f"/tools/explain?{query.format(agent.slug)}")
            assert response.status_code == status, response.content


def test_a_session_s_own_groups_and_state_are_asked_about(person_api, agent, organization):
    factories.tool(organization, "later", group=["write"], available_in_states=["analysis"])
    session = Session.objects.create(
        organization=organization, user=agent.service_account, agent=agent,
        groups=["write"], state="analysis",
    )  # fmt: skip
    query = f"/tools/explain?agent={agent.slug}&session={session.pk}&tool=later"
    assert rows(person_api.get(query))["later"]["available"]


def test_another_organization_s_agent_is_not_there(person_api):
    other = factories.organization("explained-elsewhere")
    theirs = factories.agent(other)
    assert person_api.get(f"/tools/explain?agent={theirs.slug}").status_code == 404


def test_a_person_without_permission_explains_only_itself(organization, agent):
    user = factories.person(organization)
    api = Api(factories.token(user, scopes=["read", "manage"]))
    assert api.get(f"/tools/explain?agent={agent.slug}").status_code == 403
    assert rows(api.get("/tools/explain")) == {}


def test_pages_and_filters_are_those_of_a_list(person_api, organization):
    for number in range(3):
        factories.tool(organization, f"t{number}", description="Counts things.")
    first = person_api.get("/tools/explain?q=counts%20THINGS&page_size=2").json()
    assert [row["tool"] for row in first["results"]] == ["t0", "t1"]
    second = person_api.get(first["next"].partition("/api/v1")[2]).json()
    assert [row["tool"] for row in second["results"]] == ["t2"]
    assert [*rows(person_api.get("/tools/explain?tool=t1&tool=t2"))] == ["t1", "t2"]


def test_explaining_writes_nothing(api, organization):
    assert rows(api.get("/tools/explain?group=read-only"))
    assert not Execution.objects.filter(organization=organization).exists()


@pytest.fixture
def scout(organization):
    scout = factories.agent(organization, "scout", groups=["default", "read"])
    factories.tool(organization, "press", group=["read"])
    admit(factories.caller(scout), factories.call("press", {"text": "x"}, group=["read"]))
    return scout


def ask(api, **body):
    return api.post("/tools/what-if", body)


def test_both_differences_are_reported(admin_api, scout):
    answer = ask(admin_api, change={"kind": "grant", "agent": "scout", "groups": ["default"]})
    assert answer.status_code == 200, answer.content
    body = answer.json()
    assert body["agents"]["results"] == [
        {"agent": "scout", "added": [], "removed": ["press"], "added_count": 0, "removed_count": 1}
    ]
    (row,) = body["calls"]["would_be_refused"]["results"]
    assert (row["agent"], row["tool"], row["group"], row["calls"], row["gate"]) == (
        "scout", "press", ["read"], 1, "granted_groups",
    )  # fmt: skip
    assert body["calls"]["would_pass"] == {"calls": 0, "results": []}
    assert (body["calls"]["cut"], body["agents"]["cut"]) == (False, False)


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    "change",
    [
        {"kind": "tier", "tier": "Core"},
        {"kind": "tool_groups", "tool": "press", "groups": None},
        {"kind": "group", "group": "read", "schedule": [], "permissions": ["x"]},
        {"kind": "group", "group": "read", "max_cpu_percent": 50},
        {"kind": "grant", "agent": "scout", "tools": ["*"], "tool_groups": ["read"]},
    ],
)
def test_every_kind_of_change_is_understood(admin_api, scout, change):
    assert ask(admin_api, change=change).status_code == 200


WRONG = [
    ({}, 400), ({"change": None}, 400), ({"change": []}, 400), ({"change": {}}, 400),
    ({"change": {"kind": "ghost"}}, 400), ({"change": {"kind": ["tier"]}}, 400),
    ({"change": {"kind": "tier"}}, 400), ({"change": {"kind": "tier", "tier": 1}}, 400),
    ({"change": {"kind": "tier", "tier": "Core", "more": 1}}, 400),
    ({"change": {"kind": "tier", "tier": "Ghost"}}, 404),
    ({"change": {"kind": "tier", "tier": "Core"}, "since": "2001-01-01T00:00:00Z"}, 400),
    ({"change": {"kind": "tier", "tier": "Core"}, "since": "9999-12-31T23:59:59Z"}, 400),
    ({"change": {"kind": "grant", "agent": "scout", "groups": "read"}}, 400),
    ({"change": {"kind": "group", "group": "read", "schedule": "always"}}, 400),
    ({"change": {"kind": "group", "group": "read", "schedule": [{"from": 1}]}}, 400),
    ({"change": {"kind": "group", "group": "read", "max_cpu_percent": "x"}}, 400),
    ({"change": {"kind": "group", "group": "read", "parent": "ghost"}}, 400),
    ({"change": {"kind": "tool_groups", "tool": "press"}}, 400),
    ({"change": {"kind": "tool_groups", "tool": "a\u0000", "groups": []}}, 400),
]  # fmt: skip


def test_what_cannot_be_understood_is_said(admin_api, scout, subtests):
    for body, status in WRONG:
        with subtests.test(body=body, status=status):
            assert ask(admin_api, **body).status_code == status


def test_agents_ask_nothing(api, scout):
    assert ask(api, change={"kind": "tier", "tier": "Core"}).status_code == 403


def test_another_organization_s_rows_are_not_there(admin_api, scout):
    other = factories.organization("what-if-elsewhere")
    factories.agent(other, "stranger")
    factories.tool(other, "theirs")
    for change in (
        {"kind": "grant", "agent": "stranger", "groups": []},
        {"kind": "tool_groups", "tool": "theirs", "groups": []},
    ):
        assert ask(admin_api, change=change).status_code == 404


def test_the_change_s_own_permission_is_needed(organization, scout):
    user = factories.person(organization)
    factories.permit(user, "view_agent", "view_tool", "change_tool")
    api = Api(factories.token(user, scopes=["read", "manage"]))
    assert ask(api, change={"kind": "tier", "tier": "Core"}).status_code == 403
    answer = ask(api, change={"kind": "tool_groups", "tool": "press", "groups": []})
    assert (answer.status_code, answer.json()["calls"]) == (200, None)
