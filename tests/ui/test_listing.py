"""Every list of pages: its pages, its filters, its order, and its file."""

import csv
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests import bulk, factories
from tests.ui.pages import body_of, htmx, notes, text
from tools.models import Agent, Execution, Message, Organization
from tools.web.keyset import KeysetOrder, KeysetPosition, load_page


def next_of(page: str) -> str:
    """The address of the next page; empty on the last."""
    _, found, rest = page.partition('rel="next" href="')
    return rest.partition('"')[0].replace("&amp;", "&") if found else ""


def read_all(client: Client, address: str) -> list[str]:
    """All pages of a list, one after the other."""
    pages = []
    while address:
        pages.append(text(client.get(address)))
        address = next_of(pages[-1])
    return pages


def test_batches_of_one_moment_are_all_reached(
    admin_client: Client, organization: Organization, agent: Agent
) -> None:
    factories.install(organization)
    caller = factories.agent(organization, "many", groups=["default", "composition"])
    inputs = [{"tool_name": "echo", "parameters": {"text": "x"}}]
    for _ in range(30):
        factories.execution(caller, "run_batch", group=["composition", "default"], inputs=inputs)
    batches = Execution.objects.filter(organization=organization, tool_name="run_batch")
    batches.update(created_at=timezone.now())
    pages = "".join(read_all(admin_client, "/batches/"))
    assert [pages.count(f"/batches/{pk}/") for pk in batches.values_list("pk", flat=True)] == (
        [1] * 30
    )


def test_a_page_loses_and_doubles_no_row_that_comes_or_goes(
    admin_client: Client, organization: Organization
) -> None:
    for at in range(30):
        factories.agent(organization, f"bot-{at:02}")
    onward = next_of(text(admin_client.get("/agents/")))
    assert "bot-24" in onward
    factories.agent(organization, "aaa")
    Agent.objects.filter(slug="bot-24").update(slug="zzz")
    page = text(admin_client.get(onward))
    assert "bot-25" in page and "bot-23" not in page and "zzz" in page


def test_one_goes_back_to_the_page_that_one_came_from(
    admin_client: Client, organization: Organization
) -> None:
    for at in range(60):
        factories.agent(organization, f"bot-{at:02}")
    first, second, third = read_all(admin_client, "/agents/?q=bot-")
    back = third.partition('rel="prev" href="')[2].partition('"')[0].replace("&amp;", "&")
    again = text(admin_client.get(back))
    assert notes(again)["range"] == notes(second)["range"] != notes(first)["range"]
    assert "bot-25" in again and "bot-49" in again and "bot-24" not in again


def test_a_column_sorts_and_is_kept_by_pages_and_filters(
    admin_client: Client, organization: Organization
) -> None:
    for at in range(30):
        factories.agent(organization, f"bot-{at:02}")
    page = text(admin_client.get("/agents/?q=bot&sort=-agent"))
    assert 'aria-sort="descending"' in page and "bot-29" in page and "bot-00" not in page
    assert '<input type="hidden" name="sort" value="-agent" form="filters">' in page
    assert "sort=-agent" in next_of(page) and "bot-00" in text(admin_client.get(next_of(page)))
    assert "bot-00" in text(admin_client.get("/agents/?sort=password"))  # no such column


def test_old_addresses_of_pages_lead_to_the_list(
    admin_client: Client, organization: Organization
) -> None:
    for at in range(30):
        factories.agent(organization, f"bot-{at:02}")
    assert "bot-29" in text(admin_client.get("/agents/?page=2"))
    for number in ("99", "0", "x", "9" * 40, "-1"):
        assert "bot-00" in text(admin_client.get(f"/agents/?page={number}"))


@pytest.mark.parametrize(
    "odd",
    ["before=x", "after=%F0%9F%92%A9", "before=bot-03&at=x", "after=1&at=2026-01-01T00:00",
     "before=018f&at=9999-99-99"],
)  # fmt: skip
@pytest.mark.parametrize("place", ["/agents/", "/executions/", "/messages/", "/chains/", "/"])
def test_a_position_that_is_none_is_no_error(admin_client: Client, place: str, odd: str) -> None:
    assert admin_client.get(f"{place}?{odd}").status_code == 200


def test_chips_take_a_filter_away_and_the_empty_list_says_why(
    admin_client: Client, organization: Organization
) -> None:
    factories.agent(organization, "bot")
    page = admin_client.get("/agents/?q=nowhere&state=active")
    assert notes(page)["chosen-filter"] == ["nowhere", "Active"] and "none-matches" in notes(page)
    assert 'href="/agents/?state=active"' in text(page)


def test_the_file_holds_what_the_filters_leave_and_no_formula(
    admin_client: Client, organization: Organization
) -> None:
    for at in range(30):
        factories.agent(organization, f"bot-{at:02}", description="=1+1")
    factories.agent(organization, "other")
    answer = admin_client.get("/agents/?q=bot&format=csv&sort=-agent")
    rows = list(csv.DictReader(body_of(answer).decode().splitlines()))
    assert [row["agent"] for row in rows] == [f"bot-{at:02}" for at in range(29, -1, -1)]
    assert rows[0]["description"] == "'=1+1"
    assert datetime.fromisoformat(rows[0]["created"]).utcoffset() == timedelta(0)


def test_the_file_needs_the_permission_of_the_list(client_of: Any) -> None:
    assert client_of().get("/agents/?format=csv").status_code == 403


def test_what_is_not_counted_to_the_end_says_so(
    admin_client: Client, organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.web.keyset.MOST_COUNTED", 3)
    monkeypatch.setattr("tools.web.listing.MOST_COUNTED", 3)
    for at in range(5):
        factories.agent(organization, f"bot-{at}")
    assert notes(admin_client.get("/agents/"))["count"] == ["more than 3 agents"]


def test_a_live_list_is_sent_again_only_when_a_row_changed(
    admin_client: Client, organization: Organization
) -> None:
    page = text(admin_client.get("/servers/"))
    address = page.partition('data-every="10" hx-get="')[2].partition('"')[0]
    address = address.replace("&amp;", "&")
    assert admin_client.get(address, headers=htmx("results")).status_code == 204


def test_times_are_those_of_the_organization(
    admin_client: Client, organization: Organization, admin_user: Any
) -> None:
    Organization.objects.filter(pk=organization.pk).update(time_zone="Asia/Tokyo")
    bulk.messages(organization, 1, to=admin_user)
    Message.objects.update(created_at=datetime(2026, 1, 31, 20, 5, 6, tzinfo=UTC))
    page = text(admin_client.get("/messages/"))
    assert 'title="1 Feb 2026 05:05:06 JST">1 Feb 05:05:06</time>' in page


def test_the_badge_of_a_page_ends_at_a_hundred(
    admin_client: Client, organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    factories.install(organization)
    bulk.confirmations(organization, 101, of=[factories.tool(organization)],
                       by=[factories.agent(organization, "bot")])  # fmt: skip
    assert "99+" in notes(admin_client.get("/home/"))["confirmations-waiting"]


def test_the_look_for_news_reads_no_ids(
    admin_client: Client, organization: Organization, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(10) as asked:
        admin_client.get("/confirmations/?part=fresh&seen=x")
    [read] = [
        one["sql"] for one in asked.captured_queries
        if 'FROM "tools_confirmation"' in one["sql"] and "MAX(" in one["sql"]
    ]  # fmt: skip
    assert read.startswith("SELECT COUNT(") and "GROUP BY" not in read


class Row:
    def __init__(self, name: str, moment: int) -> None:
        self.name, self.moment = name, moment


@pytest.mark.parametrize("descending", [False, True])
def test_a_sequence_is_paged_beside_rows_too(descending: bool) -> None:
    rows = [Row(f"n{at}", at % 3) for at in range(10)]
    order = KeysetOrder(lambda row: row.moment, "name", descending)
    read: list[str] = []
    position: KeysetPosition | None = None
    while True:
        page = load_page(rows, order, 3, position=position)
        read += [row.name for row in page.rows]
        if not page.follow:
            break
        position = order.position(page.rows[-1], forward=True)
        rows = [row for row in rows if row is not page.rows[-1]]  # it is gone meanwhile
    assert sorted(read) == sorted(f"n{at}" for at in range(10)) and len(set(read)) == 10
