"""Home: what runs, waits and failed, how it went of late, and the state of the house."""

import os
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import resolve
from django.utils import timezone

from audit.log.log_status import log_status
from audit.log.sealer import seal_logs
from config.local import unix_accounts
from tests import factories
from tests.tools.approval_requests import call_awaiting_approval
from tests.ui.approvals.test_upstream_changes import says
from tests.ui.conftest import Grant
from tests.ui.pages import htmx, inline_code, notes, text
from tools.models import Agent, Execution, LicenseTier, Organization

pytestmark = pytest.mark.django_db

NOW, FIGURES = {"part": "now"}, {"part": "figures"}


def failed(agent: Agent, status: str = "Failed", age: timedelta = timedelta(0)) -> Execution:
    execution = factories.execution(agent)
    made = timezone.now() - age
    Execution.objects.filter(pk=execution.pk).update(created_at=made)
    ended = {"status": status, "completed_at": timezone.now(), "error_code": "WENT_WRONG"}
    factories.end_execution(execution, **ended, duration_ms=1500.0, cost=Decimal("0.5"))
    return execution


@pytest.fixture
def calls(organization: Organization, agent: Agent) -> dict[str, Execution]:
    """One that waits, one that is held, one that runs, and one that failed."""
    factories.tool(organization)
    factories.tool(organization, "asks", requires_confirmation=True)
    return {
        "waits": factories.execution(agent),
        "held": call_awaiting_approval(agent, "asks").execution,
        "runs": factories.claimed(factories.execution(agent)),
        "failed": failed(agent),
    }


def counts(page: str) -> dict[str, str]:
    """By the status that the list of its calls is filtered by."""
    return dict(re.findall(r"\?status=(\w+)[^>]*><span>[^<]+</span> <strong>([^<]+)<", page))


def addresses(page: str) -> list[str]:
    return [one.replace("&amp;", "&") for one in re.findall(r'id="count-\d" href="([^"]+)"', page)]


def house(page: str) -> dict[str, str]:
    """The mark of each line, by the name of the address that it leads to."""
    lines = re.findall(r'<li><span class="chip"[^>]*>(\w+)</span><a href="([^"]+)"', page)
    return {resolve(address).url_name: word for word, address in lines}


def test_what_is_open_and_what_failed_is_counted(
    admin_client: Client, calls: dict[str, Execution]
) -> None:
    shown = counts(text(admin_client.get("/home/")))
    assert shown == {
        "Running": "1",
        "Pending": "1",
        "RequiresConfirmation": "1",
        "failed": "1",
    }


def test_each_number_leads_to_just_these_calls(
    admin_client: Client, calls: dict[str, Execution]
) -> None:
    found = [
        re.findall(r'<tr id="row-([^"]+)"', text(admin_client.get(address)))
        for address in addresses(text(admin_client.get("/home/")))
    ]
    assert found == [[str(calls[name].pk)] for name in ("runs", "waits", "held", "failed")]


def test_what_failed_longer_ago_is_not_counted_nor_listed(
    admin_client: Client, organization: Organization, agent: Agent
) -> None:
    factories.tool(organization)
    old = failed(agent, age=timedelta(hours=25))
    page = text(admin_client.get("/home/"))
    assert counts(page)["failed"] == "0" and str(old.pk) not in page
    (address,) = addresses(page)[3:]
    assert str(old.pk) not in text(admin_client.get(address))


def test_what_runs_longest_and_what_failed_last_are_led_to(
    admin_client: Client, calls: dict[str, Execution]
) -> None:
    page = text(admin_client.get("/home/"))
    assert f'id="runs-{calls["runs"].pk}" href="/executions/{calls["runs"].pk}/"' in page
    assert f'id="failed-{calls["failed"].pk}" href="/executions/{calls["failed"].pk}/"' in page
    assert "WENT_WRONG" in page and calls["runs"].agent.slug in page


def test_the_moving_part_alone_is_asked_for_and_rests_while_nothing_changes(
    admin_client: Client, calls: dict[str, Execution], agent: Agent
) -> None:
    page = text(admin_client.get("/home/"))
    address = page.split('data-every="10" hx-get="')[1].split('"')[0].replace("&amp;", "&")
    assert admin_client.get(address, headers=htmx("now")).status_code == 204
    failed(agent, "Timeout")
    part = text(admin_client.get(address, headers=htmx("now")))
    assert counts(part)["failed"] == "2" and "<h1>" not in part


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(("over", "places"), [("24h", 24), ("14d", 14), ("nonsense", 24)])
def test_four_pictures_have_a_table_behind_each(
    admin_client: Client, over: str, places: int
) -> None:
    page = text(admin_client.get(f"/home/?over={over}"))
    assert page.count('class="bars"') == 4 and page.count('class="place"') == 4 * places
    tables = re.findall(r"<details><summary>[^<]+</summary>(.*?)</details>", page, re.S)
    assert [table.count('<th scope="row">') for table in tables] == [places] * 4
    assert "1.50 s" in tables[2] and "0.5" in tables[3]


@pytest.mark.usefixtures("calls")
def test_the_other_span_comes_as_a_part(admin_client: Client) -> None:
    part = admin_client.get(
        "/home/?over=14d", FIGURES | {"over": "14d"}, headers=htmx("usage-charts")
    )
    assert "<h1>" not in text(part) and text(part).count('class="place"') == 56


def test_users_who_may_not_view_calls_see_only_their_own(
    client_of: Grant, calls: dict[str, Execution]
) -> None:
    page = text(client_of().get("/home/"))
    assert {"own-calls", "no-calls"} <= set(notes(page))
    assert not any(str(one.pk) in page for one in calls.values())
    everyone = text(client_of("tools.view_execution").get("/home/"))
    assert counts(everyone)["Running"] == "1"


def test_no_call_of_another_organization_is_counted_or_named(
    admin_client: Client, organization: Organization, agent: Agent
) -> None:
    other = factories.organization(f"other-{agent.slug}")
    factories.tool(other)
    theirs = failed(factories.agent(other, groups=["*"]))
    factories.tool(organization)
    failed(agent)
    page = text(admin_client.get("/home/"))
    assert counts(page)["failed"] == "1" and str(theirs.pk) not in page


def test_without_calls_the_page_says_how_to_make_the_first(admin_client: Client) -> None:
    page = text(admin_client.get("/home/"))
    assert "no-calls" in notes(page) and 'class="bars"' not in page and "data-live" not in page
    assert 'href="/agents/new/"' in page and "docs/getting-started.md" in page
    assert (settings.BASE_DIR / "docs" / "getting-started.md").exists()


def test_health_is_shown_to_users_who_may_see_its_pages(
    admin_client: Client, client_of: Grant
) -> None:
    every = [
        "readyz",
        "sandbox",
        "settings",
        "licenses",
        "factors",
        "audit",
        "changes",
        "confirmations",
    ]
    assert list(house(text(admin_client.get("/home/")))) == every
    assert list(house(text(client_of().get("/home/")))) == ["readyz"]
    auditor = client_of("audit.view_auditrecord", "tools.view_licensetier")
    assert list(house(text(auditor.get("/home/")))) == ["readyz", "licenses", "audit"]


def test_each_line_of_the_house_leads_to_a_page(admin_client: Client) -> None:
    page = text(admin_client.get("/home/"))
    lines = page.partition('<ul class="health">')[2].partition("</ul>")[0]
    found = re.findall(r'<a href="([^"]+)"', lines)
    assert len(found) == 8
    assert {admin_client.get(address).status_code for address in found} <= {200, 503}


@pytest.mark.parametrize(("uid", "word"), [(1000, "look"), (unix_accounts.WEB_UID, "good")])
def test_the_house_says_what_a_start_by_a_user_lacks(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, uid: int, word: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    page = text(admin_client.get("/home/"))
    assert house(page)["settings"] == word
    said = any("share one user" in line for line in notes(page).get("house-look", []))
    assert said == (word == "look")


def test_the_house_says_what_waits_for_a_person(
    admin_client: Client, organization: Organization, agent: Agent
) -> None:
    says(factories.tool(organization), description="Another thing.")
    factories.tool(organization, "asks", requires_confirmation=True)
    call_awaiting_approval(agent, "asks")
    page = text(admin_client.get("/home/"))
    assert house(page)["changes"] == house(page)["confirmations"] == "look"
    assert sum("1" in line.split() for line in notes(page)["house-look"]) == 2


def test_the_house_says_when_the_log_was_signed_and_what_is_not_sealed(
    admin_client: Client, organization: Organization
) -> None:
    seal_logs(organization.slug)
    factories.tool(organization)
    page = text(admin_client.get("/home/"))
    assert house(page)["audit"] == "good"
    unsealed = log_status(organization.slug).unsealed
    assert unsealed and any(f" {unsealed} " in line for line in notes(page)["house-good"])


def test_a_full_licence_is_to_be_looked_at(client_of: Grant, organization: Organization) -> None:
    limits = {"max_custom_tools": 1, "custom_sandbox_profiles": False}
    LicenseTier.objects.filter(pk=organization.tier_id).update(**limits)
    factories.tool(organization)
    page = text(client_of("tools.view_licensetier").get("/home/"))
    assert house(page)["licenses"] == "look"
    assert any(re.findall(r"\d+", line) == ["1", "1"] for line in notes(page)["house-look"])


def test_many_calls_cost_no_query_each(
    admin_client: Client,
    organization: Organization,
    agent: Agent,
    django_assert_max_num_queries: Any,
) -> None:
    factories.tool(organization)
    for _ in range(7):
        failed(agent)
        factories.claimed(factories.execution(agent))
    admin_client.get("/home/?over=14d")  # what is remembered is remembered
    for over in ("24h", "14d"):
        with django_assert_max_num_queries(22):
            response = admin_client.get(f"/home/?over={over}")
    assert inline_code(response) == []
    assert text(response).count('id="failed-') == text(response).count('id="runs-') == 5
    with django_assert_max_num_queries(9):
        admin_client.get("/home/", NOW, headers=htmx("now"))


@pytest.fixture
def browser(organization: Organization) -> Callable[..., Client]:
    def logged_in(*permissions: str) -> Client:
        person, client = factories.person(organization), Client()
        factories.permit(person, *permissions)
        client.force_login(person, backend="tools.accounts.login.login.PeopleBackend")
        return client

    return logged_in


def search(client: Client, q: str) -> str:
    return text(client.get("/search/", {"q": q}, headers=htmx("goals")))


def test_pages_are_those_of_the_menu(browser: Callable[..., Client]) -> None:
    assert 'href="/workflow/"' not in search(browser(), "")
    seen = search(browser("view_tool"), "")
    assert (
        'href="/workflow/"' in seen and 'href="/executions/"' in seen and 'href="/profile/"' in seen
    )


@pytest.mark.parametrize("q", ["exec", "EXEC", " executions ", "e"])
def test_beginnings_of_words_find_a_page(admin_client: Client, q: str) -> None:
    assert 'href="/executions/"' in search(admin_client, q)


def test_other_pages_are_left_out(admin_client: Client) -> None:
    assert 'href="/home/"' not in search(admin_client, "exec")


def test_tools_are_found_by_name(admin_client: Client) -> None:
    assert 'href="/tools/read_file/"' in search(admin_client, "read_file")


def test_a_tool_that_a_person_may_not_see_is_not_found(
    organization: Organization, browser: Callable[..., Client]
) -> None:
    factories.tool(organization, "sesame", group=["hidden"])
    assert "/tools/sesame/" not in search(browser(), "sesame")
    assert "/tools/sesame/" in search(browser("view_tool"), "sesame")


def test_tools_of_others_are_not_found(admin_client: Client) -> None:
    factories.tool(factories.organization("elsewhere"), "sesame")
    assert "/tools/sesame/" not in search(admin_client, "sesame")


def test_nothing_found_says_what_to_do(admin_client: Client) -> None:
    assert "nothing-found" in notes(search(admin_client, "zzzz"))


@pytest.mark.parametrize("q", ["%", "_", "a" * 10_000, "'\"<>&", "()|&!:*"])
def test_whatever_is_asked_is_answered(admin_client: Client, q: str) -> None:
    assert admin_client.get("/search/", {"q": q}).status_code == 200


def test_it_works_as_a_page_too(admin_client: Client) -> None:
    page = text(admin_client.get("/search/?q=read_file"))
    assert "<h1" in page and 'href="/tools/read_file/"' in page


def test_the_number_of_queries_is_bounded(
    admin_client: Client, django_assert_max_num_queries: Any
) -> None:
    admin_client.get("/search/?q=read")
    with django_assert_max_num_queries(16):
        admin_client.get("/search/?q=read")
