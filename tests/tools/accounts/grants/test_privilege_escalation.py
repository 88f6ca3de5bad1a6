"""A user cannot issue an agent's token that permits more than the user's own grants, because the
issuer could use it to act as the agent."""

from dataclasses import replace

import pytest
from django.contrib.auth.models import Group

from audit.actions import Actor
from audit.models import AuditRecord
from tests import factories
from tools.accounts import account_actions
from tools.accounts.callers import actor_of, caller_of_user
from tools.definitions.callers import Caller
from tools.errors import Forbidden
from tools.models import Agent, Organization, Token, User


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
