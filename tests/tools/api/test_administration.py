"""Agents, grants, groups, organizations and tiers over REST, for people with the permission."""

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.tools.shapes import check_error
from tools.models import Agent, LicenseTier, Organization


def test_a_new_agent_is_granted_the_default_group_and_nothing_else(admin_api):
    made = admin_api.post("/agents", {"slug": "newcomer"})
    assert made.status_code == 201
    assert made.headers["Location"] == "/api/v1/agents/newcomer"
    assert (made.json()["groups"], made.json()["permissions"]) == (["default"], [])


@pytest.mark.parametrize("groups", [[], ["*"], ["a", "b"]])
def test_an_agents_groups_are_what_was_asked_for(admin_api, groups):
    assert (
        admin_api.post("/agents", {"slug": "newcomer", "groups": groups}).json()["groups"] == groups
    )


WRONG_AGENTS = [
    {}, {"slug": ""}, {"slug": "Upper"}, {"slug": "a b"}, {"slug": "-a"}, {"slug": "x" * 64},
    {"slug": 5},
    {"slug": "a", "groups": "default"}, {"slug": "a", "groups": [1]}, {"slug": "a", "groups": [""]},
    {"slug": "a", "groups": ["a\u200b"]}, {"slug": "a", "strict": "yes"}, {"slug": "a",
    "admin": True},
    {"slug": "a", "permissions": ["x" * 101]}, {"slug": "a", "description": "x" * 501},
]  # fmt: skip


def test_a_wrong_agent_is_400_and_nothing_is_made(admin_api, organization, subtests):
    for body in WRONG_AGENTS:
        with subtests.test(body=body):
            check_error(admin_api.post("/agents", body), 400)
            assert not Agent.objects.filter(organization=organization).exists()


def test_an_agent_of_that_name_is_409(admin_api, agent):
    check_error(admin_api.post("/agents", {"slug": agent.slug}), 409, "agent_exists")


def test_a_tool_that_is_not_there_cannot_be_granted(admin_api, organization):
    check_error(admin_api.post("/agents", {"slug": "a", "tools": ["ghost"]}), 404, "tool_not_found")
    assert not Agent.objects.filter(organization=organization).exists()


def test_tools_are_granted_one_by_one_or_all(admin_api, agent):
    place = f"/agents/{agent.slug}"
    for tools in (["read_file"], [], ["*"], ["read_file", "write_file"]):
        assert admin_api.patch(place, {"tools": tools}).json()["tools"] == tools


def test_a_patch_leaves_what_it_does_not_name(admin_api, agent):
    place = f"/agents/{agent.slug}"
    before = admin_api.get(place).json()
    assert admin_api.patch(place, {"strict": True}).json() == before | {"strict": True}
    assert admin_api.patch(place, {"permissions": ["p"]}).json()["groups"] == before["groups"]


def test_every_change_of_a_grant_is_on_record(admin_api, organization, admin_user, agent):
    admin_api.patch(f"/agents/{agent.slug}", {"groups": ["a"], "active": False})
    records = AuditRecord.objects.filter(organization=organization.slug, actor=admin_user.username)
    codes = [record.code for record in records.order_by("id")]
    assert codes[-2:] == ["ADMIN.GRANT_CHANGE", "ADMIN.AGENT_SUSPEND"]


def test_groups_show_their_tools_to_who_was_granted_them(api, organization):
    factories.tool(organization, "secret", group=["admin"])
    shown = {g["name"]: g["tools"] for g in api.get("/groups").json()["results"]}
    assert shown == {
        "default": [],
        "read-only": ["read_file", "validate_content"],
        "write": ["write_file"],
    }
    check_error(api.get("/groups/admin"), 404)


def test_a_group_is_changed_field_by_field(admin_api):
    admin_api.post("/groups", {"name": "g/with slash", "description": "d", "permissions": ["p"]})
    changed = admin_api.patch("/groups/g/with slash", {"description": "e"})
    assert (changed.json()["description"], changed.json()["permissions"]) == ("e", ["p"])


def test_a_group_of_that_name_is_409(admin_api):
    check_error(admin_api.post("/groups", {"name": "default"}), 409, "group_exists")


def test_a_new_organization_has_the_builtin_tools_and_its_tier(admin_api):
    made = admin_api.post("/organizations", {"slug": "fresh", "name": "Fresh", "tier": "Teams"})
    assert (made.status_code, made.json()["tier"]) == (201, "Teams")
    there = {"X-Organization": "fresh"}
    listed = admin_api.get("/tools?group=*", **there).json()["results"]
    assert [tool["name"] for tool in listed] == factories.BUILTIN_NAMES


WRONG_ORGANIZATIONS = [
    {}, {"slug": "A", "name": "x"}, {"slug": "a"}, {"slug": "a", "name": ""},
    {"slug": "a", "name": 5}, {"slug": "../a", "name": "x"},
]  # fmt: skip


def test_a_wrong_organization_is_400(admin_api, admin_user, subtests):
    made = AuditRecord.objects.filter(actor=admin_user.username, code="ADMIN.ORGANIZATION_CREATE")
    for body in WRONG_ORGANIZATIONS:
        with subtests.test(body=body):
            check_error(admin_api.post("/organizations", body), 400)
            assert not made.exists()
            assert not Organization.objects.filter(slug__in=["A", "a", "../a"]).exists()


def test_an_unknown_tier_is_404(admin_api):
    check_error(admin_api.post("/organizations", {"slug": "a", "name": "a", "tier": "Gold"}), 404)


def test_a_tier_is_changed_for_everybody_who_has_it(admin_api, db):
    core = factories.organization("core-place", "Core")
    before = Organization.objects.get(pk=core.pk).revision
    changed = admin_api.patch("/tiers/Core", {"max_custom_tools": 1, "builtin_tools": None})
    assert changed.json()["max_custom_tools"] == 1
    assert Organization.objects.get(pk=core.pk).revision == before + 1


WRONG_TIERS = [
    {"max_custom_tools": -1}, {"max_custom_tools": "1"}, {"max_custom_tools": True},
    {"builtin_tools": "all"}, {"custom_sandbox_profiles": True}, {"rank": 9},
]  # fmt: skip


def test_a_wrong_tier_is_400(admin_api, subtests):
    for body in WRONG_TIERS:
        with subtests.test(body=body):
            check_error(admin_api.patch("/tiers/Teams", body), 400)
            assert LicenseTier.objects.get(name="Teams").max_custom_tools == 50


def test_definitions_are_refused_field_by_field_over_the_api(admin_api, organization):
    body = check_error(admin_api.post("/tools", factories.definition(group="x", groups=[])), 400)
    assert body["code"] == "invalid_definition"
    assert [error["field"] for error in body["details"]["errors"]] == ["groups", "group"]


def test_a_definition_may_not_run_longer_than_the_installation_allows(admin_api, settings):
    settings.EXECUTION_TIMEOUT_S = 60
    wanted = factories.definition(constraints={"max_execution_time": "PT61S"})
    body = check_error(admin_api.post("/tools", wanted), 400, "invalid_definition")
    assert body["details"]["errors"][0]["field"] == "constraints.max_execution_time"
