"""`/agent/requests/new/`: impersonation, the submitted request, and errors at their fields."""

from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from audit.models import AuditRecord
from tests import agent_runs, factories
from tests.ui.conftest import Grant
from tests.ui.pages import fields, htmx, inline_code, notes, text
from tools.accounts.callers import caller_of_user
from tools.catalog.actions import find_tool, set_enabled
from tools.models import Agent, Execution, Organization, Session, User

pytestmark = pytest.mark.usefixtures("has_a_model")
NEW = "/agent/requests/new/"
IMPERSONATES = ("tools.impersonate_agent", "tools.view_execution")
NOBODYS = "8b8bd564-0590-489a-a584-20670118ad41"


def form_values(**more: Any) -> dict[str, Any]:
    usual = {"question": "Which files are there?", "group": "default", "state": "undefined"}
    return {"pattern": "react", "model": "", "session": ""} | usual | more


def latest_run(organization: Organization) -> Execution:
    return Execution.objects.filter(organization=organization, tool_name="run_agent").latest("pk")


def none_made(organization: Organization) -> bool:
    return not Execution.objects.filter(organization=organization).exists()


# --- what is asked --------------------------------------------------------------


def test_a_question_becomes_a_request_with_its_evidence(
    admin_client: Client, admin_user: User, organization: Organization
) -> None:
    bounds = {"max_iterations": "4", "max_tokens": "5000", "max_cost": "1.5", "timeout_s": "60"}
    response = admin_client.post(NEW, form_values(group=["default", "read-only"], **bounds))
    run = latest_run(organization)
    assert response["Location"] == f"/agent/requests/{run.pk}/"
    assert run.user == admin_user and run.requested_groups == ["default", "read-only"]
    assert run.timeout_s == 60.0 and run.parameters["max_cost"] == "1.5"
    assert (run.parameters["max_iterations"], run.parameters["max_tokens"]) == (4, 5000)
    record = AuditRecord.objects.get(execution_id=run.pk, code="TOOL.ACCEPT")
    assert record.actor == admin_user.username


def test_a_question_that_is_sent_twice_is_asked_once(
    admin_client: Client, organization: Organization
) -> None:
    sent = form_values(one_time_key="a" * 22)
    addresses = [admin_client.post(NEW, sent)["Location"] for _ in range(2)]
    run = Execution.objects.get(organization=organization, tool_name="run_agent")
    assert addresses == [f"/agent/requests/{run.pk}/"] * 2


def test_the_form_alone_is_enough(admin_client: Client, organization: Organization) -> None:
    form = fields(text(admin_client.get(NEW)))
    response = admin_client.post(NEW, form | {"question": "What is there?"})
    assert response.status_code == 302 and latest_run(organization).requested_groups == ["default"]


def test_a_plan_has_its_threshold_and_its_model(
    admin_client: Client, organization: Organization
) -> None:
    admin_client.post(NEW, form_values(pattern="plan", confidence="0.85", model="another"))
    asked = latest_run(organization).parameters
    assert (asked["pattern"], asked["confidence"], asked["model"]) == ("plan", 0.85, "another")
    assert "shared_with" not in asked


def test_a_request_is_shared_with_agents_by_their_names(
    admin_client: Client, organization: Organization
) -> None:
    admin_client.post(NEW, form_values(shared_with=" scout, ,writer,"))
    assert latest_run(organization).parameters["shared_with"] == ["scout", "writer"]


def test_a_request_in_a_session_names_no_groups(
    client_of: Grant, person: User, organization: Organization
) -> None:
    session = Session.objects.create(
        organization=organization, user=person, groups=["default"], state="undefined"
    )
    client = client_of()
    assert str(session.pk) in text(client.get(NEW))
    client.post(NEW, form_values(session=str(session.pk)))
    assert latest_run(organization).session == session


# --- as whom --------------------------------------------------------------------


def test_a_request_as_an_agent_is_the_agents(
    client_of: Grant, person: User, agent: Agent, organization: Organization
) -> None:
    client_of(*IMPERSONATES).post(NEW, form_values(**{"as": agent.slug}))
    run = latest_run(organization)
    assert run.agent == agent and run.made_by == person
    record = AuditRecord.objects.get(execution_id=run.pk, code="TOOL.ACCEPT")
    assert record.actor == agent.slug
    assert record.details["made_by"] == f"person:{person.username}"


@pytest.mark.parametrize("method", ["get", "post"])
def test_an_agent_that_is_not_ones_is_not_there(
    client_of: Grant, agent: Agent, organization: Organization, method: str
) -> None:
    theirs = factories.agent(factories.organization(f"org-{uuid4().hex[:12]}"), "theirs")
    client = client_of("tools.view_execution")
    for slug in (agent.slug, theirs.slug, "nobody"):
        answer = getattr(client, method)(NEW, form_values(**{"as": slug}))
        assert answer.status_code == 404
    assert agent.slug not in text(client.get(NEW)) and none_made(organization)


def test_another_caller_brings_its_groups_and_keeps_the_question(
    client_of: Grant, organization: Organization
) -> None:
    other = factories.agent(organization, groups=["default", "knowledge"])
    page = text(client_of(*IMPERSONATES).post(NEW, form_values(**{"as": other.slug, "do": "as"})))
    assert 'value="knowledge"' in page and "Which files are there?" in page
    assert none_made(organization)


def test_a_group_that_is_not_granted_lends_nothing(
    client_of: Grant, organization: Organization
) -> None:
    factories.tool(organization, "hidden_joke", group=["hidden"])
    page = text(client_of().post(NEW, form_values(group="hidden", do="preview")))
    assert "hidden_joke" not in page and "no-tools" in notes(page)


# --- what is wrong --------------------------------------------------------------


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("question", "  ", ""), ("question", "x" * 20_001, "20,000"),
        ("max_iterations", "51", "50"), ("max_iterations", "9" * 5000, "50"),
        ("max_tokens", "-1", "2,000,000"), ("max_tokens", "١٢", "2,000,000"),
        ("timeout_s", "1e9", ""), ("max_cost", "NaN", ""),
        ("confidence", "1.2", "0"), ("pattern", "magic", ""),
        ("shared_with", "a," * 21, "20"), ("shared_with", "a" * 64, "63"),
        ("model", "gpt\x01", ""), ("session", NOBODYS, ""),
    ],
)  # fmt: skip
def test_an_error_is_shown_at_its_field_and_no_value_is_lost(
    admin_client: Client, organization: Organization, name: str, value: str, says: str
) -> None:
    sent = form_values(group=["default", "write"], state="kept-state") | {name: value}
    response = admin_client.post(NEW, sent)
    page = text(response)
    assert response.status_code == 400 and inline_code(response) == []
    (flaw,) = notes(page)[f"flaw-{name}"]
    assert says in flaw and 'aria-invalid="true"' in page and "not-asked" in notes(page)
    assert 'value="kept-state"' in page and 'value="write" checked' in page
    assert none_made(organization)


def test_nonsense_is_no_fault_of_ours(admin_client: Client) -> None:
    for sent in ({}, {"nonsense": "1"}, form_values(state="\x01" * 300, group=["\x01"] * 200),
                 form_values(other_group="x" * 5000)):  # fmt: skip
        assert admin_client.post(NEW, sent).status_code < 500
    for query in ("continues=x", f"replays={uuid4()}"):
        assert admin_client.get(f"{NEW}?{query}").status_code == 404


def test_without_a_model_the_form_says_what_to_do(
    admin_client: Client, organization: Organization, settings: Any
) -> None:
    settings.LLM_BASE_URL = ""
    page = text(admin_client.get(NEW))
    assert "LLM_BASE_URL" in notes(page)["no-model"][0]
    answer = text(admin_client.post(NEW, form_values()))
    assert "not-asked-without-model" in notes(answer) and "Which files are there?" in answer
    assert none_made(organization)


def test_a_refusal_keeps_the_form(
    client_of: Grant, person: User, organization: Organization
) -> None:
    tool = find_tool(organization, "run_agent")
    set_enabled(tool=tool, enabled=False, by=factories.actor(organization))
    response = client_of().post(NEW, form_values())
    assert response.status_code >= 400 and "Which files are there?" in text(response)


# --- which tools it would have -----------------------------------------------------


def test_the_preview_shows_what_the_filter_leaves(
    admin_client: Client, organization: Organization
) -> None:
    factories.tool(organization, "desk_joke", group=["desk"])
    factories.tool(organization, "later_joke", group=["desk"], available_in_states=["later"])
    sent = form_values(group="desk", do="preview", question="")
    page = text(admin_client.post(NEW, sent, headers=htmx("toolbox")))
    assert "desk_joke" in page and "later_joke" not in page and "<html" not in page
    later = text(admin_client.post(NEW, sent | {"state": "later"}))
    assert "later_joke" in later and "<html" in later and none_made(organization)


def test_the_preview_does_not_grow_with_the_catalog(
    admin_client: Client, organization: Organization, django_assert_max_num_queries: Any
) -> None:
    for number in range(5):
        factories.tool(organization, f"joke_{number}")
    admin_client.get(NEW)  # the catalog is known from then on
    with django_assert_max_num_queries(14):
        admin_client.get(NEW)


# --- going on, and again ------------------------------------------------------------


def test_one_goes_on_from_a_request_in_its_groups(
    client_of: Grant, person: User, organization: Organization
) -> None:
    factories.tool(organization)
    client = client_of(granted_groups=["default"])
    before = agent_runs.answered(agent_runs.claim_agent_run(agent_runs.request_agent_run(
        caller_of_user(person), group=["default"])), "x")  # fmt: skip
    sent = {"continues": str(before.pk), "question": "And then?", "as": ""}
    assert client.post(NEW, sent).status_code == 302
    run = latest_run(organization)
    assert run.parameters["continues"] == str(before.pk) and run.requested_groups == ["default"]


def test_a_replay_keeps_the_question_and_takes_another_model(
    client_of: Grant, person: User, organization: Organization
) -> None:
    before = agent_runs.answered(
        agent_runs.claim_agent_run(
            agent_runs.request_agent_run(caller_of_user(person), max_iterations=7)
        ),
        "x",
    )
    sent = {"replays": str(before.pk), "model": "another", "as": ""}
    assert client_of().post(NEW, sent).status_code == 302
    asked = latest_run(organization).parameters
    assert asked["replays"] == str(before.pk) and asked["model"] == "another"
    assert asked["question"] == "What is there to read?" and asked["max_iterations"] == 7


@pytest.mark.parametrize("kind", ["continues", "replays"])
def test_another_organizations_request_is_not_there(
    admin_client: Client, organization: Organization, kind: str
) -> None:
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    theirs = agent_runs.request_run_by_agent(factories.agent(other))
    sent = form_values(**{kind: str(theirs.pk)})
    assert admin_client.post(NEW, sent).status_code == 404
    assert admin_client.get(f"{NEW}?{kind}={theirs.pk}").status_code == 404
    assert none_made(organization)


def test_who_has_not_the_same_rights_does_not_go_on(
    client_of: Grant, agent: Agent, organization: Organization
) -> None:
    before = agent_runs.answered(
        agent_runs.claim_agent_run(agent_runs.request_run_by_agent(agent, group=["write"])), "x"
    )
    response = client_of("tools.view_execution").post(
        NEW, {"continues": str(before.pk), "question": "And then?"}
    )
    assert response.status_code == 403 and "not_the_same_rights" in text(response)
    assert latest_run(organization) == before
