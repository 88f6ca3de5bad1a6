"""The order of the timeouts: each leaves the shorter one time to take effect."""

import pytest
from django.core.management import call_command
from django.db import connection

from config import timeouts
from sandbox import client


def test_the_default_timeouts_are_in_order():
    assert list(timeouts.order_flaws()) == []


@pytest.mark.parametrize("lease_s", [3, 4, 15, 600])
@pytest.mark.parametrize("grace_s", [0, 20, 600])
def test_timeouts_are_in_order_for_every_lease_and_grace(settings, lease_s, grace_s):
    settings.EXECUTION_LEASE_S, settings.EXECUTION_GRACE_S = lease_s, grace_s
    assert list(timeouts.order_flaws()) == []


def test_a_lease_that_expires_before_a_worker_checks_it_is_refused(settings):
    settings.EXECUTION_LEASE_S = 1
    assert list(timeouts.order_flaws()) == [
        "“the worker renews” comes after 0.25 s, but must come later than"
        " “the worker checks its leases” after 0.25 s."
    ]


@pytest.mark.django_db
def test_the_statement_timeout_of_the_database_is_the_configured_one():
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        timeout = cursor.fetchone()
    assert timeout == ("5min",) and timeouts.statement_timeouts()[-1].seconds == 300


@pytest.mark.django_db
def test_a_migration_may_take_its_time():
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",)


def test_the_workers_patience_with_sandboxd_is_the_clients_own():
    assert timeouts.CLIENT_SPARE_S == client._SPARE_TIME_S


def test_a_flaw_is_an_error_at_start(settings):
    settings.EXECUTION_LEASE_S = 1
    assert [error.id for error in timeouts.check_timeouts(None)] == ["config.E001"]
