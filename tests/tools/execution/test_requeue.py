"""Requeue: calls that a worker returns to the queue before they are completed."""

import pytest
from django.db.models.functions import Now

from audit.models import AuditRecord
from tests import factories
from tools.execution import requeue
from tools.execution.claim import claim
from tools.execution.requeue import give_back, may_repeat
from tools.models import Execution


@pytest.fixture
def performance(agent, organization):
    """A call that a worker has claimed for the n-th time."""

    def make(delivery="pure", attempt=1):
        factories.tool(
            organization,
            delivery=delivery,
            constraints={"allow_side_effects": delivery != "pure"},
        )
        execution = factories.execution(agent)
        for _ in range(attempt - 1):
            factories.claimed(execution)
            factories.release(execution)
        return claim(execution.pk, "worker")

    return make


def row(performance):
    return Execution.objects.get(pk=performance.execution.pk)


def records(performance):
    found = AuditRecord.objects.filter(execution_id=performance.execution.pk, code="TOOL.LOST")
    return [record.reason for record in found]


@pytest.mark.parametrize("delivery", ["pure", "idempotent"])
def test_what_may_be_repeated_waits_again(performance, delivery):
    held = performance(delivery)
    assert give_back(held, reason="sandbox_lost") and held.returned
    found = row(held)
    assert (found.status, found.attempt, found.fence, found.worker) == ("Pending", 1, 1, "")
    assert [event.type for event in found.events.all()] == ["Started", "Warning"]
    assert records(held) == ["sandbox_lost"]


def test_an_attempt_that_does_not_count_leaves_as_many_as_there_were(performance):
    held = performance(attempt=3)
    assert give_back(held, reason=requeue.HANDED_BACK, counts=False)
    assert row(held).attempt == 2


def test_after_three_attempts_the_caller_ends_it(performance):
    held = performance(attempt=3)
    assert not give_back(held, reason="sandbox_lost") and not held.returned
    assert (row(held).status, records(held)) == ("Running", [])


def test_an_external_effect_that_may_have_happened_stays(performance):
    held = performance("external")
    assert not give_back(held, reason="sandbox_lost")
    assert row(held).status == "Running"


def test_an_external_call_that_had_not_begun_goes_back(performance):
    held = performance("external")
    assert give_back(held, reason=requeue.HANDED_BACK, counts=False, begun=False)
    assert (row(held).status, row(held).attempt) == ("Pending", 0)


def test_a_cancelled_call_ends_and_is_not_requeued(performance):
    held = performance()
    Execution.objects.filter(pk=held.execution.pk).update(cancel_requested_at=Now())
    assert give_back(held, reason="sandbox_lost") and held.returned
    assert (row(held).status, records(held)) == ("Cancelled", ["CANCELLED"])


def test_a_row_that_was_taken_away_is_left_alone(performance):
    held = performance()
    factories.release(held.execution)
    factories.claimed(held.execution, worker="next")
    assert give_back(held, reason="sandbox_lost") and held.returned
    assert (row(held).worker, row(held).fence, records(held)) == ("next", 2, [])


@pytest.mark.parametrize(
    ("delivery", "begun", "attempt", "counts", "may"),
    [
        ("external", True, 1, False, False),
        ("external", False, 1, True, True),
        ("external", False, 3, True, False),
        ("pure", True, 3, False, True),
    ],
)
def test_which_calls_may_be_requeued(delivery, begun, attempt, counts, may):
    execution = Execution(attempt=attempt)
    assert may_repeat(execution, delivery, counts=counts, begun=begun) is may
