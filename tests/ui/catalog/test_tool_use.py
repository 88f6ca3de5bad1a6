"""Who can use a tool, agent by agent, and what it was used for."""

import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.test import Client
from django.utils import timezone

from tests import factories
from tests.ui.conftest import Grant
from tests.ui.pages import notes, text
from tools.accounts.account_actions import change_agent
from tools.models import Agent, Execution, Organization
from tools.ui.workflow.explanations import GATE_LABELS


@pytest.fixture
def echo(organization: Organization) -> None:
    factories.tool(organization, "echo", group=["desk"])


def agent_rows(page: str) -> dict[str, tuple[str, str]]:
    """By agent: yes or no, and the first gate that refuses."""
    rows = page.partition("<tbody>")[2].partition("</tbody>")[0].split("</tr>")[:-1]
    found = {}
    for row in rows:
        name = re.search(r'<span class="mono">([^<]+)<', row)
        word = re.search(r'class="chip"[^>]*>(\w+)<', row)
        gate = re.search(r"<strong>([^<]+)<", row)
        assert name and word
        found[name[1]] = (word[1], gate[1] if gate else "")
    return found


@pytest.mark.usefixtures("echo")
def test_each_agent_has_a_yes_or_the_first_gate_that_says_no(
    admin_client: Client, organization: Organization
) -> None:
    factories.agent(organization, "able", groups=["desk"])
    factories.agent(organization, "elsewhere", groups=["barn"])
    factories.agent(organization, "ungranted", groups=["desk"], tools=[])
    asleep = factories.agent(organization, "asleep", groups=["desk"])
    change_agent(agent=asleep, by=factories.actor(organization), active=False)
    page = text(admin_client.get("/tools/echo/who/"))
    assert agent_rows(page) == {
        "able": ("yes", ""),
        "asleep": ("no", GATE_LABELS["standing"]),
        "elsewhere": ("no", GATE_LABELS["group"]),
        "ungranted": ("no", GATE_LABELS["object_permission"]),
    }
    assert notes(page)["can-use"] == ["1"] and notes(page)["shown"] == ["4"]
    assert "/explain/?agent=elsewhere&amp;q=echo&amp;state=undefined" in page


@pytest.mark.usefixtures("echo")
def test_the_page_says_what_explain_says(admin_client: Client, organization: Organization) -> None:
    factories.agent(organization, "elsewhere", groups=["barn"])
    [reason] = notes(admin_client.get("/tools/echo/who/"))["reason"]
    assert "desk" in reason
    assert reason in text(admin_client.get("/explain/?agent=elsewhere&q=echo"))


@pytest.mark.usefixtures("echo")
def test_agents_are_paged_and_found_by_name(
    admin_client: Client, organization: Organization
) -> None:
    for number in range(26):
        factories.agent(organization, f"helper-{number:02}", groups=["desk"])
    first = text(admin_client.get("/tools/echo/who/"))
    assert len(agent_rows(first)) == 25
    assert re.findall(r"\d+", notes(first)["range"][0]) == ["1", "25", "26"]
    assert list(agent_rows(text(admin_client.get("/tools/echo/who/?page=2")))) == ["helper-25"]
    assert list(agent_rows(text(admin_client.get("/tools/echo/who/?q=per-07")))) == ["helper-07"]
    assert "none-matches" in notes(admin_client.get("/tools/echo/who/?q=nobody"))


@pytest.mark.usefixtures("echo")
def test_no_agent_needs_a_query_of_its_own(
    admin_client: Client, organization: Organization, django_assert_max_num_queries
) -> None:
    for number in range(25):
        factories.agent(organization, f"helper-{number:02}", groups=["desk"])
    admin_client.get("/tools/echo/")
    Organization.objects.next_revision(organization.pk)  # so that grants are read again
    admin_client.get("/")
    with django_assert_max_num_queries(11):  # who it is, the menu, agents, and their grants
        assert len(agent_rows(text(admin_client.get("/tools/echo/who/")))) == 25


@pytest.mark.usefixtures("echo")
def test_who_may_not_view_agents_is_refused_and_led_nowhere(client_of: Grant) -> None:
    client = client_of("tools.view_tool")
    assert client.get("/tools/echo/who/").status_code == 403
    assert "/tools/echo/who/" not in text(client.get("/tools/echo/"))


def call(agent: Agent, *, age: int, ms: float, status: str = "Success") -> None:
    execution = factories.execution(agent, "echo", group=["desk"])
    made = timezone.now() - timedelta(days=age)
    Execution.objects.filter(pk=execution.pk).update(created_at=made)
    over = {"status": status, "completed_at": timezone.now(), "duration_ms": ms}
    factories.end_execution(execution, **over, cost=Decimal("0.5"))


@pytest.mark.usefixtures("echo")
def test_usage_is_of_fourteen_days_with_figures_behind_the_picture(
    admin_client: Client, organization: Organization
) -> None:
    agent = factories.agent(organization, groups=["desk"])
    for age, ms, status in (
        (0, 100, "Success"),
        (0, 200, "Failed"),
        (3, 400, "Success"),
        (20, 9_000, "Success"),
    ):
        call(agent, age=age, ms=ms, status=status)
    page = text(admin_client.get("/tools/echo/usage/"))
    meters = re.findall(r"<dd>([^<]*)</dd>", page.partition('<dl class="meters">')[2])[:5]
    assert meters == ["3", "1", "0", "380 ms", "1.5"]
    assert page.count('class="place"') == 14
    assert notes(page)["p95"] == ["195 ms", "400 ms"]
    assert "no-calls" in notes(admin_client.get("/tools/read_file/usage/"))


@pytest.mark.usefixtures("echo")
def test_people_see_the_usage_of_their_own_where_they_may_not_view_calls(
    client_of: Grant, organization: Organization
) -> None:
    call(factories.agent(organization, groups=["desk"]), age=0, ms=100)
    page = text(client_of("tools.view_tool").get("/tools/echo/usage/"))
    assert {"own-calls", "no-calls"} <= set(notes(page))


@pytest.mark.usefixtures("echo")
def test_usage_asks_as_much_however_many_calls_there_are(
    admin_client: Client, organization: Organization, django_assert_max_num_queries
) -> None:
    agent = factories.agent(organization, groups=["desk"])
    for age in range(8):
        call(agent, age=age, ms=100)
    admin_client.get("/tools/echo/usage/")
    with django_assert_max_num_queries(9):  # who it is, the menu, by day, and how long
        assert len(notes(admin_client.get("/tools/echo/usage/"))["calls"]) == 8
