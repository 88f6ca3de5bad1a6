"""A worker that is told to stop finishes what it can, hands back the rest, and ends in time."""

import signal

import pytest
from django.db.models.functions import Now

from audit.models import AuditRecord
from tests import factories
from tests.tools.execution.workers import taken_by, worker
from tests.waiting import until
from tools.models import Execution

pytestmark = pytest.mark.usefixtures("committed")
SLOW = "import time\ndef main(parameters):\n    time.sleep({})\n    return 'done'\n"


@pytest.fixture
def call(agent, organization):
    """Makes calls of a tool that sleeps so long; nobody is told of them."""

    def of(seconds, delivery):
        name = f"sleeps_{delivery}"
        factories.tool(
            organization,
            name,
            delivery=delivery,
            implementation={"source": SLOW.format(seconds)},
            constraints={"max_execution_time": "PT2M", "allow_side_effects": delivery != "pure"},
        )
        return lambda: factories.execution(agent, name)

    yield of
    running = Execution.objects.filter(organization=organization, status="Running")
    running.update(cancel_requested_at=Now())  # the crib's own worker may have them by now


def stopped(process):
    """As the supervisor stops it; the exit status."""
    process.send_signal(signal.SIGTERM)
    return process.wait(40)


def lost(execution):
    found = AuditRecord.objects.filter(execution_id=execution.pk, code="TOOL.LOST")
    return [(one.reason, one.details["worker"]) for one in found]


def test_what_runs_may_end_within_the_grace(crib, call):
    with worker(crib, EXECUTION_GRACE_S="30") as process:
        execution = taken_by(crib, process, call(3, "external"))
        assert stopped(process) == 0
    execution.refresh_from_db()
    assert (execution.status, execution.output, execution.attempt) == ("Success", "done", 1)


def test_what_may_be_repeated_is_handed_back_and_counts_no_attempt(crib, call):
    with worker(crib, EXECUTION_GRACE_S="1") as process:
        execution = taken_by(crib, process, call(90, "pure"))
        assert stopped(process) == 0
    assert lost(execution) == [("handed_back", execution.worker)]
    again = until(lambda: Execution.objects.filter(pk=execution.pk, status="Running").first(), 30)
    assert (again.attempt, again.fence, again.worker != execution.worker) == (1, 2, True)
    assert [event.type for event in again.events.all()] == ["Started", "Warning", "Started"]


def test_an_effect_that_may_have_happened_is_not_handed_back(crib, call):
    with worker(crib, EXECUTION_GRACE_S="1") as process:
        execution = taken_by(crib, process, call(90, "external"))
        assert stopped(process) == 0
    execution.refresh_from_db()
    assert (execution.status, execution.error_code) == ("Failed", "OUTCOME_UNKNOWN")
    assert [event.type for event in execution.events.all()] == ["Started", "Failed"]


def test_a_worker_that_was_killed_loses_nothing(crib, call):
    with worker(crib, EXECUTION_LEASE_S="4") as process:
        execution = taken_by(crib, process, call(2, "pure"))
    done = until(lambda: Execution.objects.filter(pk=execution.pk, status="Success").first(), 40)
    assert (done.attempt, done.worker != execution.worker) == (2, True)
    assert lost(execution) == [("requeued", execution.worker)]
