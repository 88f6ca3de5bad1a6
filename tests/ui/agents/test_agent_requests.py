"""`/agent/requests/`: which stand in the list, for whom, and how they are found."""

from typing import Any

import pytest
from django.test import Client

from tests import agent_runs
from tests.ui.conftest import Grant
from tests.ui.pages import htmx, inline_code, notes, text
from tools.accounts.callers import caller_of_user
from tools.models import Agent, Execution, User


def test_the_list_leads_to_each_with_what_it_took(admin_client: Client, run: Execution) -> None:
    response = admin_client.get("/agent/requests/")
    page = text(response)
    assert inline_code(response) == []
    assert f'href="/agent/requests/{run.pk}/"' in page and "What is there to read?" in page
    assert notes(page)["steps"] == ["2"] and "0.0024" in page


def test_its_calls_are_no_requests(admin_client: Client, run: Execution) -> None:
    page = text(admin_client.get("/agent/requests/"))
    assert page.count('<tr id="row-') == 1


def test_a_person_without_permission_sees_their_own(
    client_of: Grant, person: User, run: Execution
) -> None:
    mine = agent_runs.request_agent_run(caller_of_user(person), "Mine?")
    page = text(client_of().get("/agent/requests/"))
    assert f"/agent/requests/{mine.pk}/" in page and str(run.pk) not in page


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("status=Success", True), ("status=Pending", False), ("status=failed", False),
        ("pattern=react", True), ("pattern=plan", False), ("agent=nobody", False),
    ],
)  # fmt: skip
def test_filters_leave_what_was_asked_for(
    admin_client: Client, run: Execution, query: str, found: bool
) -> None:
    page = text(admin_client.get(f"/agent/requests/?{query}"))
    assert (str(run.pk) in page) == found
    assert ("none-matches" in notes(page)) != found


def test_a_plan_is_found_by_its_pattern(admin_client: Client, agent: Agent) -> None:
    planned = agent_runs.request_run_by_agent(agent, "Planned?", pattern="plan")
    assert str(planned.pk) in text(admin_client.get("/agent/requests/?pattern=plan"))
    assert str(planned.pk) not in text(admin_client.get("/agent/requests/?pattern=react"))
    assert str(planned.pk) in text(admin_client.get(f"/agent/requests/?agent={agent.slug}"))


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    "query",
    ["before=x", "agent=%FF", "pattern=%3Cscript%3E", "status=" + "x" * 9000],
)
def test_nonsense_in_the_address_is_an_empty_page(
    admin_client: Client, run: Execution, query: str
) -> None:
    assert admin_client.get(f"/agent/requests/?{query}").status_code == 200


def test_older_ones_stand_on_further_pages(
    admin_client: Client, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.ui.agents.agent_requests.RequestListing.page_size", 1)
    first, second = (agent_runs.request_run_by_agent(agent, name) for name in ("First?", "Second?"))
    page = text(admin_client.get("/agent/requests/"))
    assert "Second?" in page and "First?" not in page
    assert f"before={second.pk}" in page
    older = text(admin_client.get(f"/agent/requests/?before={second.pk}"))
    assert "First?" in older and "Second?" not in older
    assert "nothing-older" in notes(admin_client.get(f"/agent/requests/?before={first.pk}"))


def test_a_long_list_asks_as_much_as_a_short_one(
    admin_client: Client, agent: Agent, django_assert_max_num_queries: Any
) -> None:
    for number in range(6):
        agent_runs.answered(
            agent_runs.claim_agent_run(agent_runs.request_run_by_agent(agent, f"{number}?")), "x"
        )
    admin_client.get("/agent/requests/")  # the catalog is known from then on
    with django_assert_max_num_queries(16):
        admin_client.get("/agent/requests/")


def test_the_list_follows_and_stays_where_nothing_changed(
    admin_client: Client, run: Execution
) -> None:
    part = text(admin_client.get("/agent/requests/", headers=htmx("results")))
    seen = part.partition("seen=")[2].partition('"')[0]
    again = f"/agent/requests/?seen={seen}"
    assert admin_client.get(again, headers=htmx("results")).status_code == 204
    assert run.agent is not None
    agent_runs.request_run_by_agent(run.agent, "New?")
    assert "New?" in text(admin_client.get(again, headers=htmx("results")))


def test_an_empty_list_teaches(admin_client: Client, settings: Any) -> None:
    page = text(admin_client.get("/agent/requests/"))
    assert "LLM_BASE_URL" in page and "none-asked" in notes(page)
    settings.LLM_BASE_URL, settings.LLM_MODEL = "http://127.0.0.1:9/v1", "stub"
    page = text(admin_client.get("/agent/requests/"))
    assert "LLM_BASE_URL" not in page and 'href="/agent/requests/new/"' in page


def test_a_secret_in_a_question_is_not_shown(admin_client: Client, agent: Agent) -> None:
    agent_runs.request_run_by_agent(agent, "Log in with sk-abcdefghijklmnopqrstuvwxyz and look")
    page = text(admin_client.get("/agent/requests/"))
    assert "sk-abcdef" not in page and "[redacted" in page


def test_a_hidden_character_in_a_question_is_named(admin_client: Client, agent: Agent) -> None:
    agent_runs.request_run_by_agent(agent, "Pay\u202eecila")
    assert 'title="RIGHT-TO-LEFT OVERRIDE"' in text(admin_client.get("/agent/requests/"))
