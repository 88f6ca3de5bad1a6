"""Waiting for an execution does not poll the database, and ends when the client disconnects."""

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from config.http import request_queue
from config.http.request_queue import RequestSlot
from tests import factories
from tools.execution import answer, events
from tools.models import Agent, Execution, Organization


@pytest.mark.usefixtures("without_workers")
def test_a_wait_reads_the_execution_at_its_start_and_at_its_timeout(
    organization: Organization, agent: Agent
) -> None:
    factories.tool(organization)
    execution = factories.execution(agent, text="x")
    with CaptureQueriesContext(connection) as asked:
        found = answer.wait_for(execution, 0.2)
    assert found.status == "Pending"
    assert sum("tools_execution" in one["sql"] for one in asked) == 2


@pytest.fixture
def request_turn() -> Iterator[RequestSlot]:
    """The turn of a request that this thread serves."""
    turn = RequestSlot(lambda: None)
    mark = request_queue.current_slot.set(turn)
    yield turn
    request_queue.current_slot.reset(mark)


@pytest.mark.usefixtures("without_workers")
def test_a_wait_ends_when_its_client_disconnects_and_the_execution_goes_on(
    organization: Organization, agent: Agent, request_turn: RequestSlot
) -> None:
    factories.tool(organization)
    execution = factories.execution(agent, text="x")
    request_turn.watch = request_turn.disconnect
    assert answer.wait_for(execution, 1e6).status == "Pending"


@pytest.mark.usefixtures("without_workers")
def test_a_call_of_a_client_that_disconnects_is_made_and_not_waited_for(
    organization: Organization, agent: Agent, request_turn: RequestSlot
) -> None:
    factories.tool(organization)
    request_turn.disconnect()
    call = factories.call("echo", {"text": "x"})
    found = answer.execute(caller=factories.caller(agent), call=call, wait_s=1e6)
    assert Execution.objects.get(pk=found.pk).status == "Pending"


@pytest.mark.usefixtures("without_workers")
def test_what_follows_an_execution_ends_when_its_reader_disconnects(
    organization: Organization, agent: Agent, request_turn: RequestSlot
) -> None:
    factories.tool(organization)
    execution = factories.execution(agent, text="x")
    request_turn.watch = request_turn.disconnect
    assert [*events.follow_events(execution.pk, 0)] == []
