"""The page of usage: totals, pictures by day, and the figures behind them."""

import re
from datetime import timedelta
from decimal import Decimal
from html import unescape

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests import factories
from tests.ui.conftest import Grant
from tests.ui.pages import inline_code, notes, text
from tools.models import Agent, Execution, Organization
from tools.ui.home.usage import UsageListing

pytestmark = pytest.mark.django_db


@pytest.fixture
def calls(organization: Organization, agent: Agent) -> None:
    """Two of a tool today, one of them failed, and one of another ten days ago."""
    factories.tool(organization, "echo", group=["default"])
    factories.tool(organization, "other", group=["desk"])
    helper = factories.agent(organization, groups=["desk"])
    for who, name, group, status, age, cost in (
        (agent, "echo", "default", "Success", 0, "1.5"),
        (agent, "echo", "default", "Failed", 0, "0"),
        (helper, "other", "desk", "Success", 10, "2"),
    ):
        execution = factories.execution(who, name, group=[group])
        made = timezone.now() - timedelta(days=age)
        Execution.objects.filter(pk=execution.pk).update(created_at=made)
        ended = {"status": status, "completed_at": timezone.now(), "cost": Decimal(cost)}
        factories.end_execution(execution, **ended)


def rows(page: str) -> list[list[str]]:
    body = page.partition("<tbody>")[2].partition("</tbody>")[0]
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in body.split("</tr>")]
    return [[re.sub(r"<[^>]+>", "", cell).strip() for cell in row] for row in cells if row]


def numbers(page: str) -> list[str]:
    """The first line shown, the last, and of how many."""
    return re.findall(r"\d+", notes(page)["range"][0])


def meters(page: str) -> list[str]:
    return re.findall(r"<dd>([^<]*)</dd>", page.partition('<dl class="meters">')[2])[:5]


@pytest.mark.usefixtures("calls")
def test_totals_stand_above_a_picture_and_its_figures(admin_client: Client) -> None:
    page = text(admin_client.get("/usage/"))
    assert meters(page) == ["3", "1", "0", "0", "3.5"]
    assert page.count('class="bars"') == 2 and page.count('class="place"') == 60
    assert [row[1:] for row in rows(page)] == [
        ["2", "1", "0", "0", "1.5"],
        ["1", "0", "0", "0", "2"],
    ]


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(
    ("by", "names"), [("tool", ["echo", "other"]), ("group", ["default", "desk"])]
)
def test_the_table_is_by_what_one_asks(admin_client: Client, by: str, names: list[str]) -> None:
    page = text(admin_client.get(f"/usage/?by={by}"))
    assert [row[0] for row in rows(page)] == names
    assert meters(page)[0] == "3"


@pytest.mark.usefixtures("calls")
def test_an_agent_leads_to_its_calls(admin_client: Client, agent: Agent) -> None:
    page = text(admin_client.get("/usage/?by=agent"))
    assert f'href="/executions/?agent={agent.slug}"' in page
    only = text(admin_client.get(f"/usage/?agent={agent.slug}&by=tool"))
    assert [row[0] for row in rows(only)] == ["echo"] and f"agent={agent.slug}" in only


@pytest.mark.usefixtures("calls")
def test_other_days_are_asked_for_and_kept_in_the_address(admin_client: Client) -> None:
    today = timezone.now().date()
    page = text(
        admin_client.get(f"/usage/?since={today - timedelta(days=2)}&until={today}&by=tool")
    )
    assert [row[0] for row in rows(page)] == ["echo"] and page.count('class="place"') == 6
    assert f"by=tool&amp;since={today - timedelta(days=6)}&amp;until={today}" in page


@pytest.mark.usefixtures("calls")
def test_lines_are_paged_with_what_was_called_most_first(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UsageListing, "page_size", 1)
    first = text(admin_client.get("/usage/?by=tool"))
    assert [row[0] for row in rows(first)] == ["echo"] and numbers(first) == ["1", "1", "2"]
    assert meters(first)[0] == "3"
    (link,) = re.findall(r'rel="next" href="([^"]+)"', first)
    last = text(admin_client.get(unescape(link)))
    assert [row[0] for row in rows(last)] == ["other"] and numbers(last) == ["2", "2", "2"]
    assert 'rel="next"' not in last and 'rel="prev"' in last


@pytest.mark.usefixtures("calls")
def test_a_page_that_is_not_there_is_the_nearest(admin_client: Client) -> None:
    odd = ("99999", "none", "0", "9" * 5000)
    asked = [f"/usage/?by={by}&page={number}" for by in ("day", "group") for number in odd]
    lines = {address: len(rows(text(admin_client.get(address)))) for address in asked}
    assert lines == dict.fromkeys(asked, 2)


@pytest.mark.parametrize(
    "wrong",
    ["since=tomorrow", "since=2026-02-30", "since=2000-01-01&until=2026-01-01", "until=9999-12-31"],
)
def test_a_day_that_is_none_is_said_and_the_page_still_shows(
    admin_client: Client, wrong: str
) -> None:
    response = admin_client.get(f"/usage/?{wrong}")
    assert response.status_code == 400
    assert "no-such-days" in notes(response)


def test_without_calls_the_page_says_what_to_do(admin_client: Client) -> None:
    assert "no-calls" in notes(admin_client.get("/usage/"))
    assert "clear-filters" in notes(admin_client.get("/usage/?tool=nothing"))


@pytest.mark.usefixtures("calls")
def test_who_may_not_view_calls_sees_figures_of_their_own_alone(client_of: Grant) -> None:
    page = text(client_of().get("/usage/"))
    assert "own-calls" in notes(page) and meters(page)[0] == "0"
    assert meters(text(client_of("tools.view_execution").get("/usage/")))[0] == "3"


@pytest.mark.usefixtures("calls")
def test_no_line_of_the_page_needs_a_query_of_its_own(admin_client: Client) -> None:
    admin_client.get("/usage/?by=tool")  # what is remembered is remembered
    with CaptureQueriesContext(
        connection,
    ) as queries:
        response = admin_client.get("/usage/?by=tool")
    assert len([one for one in queries if "GROUP BY" in one["sql"]]) == 2
    assert len(queries) <= 9
    assert inline_code(response) == []
