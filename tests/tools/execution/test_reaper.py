"""What becomes of a call whose worker fell silent."""

from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now

from audit.models import AuditRecord
from tests import factories
from tests.tools.waiting import until
from tools.execution import reaper
from tools.models import Execution


@pytest.fixture
def abandoned(agent, organization):
    """A call whose worker claimed it for the n-th time, a minute before its lease ran out."""

    def make(delivery, attempt=1, lease=timedelta(minutes=-1)):
        factories.tool(organization, delivery=delivery)
        execution = factories.execution(agent)
        factories.claimed(execution, attempt)
        Execution.objects.filter(pk=execution.pk).update(lease_until=Now() + lease)
        return execution

    return make


def reaped(execution):
    reaper.reap()
    return Execution.objects.get(pk=execution.pk)


def records(execution):
    return [(r.code, r.reason) for r in AuditRecord.objects.filter(execution_id=execution.pk)]


@pytest.mark.parametrize("delivery", ["pure", "idempotent"])
@pytest.mark.parametrize("attempt", [1, 2])
def test_what_may_be_repeated_waits_again(abandoned, delivery, attempt):
    execution = reaped(abandoned(delivery, attempt))
    assert (execution.status, execution.worker, execution.started_at) == ("Pending", "", None)
    assert [event.type for event in execution.events.all()] == ["Warning"]
    assert records(execution) == [("TOOL.LOST", "requeued")]


@pytest.mark.parametrize("delivery", ["pure", "idempotent"])
def test_after_three_attempts_it_is_lost(abandoned, delivery):
    execution = reaped(abandoned(delivery, 3))
    assert (execution.status, execution.error_code) == ("Failed", "WORKER_LOST")
    assert records(execution) == [("TOOL.LOST", "WORKER_LOST")]


@pytest.mark.parametrize("delivery", ["external", "transactional"])
def test_an_effect_nobody_knows_of_is_never_repeated(abandoned, delivery):
    execution = reaped(abandoned(delivery))
    assert (execution.status, execution.error_code) == ("Failed", "OUTCOME_UNKNOWN")
    assert [event.type for event in execution.events.all()] == ["Failed"]


def test_a_worker_that_renews_its_lease_is_left_alone(abandoned):
    execution = reaped(abandoned("pure", lease=timedelta(seconds=5)))
    assert (execution.status, records(execution)) == ("Running", [])


def test_a_second_look_changes_nothing(abandoned):
    first = reaped(abandoned("external"))
    second = reaped(first)
    assert (second.completed_at, records(second)) == (first.completed_at, records(first))


def test_whoever_waits_too_long_is_told_about_again(agent, organization):
    factories.tool(organization)
    old, young = factories.execution(agent), factories.execution(agent)
    Execution.objects.filter(pk=old.pk).update(queued_at=Now() - timedelta(seconds=30))
    Execution.objects.filter(pk=young.pk).update(queued_at=Now())
    waiting = reaper.reap()
    assert old.pk in waiting and young.pk not in waiting


def test_a_claim_after_the_reaper_has_a_higher_fence(abandoned):
    execution = reaped(abandoned("pure", 2))
    claimed = Execution.objects.claim(execution.pk, worker="next", lease_s=15)
    assert (claimed.fence, claimed.attempt) == (3, 3)
    assert Execution.objects.claim(execution.pk, worker="other", lease_s=15) is None


@pytest.mark.usefixtures("committed")
def test_a_call_whose_hint_was_lost_is_run_by_the_crib(agent, organization):
    from_tests = factories.tool(organization)
    execution = factories.execution(agent, from_tests.name)
    connection.close()
    done = until(lambda: Execution.objects.filter(pk=execution.pk, status="Success").first(), 30)
    assert done.output == {"echo": {"text": "x"}}


@pytest.mark.usefixtures("committed")
def test_a_lost_pure_call_is_run_again_by_the_crib(abandoned):
    execution = abandoned("pure")
    done = until(lambda: Execution.objects.filter(pk=execution.pk, status="Success").first(), 30)
    assert (done.attempt, [event.type for event in done.events.all()]) == (
        2, ["Warning", "Started", "Completed"],
    )  # fmt: skip
