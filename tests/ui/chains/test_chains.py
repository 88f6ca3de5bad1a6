"""Chains in the browser: written with what is wrong beside them, drawn, rehearsed, watched."""

import re

import pytest
from django.test import Client

from tests import factories
from tests.tools.catalog.workflow.test_chain_texts import CHAIN
from tests.tools.execution.in_process_worker import work_off
from tests.tools.execution.workers import stopped
from tests.ui.conftest import Grant
from tests.ui.pages import codes, form_fields, htmx, inline_code, notes, text
from tools.catalog.actions import find_tool
from tools.execution.perform import perform
from tools.models import Agent, Organization
from tools.ui.chains.chain_drawing import condition_words
from tools.ui.chains.chains import RENAMED


@pytest.fixture(autouse=True)
def _tool(organization: Organization) -> None:
    factories.tool(organization, group=["talk"])


def save(client: Client, written: str, address: str = "/chains/new/", **more: str) -> str:
    return text(client.post(address, {"text": written, **more}, follow=True))


def test_a_chain_is_written_listed_and_changed(
    admin_client: Client, organization: Organization
) -> None:
    assert "no-chains" in notes(admin_client.get("/chains/"))
    page = save(admin_client, CHAIN)
    assert "twice" in notes(page)["message-success"][0] and 'class="flow chain"' in page
    assert condition_words({"succeeded": "first"}) in page
    assert 'href="/tools/twice/"' in text(admin_client.get("/chains/"))
    form = form_fields(admin_client.get("/chains/twice/edit/"))
    assert "tool_name: echo" in form["text"]
    changed = CHAIN.replace("Says it twice.", "Says it again.")
    page = save(admin_client, changed, "/chains/twice/edit/", filled_from=form["filled_from"])
    assert "Says it again." in page
    assert find_tool(organization, "twice").versions.count() == 2


def test_what_is_wrong_stands_beside_the_text_and_nothing_is_lost(admin_client: Client) -> None:
    wrong = CHAIN.replace("attempts: 2", "attempts: 99")
    response = admin_client.post("/chains/new/", {"text": wrong})
    page = text(response)
    assert response.status_code == 400
    assert 'data-line="14"' in page and "steps.1.retries.attempts" in page
    assert "attempts: 99" in page
    assert inline_code(response) == []


def test_a_text_is_checked_and_drawn_while_it_is_written(admin_client: Client) -> None:
    part = text(admin_client.post("/chains/check", {"text": CHAIN}, headers=htmx("checked")))
    assert "can-be-kept" in notes(part) and "<svg" in part and "<html" not in part
    part = text(admin_client.post("/chains/check", {"text": "name: ["}, headers=htmx("checked")))
    assert "not-yet-a-chain" in notes(part) and "<svg" not in part
    assert "no-chains" in notes(admin_client.get("/chains/"))


def test_a_chain_keeps_its_name(admin_client: Client) -> None:
    save(admin_client, CHAIN)
    page = save(admin_client, CHAIN.replace("name: twice", "name: other"), "/chains/twice/edit/")
    assert any(RENAMED.format(name="twice") in remark for remark in notes(page)["remark"])


def test_a_chain_name_that_is_taken_is_refused(admin_client: Client) -> None:
    page = save(admin_client, CHAIN.replace("name: twice", "name: echo"))
    assert "echo" in page and "refused" in notes(page)


def test_the_editor_of_tools_leads_to_the_one_of_chains(admin_client: Client) -> None:
    save(admin_client, CHAIN)
    assert admin_client.get("/editor/?type=chain")["Location"] == "/chains/new/"
    assert admin_client.get("/editor/twice/")["Location"] == "/chains/twice/edit/"
    assert admin_client.get("/chains/echo/edit/").status_code == 404


def test_the_list_shows_what_the_reader_may_see(admin_client: Client, client_of: Grant) -> None:
    save(admin_client, CHAIN)
    page = text(client_of().get("/chains/"))
    assert "twice" not in page and "none-granted" in notes(page)


def test_a_chain_is_rehearsed_and_nothing_is_called(
    admin_client: Client, organization: Organization
) -> None:
    save(admin_client, CHAIN)
    sent = {"p.text": "hello", "group": "talk", "do": "rehearse", "one_time_key": "a" * 22}
    for _ in range(2):
        page = text(admin_client.post("/tools/twice/call/", sent))
        assert page.count("data-runs=") == 2 and 'data-runs="unknown"' in page
    assert not organization.executions.exists()


def test_a_chain_is_rehearsed_as_an_agent(
    admin_client: Client, agent: Agent, organization: Organization
) -> None:
    save(admin_client, CHAIN)
    sent = {"p.text": "hello", "group": "talk", "do": "rehearse", "as": agent.slug}
    assert set(codes(admin_client.post("/tools/twice/call/", sent))) == {"group_not_granted"}


def test_a_rehearsal_tells_which_steps_would_be_refused(admin_client: Client) -> None:
    save(admin_client, CHAIN)
    sent = {"p.text": "hello", "group": "talk", "do": "rehearse"}
    assert codes(admin_client.post("/tools/twice/call/", sent)) == []
    admin_client.post("/tools/echo/disable")
    assert codes(admin_client.post("/tools/twice/call/", sent)) == ["tool_disabled"] * 2


def ticked(page: str) -> list[str]:
    return re.findall(r'name="group" value="([^"]+)" checked', page)


def test_the_groups_that_its_steps_need_are_ticked_beforehand(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization, "other", group=["far"])
    inner = CHAIN.replace("name: twice", "name: inner").replace(
        "tool_name: echo", "tool_name: other", 1
    )
    save(admin_client, inner.replace("group: [talk]", "group: [inside]"))
    save(admin_client, CHAIN.replace("tool_name: echo", "tool_name: inner", 1))
    assert ticked(text(admin_client.get("/tools/twice/call/"))) == ["talk", "far", "inside"]


def test_no_group_of_a_step_is_ticked_that_was_not_granted(
    admin_client: Client, client_of: Grant, organization: Organization
) -> None:
    factories.tool(organization, "other", group=["far"])
    save(admin_client, CHAIN.replace("tool_name: echo", "tool_name: other", 1))
    client = client_of("tools.execute_tool", granted_groups=["talk"])
    page = text(client.get("/tools/twice/call/"))
    assert ticked(page) == ["talk"] and 'value="far"' not in page


@pytest.mark.usefixtures("committed")
def test_a_run_leads_to_the_person_it_waits_for(
    admin_client: Client, organization: Organization, crib: object
) -> None:
    factories.tool(organization, "asks", group=["talk"], requires_confirmation=True)
    with stopped(crib):
        save(admin_client, CHAIN.replace("tool_name: echo", "tool_name: asks", 1))
        agent = factories.agent(organization, groups=["talk"])
        run = factories.execution(agent, "twice", group=["talk"], text="hello")
        perform(run.pk)
        page = text(admin_client.get(f"/executions/{run.pk}/"))
    assert 'data-kind="step" data-status="RequiresConfirmation"' in page
    assert "calls-await-approval" in notes(page)
    answer = page.partition('data-note="calls-await-approval"')[2].partition("</p>")[0]
    assert 'href="/confirmations/"' in answer


def test_a_rehearsal_tells_of_the_chain_itself(
    admin_client: Client, organization: Organization
) -> None:
    save(admin_client, f"{CHAIN}requires_confirmation: true\n")
    sent = {"p.text": "hello", "group": "talk", "do": "rehearse"}
    page = text(admin_client.post("/tools/twice/call/", sent))
    assert {"chain-itself", "needs-approval"} <= set(notes(page))
    assert not organization.executions.exists()


@pytest.mark.usefixtures("committed")
def test_a_run_is_watched_step_by_step(
    admin_client: Client, organization: Organization, crib: object
) -> None:
    with stopped(crib):
        save(admin_client, CHAIN.replace("{$step: first, path: /output/text}", "{$input: /text}"))
        agent = factories.agent(organization, groups=["talk"])
        run = factories.execution(agent, "twice", group=["talk"], text="hello")
        perform(run.pk)
        page = text(admin_client.get(f"/executions/{run.pk}/"))
        assert 'data-kind="step" data-status="Running"' in page
        work_off(organization)
        page = text(admin_client.get(f"/executions/{run.pk}/"))
        assert page.count('data-kind="step" data-status="Success"') == 2
