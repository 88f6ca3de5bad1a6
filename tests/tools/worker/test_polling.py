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
from tools.execution import capacity
from tools.execution.claiming import Turn
from tools.models import Execution
from tools.worker import polling
from tools.worker.polling import Poller, Resting

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


def test_where_workers_are_told_a_hint_gets_a_moment(call):
    young, old = call(), call(age_s=5)
    waiting = [turn.execution_id for turn in polling._waiting(1000, told=True)]
    assert old.pk in waiting and young.pk not in waiting


def test_where_nobody_can_be_told_everything_is_taken_at_once(call):
    young, old = call(), call(age_s=5)
    waiting = [turn.execution_id for turn in polling._waiting(1000, told=False)]
    assert waiting.index(old.pk) < waiting.index(young.pk)


def test_who_was_tried_is_left_alone_for_a_while():
    resting, one, other = Resting(), uuid4(), uuid4()
    assert resting.may_go(one)
    assert not resting.may_go(one) and resting.may_go(other)


def test_each_rest_is_longer_than_the_one_before():
    resting, one = Resting(), uuid4()
    pauses = []
    for _ in range(7):
        resting.may_go(one)
        _, pause_s = resting._until[one]
        pauses.append(pause_s)
        resting._until[one] = (0.0, pause_s)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0]


def test_who_may_go_on_is_woken():
    resting, one = Resting(), uuid4()
    resting.may_go(one)
    resting.wake([one])
    assert resting.may_go(one)


@pytest.mark.part("faults")
@pytest.mark.usefixtures("committed")
def test_a_worker_without_redis_runs_what_was_accepted(crib, call):
    with worker(crib) as process:
        execution = taken_by(crib, process, call)
        done = until(lambda: Execution.objects.filter(pk=execution.pk, status="Success").first())
    assert done.output == {"echo": {"text": "x"}}


@pytest.mark.usefixtures("committed")
def test_a_worker_whose_hands_are_full_takes_nothing(call, settings):
    held = 0
    while capacity.take(wait=False):
        held += 1
    try:
        assert held == settings.WORKER_THREADS
        assert not Poller()._begin(Turn(call().pk), told=False)
    finally:
        for _ in range(held):
            capacity.give()


def test_many_calls_without_a_hint_are_a_deaf_consumer():
    poller = Poller()
    reasons = [poller._reason(told=True) for _ in range(polling.DEAF_AFTER + 1)]
    assert reasons == ["hint_late"] * (polling.DEAF_AFTER - 1) + ["consumer_silent"] * 2
    capacity.hinted.beat()
    assert poller._reason(told=True) == "hint_late"
    assert poller._reason(told=False) == "redis_silent"


HUNG = """
import os, socket, threading
silent = socket.create_server(("127.0.0.1", 0))
os.environ["REDIS_URL"] = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
import django
django.setup()
from uuid import uuid4
from tests.conditions import until
from tools.execution import bell, hints
callers = [threading.Thread(target=hints.tell, args=[[uuid4()]]) for _ in range(4)]
for caller in callers:
    caller.start()
held = [silent.accept() for _ in callers]
hints.tell([uuid4()])
assert all(caller.is_alive() for caller in callers), "the fifth waited for the four"
for caller in callers:
    caller.join()
assert bell.pause
silent.close()
[one.close() for one, _ in held]
hints.tell([uuid4()])
print("told")
"""


@pytest.mark.part("faults")
def test_a_redis_that_hangs_holds_up_few_and_then_nobody():
    """In a separate process whose Redis accepts connections and never answers."""
    variables = os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings"}
    ended = subprocess.run(
        [sys.executable, "-c", HUNG],
        cwd=ROOT, env=variables, timeout=60, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.stdout == "told\n", ended.stderr
