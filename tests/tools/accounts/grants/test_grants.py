"""Object permissions grant agents, people and people's groups the right to execute tools and tool
groups."""

from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from guardian.shortcuts import assign_perm, remove_perm

from audit.models import AuditRecord
from tests import factories
from tools.accounts.callers import caller_of_agent, caller_of_user, callers_of_agents
from tools.accounts.grants import grant_actions, grant_queries
from tools.accounts.grants.grants import grants
from tools.authorization.facts import question_of
from tools.authorization.listings import usable_tools
from tools.catalog import actions as catalog
from tools.catalog.groups import delete_group, save_group
from tools.catalog.registry import registry
from tools.definitions.callers import Caller
from tools.errors import Forbidden, NotFound
from tools.models import Agent, Organization, Tool, ToolGroup, User
from tools.models.permission import GrantRow
from tools.policy.gates import explain
from tools.policy.questions import EffectiveRequest

Names = Callable[[], list[str]]


def group_of(organization: Organization, name: str, parent: str | None = None) -> ToolGroup:
    made = save_group(organization=organization, name=name, by=factories.actor(organization))
    if parent:
        made.parent = ToolGroup.objects.get(organization=organization, name=parent)
        made.save(update_fields=["parent"])
        Organization.objects.next_revision(organization.pk)
    return made


def covered(caller: Caller) -> set[str]:
    """The tools that pass the object permission gate."""
    organization = Organization.objects.get(pk=caller.organization_id)
    snapshot = registry.snapshot(organization.pk, organization.revision)
    held = grants.find_grants(caller, snapshot.revision)
    return {tool.name for tool in snapshot.tools.values() if held.cover(tool, snapshot)}


def bare(organization: Organization, **given: list[str]) -> Agent:
    return factories.agent(organization, **{"groups": ["*"], "tools": [], **given})


def person_with(organization: Organization, *permissions: str, **fields: object) -> Caller:
    person = factories.person(organization, **fields)
    factories.permit(person, *permissions)
    return caller_of_user(User.objects.get(pk=person.pk))


def superuser(organization: Organization) -> Caller:
    return caller_of_user(factories.superuser(organization))


def test_a_grant_of_a_tool_covers_that_tool_alone(organization):
    factories.tool(organization, "one")
    factories.tool(organization, "two")
    assert covered(caller_of_agent(bare(organization, tools=["one"]))) == {"one"}


def test_a_grant_of_a_tool_group_covers_its_tools_and_later_ones(organization):
    factories.tool(organization, "one", group=["desk"])
    agent = bare(organization, tool_groups=["desk"])
    assert covered(caller_of_agent(agent)) == {"one"}
    factories.tool(organization, "two", group=["desk", "other"])
    assert covered(caller_of_agent(agent)) == {"one", "two"}


def test_a_grant_of_a_parent_covers_the_tools_of_its_children(organization):
    group_of(organization, "desk")
    group_of(organization, "desk/read", parent="desk")
    factories.tool(organization, "below", group=["desk/read"])
    factories.tool(organization, "above", group=["desk"])
    assert covered(caller_of_agent(bare(organization, tool_groups=["desk"]))) == {"below", "above"}
    assert covered(caller_of_agent(bare(organization, tool_groups=["desk/read"]))) == {"below"}


def test_a_grant_of_everything_covers_everything(organization):
    agent = factories.agent(organization)
    assert covered(caller_of_agent(agent)) == set(
        Tool.objects.filter(organization=organization).values_list("name", flat=True)
    )


def test_nothing_granted_covers_nothing(organization):
    factories.tool(organization)
    assert covered(caller_of_agent(bare(organization))) == set()


@pytest.mark.parametrize("kind", ["tool", "tool_group", "everything"])
def test_people_hold_what_their_groups_hold(organization, kind):
    tool = factories.tool(organization, "one", group=["desk"])
    keepers = Group.objects.create(name=f"keepers-{uuid4().hex[:8]}")
    person = factories.person(organization)
    person.groups.add(keepers)
    if kind == "tool":
        assign_perm("execute_tool", keepers, tool)
    elif kind == "tool_group":
        assign_perm("execute_toolgroup", keepers, organization.groups.get(name="desk"))
    else:
        keepers.permissions.add(Permission.objects.get(codename="execute_tool"))
    assert "one" in covered(caller_of_user(person))
    assert covered(caller_of_user(factories.person(organization))) == set()


def test_the_model_permission_on_tool_groups_alone_grants_nothing(organization):
    factories.tool(organization, "one", group=["desk"])
    assert covered(person_with(organization, "execute_toolgroup")) == set()


def test_a_group_of_the_same_name_elsewhere_grants_nothing_here(organization):
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    for place in (organization, other):
        factories.tool(place, "one", group=["desk"])
    person = factories.person(organization)
    assign_perm("execute_toolgroup", person, other.groups.get(name="desk"))
    assign_perm("execute_tool", person, other.tools.get(name="one"))
    assert covered(caller_of_user(person)) == set()


def test_a_people_group_that_spans_organizations_leaks_nothing(organization):
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    factories.tool(organization, "mine", group=["desk"])
    factories.tool(other, "theirs", group=["desk"])
    everywhere = Group.objects.create(name=f"everywhere-{uuid4().hex[:8]}")
    assign_perm("execute_toolgroup", everywhere, other.groups.get(name="desk"))
    members = [factories.person(place) for place in (organization, other)]
    for member in members:
        member.groups.add(everywhere)
    assert [covered(caller_of_user(member)) for member in members] == [set(), {"theirs"}]


def test_a_warm_process_asks_the_database_nothing(organization):
    for number in range(5):
        factories.tool(organization, f"t{number}", group=["desk"])
    caller = caller_of_agent(bare(organization, tool_groups=["desk"]))
    snapshot = registry.snapshot(organization.pk, caller.revision)
    asked = EffectiveRequest(frozenset(["desk"]), "undefined")
    assert len(usable_tools(caller, asked, snapshot)) == 5
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert len(usable_tools(caller, asked, snapshot)) == 5
    assert len(queries) == 0


def test_what_is_remembered_for_one_caller_is_no_answer_for_another(organization):
    for name in ("a", "b"):
        factories.tool(organization, name, group=["desk"])
    first, second = (caller_of_agent(bare(organization, tools=[name])) for name in ("a", "b"))
    snapshot = registry.snapshot(organization.pk, max(first.revision, second.revision))
    asked = EffectiveRequest(frozenset(["desk"]), "undefined")

    def names(caller: Caller) -> list[str]:
        return [tool.name for tool in usable_tools(caller, asked, snapshot)]

    narrow = replace(first, token_tools=frozenset(["b"]))
    assert [names(one) for one in (first, second, narrow, first)] == [["a"], ["b"], [], ["a"]]
    names(first).clear()  # a list of the reader's own
    assert names(first) == ["a"]


def test_a_cold_process_asks_three_questions(organization):
    caller = caller_of_agent(bare(organization))
    with CaptureQueriesContext(connection) as queries:
        grants.find_grants(caller, caller.revision)
    assert len(queries) == 3


def test_the_refusal_says_whom_to_ask(organization):
    factories.tool(organization)
    caller = caller_of_agent(bare(organization))
    snapshot = registry.snapshot(organization.pk, caller.revision)
    question = question_of(
        caller, snapshot.tools["echo"], EffectiveRequest.from_options(None, None), snapshot
    )
    verdict = next(one for one in explain(question) if one.gate == "object_permission")
    assert (verdict.passed, verdict.code) == (False, "tool_not_granted")
    assert "administrator" in verdict.reason


# --- required permissions -------------------------------------------------------------------------


def missing(caller: Caller, needs: list[str]) -> list[str]:
    organization = Organization.objects.get(pk=caller.organization_id)
    factories.tool(organization, "needy", required_permissions=needs)
    organization.refresh_from_db()
    snapshot = registry.snapshot(organization.pk, organization.revision)
    question = question_of(
        caller, snapshot.tools["needy"], EffectiveRequest.from_options(None, None), snapshot
    )
    verdict = next(one for one in explain(question) if one.gate == "required_permissions")
    return [] if verdict.passed else [verdict.code]


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    ("held", "needs", "passes"),
    [
        ([], [], True),
        ([], ["a"], False),
        (["a"], ["a"], True),
        (["a"], ["a", "b"], False),
        (["*"], ["a", "b"], True),
        (["a.*"], ["a.b"], False),
        (["A"], ["a"], False),
        (["a "], ["a"], False),
    ],
)
def test_each_required_permission_must_be_held_to_the_letter(organization, held, needs, passes):
    caller = caller_of_agent(bare(organization, permissions=held))
    assert missing(caller, needs) == ([] if passes else ["permission_missing"])


def test_permissions_come_with_the_groups_that_may_be_requested(organization):
    save_group(
        organization=organization, name="desk", by=factories.actor(organization), permissions=["a"]
    )
    inside, outside = bare(organization, groups=["desk"]), bare(organization, groups=["default"])
    assert missing(caller_of_agent(inside), ["a"]) == []
    catalog.delete_tool(
        tool=catalog.find_tool(organization, "needy"), by=factories.actor(organization)
    )
    assert missing(caller_of_agent(outside), ["a"]) == ["permission_missing"]


def test_every_group_brings_every_groups_permissions(organization):
    for name in ("x", "y"):
        save_group(
            organization=organization,
            name=name,
            by=factories.actor(organization),
            permissions=[name],
        )
    assert missing(caller_of_agent(bare(organization, groups=["*"])), ["x", "y"]) == []


def test_a_group_that_was_deleted_brings_nothing(organization):
    group = save_group(
        organization=organization, name="desk", by=factories.actor(organization), permissions=["a"]
    )
    agent = bare(organization, groups=["desk"])
    delete_group(group=group, by=factories.actor(organization))
    assert missing(caller_of_agent(agent), ["a"]) == ["permission_missing"]


def test_people_groups_bring_no_permission_that_tools_require(organization):
    """Those are text of tool definitions; Django's permissions are another matter."""
    group = Group.objects.create(name=f"g-{uuid4().hex[:8]}")
    person = factories.person(organization)
    person.groups.add(group)
    assert missing(caller_of_user(person), ["a"]) == ["permission_missing"]


# --- granting and revoking ------------------------------------------------------------------------


def add_grants(giver: Caller, agent: Agent, **wanted: list[str]) -> list[GrantRow]:
    return grant_actions.add_grants(giver=giver, kind="agent", name=agent.slug, wanted=wanted)


def direct_grants(agent: Agent) -> dict[str, set[str]]:
    return grant_queries.direct_grants(grant_queries.holder_of_agent(agent))


def revision(organization: Organization) -> int:
    return Organization.objects.values_list("revision", flat=True).get(pk=organization.pk)


def test_what_is_given_is_added_recorded_and_counted(organization):
    factories.tool(organization, "one", group=["desk"])
    agent, before = bare(organization, groups=["default"]), revision(organization)
    add_grants(superuser(organization), agent, tools=["one"], tool_groups=["desk"], groups=["desk"])
    assert direct_grants(agent) == {
        "tools": {"one"}, "tool_groups": {"desk"}, "groups": {"default", "desk"},
        "permissions": set(),
    }  # fmt: skip
    record = AuditRecord.objects.filter(organization=organization.slug).latest("id")
    assert (record.code, record.subject) == ("ADMIN.GRANT_CHANGE", agent.slug)
    assert record.details == {
        "before": {"tools": [], "tool_groups": [], "groups": ["default"]},
        "after": {"tools": ["one"], "tool_groups": ["desk"], "groups": ["default", "desk"]},
        "added": {"tools": ["one"], "tool_groups": ["desk"], "groups": ["desk"]},
        "removed": {},
    }
    assert revision(organization) == before + 1


def test_giving_again_changes_nothing_and_says_the_same(organization):
    agent, giver = bare(organization), superuser(organization)
    first = add_grants(giver, agent, permissions=["a", "a"])
    evidence = AuditRecord.objects.filter(organization=organization.slug)
    before, records = revision(organization), evidence.count()
    assert add_grants(giver, agent, permissions=["a"]) == first
    assert (revision(organization), evidence.count()) == (before, records)


def test_what_is_taken_is_gone_and_cannot_be_taken_twice(organization):
    agent, giver = bare(organization), superuser(organization)
    (row,) = add_grants(giver, agent, tools=["read_file"])
    grant_actions.revoke_grant(giver=giver, row=row)
    assert direct_grants(agent)["tools"] == set()
    with pytest.raises(NotFound):
        grant_actions.revoke_grant(giver=giver, row=row)


def test_the_grant_of_everything_is_given_and_taken_beside_the_others(organization):
    agent, giver = bare(organization), superuser(organization)
    add_grants(giver, agent, tools=["*", "read_file"])
    grant_actions.revoke_grant(giver=giver, row=GrantRow("agent", agent.slug, "tool", "*"))
    assert direct_grants(agent)["tools"] == {"read_file"}


def test_nothing_is_given_when_one_name_is_not_there(organization):
    agent, giver = bare(organization), superuser(organization)
    with pytest.raises(NotFound):
        add_grants(giver, agent, permissions=["a"], tools=["read_file", "ghost"])
    assert direct_grants(agent)["permissions"] == direct_grants(agent)["tools"] == set()


ESCALATIONS = {
    "every tool": {"tools": ["*"]},
    "a tool beyond one's own": {"tools": ["write_file"]},
    "a tool that is not there": {"tools": ["ghost"]},
    "a tool group": {"tool_groups": ["write"]},
    "every group": {"groups": ["*"]},
    "a group beyond one's own": {"groups": ["write"]},
    "every permission": {"permissions": ["*"]},
    "a permission beyond one's own": {"permissions": ["b"]},
    "one of two": {"permissions": ["a", "b"]},
}


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize("wanted", ESCALATIONS.values(), ids=ESCALATIONS)
def test_a_giver_cannot_grant_more_than_its_own_grants(organization, wanted):
    person = factories.person(
        organization, granted_groups=["default", "read-only"], granted_permissions=["a"]
    )
    factories.permit(person, "change_agent")
    assign_perm("execute_tool", person, organization.tools.get(name="read_file"))
    giver, agent = caller_of_user(person), bare(organization, groups=["default"])
    with pytest.raises(Forbidden) as refusal:
        add_grants(giver, agent, **wanted)
    assert refusal.value.code == "grant_beyond_own"
    assert direct_grants(agent) == {
        "tools": set(), "tool_groups": set(), "groups": {"default"}, "permissions": set(),
    }  # fmt: skip


def test_a_person_gives_what_they_hold_by_whatever_way(organization):
    group_of(organization, "desk")
    group_of(organization, "desk/read", parent="desk")
    save_group(
        organization=organization, name="desk", by=factories.actor(organization), permissions=["a"]
    )
    factories.tool(organization, "one", group=["desk/read"])
    person = factories.person(organization, granted_groups=["desk"])
    factories.permit(person, "change_agent")
    keepers = Group.objects.create(name=f"keepers-{uuid4().hex[:8]}")
    person.groups.add(keepers)
    assign_perm("execute_toolgroup", keepers, organization.groups.get(name="desk"))
    giver = caller_of_user(User.objects.get(pk=person.pk))
    agent = bare(organization, groups=[])
    wanted = {
        "tools": ["one"],
        "tool_groups": ["desk/read"],
        "groups": ["desk"],
        "permissions": ["a"],
    }
    add_grants(giver, agent, **wanted)
    assert direct_grants(agent) == {what: set(items) for what, items in wanted.items()}


def test_who_may_not_change_agents_gives_nothing_even_of_their_own(organization):
    giver = person_with(organization, "change_user", granted_permissions=["a"])
    with pytest.raises(Forbidden):
        add_grants(giver, bare(organization), permissions=["a"])


def test_users_and_agents_cannot_change_their_own_grants(organization):
    giver = person_with(organization, "change_user", granted_permissions=["a"])
    for change in (
        lambda: grant_actions.add_grants(
            giver=giver, kind="user", name=giver.name, wanted={"permissions": ["a"]}
        ),
        lambda: grant_actions.revoke_grant(
            giver=giver, row=GrantRow("user", giver.name, "permission", "a")
        ),
    ):
        with pytest.raises(Forbidden) as refusal:
            change()
        assert refusal.value.code == "own_grants"


def test_only_a_superuser_changes_a_superuser_or_a_group_of_people(organization):
    giver = person_with(organization, "change_user", granted_permissions=["a"])
    Group.objects.create(name="all-of-us")
    chief = factories.superuser(organization)
    for kind, name in (("user", chief.username), ("people_group", "all-of-us")):
        with pytest.raises(Forbidden) as refusal:
            grant_actions.add_grants(
                giver=giver, kind=kind, name=name, wanted={"permissions": ["a"]}
            )
        assert refusal.value.code == "not_permitted"


def test_taking_needs_no_holding(organization):
    agent = bare(organization, permissions=["b"])
    giver = person_with(organization, "change_agent")
    grant_actions.revoke_grant(giver=giver, row=GrantRow("agent", agent.slug, "permission", "b"))
    assert direct_grants(agent)["permissions"] == set()


def test_a_persons_narrow_token_gives_nothing(organization):
    boss = factories.superuser(organization)
    token = factories.token(
        boss, scopes=["read", "execute", "manage"], groups=["read-only"], tools=["read_file"]
    )
    api, agent = factories.Api(token), bare(organization, groups=[])
    for wanted in ({"tools": ["write_file"]}, {"tools": ["*"]}, {"groups": ["*"]},
                   {"tool_groups": ["write"]}):  # fmt: skip
        answer = api.post("/grants", {"agent": agent.slug, **wanted})
        assert (answer.status_code, answer.json()["code"]) == (403, "token_narrowed")
    within = {"agent": agent.slug, "tools": ["read_file"], "groups": ["read-only"]}
    assert api.post("/grants", within).json()["code"] == "token_narrowed"
    assert not agent.service_account.granted_groups


# --- when a change takes effect -------------------------------------------------------------------


@pytest.mark.parametrize("through", ["person", "people_group"])
def test_a_revocation_counts_wherever_its_holder_may_act(organization, through):
    """A person's grants are cached for each organization, and their own is only one of them."""
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    factories.tool(other, "theirs")
    person = factories.person(organization)
    keepers = Group.objects.create(name=f"keepers-{uuid4().hex[:8]}")
    keepers.permissions.add(Permission.objects.get(codename="execute_tool"))
    person.groups.add(keepers)
    visitors = Group.objects.create(name=f"visitors-{uuid4().hex[:8]}")
    person.groups.add(visitors)
    assign_perm("act_in_organization", person if through == "person" else visitors, other)

    def held_there() -> bool:
        other.refresh_from_db()
        there = caller_of_user(User.objects.get(pk=person.pk), organization=other)
        return grants.find_grants(there, other.revision).every

    assert held_there()
    row = GrantRow("people_group", keepers.name, "tool", "*")
    grant_actions.revoke_grant(giver=superuser(organization), row=row)
    assert not held_there()


def test_a_recreated_tool_is_not_granted_by_its_name(organization):
    tool = factories.tool(organization)
    agent = bare(organization, tools=["echo"])
    catalog.delete_tool(tool=tool, by=factories.actor(organization))
    factories.tool(organization)
    assert covered(caller_of_agent(agent)) == set()


def test_a_recreated_group_is_not_granted_by_its_name(organization):
    group = group_of(organization, "desk")
    agent = bare(organization, tool_groups=["desk"])
    delete_group(group=group, by=factories.actor(organization))
    factories.tool(organization, "one", group=["desk"])
    assert covered(caller_of_agent(agent)) == set()


def test_a_grant_taken_behind_our_back_counts_with_the_next_revision(organization):
    tool = factories.tool(organization)
    agent = bare(organization, tools=["echo"])
    assert covered(caller_of_agent(agent)) == {"echo"}
    remove_perm("execute_tool", agent.service_account, tool)
    Organization.objects.next_revision(organization.pk)
    assert covered(caller_of_agent(agent)) == set()


def test_grants_of_many_are_read_at_once_and_are_those_of_each(organization: Organization) -> None:
    tool = factories.tool(organization, "alpha")
    group = group_of(organization, "barn")
    people = Group.objects.create(name=f"people of {organization.slug}")
    assign_perm("execute_toolgroup", people, group)
    agents = [bare(organization) for _ in range(6)]
    assign_perm("execute_tool", agents[0].service_account, tool)
    agents[1].service_account.groups.add(people)
    factories.permit(agents[2].service_account, "execute_tool")
    callers = callers_of_agents(agents)
    assert callers == [caller_of_agent(agent) for agent in agents]
    with CaptureQueriesContext(connection) as queries:
        grants.learn(callers, callers[0].revision)
        learned = [grants.find_grants(caller, caller.revision) for caller in callers]
    assert len(queries) == 3
    grants.forget()
    assert learned == [grants.find_grants(caller, caller.revision) for caller in callers]
    assert learned[0].tools == {tool.pk} and learned[1].groups == {"barn"} and learned[2].every
