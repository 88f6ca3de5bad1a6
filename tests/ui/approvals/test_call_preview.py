"""What a call would do, as the approver reads it."""

from django.test import Client

from tests import factories
from tests.tools.approval_requests import call_awaiting_approval
from tests.ui.pages import notes
from tools.models import Agent, Organization
from tools.ui.approvals.call_preview import preview_sentences


def test_it_says_how_it_runs_what_its_author_says_and_what_stays(
    organization: Organization,
) -> None:
    tool = factories.tool(organization, description="Turns\n words round.", delivery="pure")
    assert tool.version is not None
    how, author, effect = preview_sentences(tool.version)
    assert how.startswith("Runs code behind the sandbox's wall")
    assert author == "Its author says: Turns words round."
    assert effect == "It changes nothing."


def test_a_chain_names_what_it_calls(organization: Organization) -> None:
    factories.tool(organization, "alpha")
    steps = [{"id": "one", "tool_name": "alpha", "parameters": {"text": "x"}}]
    implementation = {"chain": {"steps": steps}}
    chain = {"name": "walk", "type": "chain", "description": "d", "implementation": implementation}
    row = factories.register(organization, chain)
    assert row.version is not None
    assert preview_sentences(row.version)[0] == "Calls in turn: alpha."


def test_the_preview_is_on_the_pages_of_approvals(
    admin_client: Client, organization: Organization, agent: Agent
) -> None:
    factories.tool(organization, description="Turns words round.", requires_confirmation=True)
    confirmation = call_awaiting_approval(agent)
    for address in ("/confirmations/", f"/confirmations/{confirmation.pk}/"):
        [said] = notes(admin_client.get(address))["would-do"]
        assert "Turns words round." in said
