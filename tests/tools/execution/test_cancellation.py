"""A cancelled call ends as cancelled, whatever happens later; people resolve unknown outcomes."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.models.functions import Now

from audit.models import AuditRecord
from sandbox.spec import RunOutcome, SandboxResult
from tests import factories
from tests.conditions import blocks_another_connection, until
from tests.tools.approval_requests import at_the_browser
from tests.tools.limits.allowance_fixtures import amounts_of, bound, budget
from tools.errors import Conflict, Forbidden
from tools.execution import answer, dispatch, requeue, run
from tools.execution.claim import claim
from tools.execution.finish import finish
from tools.models import Execution, Resolution
from tools.worker import reaper


@pytest.fixture
def running(agent, organization):
    factories.tool(organization, delivery="external")
    claimed = claim(factories.execution(agent).pk, "test")
    assert claimed is not None
    return claimed


def reload(claimed):
    return Execution.objects.get(pk=claimed.execution.pk)


def codes(execution):
    records = AuditRecord.objects.filter(execution_id=execution.pk).order_by("id")
    return [record.code for record in records]


def finished(claimed, outcome):
    claimed.result = run.result_of(outcome)
    finish(claimed)
    return reload(claimed)


def test_a_result_that_comes_after_the_cancellation_is_discarded_and_on_record(running, agent):
    answer.cancel(caller=factories.caller(agent), execution=reload(running))
    done = finished(running, SandboxResult(RunOutcome.SUCCESS, "what it gave back"))
    assert (done.status, done.error_code, done.output) == ("Cancelled", "CANCELLED", None)
    assert codes(done)[-2:] == ["TOOL.LATE_COMPLETION_REJECTED", "TOOL.END"]
    assert [event.type for event in done.events.all()] == ["Started", "Failed"]


def test_a_failure_after_the_cancellation_is_a_failure(running, agent):
    answer.cancel(caller=factories.caller(agent), execution=reload(running))
    done = finished(running, SandboxResult(RunOutcome.TIMEOUT, error_code="TIMEOUT"))
    assert done.status == "Timeout"


def test_cancelling_twice_is_cancelling_once(agent, organization):
    factories.tool(organization)
    execution = factories.execution(agent)
    first = answer.cancel(caller=factories.caller(agent), execution=execution)
    second = answer.cancel(caller=factories.caller(agent), execution=execution)
    assert (first.status, first.completed_at) == (second.status, second.completed_at)
    assert codes(execution).count("TOOL.CANCEL") == 1


def test_a_second_cancellation_keeps_the_time_of_the_first(running, agent):
    caller = factories.caller(agent)
    asked_at = answer.cancel(caller=caller, execution=reload(running)) and reload(running)
    answer.cancel(caller=caller, execution=reload(running))
    assert reload(running).cancel_requested_at == asked_at.cancel_requested_at


@pytest.fixture
def unknown(running):
    Execution.objects.filter(pk=running.execution.pk).update(lease_until=Now())
    reaper.reap()
    return reload(running)


@pytest.fixture
def operator(organization):
    user = factories.person(organization)
    factories.permit(user, "change_execution", "view_execution")
    return at_the_browser(user)


def test_a_user_resolves_an_outcome_once(unknown, operator):
    said = answer.resolve(
        caller=operator, execution=unknown, outcome=Resolution.HAPPENED, reason="It arrived."
    )
    assert (said.status, said.resolved_as, said.resolved_by) == (
        "Failed",
        "happened",
        operator.name,
    )
    with pytest.raises(Conflict):
        answer.resolve(
            caller=operator, execution=said, outcome=Resolution.DID_NOT_HAPPEN, reason="No."
        )
    assert codes(unknown)[-1] == "TOOL.RESOLVE"


def test_a_known_outcome_is_not_resolved(agent, organization, operator):
    factories.tool(organization)
    execution = factories.execution(agent)
    with pytest.raises(Conflict):
        answer.resolve(
            caller=operator, execution=execution, outcome=Resolution.HAPPENED, reason="x"
        )


def test_an_agent_resolves_nothing(unknown, agent):
    with pytest.raises(Forbidden):
        answer.resolve(
            caller=factories.caller(agent),
            execution=unknown,
            outcome=Resolution.HAPPENED,
            reason="x",
        )


def test_what_was_cancelled_midway_may_be_resolved_and_is_marked_in_evidence(
    running, agent, operator
):
    answer.cancel(caller=factories.caller(agent), execution=reload(running))
    done = finished(running, SandboxResult(RunOutcome.SUCCESS, "too late"))
    end = AuditRecord.objects.get(execution_id=done.pk, code="TOOL.END")
    assert (end.reason, end.details["effect_possible"]) == ("CANCELLED", True)
    assert done.unresolved and Execution.objects.unresolved().filter(pk=done.pk).exists()
    said = answer.resolve(
        caller=operator, execution=done, outcome=Resolution.DID_NOT_HAPPEN, reason="Asked them."
    )
    assert (said.status, said.resolved_as) == ("Cancelled", "did_not_happen")
    assert not said.unresolved


def test_a_resolution_is_not_overwritten(unknown, operator):
    answer.resolve(
        caller=operator, execution=unknown, outcome=Resolution.HAPPENED, reason="It arrived."
    )
    for column in ("resolved_by", "resolution_reason", "resolved_as"):
        with pytest.raises(DatabaseError, match="is over"), transaction.atomic():
            Execution.objects.filter(pk=unknown.pk).update(**{column: "did_not_happen"})


# A call that was started, lost, and waits to be retried.


@pytest.fixture
def lose_call_once(agent, organization):
    """A call with this delivery, which costs 3 and has a budget of 10."""

    def lost_once(delivery):
        bound(agent, budget=budget(10))
        factories.tool(
            organization,
            delivery=delivery,
            cost_per_invocation=3,
            constraints={"allow_side_effects": delivery != "pure"},
        )
        claimed = claim(factories.execution(agent).pk, "lost")
        Execution.objects.filter(pk=claimed.execution.pk).update(lease_until=Now())
        reaper.reap()
        assert reload(claimed).status == "Pending"
        return reload(claimed)

    return lost_once


def cancelled(execution, agent):
    answer.cancel(caller=factories.caller(agent), execution=execution)


def expired(execution, agent):
    Execution.objects.filter(pk=execution.pk).update(queued_at="2020-01-01T00:00Z")
    dispatch.drop_expired()


def poisoned(execution, agent):
    for _ in range(requeue.MOST_FAILED_CLAIMS):
        requeue.count_failed_claim(execution.pk, ValueError("x"))


def refused(execution, agent):
    type(agent).objects.filter(pk=agent.pk).update(active=False)
    claimed = claim(execution.pk, "next")
    assert claimed is not None and claimed.result is not None


ENDS = [cancelled, expired, poisoned, refused]


@pytest.mark.parametrize("end", ENDS)
def test_what_ran_before_says_that_its_effect_may_have_happened_and_is_paid_for(
    lose_call_once, agent, end
):
    execution = lose_call_once("idempotent")
    end(execution, agent)
    done = Execution.objects.get(pk=execution.pk)
    assert (done.is_final, done.error_details, done.cost) == (True, {"effect_possible": True}, 3)
    assert "may have happened" in done.error_message and "never" not in done.error_message
    assert amounts_of(agent) == [(3.0, 0.0)]
    last = AuditRecord.objects.filter(execution_id=done.pk).order_by("id").last()
    assert last.details["effect_possible"] is True


@pytest.mark.parametrize("end", ENDS)
def test_what_had_no_effect_outside_costs_nothing_when_it_does_not_begin_again(
    lose_call_once, agent, end
):
    execution = lose_call_once("pure")
    end(execution, agent)
    done = Execution.objects.get(pk=execution.pk)
    assert (done.is_final, done.error_details, done.cost) == (True, {}, 0)
    assert amounts_of(agent) == [(0.0, 0.0)]


def test_a_lost_call_that_was_to_be_cancelled_says_that_its_effect_may_have_happened(
    agent, organization
):
    factories.tool(organization, delivery="idempotent")
    claimed = claim(factories.execution(agent).pk, "killed")
    answer.cancel(caller=factories.caller(agent), execution=reload(claimed))
    Execution.objects.filter(pk=claimed.execution.pk).update(lease_until=Now())
    reaper.reap()
    assert (reload(claimed).status, reload(claimed).error_details) == (
        "Cancelled",
        {"effect_possible": True},
    )


@pytest.mark.usefixtures("committed")
def test_a_call_on_its_way_back_to_the_queue_is_cancelled_all_the_same(agent, organization):
    factories.tool(organization)
    execution, caller = factories.execution(agent), factories.caller(agent)
    execution = factories.claimed(execution)
    with ThreadPoolExecutor(1) as other:
        with transaction.atomic():
            row = Execution.objects.held(execution.pk, execution.fence)
            requeue.put_back(row, execution, reason="requeued", counts=True, begun=True, effect={})
            asked = other.submit(_cancel, caller, execution)
            until(blocks_another_connection)
        assert asked.result(20).status == "Cancelled"


def _cancel(caller, execution):
    try:
        return answer.cancel(caller=caller, execution=execution)
    finally:
        connection.close()
