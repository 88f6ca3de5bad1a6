"""Retrying a failed call: by a person who may impersonate its agent, and only when it is safe."""

from typing import Any

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.tools.approval_requests import at_the_browser
from tools.definitions.callers import Caller
from tools.errors import Conflict, Forbidden
from tools.execution import answer
from tools.execution.admit import admit
from tools.models import Agent, Execution, Organization, Resolution
from tools.workflows import retries


@pytest.fixture
def me(organization: Organization) -> Caller:
    person = factories.person(organization)
    factories.permit(person, "impersonate_agent", "view_execution")
    return at_the_browser(person)


@pytest.fixture
def failed(organization: Organization, agent: Agent) -> Execution:
    factories.tool(organization)
    execution = factories.execution(agent, text="again")
    return end_execution(execution, status="Failed", error_code="TOOL_FAILED")


def end_execution(execution: Execution, **fields: Any) -> Execution:
    factories.end_execution(execution, **fields)
    return Execution.objects.get(pk=execution.pk)


def test_a_retry_is_the_same_call_with_user_and_agent(
    me: Caller, failed: Execution, agent: Agent
) -> None:
    made = Execution.objects.get(pk=retries.retry_call(person=me, execution=failed).pk)
    assert (made.tool_name, made.parameters) == ("echo", {"text": "again"})
    assert (made.agent_id, made.made_by_id, made.retry_of) == (agent.pk, me.user_id, failed.pk)
    assert retries.find_retry(failed) == made
    record = AuditRecord.objects.get(code="TOOL.ACCEPT", execution_id=made.pk)
    assert (record.actor, record.details["retry_of"]) == (agent.slug, str(failed.pk))


def test_a_call_is_retried_once(me: Caller, failed: Execution) -> None:
    retries.retry_call(person=me, execution=failed)
    with pytest.raises(Conflict, match="retried already"):
        retries.retry_call(person=me, execution=failed)
    assert Execution.objects.filter(retry_of=failed.pk).count() == 1


def test_two_concurrent_retries_make_one_call(me: Caller, failed: Execution, monkeypatch) -> None:
    retries.retry_call(person=me, execution=failed)
    monkeypatch.setattr(retries, "find_retry", lambda execution: None)  # read before the retry
    with pytest.raises(Conflict, match="retried already"):
        retries.retry_call(person=me, execution=failed)


def test_a_user_who_may_not_impersonate_the_agent_cannot_retry(
    organization: Organization, failed: Execution
) -> None:
    user = factories.person(organization)
    factories.permit(user, "view_execution", "change_execution")
    with pytest.raises(Forbidden, match="may not call tools as"):
        retries.retry_call(person=at_the_browser(user), execution=failed)
    assert not Execution.objects.filter(retry_of=failed.pk).exists()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"status": "Success"}, "Only a call that failed"),
        ({"status": "Failed", "error_code": "OUTCOME_UNKNOWN"}, "could do it twice"),
        ({"status": "Timeout", "error_details": {"effect_possible": True}}, "could do it twice"),
    ],
)
def test_a_call_with_a_possible_effect_is_not_retried(
    me: Caller, organization: Organization, agent: Agent, fields: dict[str, Any], why: str
) -> None:
    factories.tool(organization)
    execution = end_execution(factories.execution(agent), **fields)
    with pytest.raises(Conflict, match=why):
        retries.retry_call(person=me, execution=execution)


@pytest.mark.parametrize(("found", "allowed"), [("happened", False), ("did_not_happen", True)])
def test_the_resolution_of_an_unknown_outcome_decides(
    me: Caller, organization: Organization, agent: Agent, found: str, allowed: bool
) -> None:
    factories.tool(organization)
    unknown = end_execution(
        factories.execution(agent), status="Failed", error_code="OUTCOME_UNKNOWN"
    )
    chief = at_the_browser(factories.superuser(organization))
    answer.resolve(caller=chief, execution=unknown, outcome=Resolution(found), reason="Seen.")
    execution = Execution.objects.get(pk=unknown.pk)
    assert (retries.retry_refusal(me, execution) is None) is allowed


def test_an_open_call_is_not_retried(me: Caller, organization: Organization, agent: Agent) -> None:
    factories.tool(organization)
    execution = factories.execution(agent)
    with pytest.raises(Conflict, match="Only a call that failed"):
        retries.retry_call(person=me, execution=Execution.objects.get(pk=execution.pk))


def test_secrets_that_the_person_may_not_see_are_not_sent_by_them(
    me: Caller, organization: Organization, agent: Agent
) -> None:
    factories.tool(organization)
    secret = f"ghp_{'a' * 30}"
    execution = end_execution(
        factories.execution(agent, text=secret), status="Failed", error_code="X"
    )
    with pytest.raises(Conflict, match="what you may not see"):
        retries.retry_call(person=me, execution=execution)


def test_a_users_own_call_is_retried_by_that_user(organization: Organization) -> None:
    factories.tool(organization)
    mine, other = (at_the_browser(factories.superuser(organization)) for _ in range(2))
    made = admit(mine, factories.call("echo", {"text": "x"}))
    execution = end_execution(made, status="Failed", error_code="TOOL_FAILED")
    assert isinstance(retries.retry_refusal(other, execution), Forbidden)
    again = Execution.objects.get(pk=retries.retry_call(person=mine, execution=execution).pk)
    assert (again.user_id, again.agent_id) == (mine.user_id, None)
