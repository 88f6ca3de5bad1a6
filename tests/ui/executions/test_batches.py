"""`/batches/`: many calls at once, one of them with its inputs, and runs of chains."""

import re

import pytest
from django.test import Client

from audit.events import Event
from audit.models import AuditRecord
from tests import factories
from tests.tools.execution.in_process_worker import calls_of, work_off
from tests.ui.pages import codes, htmx, inline_code, notes, text
from tools.execution.perform import perform
from tools.models import Execution, Organization

pytestmark = pytest.mark.usefixtures("without_workers")
CANCEL_ALL = 'name="do" value="all"'
CHAIN = {
    "name": "relay", "type": "chain", "description": "Says it once more.",
    "parameters": [
        {"name": "text", "type": "String", "description": "Anything.", "required": True},
    ],
    "implementation": {"chain": {"steps": [
        {"id": "say", "tool_name": "echo", "parameters": {"text": "x"}},
    ]}},
}  # fmt: skip


@pytest.fixture
def batch(organization: Organization) -> Execution:
    factories.install(organization)
    factories.tool(organization)
    agent = factories.agent(organization, "many", groups=["default", "composition"])
    inputs = [
        {"tool_name": name, "parameters": {"text": "x"}} for name in ("echo", "ghost-tool", "echo")
    ]
    return factories.execution(agent, "run_batch", group=["composition", "default"], inputs=inputs)


def page_of(client: Client, batch: Execution, query: str = "") -> str:
    response = client.get(f"/batches/{batch.pk}/{query}")
    assert response.status_code == 200 and inline_code(response) == []
    return text(response)


def test_the_list_leads_to_each_with_its_calls(
    admin_client: Client, batch: Execution, organization: Organization
) -> None:
    work_off(organization)
    page = text(admin_client.get("/batches/"))
    assert f'href="/batches/{batch.pk}/"' in page and "2 Success" in page
    assert f"/batches/{calls_of(batch)[0].pk}/" not in page
    assert "nothing-older" in notes(admin_client.get(f"/batches/?before={batch.pk}"))


def test_one_shows_each_input_and_what_became_of_it(
    admin_client: Client, batch: Execution, organization: Organization
) -> None:
    assert "not-begun" in notes(page_of(admin_client, batch))
    work_off(organization)
    page = page_of(admin_client, batch)
    assert (notes(page)["over"], notes(page)["total"]) == (["3"], ["3"])
    assert "ghost-tool" in page and "2 Success" in page
    for call in calls_of(batch):
        assert f'href="/executions/{call.pk}/"' in page
    assert "every 2s" not in page and CANCEL_ALL not in page


@pytest.mark.part("matrices")
def test_a_large_one_stands_on_pages_with_as_many_questions(
    admin_client: Client, batch: Execution, django_assert_max_num_queries
) -> None:
    inputs = [{"tool_name": "echo", "parameters": {"text": "x"}}] * 120
    Execution.objects.filter(pk=batch.pk).update(parameters={"inputs": inputs})
    page_of(admin_client, batch)  # the catalog is known from then on
    with django_assert_max_num_queries(24):
        page = page_of(admin_client, batch, "?page=2")
    assert re.findall(r"\d+", notes(page)["range"][0]) == ["51", "100", "120"]
    assert 'id="position-50"' in page and 'id="position-49"' not in page
    last = notes(page_of(admin_client, batch, "?page=99"))["range"][0]
    assert re.findall(r"\d+", last) == ["101", "120", "120"]


def test_what_is_ticked_is_cancelled(
    admin_client: Client, batch: Execution, organization: Organization
) -> None:
    answer = admin_client.post(f"/batches/{batch.pk}/cancel", {"position": ["2"]})
    assert answer["Location"] == f"/batches/{batch.pk}/"
    work_off(organization)
    assert {call.place for call in calls_of(batch)} == {"0"}
    record = AuditRecord.objects.filter(code=Event.TOOL_CANCEL, execution_id=batch.pk).latest("pk")
    assert record.details["places"] == ["2"]


def test_all_of_it_is_cancelled(admin_client: Client, batch: Execution) -> None:
    admin_client.post(f"/batches/{batch.pk}/cancel", {"do": "all"})
    assert Execution.objects.get(pk=batch.pk).status == "Cancelled"
    admin_client.post(f"/batches/{batch.pk}/cancel", {"position": ["0"]})
    assert codes(page_of(admin_client, batch)) == ["batch_over"]


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize("wrong", [[], ["x"], ["²"], ["-1"], ["9" * 30]])
def test_nonsense_cancels_nothing(admin_client: Client, batch: Execution, wrong: list[str]) -> None:
    answer = admin_client.post(f"/batches/{batch.pk}/cancel", {"position": wrong})
    assert answer.status_code == 400
    batch.refresh_from_db()
    assert batch.cancelled_places == []


def test_a_place_that_is_not_in_it_is_said(admin_client: Client, batch: Execution) -> None:
    admin_client.post(f"/batches/{batch.pk}/cancel", {"position": ["3"]})
    (refused,) = notes(page_of(admin_client, batch))["message-error"]
    assert "0" in refused and "2" in refused


def test_who_sees_it_and_may_not_change_it_cancels_nothing(client_of, batch: Execution) -> None:
    client = client_of("tools.view_execution")
    assert CANCEL_ALL not in page_of(client, batch)
    assert client.post(f"/batches/{batch.pk}/cancel", {"do": "all"}).status_code == 403
    assert Execution.objects.get(pk=batch.pk).status == "Pending"


@pytest.mark.part("matrices")
def test_its_progress_follows_until_it_is_over(
    admin_client: Client, batch: Execution, organization: Organization
) -> None:
    perform(batch.pk)
    address = page_of(admin_client, batch).split('data-live hx-get="')[1].split('"')[0]
    address = address.replace("&amp;", "&")
    assert admin_client.get(address, headers=htmx("moving")).status_code == 204
    work_off(organization)
    part = text(admin_client.get(address, headers=htmx("moving")))
    assert (notes(part)["over"], notes(part)["total"]) == (["3"], ["3"])
    assert "every 2s" not in part and "<table" not in part


@pytest.mark.part("matrices")
def test_runs_of_chains_stand_beside(admin_client: Client, organization: Organization) -> None:
    factories.tool(organization)
    factories.register(organization, CHAIN)
    agent = factories.agent(organization, "one", groups=["default"])
    run = factories.execution(agent, "relay")
    work_off(organization)
    page = text(admin_client.get("/batches/?kind=chain&tool=relay"))
    assert f'href="/executions/{run.pk}/"' in page
    assert str(run.pk) not in text(admin_client.get("/batches/?kind=chain&tool=other"))
    assert "/batches/?kind=chain&amp;tool=relay" in text(admin_client.get("/chains/"))
