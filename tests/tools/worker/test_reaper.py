"""The reaper requeues or ends calls whose worker stopped renewing the lease."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from audit.models import AuditRecord
from tests import factories
from tests.conditions import until
from tests.tools.database import no_evidence_for, overwrite
from tools.models import Execution
from tools.worker import reaper


@pytest.fixture
def abandoned(agent, organization):
    """A call whose worker claimed it for the n-th time, and whose lease expired a minute ago."""

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
    found = AuditRecord.objects.filter(execution_id=execution.pk, code="TOOL.LOST")
    return [(record.code, record.reason) for record in found]


@pytest.mark.parametrize("delivery", ["pure", "idempotent"])
@pytest.mark.parametrize("attempt", [1, 2])
def test_what_may_be_repeated_waits_again(abandoned, delivery, attempt):
    execution = reaped(abandoned(delivery, attempt))
    assert (execution.status, execution.worker, execution.started_at) == ("Pending", "", None)
    assert [event.type for event in execution.events.all()] == ["Started", "Warning"]
    assert records(execution) == [("TOOL.LOST", "requeued")]


@pytest.mark.parametrize("delivery", ["pure", "idempotent"])
def test_after_three_attempts_it_is_lost(abandoned, delivery):
    execution = reaped(abandoned(delivery, 3))
    assert (execution.status, execution.error_code) == ("Failed", "WORKER_LOST")
    assert "after 3 attempts: 1 worker was lost" in execution.error_message
    assert records(execution) == [("TOOL.LOST", "WORKER_LOST")]


def test_evidence_lists_how_each_attempt_was_lost(abandoned):
    execution = abandoned("pure")
    for attempt in range(3):
        reaper.reap()
        if attempt < 2:
            factories.claimed(execution, worker=f"w{attempt}")
            Execution.objects.filter(pk=execution.pk).update(lease_until=Now() - timedelta(1))
    record = AuditRecord.objects.filter(execution_id=execution.pk, reason="WORKER_LOST").get()
    assert record.details["attempts"] == [
        {"worker": "gone", "reason": "requeued"},
        {"worker": "w0", "reason": "requeued"},
        {"worker": "w1", "reason": "lease_over"},
    ]


@pytest.mark.parametrize("delivery", ["pure", "external"])
def test_a_lost_call_that_was_cancelled_is_not_requeued(abandoned, delivery):
    execution = abandoned(delivery)
    Execution.objects.filter(pk=execution.pk).update(cancel_requested_at=Now())
    ends = {"pure": ("Cancelled", "CANCELLED"), "external": ("Failed", "OUTCOME_UNKNOWN")}
    done = reaped(execution)
    assert (done.status, done.error_code) == ends[delivery]
    assert records(execution) == [("TOOL.LOST", ends[delivery][1])]


def test_dispatches_are_repeated_after_longer_and_longer_pauses(agent, organization):
    factories.tool(organization)
    execution = factories.execution(agent)
    row = Execution.objects.filter(pk=execution.pk)
    row.update(queued_at=Now() - timedelta(seconds=6))
    assert execution.pk in reaper.reap()
    for count, pause_s in [(1, 10), (2, 20), (3, 40), (4, 60), (9, 60)]:
        row.update(hints=count, hinted_at=Now() - timedelta(seconds=pause_s - 2))
        assert execution.pk not in reaper.reap()
        row.update(hints=count, hinted_at=Now() - timedelta(seconds=pause_s + 1))
        assert execution.pk in reaper.reap()


@pytest.mark.part("calls")
@pytest.mark.usefixtures("committed", "crib")
def test_one_that_cannot_be_settled_keeps_no_other_waiting(abandoned, organization, agent):
    stuck = abandoned("pure", lease=timedelta(minutes=-2))
    with no_evidence_for(organization):
        reaper.reap()
        assert Execution.objects.get(pk=stuck.pk).status == "Running"
    until(lambda: Execution.objects.filter(pk=stuck.pk, status="Success").exists())


@pytest.mark.part("calls")
@pytest.mark.usefixtures("committed", "crib")
def test_a_reaper_round_skips_locked_rows(abandoned):
    execution = abandoned("pure")
    with transaction.atomic():
        list(Execution.objects.select_for_update(no_key=True).filter(pk=execution.pk))
        with ThreadPoolExecutor(1) as other:
            other.submit(_reap).result(30)
        assert Execution.objects.get(pk=execution.pk).status == "Running"
    until(lambda: Execution.objects.filter(pk=execution.pk, status="Success").exists())


def _reap():
    try:
        reaper.reap()
    finally:
        connection.close()


def test_what_is_set_aside_says_that_its_effect_may_have_happened(abandoned):
    execution = reaped(abandoned("idempotent", 3))
    assert (execution.error_code, execution.error_details) == (
        "WORKER_LOST",
        {"effect_possible": True},
    )
    lost = AuditRecord.objects.get(execution_id=execution.pk, reason="WORKER_LOST")
    assert lost.details["effect_possible"] is True


def test_an_unknown_effect_is_never_repeated(abandoned):
    execution = reaped(abandoned("external"))
    assert (execution.status, execution.error_code) == ("Failed", "OUTCOME_UNKNOWN")
    assert [event.type for event in execution.events.all()] == ["Started", "Failed"]


@pytest.mark.parametrize("definition", [None, [], "x", {"delivery": ["pure"]}])
def test_a_definition_that_was_tampered_with_keeps_no_call_for_ever(abandoned, definition):
    execution = abandoned("pure")
    overwrite(execution.tool_version, definition)
    done = reaped(execution)
    assert (done.status, done.error_code) == ("Failed", "OUTCOME_UNKNOWN")


def test_a_worker_that_renews_its_lease_is_left_alone(abandoned):
    execution = reaped(abandoned("pure", lease=timedelta(seconds=5)))
    assert (execution.status, records(execution)) == ("Running", [])


def test_a_second_look_changes_nothing(abandoned):
    first = reaped(abandoned("external"))
    second = reaped(first)
    assert (second.completed_at, records(second)) == (first.completed_at, records(first))


def test_a_call_that_waits_too_long_is_dispatched_again(agent, organization):
    factories.tool(organization)
    old, young = factories.execution(agent), factories.execution(agent)
    Execution.objects.filter(pk=old.pk).update(queued_at=Now() - timedelta(seconds=30))
    Execution.objects.filter(pk=young.pk).update(queued_at=Now())
    waiting = reaper.reap()
    assert old.pk in waiting and young.pk not in waiting


def test_a_claim_after_the_reaper_has_a_higher_fence(abandoned):
    execution = reaped(abandoned("pure", 2))
    claimed = factories.claim(execution.pk, worker="next")
    assert (claimed.fence, claimed.attempt) == (3, 3)
    assert factories.claim(execution.pk, worker="other") is None


@pytest.mark.part("calls")
@pytest.mark.usefixtures("committed", "crib")
def test_a_call_whose_dispatch_was_lost_is_run(agent, organization):
    from_tests = factories.tool(organization)
    execution = factories.execution(agent, from_tests.name)
    connection.close()
    done = until(lambda: Execution.objects.filter(pk=execution.pk, status="Success").first())
    assert done.output == {"echo": {"text": "x"}}


@pytest.mark.part("calls")
@pytest.mark.usefixtures("committed", "crib")
def test_a_lost_pure_call_is_run_again_by_the_crib(abandoned):
    execution = abandoned("pure")
    done = until(lambda: Execution.objects.filter(pk=execution.pk, status="Success").first())
    assert (done.attempt, [event.type for event in done.events.all()]) == (
        2, ["Started", "Warning", "Started", "Completed"],
    )  # fmt: skip
