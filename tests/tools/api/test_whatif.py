"""`POST /tools/what-if` previews the impact of a change."""

import pytest

from tests import factories
from tests.api import Api
from tools.execution.pipeline import admit


@pytest.fixture
def scout(organization):
    scout = factories.agent(organization, "scout", groups=["default", "read"])
    factories.tool(organization, "press", group=["read"])
    admit(factories.caller(scout), factories.call("press", {"text": "x"}, group=["read"]))
    return scout


def ask(api, **body):
    return api.post("/tools/what-if", body)


def test_both_differences_are_told(admin_api, scout):
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
