"""Dispatches wake a worker's threads: by a list in Redis, or by a Celery message."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.db.models import F

from tests import factories
from tests.conditions import until
from tests.crib import Crib
from tests.tools.execution.workers import stopped
from tools.execution import dispatch, events
from tools.models import Agent, Execution, Organization
from tools.worker import wake_ups
from tools.worker.polling import DISPATCH_PATIENCE
from tools.worker.wake_ups import WakeUps


@pytest.fixture
def waiting(
    servers_in: object, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], list[str]]]:
    """What waits in a list that no worker of another process reads."""
    monkeypatch.setattr(events, "redis_pause", events._RedisPause())
    name = f"test:{uuid4()}"
    monkeypatch.setattr(dispatch, "WAKE_UPS", name)
    monkeypatch.setattr(wake_ups, "WAKE_UPS", name)
    monkeypatch.setattr(dispatch, "line", dispatch._Line())
    redis = events.redis_connection()
    yield lambda: [entry.decode() for entry in redis.lrange(name, 0, -1)]
    redis.delete(name)


@pytest.fixture
def woken(
    waiting: object, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> Iterator[threading.Event]:
    """Threads of this process that are woken, until the event is set."""
    settings.WORKER_THREADS = 2
    stopping, before = threading.Event(), set(threading.enumerate())
    monkeypatch.setattr(dispatch, "stopping", stopping)
    WakeUps().start()
    yield stopping
    stopping.set()
    for thread in {one for one in threading.enumerate() if one.name == "woken"} - before:
        thread.join()


@pytest.fixture
def call(agent: Agent, organization: Organization) -> Callable[[], Execution]:
    """A call that was accepted, without a dispatch."""
    factories.tool(organization)
    return lambda: factories.execution(agent)


def _dispatched(execution: Execution) -> Execution:
    dispatch.wake_workers([execution.pk])
    found = Execution.objects.filter(pk=execution.pk, status="Success")
    return until(found.first)


def test_a_dispatch_is_an_entry_of_a_list(waiting: Callable[[], list[str]]) -> None:
    one, other = uuid4(), uuid4()
    dispatch.wake_workers([one, other])
    assert waiting() == [str(one), str(other)]


def test_a_list_that_no_worker_reads_does_not_grow(
    waiting: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "MOST_WAKE_UPS", 3)
    ids = [uuid4() for _ in range(5)]
    for execution_id in ids:
        dispatch.wake_workers([execution_id])
    assert waiting() == [str(execution_id) for execution_id in ids[2:]]


@pytest.mark.usefixtures("committed", "woken")
def test_a_thread_that_is_woken_performs_the_call(call: Callable[[], Execution]) -> None:
    """No other worker has heard of it; its poller may still be faster here and there."""
    until(lambda: f":{os.getpid()}:" in _dispatched(call()).worker)


@pytest.mark.usefixtures("committed")
def test_a_process_that_stops_leaves_its_wake_up_to_another(
    woken: threading.Event, waiting: Callable[[], list[str]]
) -> None:
    redis, execution_id = events.redis_connection(), uuid4()
    until(lambda: any(client["cmd"] == "blpop" for client in redis.client_list()))
    woken.set()
    dispatch.wake_workers([execution_id])
    until(lambda: not [one for one in threading.enumerate() if one.name == "woken"])
    assert waiting() == [str(execution_id)]


def test_a_process_without_a_free_place_takes_no_wake_up(
    waiting: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(dispatch, "_free_threads", threading.BoundedSemaphore(1))
    dispatch.wake_workers([uuid4()])
    sleeper = WakeUps()
    assert dispatch.take_thread(wait=False)
    assert sleeper._next_wake_up(waits=True) is None and len(waiting()) == 1
    dispatch.release_thread()
    assert sleeper._next_wake_up(waits=True) is not None and waiting() == []


def test_with_a_long_backlog_a_thread_goes_on_without_a_wake_up(
    waiting: object, call: Callable[[], Execution], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = call()
    waiting_here = len(dispatch.next_waiting(1_000))
    monkeypatch.setattr(dispatch, "_CANDIDATES", waiting_here + 1)
    dispatch.line.ask()
    assert dispatch.line.is_long and not dispatch.line.goes_on
    second = call()
    dispatch.line.ask()
    assert dispatch.line.goes_on
    turns = [turn.execution_id for turn in dispatch.turns(None)]
    assert {first.pk, second.pk} <= {*turns}


@pytest.mark.usefixtures("committed")
@pytest.mark.parametrize("way", ["wake", "celery"])
def test_a_worker_begins_a_dispatched_call_without_polling(
    crib: Crib, call: Callable[[], Execution], settings: Any, way: str
) -> None:
    """Pollers leave each call to its dispatch for a while, so what begins sooner was dispatched."""
    settings.EXECUTION_DISPATCH = way
    sooner = Execution.objects.filter(started_at__lt=F("queued_at") + DISPATCH_PATIENCE)
    until(lambda: sooner.filter(pk=_dispatched(call()).pk).exists())


@pytest.mark.usefixtures("committed")
def test_calls_whose_wake_ups_were_lost_are_performed(
    crib: Crib, call: Callable[[], Execution]
) -> None:
    with stopped(crib):
        execution = call()
        dispatch.wake_workers([execution.pk])
        events.redis_connection().delete(dispatch.WAKE_UPS)
    until(Execution.objects.filter(pk=execution.pk, status="Success").exists)
