"""`/agent/requests/<id>/`: what is shown of a request, to whom, and what may be done with it."""

import html
from typing import Any

import pytest
from django.test import Client

from audit.models import AuditRecord
from tests import agent_runs, factories
from tests.tools.approval_requests import call_awaiting_approval
from tests.ui.conftest import Grant
from tests.ui.pages import htmx, inline_code, notes, text
from tools.accounts.callers import caller_of_user
from tools.definitions.results import Status
from tools.models import Agent, Execution, Organization, User
from tools.ui.agents.agent_requests import ADVICE
from tools.ui.agents.agent_steps import MOST_OBSERVATION

pytestmark = pytest.mark.usefixtures("has_a_model")
HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)> Pay\u202eecila\u200b'


def page_of(client: Client, run: Execution, query: str = "") -> str:
    response = client.get(f"/agent/requests/{run.pk}/{query}")
    assert response.status_code == 200 and inline_code(response) == []
    return text(response)


# --- what is shown --------------------------------------------------------------


def test_the_answer_stands_above_the_steps(admin_client: Client, run: Execution) -> None:
    page = html.unescape(page_of(admin_client, run))
    assert page.index("There is x.") < page.index("I look first.")
    act = Execution.objects.get(parent=run, place="act/1")
    assert f'href="/executions/{act.pk}/"' in page and '{"echo": {"text": "x"}}' in page
    spent = " ".join(notes(page)["spent"]).split()
    assert {"2", "10", "1,920", "100,000"} <= set(spent)
    assert "960" in notes(page)["step-spent"][0]
    assert "data-live=" not in page and 'id="cancel"' not in page


def test_what_is_open_follows_by_itself(admin_client: Client, agent: Agent) -> None:
    run = agent_runs.claim_agent_run(agent_runs.request_run_by_agent(agent))
    part = text(admin_client.get(f"/agent/requests/{run.pk}/", headers=htmx("moving")))
    assert f'data-live="{run.pk}" data-every="1"' in part and "asks-model" in notes(part)
    seen = part.partition("seen=")[2].partition('"')[0]
    again = f"/agent/requests/{run.pk}/?seen={seen}"
    assert admin_client.get(again, headers=htmx("moving")).status_code == 204
    agent_runs.thought(run, 1, "I look first.", ("echo", {"text": "x"}))
    changed = text(admin_client.get(again, headers=htmx("moving")))
    assert "I look first." in changed and "<html" not in changed


def test_a_request_that_no_worker_has_begun_says_so(admin_client: Client, agent: Agent) -> None:
    page = page_of(admin_client, agent_runs.request_run_by_agent(agent))
    assert "awaits-worker" in notes(page)


def test_an_action_that_waits_for_a_person_leads_to_its_confirmation(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization, "risky", requires_confirmation=True)
    agent = factories.agent(organization)
    waiting = call_awaiting_approval(agent, "risky")
    run = agent_runs.claim_agent_run(agent_runs.request_run_by_agent(agent))
    agent_runs.thought(run, 1, "I must.", ("risky", {"text": "x"}))
    Execution.objects.filter(pk=waiting.execution_id).update(parent=run, place="act/1", depth=1)
    page = page_of(admin_client, run)
    assert "action-awaits-approval" in notes(page)
    assert f'href="/confirmations/{waiting.pk}/"' in page


def test_what_failed_says_what_to_do(admin_client: Client, agent: Agent) -> None:
    run = agent_runs.end_agent_run(
        agent_runs.claim_agent_run(agent_runs.request_run_by_agent(agent, max_tokens=900)),
        Status.FAILED,
        error_code="TOKENS_SPENT", error_message="It used its 900 tokens without an answer.",
    )  # fmt: skip
    page = page_of(admin_client, run)
    assert "TOKENS_SPENT" in page and notes(page)["to-do"] == [ADVICE["TOKENS_SPENT"]]


def test_a_cut_answer_has_its_warning_beside_it(admin_client: Client, agent: Agent) -> None:
    run = agent_runs.claim_agent_run(agent_runs.request_run_by_agent(agent))
    agent_runs.thought(run, 1, "It is no", answer="It is no", warnings=["The reply was cut."])
    report = {"answer": "It is no", "session": None, "state": "undefined", "iterations": 1}
    run = agent_runs.end_agent_run(
        run, output=report | {"tokens": {"input": 1, "output": 1}, "cost": "0"}
    )
    said = notes(page_of(admin_client, run))
    assert said["answer-warning"] == said["step-warning"] == ["The reply was cut."]


def test_calls_of_a_turn_that_were_not_made_are_named(admin_client: Client, agent: Agent) -> None:
    run = agent_runs.claim_agent_run(agent_runs.request_run_by_agent(agent))
    further = [{"id": f"c{at}", "name": f"re\u200bad_{at}", "arguments": "{}"} for at in (1, 2)]
    agent_runs.thought(run, 1, "", ("echo", {"text": "x"}), further_actions=further)
    page = page_of(admin_client, run)
    assert notes(page)["further-actions"][0].endswith("reU+200Bad_1, reU+200Bad_2")
    assert "answer-warning" not in notes(page)


def test_a_reply_that_was_no_use_is_shown_as_one(admin_client: Client, agent: Agent) -> None:
    run = agent_runs.claim_agent_run(agent_runs.request_run_by_agent(agent))
    agent_runs.thought(run, 1, flaw="An Action without Arguments.", text="Action: echo")
    page = page_of(admin_client, run)
    assert "unusable-reply" in notes(page) and "An Action without Arguments." in page
    assert "Action: echo" in page


def test_a_long_observation_is_folded(admin_client: Client, agent: Agent) -> None:
    run = agent_runs.claim_agent_run(agent_runs.request_run_by_agent(agent))
    agent_runs.thought(run, 1, "I read.", ("echo", {}))
    agent_runs.acted(run, 1, "echo", {}, observed="line\n" * 3000)
    page = page_of(admin_client, run)
    more = f"{3000 * len('line\n') - MOST_OBSERVATION:,}"
    assert '<details class="seen">' in page and more in page
    assert len(page) < 60_000


def test_what_others_wrote_stays_data(
    admin_client: Client, organization: Organization, agent: Agent
) -> None:
    factories.tool(organization)
    run = agent_runs.claim_agent_run(agent_runs.request_run_by_agent(agent, HOSTILE))
    agent_runs.thought(run, 1, HOSTILE, ("echo", {"text": HOSTILE}))
    agent_runs.acted(run, 1, "echo", {"text": HOSTILE}, observed=HOSTILE)
    agent_runs.thought(run, 2, "x", (HOSTILE, {HOSTILE: 1}))
    agent_runs.answered(run, HOSTILE)
    page = page_of(admin_client, run)
    assert "<script>alert" not in page and "<img src=x" not in page
    assert page.count('title="RIGHT-TO-LEFT OVERRIDE"') >= 5
    assert "\u202e" not in page and 'title="ZERO WIDTH SPACE"' in page


def test_secrets_are_taken_out_of_each_part(admin_client: Client, agent: Agent) -> None:
    secret = "sk-abcdefghijklmnopqrstuvwxyz"
    run = agent_runs.claim_agent_run(agent_runs.request_run_by_agent(agent, f"Use {secret}"))
    agent_runs.thought(run, 1, f"I use {secret}", ("echo", {"api_key": "hidden-value"}))
    agent_runs.acted(run, 1, "echo", {"api_key": "hidden-value"}, observed=f'{{"a": "{secret}"}}')
    agent_runs.answered(run, f"It was {secret}")
    page = page_of(admin_client, run)
    assert secret not in page and "hidden-value" not in page and "[redacted" in page


def test_what_was_refused_for_its_parameters_can_be_looked_at(
    admin_client: Client, agent: Agent
) -> None:
    run = agent_runs.request_run_by_agent(agent)
    wrong = {
        "question": 7,
        "max_iterations": "many",
        "max_cost": "NaN",
        "replays": [1],
        "model": {},
    }
    Execution.objects.filter(pk=run.pk).update(parameters=wrong | {"pattern": []})
    assert "10" in notes(page_of(admin_client, run))["spent"][0].split()
    assert admin_client.get("/agent/requests/").status_code == 200


def test_many_steps_are_read_with_as_many_questions(
    admin_client: Client, agent: Agent, django_assert_max_num_queries: Any
) -> None:
    run = agent_runs.claim_agent_run(agent_runs.request_run_by_agent(agent))
    for number in range(1, 13):
        agent_runs.thought(run, number, "On.", ("echo", {}))
        agent_runs.acted(run, number, "echo", {})
    page_of(admin_client, run)  # the catalog is known from then on
    with django_assert_max_num_queries(14):
        page_of(admin_client, run)


# --- who ------------------------------------------------------------------------


def test_an_execution_of_another_tool_is_no_request(
    admin_client: Client, agent: Agent, organization: Organization
) -> None:
    factories.tool(organization)
    other = factories.execution(agent)
    assert admin_client.get(f"/agent/requests/{other.pk}/").status_code == 404


def test_who_only_looks_cancels_nothing(client_of: Grant, agent: Agent) -> None:
    run = agent_runs.request_run_by_agent(agent)
    client = client_of("tools.view_execution")
    assert 'id="cancel"' not in page_of(client, run)
    assert client.post(f"/agent/requests/{run.pk}/cancel").status_code == 403
    assert Execution.objects.get(pk=run.pk).status == Status.PENDING


def test_who_asked_may_cancel_and_evidence_says_so(client_of: Grant, person: User) -> None:
    run = agent_runs.request_agent_run(caller_of_user(person))
    client = client_of()
    assert 'id="cancel"' in page_of(client, run)
    response = client.post(f"/agent/requests/{run.pk}/cancel")
    assert response["Location"] == f"/agent/requests/{run.pk}/"
    assert Execution.objects.get(pk=run.pk).status == Status.CANCELLED
    record = AuditRecord.objects.get(execution_id=run.pk, code="TOOL.CANCEL")
    assert record.actor == person.username


def test_what_is_over_is_not_cancelled(admin_client: Client, run: Execution) -> None:
    response = admin_client.post(f"/agent/requests/{run.pk}/cancel", follow=True)
    assert response.status_code == 200 and 'data-tone="bad"' in text(response)


def test_who_may_not_act_as_the_agent_is_offered_no_way_on(
    client_of: Grant, run: Execution
) -> None:
    assert 'name="continues"' not in page_of(client_of("tools.view_execution"), run)
    assert run.agent is not None
    page = page_of(client_of("tools.view_execution", "tools.impersonate_agent"), run)
    assert 'name="continues"' in page and f'name="as" value="{run.agent.slug}"' in page


# --- again ------------------------------------------------------------------------


def test_the_same_over_rest_is_a_command(admin_client: Client, agent: Agent) -> None:
    run = agent_runs.request_run_by_agent(agent, "Which?", group=["default"], max_iterations=3)
    page = html.unescape(page_of(admin_client, run))
    assert "/api/v1/agent/requests" in page and '"max_iterations": 3' in page
    assert '"group": ["default"]' in page and "$TOOLCRIB_TOKEN" in page


def test_a_replay_marks_where_it_differs(admin_client: Client, run: Execution) -> None:
    assert run.agent is not None
    replay = agent_runs.claim_agent_run(
        agent_runs.request_run_by_agent(run.agent, replays=str(run.pk))
    )
    agent_runs.thought(replay, 1, "Otherwise.", ("echo", {"text": "other"}))
    agent_runs.answered(replay, "There is y.")
    page = page_of(admin_client, replay)
    (differs,) = notes(page)["differs"]
    assert "echo" not in differs and "as-recorded" in notes(page)
    assert "There is x." in page and 'data-kind="added">+There is y.' in page
    assert f'href="/agent/requests/{run.pk}/"' in page


def test_an_execution_leads_to_its_request(admin_client: Client, run: Execution) -> None:
    at = f'href="/agent/requests/{run.pk}/"'
    act = Execution.objects.get(parent=run, place="act/1")
    assert at in text(admin_client.get(f"/executions/{run.pk}/"))
    assert at in text(admin_client.get(f"/executions/{act.pk}/"))
    assert run.agent is not None
    page = text(admin_client.get(f"/agents/{run.agent.slug}/"))
    assert f'href="/agent/requests/?agent={run.agent.slug}"' in page
