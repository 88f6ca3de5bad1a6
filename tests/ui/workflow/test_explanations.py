"""The pages of why and of what if."""

import re

import pytest
from django.test import Client

from tests import factories
from tests.ui.conftest import Grant
from tests.ui.pages import codes, htmx, notes, text
from tools.execution.admit import admit
from tools.models import Agent, Execution, Organization
from tools.ui.workflow.explanations import GATE_LABELS, MOST_CALLS, MOST_NAMES

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def scout(organization: Organization) -> Agent:
    factories.tool(organization, "press", group=["write"], available_in_states=["analysis"])
    factories.tool(organization, "counter", description="Counts things.")
    return factories.agent(organization, "scout", groups=["default", "read-only"])


def test_every_gate_is_a_word_with_its_reason_and_remedy(
    admin_client: Client, scout: Agent
) -> None:
    page = text(admin_client.get("/explain/?agent=scout&q=press"))
    assert re.search(r'data-word="no" data-gate="group"><span>[^<]+</span> <b>no</b>', page)
    assert 'data-word="yes" data-gate="object_permission"' in page
    assert (
        "tool_not_in_group" in page and GATE_LABELS["group"].lower() in notes(page)["refused-by"][0]
    )
    assert any("scout" in remedy and "write" in remedy for remedy in notes(page)["remedy"])


def test_only_what_is_refused_is_shown_when_asked(admin_client: Client, scout: Agent) -> None:
    whole = text(admin_client.get("/explain/?agent=scout"))
    assert "counter" in whole and "press" in whole
    page = text(admin_client.get("/explain/?agent=scout&refused=yes"))
    assert "/tools/press/" in page and "/tools/counter/" not in page


def test_nothing_written_is_everything_it_was_granted(admin_client: Client, scout: Agent) -> None:
    page = text(admin_client.get("/explain/?agent=scout"))
    assert 'value="default, read-only"' in page


def test_another_agent_s_groups_are_not_asked_for(admin_client: Client, scout: Agent) -> None:
    page = admin_client.get("/explain/?agent=scout&of=other&groups=admin")
    assert "request-refused" not in notes(page)
    page = admin_client.get("/explain/?agent=scout&of=scout&groups=admin")
    assert "request-refused" in notes(page)
    (remedy,) = notes(page)["request-remedy"]
    assert "admin" in remedy and "scout" in remedy


def test_htmx_is_given_the_results_and_the_groups(admin_client: Client, scout: Agent) -> None:
    response = admin_client.get("/explain/?agent=scout", headers=htmx("results", "filters"))
    assert "<html" not in text(response) and 'id="results"' in text(response)
    assert 'id="groups-field" hx-swap-oob="true"' in text(response)


def test_a_person_without_permission_asks_about_itself_alone(
    client_of: Grant, scout: Agent, organization: Organization
) -> None:
    client = client_of()
    page = text(client.get("/explain/"))
    assert "scout" not in page and "press" not in page
    assert client.get("/explain/?agent=scout").status_code == 403
    assert client.get("/explain/what-if/").status_code == 403


def test_another_organization_s_agent_is_not_there(admin_client: Client) -> None:
    factories.agent(factories.organization("explain-page-elsewhere"), "stranger")
    assert admin_client.get("/explain/?agent=stranger").status_code == 404
    page = admin_client.get("/explain/what-if/?kind=grant&agent=stranger&what=groups&names=x")
    assert page.status_code == 404


def test_what_a_grant_would_change_stands_in_two_tables(admin_client: Client, scout: Agent) -> None:
    admit(factories.caller(scout), factories.call("counter", {"text": "x"}))
    query = "kind=grant&agent=scout&do=take&what=groups&names=default"
    page = text(admin_client.get(f"/explain/what-if/?{query}"))
    assert '<span class="tag" data-change="removed">counter</span>' in page
    assert notes(page)["would-be-refused"] == ["1"] and "group_not_granted" in page
    query = "kind=grant&agent=scout&do=give&what=groups&names=write"
    page = text(admin_client.get(f"/explain/what-if/?{query}"))
    assert '<span class="tag" data-change="added">press</span>' in page
    assert Agent.objects.get(pk=scout.pk).service_account.granted_groups == ["default", "read-only"]


def test_long_lists_are_cut_and_counted(
    admin_client: Client, scout: Agent, organization: Organization
) -> None:
    brushes = [f"brush{number}" for number in range(MOST_CALLS + 1)]
    for name in brushes:
        factories.tool(organization, name)
    caller = factories.caller(scout)
    for name in brushes:
        admit(caller, factories.call(name, {"text": "x"}))
    query = "kind=grant&agent=scout&do=take&what=groups&names=default"
    page = text(admin_client.get(f"/explain/what-if/?{query}"))
    lost = re.findall(r'data-change="removed">([^<]+)<', page)
    assert len(lost) == MOST_NAMES and notes(page)["removed-in-all"] == ["52"]
    assert len(notes(page)["refusing-gate"]) == MOST_CALLS
    assert notes(page)["would-be-refused"] == ["51"]
    assert str(MOST_CALLS) in notes(page)["first-combinations"][0]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("kind=tool_groups&tool=ghost&names=x", "tool_not_found"),
        ("kind=tier&tier=ghost", "tier_not_found"),
        ("kind=grant&agent=&what=groups&names=x", "agent_not_found"),
        ("kind=grant&agent=scout&what=ghosts&names=x", "malformed"),
    ],
)
def test_what_cannot_be_supposed_is_said_in_the_page(
    admin_client: Client, scout: Agent, query: str, code: str
) -> None:
    response = admin_client.get(f"/explain/what-if/?{query}")
    assert response.status_code in {400, 404} and codes(response) == [code]


def test_only_changes_one_may_make_are_offered(client_of: Grant, scout: Agent) -> None:
    client = client_of("tools.view_agent", "tools.view_tool", "tools.change_tool")
    page = text(client.get("/explain/what-if/"))
    assert 'name="kind" value="tool_groups"' in page
    assert 'name="kind" value="grant"' not in page and 'name="kind" value="tier"' not in page
    assert client.get("/explain/what-if/?kind=tier&tier=Core").status_code == 403


def test_the_tool_page_names_the_agents_that_can_use_it(
    admin_client: Client, client_of: Grant, scout: Agent
) -> None:
    assert "/explain/?agent=scout&amp;q=counter" in text(admin_client.get("/tools/counter/"))
    assert "no-agent-passes" in notes(admin_client.get("/tools/press/"))
    page = text(client_of("tools.view_tool").get("/tools/counter/"))
    assert 'id="users"' not in page and 'href="/tools/counter/who/"' not in page


def test_looking_writes_nothing(
    admin_client: Client, scout: Agent, organization: Organization
) -> None:
    admin_client.get("/explain/?agent=scout")
    admin_client.get("/explain/what-if/?kind=tier&tier=Core")
    assert not Execution.objects.filter(organization=organization).exists()
