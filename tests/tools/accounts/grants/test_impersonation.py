"""People call as an agent only if they may, and issue no token that permits more than their own
grants."""

from dataclasses import replace
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from guardian.shortcuts import assign_perm

from audit.actions import Actor
from audit.models import AuditRecord
from tests import factories
from tests.tools.approval_requests import approve, approver, at_the_browser, word
from tools.accounts import account_actions
from tools.accounts.callers import (
    actor_of,
    caller_at_playground,
    caller_of_execution,
    caller_of_user,
    impersonable_agents,
)
from tools.approvals import decisions
from tools.definitions.callers import Caller
from tools.definitions.results import Status
from tools.errors import Conflict, Forbidden, NotFound, Refused
from tools.execution import answer
from tools.execution.admit import admit
from tools.models import Agent, Execution, Organization, Token, User


@pytest.fixture
def person(organization: Organization) -> User:
    """A person who may impersonate every agent of the organization."""
    found = factories.person(organization)
    factories.permit(found, "impersonate_agent", "view_execution")
    return found


def as_agent(person: User, agent: Agent) -> Caller:
    return caller_at_playground(at_the_browser(person), agent.slug)


@pytest.mark.parametrize("held", [(), ("impersonate_agent",), ("view_execution", "view_agent")])
def test_impersonation_needs_both_permissions(
    organization: Organization, agent: Agent, held: tuple[str, ...]
) -> None:
    user = factories.person(organization)
    factories.permit(user, *held)
    assert list(impersonable_agents(user.pk)) == []
    with pytest.raises(NotFound):
        as_agent(user, agent)


def test_an_agent_of_another_organization_cannot_be_impersonated(person: User) -> None:
    theirs = factories.agent(factories.organization(f"org-{uuid4().hex[:12]}"), "theirs")
    for user in (person, factories.superuser(person.organization)):
        with pytest.raises(NotFound):
            as_agent(user, theirs)


def test_it_can_be_granted_for_one_agent_alone(organization: Organization, agent: Agent) -> None:
    another, user = factories.agent(organization), factories.person(organization)
    factories.permit(user, "view_execution")
    assign_perm("tools.impersonate_agent", user, another)
    assert list(impersonable_agents(user.pk)) == [another]
    with pytest.raises(NotFound):
        as_agent(user, agent)


def test_an_inactive_user_cannot_impersonate(person: User, agent: Agent) -> None:
    User.objects.filter(pk=person.pk).update(is_active=False)
    assert not impersonable_agents(person.pk).exists()
    assert not impersonable_agents(agent.service_account.pk).exists()


def test_a_suspended_agent_cannot_be_impersonated(person: User, agent: Agent) -> None:
    Agent.objects.filter(pk=agent.pk).update(active=False)
    with pytest.raises(Forbidden, match="suspended"):
        as_agent(person, agent)


def test_the_person_holds_what_the_agent_holds_and_no_more(
    organization: Organization, agent: Agent
) -> None:
    factories.tool(organization, group=["hidden"])
    caller = as_agent(factories.superuser(organization), agent)
    assert not caller.is_superuser
    with pytest.raises(Refused):
        admit(caller, factories.call("echo", {"text": "x"}, group=["hidden"]))


def test_a_call_is_the_agents_and_evidence_names_the_person(person: User, agent: Agent) -> None:
    factories.tool(agent.organization)
    execution = admit(as_agent(person, agent), factories.call("echo", {"text": "x"}))
    assert (execution.agent_id, execution.made_by_id) == (agent.pk, person.pk)
    record = AuditRecord.objects.get(execution_id=execution.pk, code="TOOL.ACCEPT")
    assert (record.actor_kind, record.actor) == ("agent", agent.slug)
    assert record.details["made_by"] == f"person:{person.username}"


def test_a_refusal_names_the_person_too(person: User, agent: Agent) -> None:
    factories.tool(agent.organization, group=["hidden"])
    with pytest.raises(Refused):
        admit(as_agent(person, agent), factories.call("echo", {"text": "x"}, group=["hidden"]))
    record = AuditRecord.objects.filter(code="TOOL.DENY", subject="echo").latest("id")
    assert record.details["made_by"] == f"person:{person.username}"


def test_what_a_worker_records_names_the_person(person: User, agent: Agent) -> None:
    factories.tool(agent.organization)
    execution = admit(as_agent(person, agent), factories.call("echo", {"text": "x"}))
    caller = caller_of_execution(factories.claimed(execution))
    assert caller.active
    assert caller.maker is not None
    assert caller.maker.name == person.username


def test_a_call_without_impersonation_records_no_other_user(organization: Organization) -> None:
    person = factories.superuser(organization)
    factories.tool(person.organization)
    caller = caller_at_playground(at_the_browser(person), "")
    execution = admit(caller, factories.call("echo", {"text": "x"}))
    assert execution.made_by_id == person.pk
    record = AuditRecord.objects.get(execution_id=execution.pk, code="TOOL.ACCEPT")
    assert "made_by" not in record.details


def test_a_call_does_not_begin_once_the_person_may_not_make_it_any_more(
    person: User, agent: Agent
) -> None:
    factories.tool(agent.organization)
    execution = admit(as_agent(person, agent), factories.call("echo", {"text": "x"}))
    person.user_permissions.clear()
    assert not caller_of_execution(Execution.objects.get(pk=execution.pk)).active


def held_by(person: User, agent: Agent) -> Execution:
    factories.tool(agent.organization, requires_confirmation=True)
    execution = admit(as_agent(person, agent), factories.call("echo", {"text": "x"}))
    assert execution.status == Status.REQUIRES_CONFIRMATION
    return execution


@pytest.mark.parametrize("superuser", [False, True])
def test_an_impersonator_cannot_approve_their_own_call(
    person: User, agent: Agent, superuser: bool
) -> None:
    if superuser:
        person = factories.superuser(agent.organization)
    factories.permit(person, "decide_confirmation")
    confirmation = held_by(person, agent).confirmation
    with pytest.raises(Forbidden, match="your own call"):
        decisions.decide(caller=at_the_browser(person), word=word(confirmation))


def test_another_user_approves_an_impersonated_call(person: User, agent: Agent) -> None:
    execution = held_by(person, agent)
    approve(execution.confirmation, approver(agent.organization))
    assert Execution.objects.get(pk=execution.pk).status == Status.PENDING


def test_a_call_whose_maker_was_changed_is_not_what_was_agreed_to(
    person: User, agent: Agent
) -> None:
    execution = held_by(person, agent)
    Execution.objects.filter(pk=execution.pk).update(made_by=None)
    factories.permit(person, "decide_confirmation")
    with pytest.raises(Conflict):
        approve(execution.confirmation, person)
    assert Execution.objects.get(pk=execution.pk).status != Status.PENDING


def test_a_token_makes_no_call_in_anothers_name(agent: Agent) -> None:
    factories.tool(agent.organization)
    execution = factories.execution(agent)
    assert execution.made_by_id is None
    assert caller_of_execution(execution).maker is None


def test_the_agents_budget_pays(person: User, agent: Agent) -> None:
    factories.tool(agent.organization, rate_limit_per_minute=1)
    admit(factories.caller(agent), factories.call("echo", {"text": "x"}))
    with pytest.raises(Refused, match="minute"):
        admit(as_agent(person, agent), factories.call("echo", {"text": "x"}))


def test_an_agent_that_is_suspended_meanwhile_is_not_begun(person: User, agent: Agent) -> None:
    factories.tool(agent.organization)
    execution = admit(as_agent(person, agent), factories.call("echo", {"text": "x"}))
    account_actions.change_agent(agent=agent, by=factories.actor(agent.organization), active=False)
    assert not caller_of_execution(Execution.objects.get(pk=execution.pk)).active


@pytest.mark.usefixtures("committed", "crib")
def test_what_a_call_calls_in_turn_names_the_person_too(person: User, agent: Agent) -> None:
    factories.tool(agent.organization)
    calls = {"tool_name": "echo", "parameters": {"text": "x"}}
    call = factories.call("call_tool", calls, group=["*"])
    wide = factories.agent(agent.organization, groups=["*"])
    execution = answer.execute(caller=as_agent(person, wide), call=call, wait_s=30)
    assert execution.status == Status.SUCCESS
    within = Execution.objects.get(parent=execution.pk)
    assert (within.agent_id, within.made_by_id) == (wide.pk, person.pk)
    records = AuditRecord.objects.filter(execution_id__in=[execution.pk, within.pk])
    assert {record.details.get("made_by") for record in records} == {f"person:{person.username}"}


@pytest.fixture
def administrator(organization: Organization) -> User:
    made = factories.person(organization)
    made.groups.add(Group.objects.get(name="role:administrator"))
    return made


def issue(giver: Caller, agent: Agent, **narrowed: list[str]) -> Token:
    token, _ = account_actions.create_token(
        user=agent.service_account, by=actor_of(giver), giver=giver, **narrowed
    )
    return token


def test_an_administrator_issues_a_token_of_an_agent_that_holds_no_more(
    organization: Organization, administrator: User
) -> None:
    agent = factories.agent(organization, groups=["default"])
    assert issue(caller_of_user(administrator), agent).usable


@pytest.mark.parametrize("more", [{"groups": ["*"]}, {"permissions": ["tool.message.send"]}])
def test_a_token_of_an_agent_that_holds_more_is_not_issued(
    organization: Organization, administrator: User, more: dict[str, list[str]]
) -> None:
    agent = factories.agent(organization, **more)
    with pytest.raises(Forbidden, match="you do not hold") as refused:
        issue(caller_of_user(administrator), agent)
    assert refused.value.code == "grant_beyond_own"
    assert not Token.objects.filter(user=agent.service_account).exists()
    assert not AuditRecord.objects.filter(code="TOKEN.CREATE", subject__contains=agent.slug)


def test_narrowed_to_what_its_giver_holds_it_is(
    organization: Organization, administrator: User
) -> None:
    agent = factories.agent(organization, groups=["*"])
    token = issue(caller_of_user(administrator), agent, groups=["default"])
    assert token.groups == ["default"]


def test_a_star_narrows_nothing(organization: Organization, administrator: User) -> None:
    agent = factories.agent(organization, groups=["*"])
    with pytest.raises(Forbidden, match="groups"):
        issue(caller_of_user(administrator), agent, groups=["*"])


def test_tools_that_the_giver_may_not_execute_are_beyond_it(organization: Organization) -> None:
    factories.tool(organization, "mine")
    factories.tool(organization, "theirs")
    giver = factories.person(organization)
    factories.permit(giver, "add_token", "view_execution")
    agent = factories.agent(organization, tools=["mine", "theirs"])
    with pytest.raises(Forbidden, match="holds more than you do"):
        issue(caller_of_user(giver), agent)
    with pytest.raises(Forbidden, match="tools mine"):
        issue(caller_of_user(giver), agent, tools=["mine"])


def test_who_may_not_read_every_execution_issues_none(organization: Organization) -> None:
    giver = factories.person(organization)
    factories.permit(giver, "add_token", "execute_tool")
    with pytest.raises(Forbidden, match="may not read every execution"):
        issue(caller_of_user(giver), factories.agent(organization, groups=["default"]))


def test_a_superuser_issues_every_token(organization: Organization) -> None:
    agent = factories.agent(organization, groups=["*"], permissions=["*"])
    assert issue(caller_of_user(factories.superuser(organization)), agent).usable


@pytest.mark.parametrize("narrow", [{"token_tools": frozenset({"echo"})},
                                    {"granted_groups": frozenset({"default"})}])  # fmt: skip
def test_a_token_that_narrows_a_superuser_narrows_what_it_issues(
    organization: Organization, narrow: dict[str, frozenset[str]]
) -> None:
    giver = replace(caller_of_user(factories.superuser(organization)), **narrow)
    with pytest.raises(Forbidden):
        issue(giver, factories.agent(organization, groups=["*"]))


def test_a_person_whose_holdings_are_not_known_issues_nothing(
    organization: Organization, agent: Agent
) -> None:
    with pytest.raises(LookupError):
        account_actions.create_token(
            user=agent.service_account, by=Actor("person", "x", organization.slug)
        )
