"""Leases are checked together, renewed together, and expire by the clock alone."""

import threading
import time
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from config import timeouts
from tests import factories
from tests.conditions import LIMIT_S, until
from tools.execution.leases import CANCELLED, Lease, Leases, check_leases
from tools.execution.requeue import HANDED_BACK, LEASE_LOST
from tools.models import Execution

LONG_AGO_S = 5  # a lease of that age has to be renewed


@pytest.fixture
def running(agent, organization):
    """Leases of calls that were claimed so many seconds ago by the worker's clock."""
    factories.tool(organization)

    def make(age_s=0.0):
        execution = factories.claimed(factories.execution(agent))
        return Lease(execution.pk, execution.fence, time.monotonic() - age_s)

    return make


def row(lease):
    return Execution.objects.filter(pk=lease.execution_id)


def lease_until(lease):
    return row(lease).get().lease_until


def test_many_leases_are_checked_in_one_statement(running, django_assert_num_queries):
    leases = [running() for _ in range(5)]
    with django_assert_num_queries(1):
        check_leases(leases, connection)
    assert not any(lease.stop.is_set() for lease in leases)


def test_all_that_are_due_are_renewed_in_one_statement(running, django_assert_num_queries):
    leases = [running(age_s=LONG_AGO_S) for _ in range(5)]
    before = [lease.renewed_at for lease in leases]
    for lease in leases:
        row(lease).update(lease_until=Now())
    with django_assert_num_queries(2):
        check_leases(leases, connection)
    assert all(lease.renewed_at > at for lease, at in zip(leases, before, strict=True))
    assert (
        Execution.objects.abandoned().filter(pk__in=[x.execution_id for x in leases]).count() == 0
    )


def test_a_lease_that_is_fresh_is_not_renewed(running):
    lease = running()
    before = lease_until(lease)
    check_leases([lease], connection)
    assert lease_until(lease) == before


def test_a_cancellation_stops_the_one_that_was_cancelled(running):
    cancelled, other = running(), running()
    row(cancelled).update(cancel_requested_at=Now())
    check_leases([cancelled, other], connection)
    assert (cancelled.stop.is_set(), cancelled.reason, cancelled.cancelled) == (
        True, CANCELLED, True,
    )  # fmt: skip
    assert not other.stop.is_set()


def test_a_lost_fence_stops_a_run_that_was_not_cancelled(running):
    lease = running()
    lost = Lease(lease.execution_id, lease.fence - 1)
    check_leases([lost, lease], connection)
    assert (lost.stop.is_set(), lost.reason, lost.cancelled) == (True, LEASE_LOST, False)
    assert not lease.stop.is_set()


def test_the_first_reason_to_stop_a_run_stays():
    lease = Lease(uuid4(), 1)
    lease.end(LEASE_LOST)
    lease.end(CANCELLED)
    assert not lease.cancelled


@pytest.mark.usefixtures("committed")
def test_a_locked_row_waits_for_the_next_check_and_delays_no_other(running):
    locked, other = running(age_s=LONG_AGO_S), running(age_s=LONG_AGO_S)
    before = locked.renewed_at, other.renewed_at

    def look():
        check_leases([locked, other], connection)
        connection.close()

    with transaction.atomic():
        row(locked).select_for_update(no_key=True).get()
        thread = threading.Thread(target=look)
        thread.start()
        thread.join(LIMIT_S)
    assert locked.renewed_at == before[0] and other.renewed_at > before[1]
    assert not locked.stop.is_set() and not other.stop.is_set()


@pytest.mark.part("calls")
@pytest.mark.usefixtures("committed")
def test_the_clock_stops_a_run_while_the_database_hangs(running, settings):
    settings.EXECUTION_LEASE_S = 3
    lease = running()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE tools_execution IN ACCESS EXCLUSIVE MODE")
        with Leases().hold(lease.execution_id, lease.fence) as held:
            assert held.stop.wait(LIMIT_S)
    assert (held.reason, held.cancelled) == (LEASE_LOST, False)


@pytest.mark.usefixtures("committed")
def test_the_lease_of_a_slow_claim_starts_when_the_claim_was_sent(running):
    lease = running()
    with Leases().hold(lease.execution_id, lease.fence, since=time.monotonic() - 20) as held:
        assert held.stop.wait(LIMIT_S) and held.reason == LEASE_LOST


@pytest.mark.usefixtures("committed")
def test_the_checking_thread_sees_a_cancellation(running):
    lease = running()
    with Leases().hold(lease.execution_id, lease.fence) as held:
        row(lease).update(cancel_requested_at=Now())
        assert held.stop.wait(LIMIT_S) and held.cancelled


@pytest.mark.usefixtures("committed")
def test_a_lease_is_renewed_as_long_as_it_is_held(running, settings):
    settings.EXECUTION_LEASE_S = 120
    lease = running()
    due = time.monotonic() - timeouts.lease_renewal_s(settings.EXECUTION_LEASE_S)
    with Leases().hold(lease.execution_id, lease.fence, since=due) as held:
        until(lambda: held.renewed_at > due)
        again = held.renewed_at = due
        until(lambda: held.renewed_at > again)
        assert not held.stop.is_set()


@pytest.mark.part("calls")
@pytest.mark.usefixtures("committed")
def test_a_failed_check_does_not_end_the_thread(running, monkeypatch, caplog):
    first_fails = iter([KeyError("of ours")])

    def looking(leases, database):
        for fault in first_fails:
            raise fault
        check_leases(leases, database)

    monkeypatch.setattr("tools.execution.leases.check_leases", looking)
    lease = running()
    with Leases().hold(lease.execution_id, lease.fence) as held:
        row(lease).update(cancel_requested_at=Now())
        assert held.stop.wait(LIMIT_S) and held.cancelled
    assert "the check of the leases failed" in caplog.text


@pytest.mark.usefixtures("committed")
def test_a_worker_at_its_end_hands_back_what_runs_and_what_begins():
    renewer = Leases()
    with renewer.hold(uuid4(), 1) as early:
        assert renewer.hand_back() == 1
        with renewer.hold(uuid4(), 1) as late:
            assert (early.reason, late.reason) == (HANDED_BACK, HANDED_BACK)
