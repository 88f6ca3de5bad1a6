"""Whatever way a grant is taken away, the very next call of a warm process knows it.

Nothing is forgotten in between: every process learns of it by the organization's revision, which
comes with the caller.
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import Group, Permission
from django.test import Client
from guardian.shortcuts import assign_perm

from audit.models import AuditRecord
from tests import factories
from tests.admin.test_site import place
from tests.api import Api
from tests.tools.shapes import check_error
from tools.accounts.callers import caller_of_user
from tools.accounts.grants.grant_queries import grant_id
from tools.accounts.grants.grants import grants
from tools.execution.perform import perform
from tools.models import Agent, Execution, Organization, Tool, ToolGroup, User
from tools.models.permission import GrantRow


@dataclass(frozen=True)
class Scene:
    """An administrator, and a person of another browser who holds nothing yet."""

    organization: Organization
    admin: Client
    api: Api
    tool: Tool
    desk: ToolGroup
    person: User
    keepers: Group
    agent: Agent

    def save(self, person: User, **changed: object) -> None:
        """The person's page, as it was but for what is changed."""
        data = {
            "username": person.username, "is_active": "on",
            "granted_groups": "\n".join(person.granted_groups),
            "granted_permissions": "\n".join(person.granted_permissions),
            "groups": [group.pk for group in person.groups.all()],
            "user_permissions": [row.pk for row in person.user_permissions.all()],
            "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00", **changed,
        }  # fmt: skip
        assert self.admin.post(place(User, "change", person.pk), data).status_code == 302

    def take(self, kind: str, name: str, what: str, item: str) -> None:
        row = grant_id(GrantRow(kind, name, what, item))
        assert self.api.delete(f"/grants/{row}").status_code == 204


@pytest.fixture
def scene(organization: Organization, admin_client: Client, admin_api: Api) -> Scene:
    return Scene(
        organization, admin_client, admin_api,
        tool=factories.tool(organization, group=["default", "desk"]),
        desk=organization.groups.get(name="desk"),
        person=factories.person(organization),
        keepers=Group.objects.create(name=f"keepers-{uuid4().hex[:8]}"),
        agent=factories.agent(organization, tools=[]),
    )  # fmt: skip


def every_tool() -> Permission:
    return Permission.objects.get(codename="execute_tool")


def join(scene: Scene) -> None:
    scene.person.groups.add(scene.keepers)


def pages(scene: Scene, row: Tool | ToolGroup, who: str) -> None:
    """django-guardian's page for one row and one holder, with nothing chosen."""
    address = f"/admin/tools/{row._meta.model_name}/{row.pk}/permissions/{who}/"
    assert scene.admin.post(address, {"permissions": [], "save": "Save"}).status_code == 302


Step = Callable[[Scene], object]
# How the person (or the agent) came to hold the tool, and how it is taken away.
PEOPLE: dict[str, tuple[Step, Step]] = {
    "the tool, on the tool's page": (
        lambda s: assign_perm("execute_tool", s.person, s.tool),
        lambda s: pages(s, s.tool, f"user-manage/{s.person.pk}"),
    ),
    "the tool group, on the group's page": (
        lambda s: assign_perm("execute_toolgroup", s.person, s.desk),
        lambda s: pages(s, s.desk, f"user-manage/{s.person.pk}"),
    ),
    "the tool, on the tool's page, of a group of people": (
        lambda s: (join(s), assign_perm("execute_tool", s.keepers, s.tool)),
        lambda s: pages(s, s.tool, f"group-manage/{s.keepers.pk}"),
    ),
    "the tool group, on the group's page, of a group of people": (
        lambda s: (join(s), assign_perm("execute_toolgroup", s.keepers, s.desk)),
        lambda s: pages(s, s.desk, f"group-manage/{s.keepers.pk}"),
    ),
    "everything, on the person's page": (
        lambda s: s.person.user_permissions.add(every_tool()),
        lambda s: s.save(s.person, user_permissions=[]),
    ),
    "the groups, on the person's page": (
        lambda s: s.person.user_permissions.add(every_tool()),
        lambda s: s.save(s.person, granted_groups=""),
    ),
    "the membership, on the person's page": (
        lambda s: (join(s), s.keepers.permissions.add(every_tool())),
        lambda s: s.save(s.person, groups=[]),
    ),
    "everything, on the page of a group of people": (
        lambda s: (join(s), s.keepers.permissions.add(every_tool())),
        lambda s: s.admin.post(
            place(Group, "change", s.keepers.pk), {"name": s.keepers.name, "permissions": []}
        ),
    ),
    "the group of people itself": (
        lambda s: (join(s), assign_perm("execute_tool", s.keepers, s.tool)),
        lambda s: s.admin.post(place(Group, "delete", s.keepers.pk), {"post": "yes"}),
    ),
    "the person's log-in": (
        lambda s: s.person.user_permissions.add(every_tool()),
        lambda s: s.save(s.person, is_active=""),
    ),
    "the tool, over the API": (
        lambda s: assign_perm("execute_tool", s.person, s.tool),
        lambda s: s.take("user", s.person.username, "tool", "echo"),
    ),
    "the tool group of a group of people, over the API": (
        lambda s: (join(s), assign_perm("execute_toolgroup", s.keepers, s.desk)),
        lambda s: s.take("people_group", s.keepers.name, "tool_group", "desk"),
    ),
    "the group, over the API": (
        lambda s: s.person.user_permissions.add(every_tool()),
        lambda s: s.take("user", s.person.username, "requestable_group", "default"),
    ),
}


def grant_agent(scene: Scene, **wanted: list[str]) -> None:
    scene.api.post("/grants", {"agent": scene.agent.slug, **wanted})


def agents_page(scene: Scene, **changed: str) -> None:
    data = {"active": "on", "groups": "default", "tools": "echo", **changed}
    assert scene.admin.post(place(Agent, "change", scene.agent.pk), data).status_code == 302


AGENTS: dict[str, tuple[Step, Step]] = {
    "the agent's tools, on its page": (
        lambda s: grant_agent(s, tools=["echo"]),
        lambda s: agents_page(s, tools=""),
    ),
    "the agent's groups, on its page": (
        lambda s: grant_agent(s, tools=["echo"]),
        lambda s: agents_page(s, groups=""),
    ),
    "the agent's tool groups, over the API": (
        lambda s: grant_agent(s, tool_groups=["desk"]),
        lambda s: s.api.patch(f"/agents/{s.agent.slug}", {"tool_groups": []}),
    ),
    "the agent itself, on its page": (
        lambda s: grant_agent(s, tools=["*"]),
        lambda s: agents_page(s, tools="*", active=""),
    ),
}


def check_that_it_counts(scene: Scene, account: User, take: Step) -> None:
    """At listing, explaining, executing, and at the claim of what waits in the queue."""
    api = Api(factories.token(account))
    listed = api.get("/tools").json()["results"]
    assert [tool["name"] for tool in listed] == ["echo"]
    waiting = api.execute("echo", {"text": "x"}, options={"wait_s": 0}).json()["execution_id"]
    take(scene)
    answer = api.get("/tools")
    assert answer.status_code in (401, 403) or answer.json()["results"] == []
    explained = api.get("/tools/explain")
    assert explained.status_code in (401, 403) or not [
        row for row in explained.json()["results"] if row["available"]
    ]
    assert api.execute("echo", {"text": "x"}).status_code in (401, 403)
    perform(Execution.objects.get(pk=waiting).pk)
    assert Execution.objects.get(pk=waiting).status == "PermissionDenied"


@pytest.mark.parametrize(("give", "take"), PEOPLE.values(), ids=PEOPLE)
def test_what_a_person_loses_counts_with_the_next_call(scene, give, take):
    give(scene)
    Organization.objects.next_revision(scene.organization.pk)
    check_that_it_counts(scene, scene.person, take)


@pytest.mark.parametrize(("give", "take"), AGENTS.values(), ids=AGENTS)
def test_what_an_agent_loses_counts_with_the_next_call(scene, give, take):
    give(scene)
    check_that_it_counts(scene, scene.agent.service_account, take)


def test_it_counts_where_a_person_acts_beside_their_own_place(scene):
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    factories.tool(other, "theirs")
    join(scene)
    scene.keepers.permissions.add(every_tool())
    assign_perm("act_in_organization", scene.person, other)

    def held_there() -> bool:
        other.refresh_from_db()
        there = caller_of_user(User.objects.get(pk=scene.person.pk), organization=other)
        return grants.find_grants(there, other.revision).every

    assert held_there()
    scene.save(scene.person, groups=[])
    assert not held_there()


def test_a_claim_asks_whether_its_person_may_still_act_there(scene):
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    factories.tool(other, "theirs")
    person = User.objects.filter(pk=scene.person.pk)
    person.update(is_superuser=True)
    api, there = Api(factories.token(scene.person)), {"X-Organization": other.slug}
    body = {"tool_name": "theirs", "parameters": {"text": "x"}, "options": {"wait_s": 0}}
    waiting = api.post("/executions", body, **there).json()["execution_id"]
    person.update(is_superuser=False)
    check_error(api.get("/tools", **there), 404, "organization_not_found")
    perform(UUID(waiting))
    done = Execution.objects.get(pk=waiting)
    assert (done.status, done.error_code) == ("PermissionDenied", "caller_suspended")


# --- staff grant no more than they hold, here either --------------------------------------------


def test_staff_hand_out_what_they_hold_and_no_more(staff_client, staff, organization):
    tool, agent = factories.tool(organization), factories.agent(organization, tools=[])
    client = staff_client("view_tool", "change_tool", "change_agent")
    address = f"/admin/tools/tool/{tool.pk}/permissions/user-manage/{agent.service_account.pk}/"
    chosen = {"permissions": ["execute_tool"]}
    assert client.post(address, chosen).status_code == 403
    assert not agent.service_account.has_perm("tools.execute_tool", tool)
    assign_perm("execute_tool", staff, tool)
    Organization.objects.next_revision(organization.pk)
    assert client.post(address, chosen).status_code == 302
    assert client.post(address, {"permissions": ["delete_tool"]}).status_code == 403


def test_staff_grant_themselves_nothing(staff_client, staff, organization):
    tool = factories.tool(organization)
    client = staff_client("view_tool", "change_tool", "change_user", "execute_tool")
    address = f"/admin/tools/tool/{tool.pk}/permissions/user-manage/{staff.pk}/"
    assert client.post(address, {"permissions": ["execute_tool"]}).status_code == 403
    client = staff_client("view_user", "change_user")
    data = {"username": staff.username, "is_active": "on", "granted_groups": "*",
            "granted_permissions": "*"}  # fmt: skip
    client.post(place(User, "change", staff.pk), data)
    staff.refresh_from_db()
    assert (staff.granted_groups, staff.granted_permissions) == (["default"], [])


def test_staff_leave_groups_of_people_alone(staff_client, organization):
    tool = factories.tool(organization)
    group = Group.objects.create(name=f"keepers-{uuid4().hex[:8]}")
    client = staff_client("view_tool", "change_tool", "change_user", "execute_tool")
    page = f"/admin/tools/tool/{tool.pk}/permissions/"
    chosen = {"permissions": ["execute_tool"]}
    assert client.post(f"{page}group-manage/{group.pk}/", chosen).status_code == 403
    asked = {"submit_manage_group": "1", "group": group.name}
    assert client.post(page, asked).status_code == 403


def test_staff_do_not_widen_people_or_agents_beyond_themselves(staff_client, organization):
    person = factories.person(organization)
    client = staff_client("view_user", "change_user", "view_agent", "add_agent", "change_agent")
    data = {"username": person.username, "is_active": "on", "granted_groups": "default\n*",
            "granted_permissions": ""}  # fmt: skip
    assert client.post(place(User, "change", person.pk), data).status_code == 200
    person.refresh_from_db()
    assert person.granted_groups == ["default"]
    agent = {"slug": "magpie", "groups": "default", "tools": "*"}
    assert client.post(place(Agent, "add"), agent).status_code == 200
    assert not organization.agents.exists()
    assert client.post(place(Agent, "add"), agent | {"tools": ""}).status_code == 302


def test_what_changed_on_a_persons_page_is_on_record(scene):
    scene.save(scene.person, granted_groups="default\nwrite", user_permissions=[every_tool().pk])
    record = AuditRecord.objects.filter(
        organization=scene.organization.slug, code="ADMIN.GRANT_CHANGE"
    ).latest("id")
    assert record.subject == f"user:{scene.person.username}"
    assert record.details["before"] == {"granted_groups": ["default"], "user_permissions": []}
    assert record.details["after"]["granted_groups"] == ["default", "write"]
    assert "execute" in record.details["after"]["user_permissions"][0]
