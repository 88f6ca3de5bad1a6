"""Fallbacks: the alternative tools that a refusal names."""

import pytest

from tests import factories
from tests.api import Api
from tools.catalog.actions import find_tool, set_enabled
from tools.models import Execution

ALIKE = {"description": "Sums up a table of numbers.", "capabilities": ["table"]}


def disable(organization, name):
    tool = find_tool(organization, name)
    set_enabled(tool=tool, enabled=False, by=factories.actor(organization))


@pytest.fixture
def _tables(organization):
    factories.tool(organization, "sum_table", **ALIKE)
    factories.tool(organization, "sum_later", available_in_states=["done"], **ALIKE)
    factories.tool(organization, "sum_hidden", group=["admin"], **ALIKE)
    factories.tool(organization, "mailer", description="Sends a message.", category="Communication")


def alternatives(response):
    assert response.status_code == 403, response.content
    return response.json()["details"].get("alternatives")


@pytest.mark.usefixtures("_tables")
@pytest.mark.parametrize("name", ["sum_later", "sum_hidden"])
def test_a_tool_of_another_state_or_group_is_replaced_by_one_of_these(api, name):
    assert alternatives(api.execute(name, {"text": "x"})) == ["sum_table"]


@pytest.mark.usefixtures("_tables")
def test_a_disabled_tool_is_replaced(api, organization):
    factories.tool(organization, "sum_other", **ALIKE)
    disable(organization, "sum_other")
    refused = api.execute("sum_other", {"text": "x"})
    assert refused.json()["code"] == "tool_disabled"
    assert alternatives(refused) == ["sum_table"]


@pytest.mark.usefixtures("_tables")
def test_what_was_offered_is_kept_with_the_refusal(api):
    refused = api.execute("sum_later", {"text": "x"})
    kept = Execution.objects.get(pk=refused.json()["execution_id"])
    assert kept.error_details["alternatives"] == ["sum_table"]


@pytest.mark.usefixtures("_tables")
def test_nothing_out_of_service_out_of_reach_or_unlike_is_named(api, organization):
    disable(organization, "sum_table")
    assert alternatives(api.execute("sum_later", {"text": "x"})) is None
    assert alternatives(api.execute("sum_later", {"text": "x"}, group=[])) is None


@pytest.mark.usefixtures("_tables")
@pytest.mark.parametrize("tools", [["sum_later", "mailer"], ["sum_table"]])
def test_who_was_not_granted_both_the_tool_and_the_other_is_offered_nothing(organization, tools):
    agent = factories.agent(organization, groups=["default"], tools=tools)
    api = Api(factories.token(agent.service_account))
    assert alternatives(api.execute("sum_later", {"text": "x"})) is None


def test_at_most_three_are_named_and_all_of_them_can_be_called(api, organization):
    factories.tool(organization, "sum_later", available_in_states=["done"], **ALIKE)
    for number in range(6):
        factories.tool(organization, f"sum_{number}", **ALIKE)
    named = alternatives(api.execute("sum_later", {"text": "x"}))
    assert len(named) == 3
    assert set(named) <= {tool["name"] for tool in api.get("/tools").json()["results"]}


def test_a_refusal_for_another_reason_offers_nothing(api, organization):
    factories.tool(organization, "sum_table", **ALIKE)
    factories.tool(organization, "sum_risky", required_permissions=["tool.risky"], **ALIKE)
    assert alternatives(api.execute("sum_risky", {"text": "x"})) is None
