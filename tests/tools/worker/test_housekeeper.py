"""Housekeeping and calls do not wait for each other."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db.models.functions import Now

from config import timeouts
from tests import factories
from tests.conditions import until
from tests.crib import Crib
from tests.tools.execution.workers import celery_process, stopped
from tools.execution import events
from tools.models import Agent, Execution
from tools.worker import reaper


@contextmanager
def _halted(crib: Crib, queue: str) -> Iterator[None]:
    """Its process does nothing meanwhile."""
    with stopped(crib):  # not in the middle of a transaction
        pid = celery_process(crib, queue)
        other = celery_process(crib, "housekeeping" if queue == "executions" else "executions")
        os.kill(other, signal.SIGCONT)
        yield
        os.kill(pid, signal.SIGCONT)


def _abandoned(agent: Agent) -> Execution:
    execution = factories.claimed(factories.execution(agent))
    Execution.objects.filter(pk=execution.pk).update(lease_until=Now())
    return execution


@pytest.mark.usefixtures("committed")
def test_orphaned_calls_are_settled_while_the_worker_takes_no_message(
    crib: Crib, agent: Agent
) -> None:
    factories.tool(agent.organization)
    with _halted(crib, "executions"):
        execution = _abandoned(agent)
        over = Execution.objects.filter(pk=execution.pk, status="Failed")
        assert until(over.first).error_code == "OUTCOME_UNKNOWN"


@pytest.fixture
def last_pass(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process began its last pass long ago, and knows no housekeeper but this test."""
    monkeypatch.setattr(reaper, "HOUSEKEEPER_KEY", f"test:{agent.pk}")
    monkeypatch.setattr(reaper._pass_clock, "last", float("-inf"))
    yield
    events.redis_connection().delete(reaper.HOUSEKEEPER_KEY)


@pytest.mark.usefixtures("last_pass")
def test_a_worker_reaps_only_where_the_housekeeper_is_silent() -> None:
    assert reaper.is_silent(redis_answers=True)
    reaper.announce_pass()
    assert reaper.is_silent(redis_answers=False)  # it was not asked for
    assert not reaper.is_silent(redis_answers=True)


@pytest.mark.usefixtures("last_pass")
def test_an_announced_pass_is_as_old_as_it_is() -> None:
    reaper.announce_pass()
    events.redis_connection().pexpire(reaper.HOUSEKEEPER_KEY, 4_000)
    ago_s = reaper.announced_s()
    assert ago_s is not None and timeouts.BEAT_SILENT_S - 4 <= ago_s < timeouts.BEAT_SILENT_S
