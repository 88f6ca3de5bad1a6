"""A lost turn of a batch does not affect the calls that it had started."""

import pytest

from tests import factories
from tests.tools.approval_requests import approve, approver
from tests.tools.execution.working import calls_of, work_off
from tests.tools.workflows.test_batches import batch, one
from tools.execution import composition, performance
from tools.execution.pipeline import perform
from tools.models import Confirmation, Execution
from tools.worker import reaper

pytestmark = pytest.mark.usefixtures("alone")


def test_the_consent_to_a_batch_is_good_for_its_calls_while_a_lost_turn_waits(
    organization, monkeypatch
):
    factories.install(organization)
    factories.tool(organization, "careful", requires_confirmation=True)
    agent = factories.agent(organization, groups=["default", "composition"])
    inputs = [one(text, "careful") for text in "abc"]
    execution = batch(agent, *inputs, mode="parallel", max_parallel=2)
    approve(Confirmation.objects.get(execution=execution), approver(organization))
    with monkeypatch.context() as patch:
        patch.setattr(composition, "may_go_on", lambda _: [])
        perform(execution.pk)
        first, second = calls_of(execution)
        perform(first.pk)
        assert performance.claim(execution.pk, "gone") is not None  # and the worker is killed
        Execution.objects.filter(pk=execution.pk).update(lease_until="2020-01-01T00:00:00Z")
        reaper.reap()
        perform(second.pk)
    work_off(organization)
    assert [call.status for call in calls_of(execution)] == ["Success"] * 3
    assert Execution.objects.get(pk=execution.pk).status == "Success"
