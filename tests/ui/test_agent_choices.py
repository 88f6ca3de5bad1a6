"""Fields that choose an agent: beyond a hundred they are searched, and keep what was chosen."""

import pytest
from django.test import Client

from tests import factories
from tests.ui.pages import text
from tools.models import Agent, Organization
from tools.ui.agents.agent_choices import MOST_OFFERED


@pytest.fixture
def many(organization: Organization) -> Agent:
    """One more than are offered; the last of them."""
    for at in range(MOST_OFFERED):
        factories.agent(organization, f"bot-{at:03}")
    return factories.agent(organization, "zz")


@pytest.mark.parametrize(
    "address",
    [
        "/explain/?agent=zz",
        "/explain/what-if/?kind=grant&agent=zz&do=give&what=groups&names=default",
        "/playground/?as=zz",
        "/tools/read_file/call/?as=zz",
        "/workflow/walk/?agent=zz",
        "/agent/requests/new/?as=zz",
    ],
)
def test_a_form_keeps_the_agent_that_no_list_would_hold(
    admin_client: Client, many: Agent, address: str
) -> None:
    page = text(admin_client.get(address))
    assert 'value="zz" list="' in page


def test_agents_are_found_while_their_names_are_typed(admin_client: Client, many: Agent) -> None:
    assert text(admin_client.get("/choices/agents/explained/?agent=z")) == (
        '<option value="zz"></option>'
    )
    found = text(admin_client.get("/choices/agents/called-as/?as=bot"))
    assert found.count("<option") == MOST_OFFERED
    assert admin_client.get("/choices/agents/else/?as=bot").status_code == 404


def test_who_may_not_see_agents_is_offered_none(client_of, many: Agent) -> None:  # type: ignore[no-untyped-def]
    for of in ("explained", "called-as"):
        assert text(client_of().get(f"/choices/agents/{of}/?agent=z")) == ""
