"""`/grants` over REST: grants are listed, granted and revoked."""

from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, Permission
from guardian.shortcuts import assign_perm

from tests import factories
from tests.api import Api
from tests.tools.shapes import check_error
from tools.accounts.grants.grant_ids import grant_id, read_grant_id
from tools.models import User
from tools.models.permission import GrantRow


def rows(api, query: str = "") -> list[tuple[str, str, str, str]]:
    found = api.get(f"/grants{query}").json()["results"]
    return [(r["subject"]["kind"], r["subject"]["name"], r["kind"], r["name"]) for r in found]


def manager(organization, *permissions: str, **fields) -> Api:
    person = factories.person(organization, **fields)
    factories.permit(person, *permissions)
    return Api(factories.token(person, scopes=["read", "execute", "manage"]))


@pytest.fixture
def keepers(organization) -> Group:
    """A people's group with one member in this organization."""
    group = Group.objects.create(name=f"keepers-{uuid4().hex[:8]}")
    factories.person(organization).groups.add(group)
    return group


def test_every_kind_of_grant_is_listed(admin_api, organization, keepers):
    tool = factories.tool(organization, "one", group=["desk"])
    desk = organization.groups.get(name="desk")
    bot = factories.agent(organization, "bot", groups=["desk"], tools=["one"],
                          tool_groups=["desk"], permissions=["p"])  # fmt: skip
    for codename, row in (("execute_tool", tool), ("execute_toolgroup", desk)):
        assign_perm(codename, keepers, row)
    keepers.permissions.add(Permission.objects.get(codename="execute_tool"))
    assert rows(admin_api, f"?agent={bot.slug}") == [
        ("agent", "bot", "permission", "p"),
        ("agent", "bot", "requestable_group", "desk"),
        ("agent", "bot", "tool", "one"),
        ("agent", "bot", "tool_group", "desk"),
    ]
    assert rows(admin_api, f"?people_group={keepers.name}") == [
        ("people_group", keepers.name, "tool", "*"),
        ("people_group", keepers.name, "tool", "one"),
        ("people_group", keepers.name, "tool_group", "desk"),
    ]


def test_the_list_is_filtered(admin_api, organization):
    factories.tool(organization, "one", group=["desk"])
    factories.agent(organization, "a", groups=["desk"], tools=["one"])
    factories.agent(organization, "b", groups=["default"], tool_groups=["desk"])
    assert rows(admin_api, "?tool=one") == [("agent", "a", "tool", "one")]
    assert rows(admin_api, "?group=desk") == [
        ("agent", "a", "requestable_group", "desk"), ("agent", "b", "tool_group", "desk"),
    ]  # fmt: skip
    assert rows(admin_api, "?agent=a&group=desk") == [("agent", "a", "requestable_group", "desk")]
    assert rows(admin_api, "?agent=nobody") == rows(admin_api, "?agent=") == []
    check_error(admin_api.get("/grants?agent=a&user=b"), 400)


def test_the_list_is_paged_both_ways(admin_api, organization):
    factories.agent(organization, "bot", permissions=[f"p{n}" for n in range(5)], groups=[])
    whole = rows(admin_api, "?agent=bot")
    first = admin_api.get("/grants?agent=bot&page_size=4").json()
    second = admin_api.get(first["next"].partition("/api/v1")[2]).json()
    again = admin_api.get(second["previous"].partition("/api/v1")[2]).json()
    assert len(whole) == 6
    assert [r["name"] for r in first["results"] + second["results"]] == [r[3] for r in whole]
    assert again["results"] == first["results"]
    assert (first["previous"], second["next"]) == (None, None)
    assert again["next"] and again["previous"] is None


@pytest.mark.parametrize("query", ["?cursor=x", "?cursor=after.x", "?page_size=0"])
def test_a_page_that_cannot_be_is_400(admin_api, query):
    check_error(admin_api.get(f"/grants{query}"), 400)


def test_what_is_given_is_answered_listed_and_counts_at_once(admin_api, organization):
    factories.tool(organization, "one", group=["desk"])
    agent = factories.agent(organization, groups=[], tools=[])
    api = factories.api(agent)
    check_error(api.get("/tools?group=desk"), 403)
    body = {"agent": agent.slug, "tool_groups": ["desk"], "groups": ["desk"]}
    given = admin_api.post("/grants", body)
    assert [row["kind"] for row in given.json()["results"]] == ["tool_group", "requestable_group"]
    assert [tool["name"] for tool in api.get("/tools?group=desk").json()["results"]] == ["one"]
    assert admin_api.post("/grants", body).json() == given.json()


def test_what_is_taken_counts_at_once(admin_api, organization):
    factories.tool(organization)
    agent = factories.agent(organization, tools=["echo"])
    api = factories.api(agent)
    assert [tool["name"] for tool in api.get("/tools").json()["results"]] == ["echo"]
    (row,) = admin_api.get(f"/grants?agent={agent.slug}&tool=echo").json()["results"]
    assert admin_api.delete(f"/grants/{row['id']}").status_code == 204
    assert api.get("/tools").json()["results"] == []
    check_error(admin_api.delete(f"/grants/{row['id']}"), 404, "grant_not_found")


def test_people_are_granted_the_same_way(admin_api, organization):
    person = factories.person(organization)
    body = {"user": person.username, "tools": ["read_file"], "groups": ["read-only"]}
    assert admin_api.post("/grants", body).status_code == 200
    listed = Api(factories.token(person)).get("/tools?group=read-only").json()["results"]
    assert [tool["name"] for tool in listed] == ["read_file"]


def test_groups_of_people_hold_tools_and_tool_groups_only(admin_api, keepers):
    body = {"people_group": keepers.name, "tools": ["read_file"], "tool_groups": ["write"]}
    assert admin_api.post("/grants", body).status_code == 200
    for wanted in ({"groups": ["write"]}, {"permissions": ["p"]}):
        answer = admin_api.post("/grants", {"people_group": keepers.name, **wanted})
        check_error(answer, 400, "not_for_people_groups")


WRONG = [
    {}, {"agent": "a"}, {"tools": ["read_file"]}, {"agent": "a", "user": "b", "tools": ["x"]},
    {"agent": "a", "tools": []}, {"agent": 1, "tools": ["x"]}, {"agent": "a", "tools": "x"},
    {"agent": "a", "tools": [1]}, {"agent": "a", "tools": ["x" * 129]}, {"agent": "a", "who": "b"},
    {"agent": "a", "tools": None}, [], "x",
]  # fmt: skip


def test_a_wrong_body_is_400(admin_api, subtests):
    for body in WRONG:
        with subtests.test(body=body):
            check_error(admin_api.post("/grants", body), 400)


@pytest.mark.parametrize("name", ["a\u200b", "", "x" * 101])
def test_a_name_that_can_be_none_is_400(admin_api, organization, name):
    agent = factories.agent(organization)
    check_error(admin_api.post("/grants", {"agent": agent.slug, "groups": [name]}), 400)


MISSING = [
    ({"agent": "ghost", "permissions": ["p"]}, "agent_not_found"),
    ({"user": "ghost", "permissions": ["p"]}, "user_not_found"),
    ({"people_group": "ghost", "tools": ["*"]}, "people_group_not_found"),
]


def test_a_caller_who_is_not_there_is_404(admin_api, subtests):
    for body, code in MISSING:
        with subtests.test(body=body, code=code):
            check_error(admin_api.post("/grants", body), 404, code)


def test_what_is_not_there_is_404(admin_api, organization):
    agent = factories.agent(organization)
    for wanted, code in (({"tools": ["ghost"]}, "tool_not_found"),
                         ({"tool_groups": ["ghost"]}, "group_not_found"),
                         ({"tool_groups": ["*"]}, "group_not_found")):  # fmt: skip
        check_error(admin_api.post("/grants", {"agent": agent.slug, **wanted}), 404, code)


def test_an_agents_account_is_no_user(admin_api, organization):
    agent = factories.agent(organization)
    body = {"user": agent.service_account.username, "permissions": ["p"]}
    check_error(admin_api.post("/grants", body), 404)


NO_NAMES = ["x", "WyJhIl0", "e30", "a" * 3_000, "W10", "éé", "..", "bnVsbA", "WzEsMiwzLDRd"]


def test_what_is_no_grants_name_is_404(admin_api, subtests):
    for text in NO_NAMES:
        with subtests.test(text=text):
            check_error(admin_api.delete(f"/grants/{text}"), 404)


@pytest.mark.parametrize(
    "row", [("agent", "a/b", "tool", "*"), ("user", "ü@x", "requestable_group", "a b/ü🙂\"'")]
)
def test_a_grants_name_says_what_it_grants(row):
    assert read_grant_id(grant_id(GrantRow(*row))) == GrantRow(*row)


def test_another_organizations_grants_are_not_there(admin_api, organization):
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    theirs = factories.agent(other, "their-bot", tools=["read_file"])
    assert not [row for row in rows(admin_api) if row[1] == theirs.slug]
    body = {"agent": theirs.slug, "permissions": ["p"]}
    check_error(admin_api.post("/grants", body), 404, "agent_not_found")
    row = GrantRow("agent", theirs.slug, "tool", "read_file")
    check_error(admin_api.delete(f"/grants/{grant_id(row)}"), 404)
    there = {"X-Organization": other.slug}
    assert admin_api.delete(f"/grants/{grant_id(row)}", **there).status_code == 204


def test_a_group_of_people_shows_only_what_it_holds_here(admin_api, organization, keepers):
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    assign_perm("execute_tool", keepers, other.tools.get(name="read_file"))
    assert rows(admin_api, f"?people_group={keepers.name}") == []
    there = admin_api.get("/grants?tool=read_file", **{"X-Organization": other.slug}).json()
    assert [row["subject"]["name"] for row in there["results"]] == [keepers.name]


def test_who_may_view_agents_sees_no_people(organization, keepers):
    assign_perm("execute_tool", keepers, organization.tools.get(name="read_file"))
    factories.agent(organization, "bot")
    seen = {row[0] for row in rows(manager(organization, "view_agent"))}
    assert seen == {"agent"}
    assert {row[0] for row in rows(manager(organization, "view_user"))} == {"user", "people_group"}
    check_error(manager(organization).get("/grants"), 403, "not_permitted")


def test_who_may_not_change_gives_and_takes_nothing(organization):
    agent = factories.agent(organization, "bot", permissions=["p"])
    row = grant_id(GrantRow("agent", "bot", "permission", "p"))
    for api in (manager(organization, "view_agent", "change_user"), factories.api(agent)):
        assert api.post("/grants", {"agent": "bot", "groups": ["default"]}).status_code == 403
        assert api.delete(f"/grants/{row}").status_code == 403
    agent.service_account.refresh_from_db()
    assert agent.service_account.granted_permissions == ["p"]


def test_a_token_without_manage_gives_nothing(organization, admin_user, agent):
    api = Api(factories.token(admin_user, scopes=["read", "execute"]))
    answer = api.post("/grants", {"agent": agent.slug, "groups": ["*"]})
    check_error(answer, 403, "scope_missing")


# --- the same rule at the other entry points -----------------------------------------------------


AGENTS = [
    {"slug": "newcomer"}, {"slug": "newcomer", "tools": ["write_file"]},
    {"slug": "newcomer", "groups": ["*"]},
    {"slug": "newcomer", "tools": [], "permissions": ["b"]},
    {"slug": "newcomer", "tools": [], "groups": ["write"]},
    {"slug": "newcomer", "tools": [], "tool_groups": ["write"]},
]  # fmt: skip


def test_no_user_makes_an_agent_that_may_more_than_they(organization, subtests):
    api = manager(organization, "add_agent", "view_agent", granted_groups=["default"])
    for body in AGENTS:
        with subtests.test(body=body):
            check_error(api.post("/agents", body), 403, "grant_beyond_own")
            assert not organization.agents.exists()


def test_a_person_makes_an_agent_within_their_own(organization):
    api = manager(organization, "add_agent", granted_groups=["default", "read-only"])
    person = User.objects.get(tokens__public_id=api.token[4:12])
    assign_perm("execute_tool", person, organization.tools.get(name="read_file"))
    body = {"slug": "newcomer", "groups": ["read-only"], "tools": ["read_file"]}
    made = api.post("/agents", body)
    assert (made.status_code, made.json()["tools"]) == (201, ["read_file"])


def test_no_user_widens_an_agent_beyond_themselves_but_may_narrow_it(organization):
    agent = factories.agent(organization, groups=["default", "write"], permissions=["a", "b"])
    api = manager(organization, "change_agent", granted_groups=["default"])
    place = f"/agents/{agent.slug}"
    for wanted in ({"groups": ["*"]}, {"groups": ["default", "write", "read-only"]},
                   {"permissions": ["c"]}, {"tool_groups": ["write"]}):  # fmt: skip
        check_error(api.patch(place, wanted), 403, "grant_beyond_own")
    narrowed = api.patch(place, {"groups": ["write"], "permissions": ["a"], "tools": []})
    assert narrowed.status_code == 200, narrowed.json()
    assert (narrowed.json()["groups"], narrowed.json()["tools"]) == (["write"], [])


def test_an_agents_tool_groups_are_set_and_shown(admin_api, agent):
    changed = admin_api.patch(f"/agents/{agent.slug}", {"tools": [], "tool_groups": ["write"]})
    assert (changed.json()["tools"], changed.json()["tool_groups"]) == ([], ["write"])
    assert admin_api.patch(f"/agents/{agent.slug}", {"tool_groups": []}).json()["tool_groups"] == []
