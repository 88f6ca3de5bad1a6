"""A worker is lost during a chain run: the step that it was starting is still executed."""

import pytest

from tests import factories
from tests.tools.execution.in_process_worker import calls_of, work_off
from tests.tools.workflows.test_chains import (
    FAILS,
    SAYS,
    begin_chain,
    chain,
    changed,
    places,
    reload,
    step,
)
from tools.execution import answer, dispatch
from tools.execution import perform as execution_pipeline
from tools.execution.claim import claim
from tools.execution.perform import perform
from tools.models import Execution
from tools.worker import reaper
from tools.workflows import composition

pytestmark = pytest.mark.usefixtures("without_workers")
UNDO = {"tool_name": "say", "parameters": {"text": "undo"}}


class Killed(BaseException):
    """Kills the worker: nothing after it is executed."""


@pytest.fixture(autouse=True)
def tools(organization):
    factories.tool(organization, "say", implementation={"source": SAYS})
    factories.tool(organization, "fail", implementation={"source": FAILS})


@pytest.fixture
def one_by_one(monkeypatch):
    """Ending a call does not perform a turn of its run: the test does."""
    monkeypatch.setattr(execution_pipeline, "resumable_calls", lambda _: [])


def lost(execution):
    """Its worker is lost, and the reaper has seen it."""
    Execution.objects.filter(pk=execution.pk).update(lease_until="2020-01-01T00:00:00Z")
    reaper.reap()


def killed_as_it_parks(execution, monkeypatch):
    def park(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(composition, "_park", park)
        with pytest.raises(Killed):
            perform(execution.pk)
    lost(execution)


def test_an_undoing_that_was_begun_is_ended_though_the_run_is_cancelled(
    agent, organization, monkeypatch, one_by_one
):
    chain(
        organization,
        step("one", compensate_with=UNDO),
        step("two", compensate_with=UNDO),
        step("three", "fail", on_error="compensate"),
    )
    execution = begin_chain(agent)
    for _ in range(3):
        perform(execution.pk)
        perform(calls_of(execution).last().pk)
    killed_as_it_parks(execution, monkeypatch)
    assert places(execution)["undo:two"] == "Pending"
    answer.cancel(caller=factories.caller(agent), execution=execution)
    work_off(organization)
    found = reload(execution)
    assert (found.status, found.error_details["step"]) == ("Failed", "three")
    undone = [one["step"] for one in found.error_details["compensated"]]
    assert undone == ["two", "one"]


def test_a_run_goes_on_as_it_began_when_the_chain_is_changed_and_a_turn_is_lost(
    agent, organization, one_by_one
):
    chain(organization, step("one"), step("two", text="old"))
    execution = begin_chain(agent)
    perform(execution.pk)
    perform(calls_of(execution).get().pk)
    assert claim(execution.pk, "gone") is not None  # and the worker is killed
    lost(execution)
    changed(organization, {"chain": {"steps": [step("one"), step("two", text="new")]}})
    work_off(organization)
    found = reload(execution)
    assert (found.status, found.output["said"]) == ("Success", "old")


def test_a_run_whose_turn_was_lost_is_undone_when_it_is_cancelled_then(
    agent, organization, one_by_one
):
    chain(organization, step("one", compensate_with=UNDO), step("two"), on_cancel="compensate")
    execution = begin_chain(agent)
    perform(execution.pk)
    perform(calls_of(execution).get().pk)
    assert claim(execution.pk, "gone") is not None
    lost(execution)
    answer.cancel(caller=factories.caller(agent), execution=execution)
    work_off(organization)
    found = reload(execution)
    assert (found.status, found.error_code) == ("Cancelled", "CANCELLED")
    assert [one["step"] for one in found.error_details["compensated"]] == ["one"]


def test_a_run_whose_turn_was_lost_never_expires_in_the_queue(agent, organization, one_by_one):
    chain(organization, step("one"), step("two"))
    execution = begin_chain(agent)
    perform(execution.pk)
    perform(calls_of(execution).get().pk)
    claim(execution.pk, "gone")
    lost(execution)
    Execution.objects.filter(pk=execution.pk).update(queued_at="2020-01-01T00:00:00Z")
    dispatch.drop_expired()
    work_off(organization)
    assert reload(execution).status == "Success"


def test_a_run_that_is_lost_again_and_again_is_set_aside(agent, organization):
    chain(organization, step("one"))
    execution = begin_chain(agent)
    for _ in range(3):
        assert claim(execution.pk, "gone") is not None
        lost(execution)
    found = reload(execution)
    assert (found.status, found.error_code) == ("Failed", "WORKER_LOST")
    assert found.attempt == 3
