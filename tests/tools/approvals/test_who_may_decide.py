"""A role is one people's group in all organizations, but its permissions apply only in the member's
own."""

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from tests import factories
from tools.accounts.callers import caller_of_user
from tools.approvals import decisions
from tools.approvals.decisions import Word
from tools.errors import NotFound
from tools.models import Agent, Confirmation, Organization, User


@pytest.fixture
def pending_confirmation(organization: Organization, agent: Agent) -> Confirmation:
    factories.tool(organization, "held", requires_confirmation=True)
    return Confirmation.objects.get(execution=factories.execution(agent, "held"))


def approver(place: Organization) -> User:
    person = factories.person(place)
    person.groups.add(Group.objects.get(name="role:approver"))
    return person


def word(confirmation: Confirmation) -> Word:
    return Word(id=confirmation.pk, approve=True, bound_hash=confirmation.bound_hash)


def test_an_approver_decides_for_the_own_organization(
    organization: Organization, pending_confirmation: Confirmation
) -> None:
    caller = caller_of_user(approver(organization))
    assert decisions.decide(caller=caller, word=word(pending_confirmation)).status == "approved"


def test_an_approver_of_another_organization_decides_nothing(
    pending_confirmation: Confirmation,
) -> None:
    stranger = approver(factories.organization("approving-elsewhere"))
    with pytest.raises(NotFound):
        decisions.decide(caller=caller_of_user(stranger), word=word(pending_confirmation))
    client = Client()
    client.force_login(stranger, backend="tools.accounts.login.login.PeopleBackend")
    address = f"/api/v1/confirmations/{pending_confirmation.pk}"
    body = {"bound_hash": pending_confirmation.bound_hash}
    for path in (address, f"/confirmations/{pending_confirmation.pk}/"):
        assert client.get(path).status_code == 404
    said = client.post(f"{address}/approve", body, content_type="application/json")
    assert said.status_code == 404
    client.post(
        "/confirmations/decide",
        {"one": f"approve {pending_confirmation.pk}", f"hash-{pending_confirmation.pk}": "x"},
    )
    pending_confirmation.refresh_from_db()
    assert pending_confirmation.status == "pending"
