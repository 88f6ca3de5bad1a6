"""Graceful shutdown: a worker completes what it can, requeues the rest, and stops in time."""

import signal

import pytest
from django.conf import settings
from django.db.models.functions import Now

from audit.models import AuditRecord
from tests import factories
from tests.conditions import LIMIT_S, until
from tests.tools.execution.workers import killed, taken_by, worker
from tools.execution import dispatch
from tools.models import Execution

pytestmark = pytest.mark.usefixtures("committed")


@pytest.fixture
def call(agent, gate):
    """Makes calls of a tool that runs while the gate is closed, without a dispatch."""

    def caller_with(delivery):
        bounds = {"max_execution_time": "PT2M", "allow_side_effects": delivery != "pure"}
        gate.tool("waits", delivery=delivery, constraints=bounds)
        return lambda: factories.execution(agent, "waits")

    yield caller_with
    running = Execution.objects.filter(organization=agent.organization, status="Running")
    running.update(cancel_requested_at=Now())  # the crib's own worker may have claimed them


def stopped(process):
    """Stop the worker like the supervisor; return the exit status."""
    process.send_signal(signal.SIGTERM)
    return process.wait(LIMIT_S)


def lost(execution):
    found = AuditRecord.objects.filter(execution_id=execution.pk, code="TOOL.LOST")
    return [(one.reason, one.details["worker"]) for one in found]


@pytest.mark.part("faults")
def test_what_runs_may_end_within_the_grace(crib, call, gate):
    with worker(crib, EXECUTION_GRACE_S="60") as process:
        execution = taken_by(crib, process, call("external"))
        process.send_signal(signal.SIGTERM)
        gate.open()
        assert process.wait(LIMIT_S) == 0
    execution.refresh_from_db()
    assert (execution.status, execution.output, execution.attempt) == ("Success", "done", 1)


@pytest.mark.part("faults")
def test_what_was_woken_may_end_within_the_grace(crib, call, gate):
    make = call("external")

    def dispatched():
        execution = make()
        dispatch.wake_workers([execution.pk])
        return execution

    with worker(crib, EXECUTION_GRACE_S="60", REDIS_URL=settings.REDIS_URL) as process:
        execution = taken_by(crib, process, dispatched)
        process.send_signal(signal.SIGTERM)
        gate.open()
        assert process.wait(LIMIT_S) == 0
    execution.refresh_from_db()
    assert (execution.status, execution.output, execution.attempt) == ("Success", "done", 1)


@pytest.mark.part("faults")
def test_what_may_be_repeated_is_handed_back_and_counts_no_attempt(crib, call):
    with worker(crib, EXECUTION_GRACE_S="1") as process:
        execution = taken_by(crib, process, call("pure"))
        assert stopped(process) == 0
    assert lost(execution) == [("handed_back", execution.worker)]
    again = until(lambda: Execution.objects.filter(pk=execution.pk, status="Running").first())
    assert (again.attempt, again.fence, again.worker != execution.worker) == (1, 2, True)
    assert [event.type for event in again.events.all()] == ["Started", "Warning", "Started"]


@pytest.mark.part("faults")
def test_an_effect_that_may_have_happened_is_not_handed_back(crib, call):
    with worker(crib, EXECUTION_GRACE_S="1") as process:
        execution = taken_by(crib, process, call("external"))
        assert stopped(process) == 0
    execution.refresh_from_db()
    assert (execution.status, execution.error_code) == ("Failed", "OUTCOME_UNKNOWN")
    assert [event.type for event in execution.events.all()] == ["Started", "Failed"]


@pytest.mark.part("faults")
def test_a_worker_that_was_killed_loses_nothing(crib, call, gate):
    with worker(crib) as process:
        execution = taken_by(crib, process, call("pure"))
        killed(process)
    gate.open()
    done = until(lambda: Execution.objects.filter(pk=execution.pk, status="Success").first())
    assert (done.attempt, done.worker != execution.worker) == (2, True)
    assert lost(execution) == [("requeued", execution.worker)]
