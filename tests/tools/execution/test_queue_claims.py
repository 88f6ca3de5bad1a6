"""Queue claims: which call a worker claims, within its limits, in fair order, and never one that is
too old."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from audit.models import AuditRecord
from tests import factories
from tests.conditions import until
from tests.tools.execution.workers import stopped, worker
from tests.tools.limits.allowance_fixtures import bound as bound_allowance
from tools.definitions.results import Status
from tools.execution import answer, dispatch
from tools.execution.call import Result
from tools.execution.claim import claim
from tools.execution.confirmations import load_confirmations
from tools.execution.finish import finish
from tools.execution.perform import perform, perform_next
from tools.models import Agent, CacheEntry, Execution, Organization, Reservation, Tool, queue


@pytest.fixture
def other_agent(organization):
    """An agent of another organization, with its own tool."""
    place = factories.organization(f"org-{uuid4().hex[:12]}")
    factories.tool(place)
    return factories.agent(place)


@pytest.fixture
def mine(request, agent, organization):
    """Creates any number of calls of one organization. In the test's transaction nothing of others
    waits: whose turn it is would be theirs."""
    if "committed" not in request.fixturenames:
        others = Execution.objects.filter(status=Status.PENDING)
        others.update(status=Status.CANCELLED, completed_at=Now())
    factories.tool(organization)
    return lambda count: [factories.execution(agent) for _ in range(count)]


def bound(organization, most):
    Organization.objects.filter(pk=organization.pk).update(max_concurrency=most)


def aged(execution, seconds):
    Execution.objects.filter(pk=execution.pk).update(queued_at=Now() - timedelta(seconds=seconds))


def claimed(execution, **options):
    return factories.claim(execution.pk, **options)


def end_call(execution):
    Execution.objects.filter(pk=execution.pk).update(
        status=Status.FAILED, completed_at=Now(), lease_until=None
    )


def row(execution):
    return Execution.objects.get(pk=execution.pk)


def in_turn(*executions, limit=1000):
    """The order in which these calls are claimed, as indexes; calls of other tests are ignored."""
    known = {execution.pk: at for at, execution in enumerate(executions)}
    turns = [turn.execution_id for turn in dispatch.next_waiting(limit)]
    return [known[pk] for pk in turns if pk in known]


def test_an_organization_runs_no_more_than_it_may(mine, organization):
    first, second, third = mine(3)
    bound(organization, 2)
    assert claimed(first) and claimed(second)
    assert claimed(third) is None
    waits = row(third)
    assert (waits.status, waits.attempt, waits.fence) == ("Pending", 0, 0)
    end_call(first)
    assert claimed(third).limited


def test_a_tool_runs_no_more_than_it_may_and_others_go_on(mine, agent, organization):
    first, second = mine(2)
    factories.tool(organization, "free")
    Tool.objects.filter(organization=organization, name="echo").update(max_concurrency=1)
    assert claimed(first) and claimed(second) is None
    assert claimed(factories.execution(agent, "free"))


def test_without_a_limit_a_claim_is_two_statements(mine, django_assert_num_queries):
    (execution,) = mine(1)
    with django_assert_num_queries(2):
        candidate = Execution.objects.candidate(execution.pk)
        assert Execution.objects.take(candidate, worker="test", lease_s=60)
    assert candidate.limited is False


def test_what_another_worker_took_meanwhile_is_not_taken(mine):
    (execution,) = mine(1)
    candidates = [Execution.objects.candidate(execution.pk) for _ in range(2)]
    taken = [Execution.objects.take(one, worker="test", lease_s=60) for one in candidates]
    assert taken == [True, False]


def test_what_waited_too_long_is_not_begun(mine, settings):
    (execution,) = mine(1)
    aged(execution, settings.EXECUTION_QUEUE_S + 1)
    assert claimed(execution) is None and in_turn(execution) == []


def test_a_claim_does_not_wait_for_a_locked_call(mine, committed):
    (execution,) = mine(1)
    with transaction.atomic():
        Execution.objects.select_for_update().get(pk=execution.pk)
        with ThreadPoolExecutor(1) as other_worker:
            assert other_worker.submit(_claim_elsewhere, execution).result(5) is False


def test_a_limit_holds_when_sixty_four_claim_at_once(mine, organization, committed, crib):
    with stopped(crib):  # its worker would claim three of them, once they had waited for a second
        executions = mine(64)
        bound(organization, 3)
        with ThreadPoolExecutor(64) as workers:
            won = sum(workers.map(_claim_elsewhere, executions))
    running = Execution.objects.filter(organization=organization, status=Status.RUNNING)
    assert 1 <= won <= 3 and running.count() <= 3
    waiting = Execution.objects.filter(organization=organization, status=Status.PENDING)
    assert not waiting.exclude(attempt=0).exists()
    waiting.update(status=Status.CANCELLED, completed_at=Now())  # no worker is to run them


def _claim_elsewhere(execution):
    try:
        with transaction.atomic():
            return claimed(execution) is not None
    finally:
        connection.close()


def test_organizations_take_turns(mine, other_agent):
    flood = mine(4)
    late = [factories.execution(other_agent) for _ in range(2)]
    assert in_turn(*flood, *late) == [0, 4, 1, 5, 2, 3]


def test_who_runs_the_fewest_is_first(mine, other_agent):
    first, second, third = mine(3)
    claimed(first)
    late = factories.execution(other_agent)
    assert in_turn(second, third, late) == [2, 0, 1]


def test_what_has_no_room_has_no_turn(mine, agent, organization, other_agent):
    executions = mine(3)
    bound(organization, 2)
    claimed(executions[0])
    late = factories.execution(other_agent)
    assert in_turn(*executions, late) == [3, 1]
    Tool.objects.filter(organization=organization).update(max_concurrency=1)
    assert in_turn(*executions, late) == [3]


def test_a_tool_has_as_many_turns_as_it_has_room(mine, agent, organization):
    executions = mine(3)
    Tool.objects.filter(organization=organization, name="echo").update(max_concurrency=2)
    factories.tool(organization, "free")
    executions.append(factories.execution(agent, "free"))
    assert in_turn(*executions) == [0, 1, 3]
    claimed(executions[0])
    assert in_turn(*executions) == [1, 3]


def test_what_waits_for_anothers_answer_has_no_turn(agent, organization):
    tool = factories.tool(organization, delivery="pure", cache_ttl="PT5M")
    first, second = factories.execution(agent), factories.execution(agent)
    assert in_turn(first, second) == [0, 1]
    key = first.cache_key
    CacheEntry.objects.lead(key, organization=organization.pk, tool=tool.pk, execution=first.pk)
    assert in_turn(first, second) == [0]


@pytest.fixture
def seats(monkeypatch):
    """The seats of a worker with four places, all of them free."""
    monkeypatch.setattr(dispatch, "seats", dispatch.Seats(4))
    return dispatch.seats


def status(execution):
    return row(execution).status


def retire(*agents):
    """Calls of suspended agents end at the claim, so nothing has to run."""
    Agent.objects.filter(pk__in=[agent.pk for agent in agents]).update(active=False)


@pytest.mark.parametrize(
    ("places", "half", "most"),
    [(1, 1, 1), (2, 1, 1), (3, 1, 2), (4, 2, 3), (6, 3, 4), (16, 8, 12), (256, 128, 192)],
)
def test_the_last_quarter_of_a_worker_is_for_others(places, half, most):
    assert queue.Shares.of(places) == (half, most)


def test_an_organization_holds_no_more_of_a_worker_than_its_share(mine, agent, seats):
    (execution,) = mine(1)
    retire(agent)
    for _ in range(3):
        seats.enter(agent.organization_id)
    assert in_turn(execution) == []
    perform(execution.pk)
    assert (status(execution), row(execution).attempt) == ("Pending", 0)
    seats.leave(agent.organization_id)
    assert in_turn(execution) == [0]
    perform(execution.pk)
    assert status(execution) == "PermissionDenied"


def test_while_another_waits_an_organization_holds_half(mine, agent, other_agent, seats):
    first, second = mine(2)
    late = factories.execution(other_agent)
    retire(agent, other_agent)
    seats.enter(agent.organization_id, 2)
    assert in_turn(first, second, late) == [0, 2, 1]
    seats.enter(agent.organization_id, 2)
    assert in_turn(first, second, late) == [2]
    perform_next(first.pk)
    assert [status(one) for one in (first, late)] == ["Pending", "PermissionDenied"]
    perform_next(first.pk)
    assert [status(one) for one in (first, second)] == ["PermissionDenied", "Pending"]


def test_two_claims_at_once_do_not_get_one_place(mine, organization, seats):
    """A claim that turns out to exceed the share is rolled back, and nothing of it is recorded."""
    execution, *_ = mine(1)
    with seats.seat(1) as seat:
        seats.enter(organization.pk, 1)
        seat.__class__ = type("Late", (dispatch.Seat,), {"full": ()})
        assert claim(execution.pk, "test", seat=seat) is None
    assert (status(execution), row(execution).fence) == ("Pending", 0)
    assert not AuditRecord.objects.filter(execution_id=execution.pk, code="TOOL.START").exists()


def test_the_end_of_a_call_in_a_full_share_dispatches_the_next(mine, agent, seats):
    first, second, third = mine(3)
    retire(agent)
    assert perform(first.pk) == []
    seats.enter(agent.organization_id, 2)
    assert perform(second.pk) == [third.pk]


def test_what_waits_for_its_share_is_no_sign_that_no_worker_takes_calls(mine, organization):
    half = queue.Shares.of(settings.WORKER_THREADS).half
    waiting, *running = mine(half + 1)

    def bounded():
        return next(
            place.bounded for place in queue.queue_positions() if place.id == organization.pk
        )

    for execution in running[1:]:
        claimed(execution)
    assert not bounded()
    claimed(running[0])
    assert bounded() and status(waiting) == "Pending"


def test_to_know_who_is_full_costs_a_claim_no_statement(
    mine, other_agent, django_assert_num_queries
):
    (execution,) = mine(1)
    with django_assert_num_queries(1):
        assert Execution.objects.candidate(execution.pk, full=[other_agent.organization_id])


@pytest.mark.part("faults")
@pytest.mark.usefixtures("committed")
def test_long_calls_of_one_organization_leave_places_to_another(crib, agent, other_agent, gate):
    """A worker with four places, and six calls that end after another's have ended."""
    gate.tool("waits", constraints={"max_execution_time": "PT2M"})
    with stopped(crib), worker(crib) as process:
        flood = [factories.execution(agent, "waits") for _ in range(6)]
        running = Execution.objects.filter(pk__in=[one.pk for one in flood], status="Running")
        until(lambda: running.filter(worker__contains=f":{process.pid}:").count() == 3)
        late = [factories.execution(other_agent) for _ in range(3)]
        for execution in late:
            until(lambda one=execution: status(one) == "Success")
        assert running.count() == 3
        gate.open()
        for execution in flood:
            until(lambda one=execution: status(one) == "Success")


@pytest.fixture(autouse=True)
def line(monkeypatch):
    """A queue without requests of other tests."""
    monkeypatch.setattr(dispatch, "line", dispatch._Line())


def test_each_thread_of_a_process_tries_another_call(mine):
    mine(3)
    dispatch.line.ask()
    hinted = [uuid4() for _ in range(3)]
    tried = [next(dispatch.turns(execution_id)).execution_id for execution_id in hinted]
    assert len({*tried, *hinted}) == 6


def test_with_a_backlog_the_dispatched_call_is_not_claimed_first(mine):
    (waiting,) = mine(1)
    hinted = uuid4()
    assert next(dispatch.turns(hinted)).execution_id == hinted
    dispatch.line.ask()
    assert hinted not in [turn.execution_id for turn in dispatch.turns(hinted)]
    assert claimed(waiting)


def test_a_call_that_hardly_waited_is_taken_by_its_name(mine):
    old, young = mine(2)
    aged(old, 30)
    hinted = [next(dispatch.turns(execution.pk)) for execution in (old, young)]
    assert [turn.execution_id for turn in hinted] == [old.pk, young.pk]
    assert claimed(old, younger_than=hinted[0].younger_than) is None
    assert claimed(young, younger_than=hinted[1].younger_than)


def test_with_a_backlog_a_dispatch_is_for_the_next_call_in_fair_order(mine, other_agent):
    flood, late = mine(3), factories.execution(other_agent)
    for execution in flood:
        aged(execution, 30)
    claimed(flood[0])
    turns = [turn.execution_id for turn in dispatch.turns(flood[1].pk)]
    ours = [pk for pk in turns if pk in {late.pk, *(one.pk for one in flood)}]
    assert ours == [flood[1].pk, late.pk, flood[1].pk, flood[2].pk]


def test_an_end_frees_a_place_for_the_oldest_that_waits(mine, organization):
    first, _, third = mine(3)
    aged(third, 10)
    bound(organization, 1)
    won = claimed(first)
    assert dispatch.freed_by(won) == []
    end_call(first)
    assert dispatch.freed_by(won) == [third.pk]


def test_an_end_frees_nothing_where_nothing_is_limited(mine):
    first, _ = mine(2)
    assert dispatch.freed_by(claimed(first)) == []


def test_an_expired_call_ends_without_having_begun(mine, agent, settings):
    bound_allowance(agent, ("calls", 10))
    late, good = mine(2)
    aged(late, settings.EXECUTION_QUEUE_S + 1)
    dispatch.drop_expired()
    over = row(late)
    assert (over.status, over.error_code, over.started_at) == ("Cancelled", "EXPIRED", None)
    assert [event.type for event in over.events.all()] == ["Failed"]
    found = AuditRecord.objects.filter(execution_id=late.pk, code="TOOL.EXPIRE")
    assert [record.reason for record in found] == ["EXPIRED"]
    assert row(good).status == "Pending"
    assert [
        held.execution_id for held in Reservation.objects.filter(use__allowance__agent=agent)
    ] == [good.pk]


def test_an_expired_call_is_dropped_once(mine, settings):
    (late,) = mine(1)
    aged(late, settings.EXECUTION_QUEUE_S + 1)
    dispatch.drop_expired()
    dispatch.drop_expired()
    assert AuditRecord.objects.filter(execution_id=late.pk, code="TOOL.EXPIRE").count() == 1


def test_the_idempotency_key_of_an_expired_call_may_be_used_again(agent, organization, settings):
    factories.tool(organization)
    caller = factories.caller(agent)
    call = factories.call("echo", {"text": "x"}, idempotency_key="k")
    first = answer.execute(caller=caller, call=call, wait_s=0)
    aged(first, settings.EXECUTION_QUEUE_S + 1)
    dispatch.drop_expired()
    second = factories.call("echo", {"text": "x"}, idempotency_key="k")
    again = answer.execute(caller=caller, call=second, wait_s=0)
    assert (again.status, again.pk != first.pk) == ("Pending", True)


def test_the_consent_to_an_expired_call_is_void(agent, organization, settings):
    factories.tool(organization, requires_confirmation=True)
    held = factories.execution(agent)
    Execution.objects.filter(pk=held.pk).update(status=Status.PENDING)
    aged(held, settings.EXECUTION_QUEUE_S + 1)
    dispatch.drop_expired()
    assert load_confirmations([held])[held.pk].status == "void"
    assert AuditRecord.objects.get(execution_id=held.pk, code="CONFIRM.VOID").reason == "expired"


def test_a_refusal_at_the_claim_leaves_the_place_to_others(mine, agent, organization):
    first, second = mine(2)
    bound(organization, 1)
    type(agent).objects.filter(pk=agent.pk).update(active=False)
    refused = claim(first.pk, "test")
    assert refused is not None and refused.result is not None
    type(agent).objects.filter(pk=agent.pk).update(active=True)
    performance = claim(second.pk, "test")
    performance.result = Result(Status.FAILED, error_code="X")
    finish(performance)
    assert (row(first).status, row(second).status) == ("PermissionDenied", "Failed")
