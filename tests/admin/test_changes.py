"""Every change through the administration counts the revision and leaves a record."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from guardian.shortcuts import assign_perm

from audit.models import AuditRecord
from tests import factories
from tests.admin.test_site import place
from tests.tools import database
from tests.ui.pages import fields, notes, text
from tools.accounts.grants.grant_queries import granted_tools
from tools.models import Agent, LicenseTier, Organization, Token, Tool, ToolGroup, User
from tools.web.forms import NOTHING_CHANGED

Count = Callable[[], int]
NEW = "a good long one 7"


def recorded(organization: Organization, code: str) -> AuditRecord:
    return AuditRecord.objects.filter(organization=organization.slug, code=code).latest("id")


def run(client: Client, model: Any, action: str, row: Any) -> None:
    data = {"action": action, "_selected_action": str(row.pk)}
    assert client.post(place(model, "changelist"), data).status_code == 302


def test_a_tool_is_registered(
    admin_client: Client, organization: Organization, revision: Count, admin_user: User
) -> None:
    definition = json.dumps(factories.definition("fresh"))
    admin_client.post(place(Tool, "add"), {"definition": definition})
    assert Tool.objects.get(organization=organization, name="fresh").version.number == 1
    assert revision() == 1
    assert recorded(organization, "REG.TOOL_CREATE").actor == admin_user.username


def test_each_wrong_field_of_a_definition_is_reported(
    admin_client: Client, organization: Organization
) -> None:
    wrong = json.dumps(factories.definition("no such name", category="Nowhere", nonsense=1))
    page = text(admin_client.post(place(Tool, "add"), {"definition": wrong}))
    for field in ("name: may hold only", "category: must be one of", "nonsense: is not a field"):
        assert field in page
    assert "&quot;nonsense&quot;" in page  # what was typed is still there


@pytest.mark.parametrize("typed", ["{", '{"a": 1, "a": 2}', "[]", "7"])
def test_what_is_no_definition_is_reported(admin_client: Client, typed: str) -> None:
    page = admin_client.post(place(Tool, "add"), {"definition": typed})
    assert page.status_code == 200
    assert "errorlist" in text(page)


def test_a_changed_definition_is_a_new_version(
    admin_client: Client, organization: Organization
) -> None:
    tool = factories.tool(organization)
    definition = json.dumps(factories.definition(description="Another."))
    admin_client.post(place(Tool, "change", tool.pk), {"definition": definition})
    tool.refresh_from_db()
    assert tool.version.number == 2
    assert recorded(organization, "REG.TOOL_UPDATE").subject == "echo"


def test_saving_what_is_shown_changes_nothing(
    admin_client: Client, organization: Organization
) -> None:
    tool = factories.tool(organization)
    page = admin_client.get(place(Tool, "change", tool.pk))
    shown = page.context["adminform"].form["definition"].initial
    admin_client.post(place(Tool, "change", tool.pk), {"definition": shown})
    assert tool.versions.count() == 1


def test_tools_are_switched(
    admin_client: Client, organization: Organization, revision: Count
) -> None:
    tool = Tool.objects.get(organization=organization, name="read_file")
    run(admin_client, Tool, "disable", tool)
    tool.refresh_from_db()
    assert tool.status == "disabled"
    assert revision() == 1
    run(admin_client, Tool, "enable", tool)
    assert recorded(organization, "REG.TOOL_ENABLE").details["reason"] == "admin"


def test_a_tool_is_deleted_and_a_built_in_one_stays(
    admin_client: Client, organization: Organization
) -> None:
    tool = factories.tool(organization)
    admin_client.post(place(Tool, "delete", tool.pk), {"post": "yes"})
    tool.refresh_from_db()
    assert tool.deleted_at
    builtin = Tool.objects.get(organization=organization, name="read_file")
    page = admin_client.post(place(Tool, "delete", builtin.pk), {"post": "yes"}, follow=True)
    *_, said = page.context["messages"]
    assert said.level_tag == "error"
    assert Tool.objects.present().filter(pk=builtin.pk).exists()


def test_a_tool_that_a_chain_calls_is_not_deleted(
    admin_client: Client, organization: Organization
) -> None:
    tool = factories.tool(organization)
    steps = [{"id": "one", "tool_name": "echo", "parameters": {"text": "x"}}]
    chained = {"type": "chain", "implementation": {"chain": {"steps": steps}}, "parameters": []}
    factories.tool(organization, "told", **chained)
    page = admin_client.post(place(Tool, "delete", tool.pk), {"post": "yes"}, follow=True)
    [said] = page.context["messages"]
    assert said.level_tag == "error" and "echo" in said.message and "told" in said.message
    assert Tool.objects.present().filter(pk=tool.pk).exists()


def test_an_object_permission_counts_and_is_recorded(
    admin_client: Client, organization: Organization, revision: Count
) -> None:
    tool, agent = factories.tool(organization), factories.agent(organization, tools=[])
    before, user = revision(), agent.service_account
    address = f"/admin/tools/tool/{tool.pk}/permissions/user-manage/{user.pk}/"
    admin_client.post(address, {"permissions": ["execute_tool"]})
    assert granted_tools(agent) == ["echo"]
    assert revision() == before + 1
    record = recorded(organization, "ADMIN.GRANT_CHANGE")
    assert record.details == {
        "whom": user.username,
        "before": {"permissions": []},
        "after": {"permissions": ["execute_tool"]},
        "source": {"transport": "admin"},
    }


def test_object_permissions_are_not_taken_back_by_a_form_of_before(
    admin_client: Client, organization: Organization
) -> None:
    tool, agent = factories.tool(organization), factories.agent(organization, tools=[])
    address = f"/admin/tools/tool/{tool.pk}/permissions/user-manage/{agent.service_account.pk}/"
    form = fields(text(admin_client.get(address)))
    assign_perm("execute_tool", agent.service_account, tool)
    answer = admin_client.post(address, form | {"permissions": ["view_tool"]})
    assert answer.status_code == 409 and notes(answer)["conflict"]
    assert granted_tools(agent) == ["echo"]


def test_object_permissions_that_are_sent_twice_are_recorded_once(
    admin_client: Client, organization: Organization
) -> None:
    tool, agent = factories.tool(organization), factories.agent(organization, tools=[])
    address = f"/admin/tools/tool/{tool.pk}/permissions/user-manage/{agent.service_account.pk}/"
    form = fields(text(admin_client.get(address))) | {"permissions": ["execute_tool"]}
    assert [admin_client.post(address, form).status_code for _ in range(2)] == [302, 302]
    again = admin_client.post(address, {"permissions": ["execute_tool"]}, follow=True)
    assert NOTHING_CHANGED in text(again)
    records = AuditRecord.objects.filter(organization=organization.slug, subject="tool:echo")
    assert records.filter(code="ADMIN.GRANT_CHANGE").count() == 1


def test_staff_grant_nothing_without_permission(staff_client, organization: Organization) -> None:
    tool, agent = factories.tool(organization), factories.agent(organization, tools=[])
    address = f"/admin/tools/tool/{tool.pk}/permissions/user-manage/{agent.service_account.pk}/"
    response = staff_client("view_tool").post(address, {"permissions": ["execute_tool"]})
    assert response.status_code == 403
    assert granted_tools(agent) == []


def test_an_agent_is_made_with_its_grants(admin_client: Client, organization: Organization) -> None:
    data = {"slug": "magpie", "groups": "default\nread-only", "tools": "read_file", "strict": "on"}
    admin_client.post(place(Agent, "add"), data)
    agent = Agent.objects.get(organization=organization, slug="magpie")
    assert agent.service_account.granted_groups == ["default", "read-only"]
    assert (granted_tools(agent), agent.strict) == (["read_file"], True)
    assert recorded(organization, "ADMIN.AGENT_CREATE").subject == "magpie"


@pytest.mark.parametrize(
    ("change", "reported"),
    [({"slug": "Not A Slug"}, "slug"), ({"tools": "nothing"}, "There is no tool nothing")],
)
def test_an_agent_that_cannot_be_is_reported(
    admin_client: Client, organization: Organization, change: dict[str, str], reported: str
) -> None:
    data = {"slug": "magpie", "groups": "default", "tools": "*", **change}
    page = text(admin_client.post(place(Agent, "add"), data))
    assert reported in page
    assert not Agent.objects.filter(organization=organization).exists()


def test_grants_of_an_agent_are_changed(
    admin_client: Client, organization: Organization, agent: Agent, revision: Count
) -> None:
    data = {"active": "on", "groups": "write", "tools": "*", "permissions": "tool.x"}
    admin_client.post(place(Agent, "change", agent.pk), data)
    agent.service_account.refresh_from_db()
    assert agent.service_account.granted_groups == ["write"]
    assert agent.service_account.granted_permissions == ["tool.x"]
    assert revision() > 0
    assert recorded(organization, "ADMIN.GRANT_CHANGE").subject == agent.slug


def test_an_agent_is_suspended(
    admin_client: Client, organization: Organization, agent: Agent
) -> None:
    run(admin_client, Agent, "suspend", agent)
    agent.refresh_from_db()
    assert not agent.active
    assert recorded(organization, "ADMIN.AGENT_SUSPEND").subject == agent.slug


def test_a_token_is_revoked_and_never_shown(
    admin_client: Client, organization: Organization, agent: Agent
) -> None:
    secret = factories.token(agent.service_account)
    token = Token.objects.get(user=agent.service_account)
    page = text(admin_client.get(place(Token, "change", token.pk)))
    assert secret not in page
    assert token.secret_hash not in page
    run(admin_client, Token, "revoke", token)
    token.refresh_from_db()
    assert not token.usable
    assert recorded(organization, "TOKEN.REVOKE").subject == agent.service_account.username


def test_a_token_is_not_made_here(admin_client: Client) -> None:
    assert admin_client.get(place(Token, "add")).status_code == 403


def test_a_group_with_tools_is_not_deleted(
    admin_client: Client, organization: Organization
) -> None:
    group = ToolGroup.objects.get(organization=organization, name="read-only")
    page = admin_client.post(place(ToolGroup, "delete", group.pk), {"post": "yes"}, follow=True)
    [said] = page.context["messages"]
    assert said.level_tag == "error" and "read-only" in said.message
    assert ToolGroup.objects.filter(pk=group.pk).exists()


def test_a_group_is_changed(
    admin_client: Client, organization: Organization, revision: Count
) -> None:
    group = ToolGroup.objects.get(organization=organization, name="read-only")
    admin_client.post(place(ToolGroup, "change", group.pk), {"permissions": "a\nb"})
    group.refresh_from_db()
    assert group.permissions == ["a", "b"]
    assert revision() == 1


@pytest.mark.part("matrices")
def test_a_tier_is_changed_everywhere(
    admin_client: Client, organization: Organization, revision: Count
) -> None:
    tier = LicenseTier.objects.create(name="Own", rank=79, custom_sandbox_profiles=True)
    Organization.objects.filter(pk=organization.pk).update(tier=tier)
    data = {"name": tier.name, "rank": tier.rank, "every_builtin": "on", "every_level": "on"}
    admin_client.post(place(LicenseTier, "change", tier.pk), data)
    tier.refresh_from_db()
    assert not tier.custom_sandbox_profiles
    assert revision() == 1


def test_an_organization_is_made_with_its_tools(admin_client: Client) -> None:
    tier = LicenseTier.objects.get(name="Core")
    data = {"slug": "new-place", "name": "New", "tier": tier.pk}
    admin_client.post(place(Organization, "add"), data)
    made = Organization.objects.get(slug="new-place")
    assert made.tools.filter(name="read_file").exists()


def test_a_person_is_made_and_changed(
    admin_client: Client, organization: Organization, revision: Count
) -> None:
    secret = {"password1": "a good long one 7", "password2": "a good long one 7"}
    data = {"username": "ada", "organization": organization.pk, "usable_password": "true", **secret}
    admin_client.post(place(User, "add"), data)
    ada = User.objects.get(username="ada")
    changed = {
        "username": "ada", "is_active": "on", "granted_groups": "write", "granted_permissions": "",
        "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00",
    }  # fmt: skip
    admin_client.post(place(User, "change", ada.pk), changed)
    ada.refresh_from_db()
    assert ada.granted_groups == ["write"]
    assert revision() == 2
    record = recorded(organization, "ADMIN.ROW_CHANGE")
    assert record.subject == "user:ada"
    assert {"before", "after"} <= record.details.keys()
    assert "a good long one" not in json.dumps(record.details)


def test_what_a_person_was_granted_is_reported_by_what_was_added_and_removed(
    admin_client: Client, organization: Organization
) -> None:
    many = [f"group{n:03}" for n in range(300)]
    person = factories.person(organization, granted_groups=many)
    data = {
        "username": person.username, "is_active": "on", "granted_permissions": "",
        "granted_groups": "\n".join([*many[1:], "z"]),
        "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00",
    }  # fmt: skip
    admin_client.post(place(User, "change", person.pk), data)
    reported = recorded(organization, "ADMIN.GRANT_CHANGE").details
    assert (reported["added"], reported["removed"]) == (
        {"granted_groups": ["z"]},
        {"granted_groups": ["group000"]},
    )
    assert reported["before"] != reported["after"]


def test_staff_hand_out_no_power(staff_client, staff: User, organization: Organization) -> None:
    person = factories.person(organization)
    client = staff_client("view_user", "change_user")
    data = {"username": person.username, "is_active": "on", "is_superuser": "on", "is_staff": "on"}
    client.post(place(User, "change", person.pk), data)
    person.refresh_from_db()
    assert (person.is_superuser, person.is_staff) == (False, False)


def test_staff_do_not_touch_superusers(staff_client, admin_user: User) -> None:
    client = staff_client("view_user", "change_user")
    data = {"username": "mine", "is_active": ""}
    assert client.post(place(User, "change", admin_user.pk), data).status_code == 403
    password = {"usable_password": "true", "password1": "x" * 20, "password2": "x" * 20}
    address = f"/admin/tools/user/{admin_user.pk}/password/"
    assert client.post(address, password).status_code == 403


def test_service_accounts_are_not_edited_as_people(admin_client: Client, agent: Agent) -> None:
    assert admin_client.get(place(User, "change", agent.service_account.pk)).status_code == 302


def test_a_group_of_people_tells_its_members_organizations(
    admin_client: Client, organization: Organization, revision: Count
) -> None:
    group = Group.objects.create(name="Keepers")
    factories.person(organization).groups.add(group)
    admin_client.post(place(Group, "change", group.pk), {"name": "Keepers of tools"})
    assert revision() == 1
    assert recorded(organization, "ADMIN.ROW_CHANGE").subject == "group:Keepers of tools"


def test_a_group_of_people_that_is_deleted_is_reported_with_all_that_goes_with_it(
    admin_client: Client, organization: Organization
) -> None:
    other, group = factories.organization(f"org-{uuid4().hex[:12]}"), Group.objects.create(name="K")
    members = [factories.person(home) for home in (organization, other)]
    group.user_set.set(members)
    tools = [factories.tool(home, "shiny") for home in (organization, other)]
    for tool in tools:
        assign_perm("tools.execute_tool", group, tool)
    admin_client.post(place(Group, "delete", group.pk), {"post": "yes"})
    assert not Group.objects.filter(pk=group.pk).exists()
    for home, member, tool in zip((organization, other), members, tools, strict=True):
        before = recorded(home, "ADMIN.ROW_CHANGE").details["before"]
        assert before["members"] == [member.username]
        assert before["granted"] == [f"execute_tool tool:{tool}"]


def test_ones_own_password_is_changed_on_record_or_not_at_all(
    committed: None, admin_client: Client, admin_user: User, organization: Organization
) -> None:
    typed = {"old_password": "correct horse", "new_password1": NEW, "new_password2": NEW}
    admin_client.raise_request_exception = False
    with database.no_evidence_for(organization):
        assert admin_client.post("/profile/password/", typed).status_code >= 500
    admin_user.refresh_from_db()
    assert admin_user.check_password("correct horse")
    assert admin_client.post("/profile/password/", typed).status_code == 302
    admin_user.refresh_from_db()
    assert admin_user.check_password(NEW)
    assert recorded(organization, "ADMIN.ROW_CHANGE").details["change"] == "own password"
