"""Waiting for an execution to end does not poll the database."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests import factories
from tools.execution import actions
from tools.models import Agent, Organization


@pytest.mark.usefixtures("alone")
def test_a_wait_reads_the_execution_at_its_start_and_at_its_timeout(
    organization: Organization, agent: Agent
) -> None:
    factories.tool(organization)
    execution = factories.execution(agent, text="x")
    with CaptureQueriesContext(connection) as asked:
        found = actions.wait_for(execution, 0.2)
    assert found.status == "Pending"
    assert sum("tools_execution" in one["sql"] for one in asked) == 2
