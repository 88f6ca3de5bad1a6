"""Workers find calls without a dispatch by polling, and waiting calls cause no busy loop."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.db.models.functions import Now

from tests import factories
from tests.conditions import until
from tests.tools.execution.workers import taken_by, worker
from tools.execution import dispatch
from tools.execution.dispatch import Turn
from tools.models import Execution
from tools.worker import polling
from tools.worker.polling import PollBackoff, Poller

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def call(agent, organization):
    """A call that was queued so many seconds ago, without a dispatch."""
    factories.tool(organization)

    def make(age_s=0.0):
        execution = factories.execution(agent)
        queued_at = Now() - timedelta(seconds=age_s)
        Execution.objects.filter(pk=execution.pk).update(queued_at=queued_at)
        return execution

    return make


def test_polling_leaves_a_dispatch_a_moment(call):
    young, old = call(), call(age_s=5)
    waiting = [turn.execution_id for turn in polling._waiting(1000, broker_answers=True)]
    assert old.pk in waiting and young.pk not in waiting


def test_without_dispatches_every_waiting_call_is_polled_at_once(call):
    young, old = call(), call(age_s=5)
    waiting = [turn.execution_id for turn in polling._waiting(1000, broker_answers=False)]
    assert waiting.index(old.pk) < waiting.index(young.pk)


def test_a_call_that_was_tried_is_not_tried_again_at_once():
    backoff, one, other = PollBackoff(), uuid4(), uuid4()
    assert backoff.is_due(one)
    assert not backoff.is_due(one) and backoff.is_due(other)


def test_each_pause_is_longer_than_the_one_before():
    backoff, one = PollBackoff(), uuid4()
    pauses = []
    for _ in range(7):
        backoff.is_due(one)
        _, pause_s = backoff._until[one]
        pauses.append(pause_s)
        backoff._until[one] = (0.0, pause_s)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0]


def test_a_call_that_may_continue_is_tried_at_once():
    backoff, one = PollBackoff(), uuid4()
    backoff.is_due(one)
    backoff.reset([one])
    assert backoff.is_due(one)


@pytest.mark.part("faults")
@pytest.mark.usefixtures("committed")
def test_a_worker_without_redis_runs_what_was_accepted(crib, call):
    with worker(crib) as process:
        execution = taken_by(crib, process, call)
        done = until(lambda: Execution.objects.filter(pk=execution.pk, status="Success").first())
    assert done.output == {"echo": {"text": "x"}}


@pytest.mark.usefixtures("committed")
def test_a_worker_without_a_free_thread_takes_nothing(call, settings):
    held = 0
    while dispatch.take_thread(wait=False):
        held += 1
    try:
        assert held == settings.WORKER_THREADS
        assert not Poller()._begin(Turn(call().pk), broker_answers=False)
    finally:
        for _ in range(held):
            dispatch.release_thread()


def test_many_calls_without_a_dispatch_mean_a_silent_consumer():
    poller = Poller()
    reasons = [
        poller._reason(broker_answers=True) for _ in range(polling.CONSUMER_SILENT_AFTER + 1)
    ]
    assert reasons == ["hint_late"] * (polling.CONSUMER_SILENT_AFTER - 1) + ["consumer_silent"] * 2
    dispatch.dispatched.beat()
    assert poller._reason(broker_answers=True) == "hint_late"
    assert poller._reason(broker_answers=False) == "redis_silent"


HUNG = """
import os, socket, threading
silent = socket.create_server(("127.0.0.1", 0))
os.environ["REDIS_URL"] = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
import django
django.setup()
from uuid import uuid4
from tests.conditions import until
from tools.execution import dispatch, events
callers = [threading.Thread(target=dispatch.wake_workers, args=[[uuid4()]]) for _ in range(4)]
for caller in callers:
    caller.start()
held = [silent.accept() for _ in callers]
dispatch.wake_workers([uuid4()])
assert all(caller.is_alive() for caller in callers), "the fifth waited for the four"
for caller in callers:
    caller.join()
assert events.redis_pause
silent.close()
[one.close() for one, _ in held]
dispatch.wake_workers([uuid4()])
print("over")
"""


@pytest.mark.part("faults")
def test_a_redis_that_hangs_blocks_few_callers_and_then_none():
    """In a separate process whose Redis accepts connections and never answers."""
    variables = os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings"}
    ended = subprocess.run(
        [sys.executable, "-c", HUNG],
        cwd=ROOT, env=variables, timeout=60, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.stdout == "over\n", ended.stderr
