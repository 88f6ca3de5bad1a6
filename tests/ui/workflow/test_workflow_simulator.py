"""A walk through the states: what can be called, why not, one step on and one back."""

import pytest
from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.ui.conftest import Grant
from tests.ui.pages import inline_code, notes, text
from tools.models import Agent, Execution, Organization

WALK = "/workflow/walk/"


@pytest.fixture(autouse=True)
def bot(organization: Organization) -> Agent:
    factories.tool(organization, "begin", group=["flow"], state="busy")
    factories.tool(organization, "finish", group=["flow"], available_in_states=["busy"])
    factories.tool(organization, "other", group=["elsewhere"])
    return factories.agent(organization, "bot", groups=["flow"])


def names(response: object) -> list[str]:
    return [one["tool"].name for one in response.context["open"]]  # type: ignore[attr-defined]


def test_what_leads_on_comes_first_and_what_is_refused_says_why(admin_client: Client) -> None:
    response = admin_client.get(f"{WALK}?agent=bot")
    assert names(response) == ["begin"] and notes(response)["leads-to"] == ["busy"]
    shut = {one["tool"].name: one["reason"] for one in response.context["shut"]}
    assert "undefined" in shut["finish"] and "busy" in shut["finish"]  # the states
    assert "elsewhere" in shut["other"]  # its group
    assert inline_code(response) == []


def test_a_step_leads_to_the_next_state_and_back(admin_client: Client) -> None:
    first = admin_client.get(f"{WALK}?agent=bot")
    taken = admin_client.get(first.context["open"][0]["address"])
    assert taken.context["simulation"].state == "busy" and "finish" in names(taken)
    assert taken.context["back"] == f"{WALK}?agent=bot"
    assert "busy" in text(taken) and 'data-here="true"' in text(taken)


def test_a_walk_that_cannot_be_made_ends_at_the_first_refusal(admin_client: Client) -> None:
    response = admin_client.get(f"{WALK}?agent=bot&step=finish&step=begin")
    walk = response.context["simulation"]
    assert walk.stopped and len(walk.steps) == 1 and walk.state == "undefined"
    assert notes(response)["refusal"] == [walk.steps[0].refusal]
    assert {one["address"] for one in response.context["open"]} == {""}


def test_a_start_and_groups_in_the_address_are_walked_from(admin_client: Client) -> None:
    response = admin_client.get(f"{WALK}?agent=bot&groups=flow&start=busy")
    assert response.context["simulation"].state == "busy" and "finish" in names(response)


def test_groups_that_were_not_granted_refuse_it_all(admin_client: Client) -> None:
    response = admin_client.get(f"{WALK}?agent=bot&groups=elsewhere")
    assert names(response) == [] and "request-refused" in notes(response)


def test_nothing_runs_and_nothing_is_written(
    admin_client: Client, organization: Organization
) -> None:
    written = AuditRecord.objects.filter(organization=organization.slug).count()
    admin_client.get(f"{WALK}?agent=bot&step=begin&step=finish")
    assert not Execution.objects.filter(organization=organization).exists()
    assert AuditRecord.objects.filter(organization=organization.slug).count() == written
    assert admin_client.post(WALK).status_code == 405


def test_another_is_walked_as_by_who_may_look_at_agents_alone(client_of: Grant) -> None:
    assert client_of().get(f"{WALK}?agent=bot").status_code == 403
    assert client_of().get(WALK).status_code == 200
    assert (
        client_of("tools.view_agent", "tools.view_tool").get(f"{WALK}?agent=bot").status_code == 200
    )


def test_a_tool_that_one_may_not_know_is_not_there(client_of: Grant) -> None:
    response = client_of().get(f"{WALK}?step=finish")
    assert response.context["simulation"].steps[0].refusal == "There is no such tool here."
    assert response.context["drawing"] is None and "elsewhere" not in text(response)


def test_more_steps_cost_no_more_queries(
    admin_client: Client, django_assert_max_num_queries: object
) -> None:
    admin_client.get(f"{WALK}?agent=bot")
    with django_assert_max_num_queries(25):  # type: ignore[operator]
        admin_client.get(f"{WALK}?agent=bot" + "&step=begin" * 60)


ODD = pytest.mark.part("matrices")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        pytest.param("start=%01&groups=%01", 200, marks=ODD),
        pytest.param("yes=x&no=-1", 200, marks=ODD),
        ("step=" + "x" * 900, 200),
        pytest.param("q=%01", 200, marks=ODD),
        pytest.param("start=" + "s" * 900, 200, marks=ODD),
        ("agent=%01", 404),
        ("agent=nobody", 404),
        ("agent=" + "x" * 900, 404),
    ],
)
def test_nothing_odd_is_an_error_of_ours(admin_client: Client, query: str, status: int) -> None:
    assert admin_client.get(f"{WALK}?{query}").status_code == status
