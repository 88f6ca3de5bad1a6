"""The page of a composite call: the calls that it made, and the way there and back."""

import pytest
from django.test import Client

from tests import factories
from tests.tools.execution.in_process_worker import calls_of, work_off
from tests.ui.pages import notes, text
from tools.execution.perform import perform
from tools.models import Execution

pytestmark = pytest.mark.usefixtures("without_workers")


@pytest.fixture
def batch(organization):
    factories.install(organization)
    factories.tool(organization)
    agent = factories.agent(organization, groups=["default", "composition"])
    inputs = [
        {"tool_name": name, "parameters": {"text": "x"}} for name in ("echo", "ghost-tool", "echo")
    ]
    return factories.execution(agent, "run_batch", group=["composition", "default"], inputs=inputs)


def page(client: Client, execution: Execution) -> str:
    return text(client.get(f"/executions/{execution.pk}/"))


def test_it_lists_its_calls_with_those_that_could_not_be_made(admin_client, batch, organization):
    work_off(organization)
    shown = page(admin_client, batch)
    for call in calls_of(batch):
        assert f'href="/executions/{call.pk}/"' in shown
    assert "2 Success" in shown and "ghost-tool" in shown and "not-made" in notes(shown)


def test_a_call_names_what_it_is_part_of(admin_client, batch, organization):
    work_off(organization)
    shown = page(admin_client, calls_of(batch).first())
    assert f'href="/executions/{batch.pk}/"' in shown and "<code>0</code>" in shown


def test_what_waits_for_its_calls_is_running(admin_client, batch):
    perform(batch.pk)
    shown = page(admin_client, batch)
    assert 'data-status="Running">Running' in shown
    assert "awaits-its-calls" in notes(shown)


def test_the_page_looks_again_when_one_of_its_calls_is_over(admin_client, batch):
    perform(batch.pk)
    address = f"/executions/{batch.pk}/"
    seen = admin_client.get(address).context["shown"]["seen"]
    still = admin_client.get(f"{address}?seen={seen}", headers={"HX-Request": "true"})
    assert still.status_code == 204
    perform(calls_of(batch).get().pk)
    moved = admin_client.get(f"{address}?seen={seen}", headers={"HX-Request": "true"})
    assert moved.status_code == 200


def test_the_list_can_be_of_one_calls_own(admin_client, batch, organization):
    factories.execution(factories.agent(organization, groups=["default"]))
    work_off(organization)
    shown = text(admin_client.get(f"/executions/?within={batch.pk}"))
    assert shown.count('<tr id="row-') == 2 and "run_batch" in notes(shown)["within"][0]
    assert '<tr id="row-' not in text(admin_client.get("/executions/?within=nonsense"))


def test_a_list_of_what_runs_holds_what_waits_for_its_calls(admin_client, batch):
    perform(batch.pk)
    assert f"row-{batch.pk}" in text(admin_client.get("/executions/?status=Running"))
    assert f"row-{batch.pk}" not in text(admin_client.get("/executions/?status=Pending"))
