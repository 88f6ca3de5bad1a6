"""A superuser's changes to another organization are recorded in that organization's audit log."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from audit.models import AuditRecord
from tests import factories, licenses
from tests.admin.test_site import place
from tests.api import Api
from tests.tools.shapes import check_error
from tools.licensing import licenses as ours
from tools.models import Agent, LicenseTier, Organization, Tool


@pytest.fixture
def other_organization(organization):
    return factories.organization(f"org-{uuid4().hex[:12]}", "Teams")


def codes(place, actor):
    found = AuditRecord.objects.filter(organization=place, actor=actor.username)
    return [*found.order_by("occurred_at").values_list("code", flat=True)]


def change_as_previewed(api: Api, address: str, preview: str, **change: Any) -> Any:
    """The answer to a change with the mark of its preview."""
    mark = api.post(preview, change).json()["preview_mark"]
    return api.patch(address, change | {"preview_mark": mark})


def move(api: Api, slug: str, tier: str) -> Any:
    place = f"/organizations/{slug}"
    return change_as_previewed(api, place, f"{place}/tier/preview", tier=tier)


def change_terms(api: Api, tier: str, **terms: Any) -> Any:
    return change_as_previewed(api, f"/tiers/{tier}", f"/tiers/{tier}/preview", **terms)


def test_another_tier_is_on_record_with_what_follows_where_it_was_set(
    admin_api, admin_user, organization, other_organization
):
    for number in range(12):
        factories.tool(other_organization, f"tool{number}")
    place = f"/organizations/{other_organization.slug}"
    mark = admin_api.post(f"{place}/tier/preview", {"tier": "Core"}).json()["preview_mark"]
    changed = admin_api.patch(place, {"tier": "Core", "name": "New", "preview_mark": mark})
    disabled = len(changed.json()["tier_change"]["disabled"])
    assert disabled > 0
    assert codes(other_organization.slug, admin_user) == [
        *["REG.TOOL_DISABLE"] * disabled, "ADMIN.TIER_CHANGE", "ADMIN.ORGANIZATION_CHANGE",
    ]  # fmt: skip
    assert codes(organization.slug, admin_user) == []


def test_a_changed_tier_is_on_record_wherever_something_follows(
    admin_api, admin_user, organization, other_organization
):
    factories.tool(other_organization, "shiny")
    change_terms(admin_api, "Teams", max_custom_tools=0)
    assert codes(other_organization.slug, admin_user) == ["REG.TOOL_DISABLE", "ADMIN.TIER_CHANGE"]
    assert codes(organization.slug, admin_user) == ["ADMIN.TIER_CHANGE"]


@pytest.mark.parametrize("door", ["api", "admin"])
def test_a_new_organizations_evidence_begins_with_its_making(
    admin_api, admin_client, admin_user, organization, door
):
    slug, tier = f"org-{uuid4().hex[:12]}", LicenseTier.objects.get(name="Core")
    if door == "api":
        admin_api.post("/organizations", {"slug": slug, "name": "New", "tier": "Core"})
    else:
        data = {"slug": slug, "name": "New", "tier": tier.pk}
        admin_client.post(place(Organization, "add"), data)
    made = codes(slug, admin_user)
    assert made[0] == "ADMIN.ORGANIZATION_CREATE"
    assert "REG.TOOL_CREATE" in made
    assert codes(organization.slug, admin_user) == []


def test_it_says_for_how_long_outputs_are_kept(admin_api, organization):
    place = f"/organizations/{organization.slug}"
    assert admin_api.get(place).json()["output_days"] is None
    assert admin_api.patch(place, {"output_days": 30}).json()["output_days"] == 30
    assert admin_api.patch(place, {"output_days": None}).json()["output_days"] is None
    for odd in (0, -1, 36_501, "7", 1.5, True, []):
        assert admin_api.patch(place, {"output_days": odd}).status_code == 400, odd


def tools(organization, count):
    for number in range(count):
        factories.tool(organization, f"t{number}")


def address(organization):
    return f"/organizations/{organization.slug}"


def ends(organization, days):
    end = timezone.now() + timedelta(days=days)
    Organization.objects.filter(pk=organization.pk).update(license_expires_at=end)


@pytest.fixture
def licensed(organization, settings):
    """The organization with an installed license for Teams."""
    settings.LICENSE_KEYS = [licenses.PUBLIC]
    ours.install_license(
        organization=organization,
        file=licenses.license_file(organization.slug),
        by=factories.actor(organization),
    )
    return organization


def test_the_answer_to_a_downgrade_says_which_tools_were_disabled(admin_api, organization):
    tools(organization, 12)
    answer = move(admin_api, organization.slug, "WriterPro")
    assert answer.status_code == 200
    assert answer.json()["tier_change"] == {
        "tier_before": "Enterprise",
        "tier": "WriterPro",
        "disabled": ["t11", "t10"],
        "enabled": [],
        "gated": factories.BUILTINS_BEYOND_CORE,
        "opened": [],
        "profiles": [],
    }
    shown = admin_api.get("/tools/t11").json()
    assert (shown["enabled"], shown["status_reason"]) == (
        False,
        "Disabled by the licence: WriterPro allows 10 custom tools",
    )


def test_what_is_shown_of_a_tool_may_be_sent_back(admin_api, organization):
    tools(organization, 1)
    move(admin_api, organization.slug, "Core")
    shown = admin_api.get("/tools/t0").json()
    again = admin_api.put("/tools/t0", shown)
    assert (again.status_code, again.json()["status_reason"]) == (200, shown["status_reason"])


def test_without_a_tier_nothing_is_said_about_one(admin_api, organization):
    assert "tier_change" not in admin_api.patch(address(organization), {"name": "New"}).json()


def test_a_preview_is_what_the_change_then_does(admin_api, organization):
    tools(organization, 3)
    said = admin_api.post(f"{address(organization)}/tier/preview", {"tier": "Core"})
    assert (said.status_code, said.json()["disabled"]) == (200, ["t2", "t1", "t0"])
    assert Tool.objects.filter(organization=organization, status="disabled").count() == 0
    done = move(admin_api, organization.slug, "Core")
    shown = said.json()
    assert done.json()["tier_change"] | {"preview_mark": shown["preview_mark"]} == shown


NONSENSE = [
    ({"tier": "Gold"}, 404), ({}, 400), ({"tier": None}, 400), ({"tier": 1}, 400),
    ({"tier": "Core", "x": 1}, 400), ({"tier": "a\x00"}, 400),
]  # fmt: skip


def test_a_preview_of_nonsense_is_refused(admin_api, organization, subtests):
    for body, status in NONSENSE:
        with subtests.test(body=body, status=status):
            check_error(admin_api.post(f"{address(organization)}/tier/preview", body), status)


def test_a_preview_of_an_unknown_organization_is_404(admin_api):
    check_error(admin_api.post("/organizations/ghost/tier/preview", {"tier": "Core"}), 404)


def test_a_preview_is_for_superusers(organization, api):
    user = factories.person(organization)
    factories.permit(user, "change_organization")
    person = factories.token(user, scopes=["read", "execute", "manage"])
    for caller in (api, type(api)(person)):
        answer = caller.post(f"{address(organization)}/tier/preview", {"tier": "Core"})
        check_error(answer, 403)


def test_an_organization_shows_how_its_licence_stands(admin_api, organization):
    assert admin_api.get(address(organization)).json()["license"] == {
        "id": None,
        "expires_at": None,
        "grace_ends_at": None,
        "state": "none",
        "effective_tier": "Enterprise",
    }


@pytest.mark.parametrize(
    ("days", "state", "tier"),
    [(40, "valid", "Teams"), (5, "expiring", "Teams"), (-5, "grace", "Teams"),
     (-15, "expired", "Core")],
)  # fmt: skip
def test_a_licence_stands_by_the_clock(admin_api, licensed, days, state, tier):
    ends(licensed, days)
    shown = admin_api.get(address(licensed)).json()
    assert (shown["tier"], shown["license"]["id"]) == ("Teams", "L-1")
    assert (shown["license"]["state"], shown["license"]["effective_tier"]) == (state, tier)
    assert shown["license"]["grace_ends_at"] > shown["license"]["expires_at"]


def test_a_tier_set_by_a_licence_is_not_set_by_hand(admin_api, licensed):
    check_error(admin_api.patch(address(licensed), {"tier": "Core"}), 409, "tier_is_licensed")
    assert admin_api.patch(address(licensed), {"tier": "Teams"}).status_code == 200


def test_a_change_of_a_tier_says_what_follows_for_whom(admin_api, organization):
    other = factories.organization("tier-followed", "WriterPro")
    tools(other, 2)
    terms = {"max_custom_tools": 1, "isolation_levels": ["Standard"]}
    answer = change_terms(admin_api, "WriterPro", **terms).json()
    assert answer["isolation_levels"] == ["Standard"]
    assert answer["organizations"]["tier-followed"]["disabled"] == ["t1"]


def test_a_tier_is_not_changed_without_a_preview_where_something_follows(admin_api, organization):
    other = factories.organization("tier-followed", "WriterPro")
    tools(other, 2)
    place, terms = "/organizations/tier-followed", {"max_custom_tools": 1}
    check_error(admin_api.patch(place, {"tier": "Core"}), 409, "tier_preview_needed")
    check_error(admin_api.patch("/tiers/WriterPro", terms), 409, "tier_preview_needed")
    mark = admin_api.post("/tiers/WriterPro/preview", terms).json()["preview_mark"]
    factories.tool(other, "since")
    stale = admin_api.patch("/tiers/WriterPro", terms | {"preview_mark": mark})
    check_error(stale, 409, "tier_changed")
    assert LicenseTier.objects.get(name="WriterPro").max_custom_tools == 10
    assert Organization.objects.get(pk=other.pk).tier.name == "WriterPro"


@pytest.mark.parametrize("levels", [["Weak"], "Standard", [1], [None]])
def test_levels_that_are_none_are_refused(admin_api, levels):
    check_error(admin_api.patch("/tiers/Core", {"isolation_levels": levels}), 400)
    assert LicenseTier.objects.get(name="Core").isolation_levels == ["None", "Standard"]


def test_a_call_in_the_days_of_grace_carries_one_warning(organization, agent):
    factories.tool(organization)
    ends(organization, -3)
    (warning,) = factories.execution(agent).warnings
    assert warning.startswith("The organization's licence ended on") and len(warning) < 200


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
    changed = change_terms(admin_api, "Core", max_custom_tools=1, builtin_tools=None)
    assert changed.json()["max_custom_tools"] == 1
    # Once to look at the catalog that the preview was of, and once for the change.
    assert Organization.objects.get(pk=core.pk).revision == before + 2


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
