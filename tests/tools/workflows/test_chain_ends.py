"""How chain runs end: which steps are compensated, and what is reported about the others."""

import pytest
from django.db.models.functions import Now

from tests import factories
from tests.tools.execution.in_process_worker import calls_of, work_off
from tests.tools.workflows.test_chains import (
    FAILS,
    FAILS_ON,
    SAYS,
    begin_chain,
    chain,
    done,
    places,
    reload,
    step,
)
from tools.catalog import actions as catalog
from tools.execution import answer, requeue
from tools.execution.claim import claim
from tools.execution.finish import finish
from tools.execution.perform import RUN, compose, perform
from tools.models import Execution, Tool
from tools.worker import reaper
from tools.workflows import call_attempts, chains, nested_calls

pytestmark = pytest.mark.usefixtures("without_workers")
ENDS = {"TIMEOUT": "import time\ndef main(parameters):\n    time.sleep(9)\n", "ERR": FAILS}
UNDO = {"tool_name": "say", "parameters": {"text": "undo"}}


@pytest.fixture(autouse=True)
def tools(organization):
    factories.tool(organization, "say", implementation={"source": SAYS})
    factories.tool(organization, "fail", implementation={"source": FAILS})
    factories.tool(organization, "picky", implementation={"source": FAILS_ON})


def steps(execution, name):
    """The places in one list of the run's error details."""
    return [one["place"] for one in reload(execution).error_details[name]]


def cancel(agent, execution):
    answer.cancel(caller=factories.caller(agent), execution=execution)


def test_cancelling_a_run_leaves_alone_what_undoes(agent, organization):
    chain(
        organization,
        step("one", compensate_with=UNDO),
        step("two", "fail", on_error="compensate"),
    )
    execution = begin_chain(agent)
    perform(execution.pk)
    for place in ("one", "two"):
        perform(calls_of(execution).get(place=place).pk)
    assert places(execution)["undo:one"] == "Pending"
    cancel(agent, execution)
    assert places(execution)["undo:one"] == "Pending"
    work_off(organization)
    assert (reload(execution).status, steps(execution, "compensated")) == ("Failed", ["one"])


@pytest.mark.part("calls")
def test_a_call_that_could_not_be_made_in_the_last_turn_is_remembered(agent, organization):
    gone = {"$step": "one", "path": "/output/gone"}
    chain(
        organization,
        step("one", compensate_with={"tool_name": "say", "parameters": {"text": gone}}),
        step("two", "fail", on_error="compensate"),
    )
    found = done(agent)
    absent = chains.calls_of_run(found)[-1]
    assert (absent.place, absent.id, absent.error_code) == ("undo:one", None, "VALUE_MISSING")
    assert steps(found, "not_compensated") == ["one"]


def test_a_limit_of_calls_ends_a_run_as_its_step_says(agent, organization, monkeypatch):
    monkeypatch.setattr(nested_calls, "MOST_CALLS", 3)
    undo = {"tool_name": "say", "parameters": {"text": {"$item": ""}}}
    loop = {"for_each": ["a", "b", "c", "d"], "parallel": 4, "text": {"$item": ""}}
    chain(organization, step("one", **loop, compensate_with=undo, on_error="compensate"))
    found = done(agent)
    assert (found.status, found.error_code) == ("Failed", "TOO_MANY_CALLS")
    assert found.error_details["step"] == "one"
    ended = [call.status for call in calls_of(found).filter(place__startswith="one/")]
    assert ended == ["Cancelled"] * 3


@pytest.mark.part("calls")
def test_what_undoes_is_made_beyond_the_limit_of_calls(agent, organization, monkeypatch):
    monkeypatch.setattr(nested_calls, "MOST_CALLS", 4)
    undo = {"tool_name": "say", "parameters": {"text": {"$item": ""}}}
    loop = {"for_each": ["a", "b", "c", "d"], "text": {"$item": ""}, "compensate_with": undo}
    chain(organization, step("one", **loop), step("two", on_error="compensate"))
    found = done(agent)
    assert found.error_code == "TOO_MANY_CALLS"
    assert steps(found, "compensated") == ["one/3", "one/2", "one/1", "one/0"]


@pytest.mark.parametrize(("code", "status"), [("TIMEOUT", "Timeout"), ("ERR", "Failed")])
def test_a_run_fails_whichever_way_its_step_ended(agent, organization, code, status):
    """A run times out only by its own timeout."""
    factories.tool(organization, "ends", implementation={"source": ENDS[code]})
    chain(organization, step("one", "ends", timeout="PT0.5S"))
    found = done(agent)
    assert (calls_of(found).get().status, found.status) == (status, "Failed")


def test_an_output_that_its_schema_forbids_is_undone_where_that_was_said(agent, organization):
    chain(
        organization,
        step("one", compensate_with=UNDO),
        on_cancel="compensate",
        output={"$step": "one", "path": "/output/said"},
        output_schema={"type": "integer"},
    )
    found = done(agent)
    assert (found.status, found.error_code, found.output) == ("Failed", "OUTPUT_INVALID", None)
    assert (steps(found, "compensated"), found.error_details["places"]) == (["one"], ["/"])


@pytest.mark.part("calls")
def test_an_output_that_cannot_be_made_is_undone_where_that_was_said(agent, organization):
    gone = {"$step": "one", "path": "/output/gone"}
    chain(organization, step("one", compensate_with=UNDO), on_cancel="compensate", output=gone)
    found = done(agent)
    assert (found.error_code, steps(found, "compensated")) == ("OUTPUT_MISSING", ["one"])


@pytest.mark.part("calls")
def test_what_a_chain_redacts_and_selects_is_done_once(agent, organization):
    chain(
        organization,
        step("one", text="secret"),
        transform={"select": "$.list", "redact": ["$[0]"]},
    )
    assert done(agent).output == ["[redacted]", 2, 3]


@pytest.mark.part("calls")
def test_a_run_that_is_refused_midway_says_what_it_has_done(agent, organization):
    chain(organization, step("one"), step("two"))
    execution = begin_chain(agent)
    perform(execution.pk)
    perform(calls_of(execution).get().pk)
    tool = Tool.objects.present().get(organization=organization, name="chain")
    catalog.set_enabled(tool=tool, enabled=False, by=factories.actor(organization))
    work_off(organization)
    found = reload(execution)
    assert (found.status, found.error_code) == ("PermissionDenied", "tool_disabled")
    assert steps(found, "committed") == ["two", "one"]


@pytest.mark.part("calls")
def test_a_run_whose_worker_was_lost_too_often_says_what_it_has_done(agent, organization):
    chain(organization, step("one"), step("two"))
    execution = begin_chain(agent)
    perform(execution.pk)
    perform(calls_of(execution).get().pk)
    Execution.objects.filter(pk=execution.pk).update(wake_at=Now())
    for _ in range(3):
        assert claim(execution.pk, "gone") is not None
        Execution.objects.filter(pk=execution.pk).update(lease_until="2020-01-01T00:00:00Z")
        reaper.reap()
    assert reload(execution).error_code == "WORKER_LOST"
    assert (steps(execution, "committed"), steps(execution, "unknown")) == (["one"], ["two"])


@pytest.mark.part("calls")
def test_a_run_that_no_worker_can_begin_again_says_what_it_has_done(agent, organization):
    chain(organization, step("one"), step("two"))
    execution = begin_chain(agent)
    perform(execution.pk)
    perform(calls_of(execution).get().pk)
    for _ in range(requeue.MOST_FAILED_CLAIMS):
        requeue.count_failed_claim(execution.pk, ValueError())
    work_off(organization)
    assert reload(execution).error_code == "POISONED"
    assert steps(execution, "committed") == ["one"]


@pytest.mark.part("calls")
def test_a_run_that_is_cancelled_as_it_succeeds_is_undone_where_that_was_said(agent, organization):
    chain(organization, step("one", compensate_with=UNDO), on_cancel="compensate")
    execution = begin_chain(agent)
    perform(execution.pk)
    claimed = claim(calls_of(execution).get().pk, "test")
    for one in RUN:  # without the turn of its run that would follow
        one(claimed)
    last = claim(execution.pk, "test")
    compose(last)
    assert last.result.status == "Success"
    cancel(agent, execution)
    finish(last)
    work_off(organization)
    assert (reload(execution).status, steps(execution, "compensated")) == ("Cancelled", ["one"])


@pytest.mark.part("calls")
def test_what_undoes_an_item_of_a_loop_is_given_what_that_item_gave(agent, organization):
    own = {"tool_name": "say", "parameters": {"text": {"$step": "one"}}}
    third = {"tool_name": "say", "parameters": {"text": {"$step": "one", "path": "/output/2"}}}
    loop = {"for_each": ["a", "bad", "c"], "on_error": "continue", "text": {"$item": ""}}
    chain(
        organization,
        step("one", "picky", **loop, compensate_with=own),
        step("two", compensate_with=third),
        step("three", "fail", on_error="compensate"),
    )
    calls = calls_of(done(agent)).filter(place__startswith="undo:")
    given = {call.place: call.parameters["text"] for call in calls}
    assert given == {"undo:two": "c", "undo:one/2": "c", "undo:one/0": "a"}


@pytest.mark.part("calls")
def test_what_undoes_is_tried_again_as_was_said(agent, organization, monkeypatch):
    undo = {"tool_name": "fail", "parameters": {"text": "x"}}
    retries = {"attempts": 2, "wait": "PT10S"}
    chain(
        organization,
        step("one", compensate_with=undo | {"retries": retries}),
        step("two", "fail", on_error="compensate"),
    )
    execution = done(agent)
    assert execution.stage == "Running"
    pause_over(execution, monkeypatch)
    undone = [place for place in places(execution) if place.startswith("undo:")]
    assert undone == ["undo:one", "undo:one#2"]
    assert (reload(execution).status, steps(execution, "not_compensated")) == ("Failed", ["one"])


@pytest.mark.part("calls")
def test_what_undoes_is_tried_again_after_a_limit_that_passes(agent, organization, monkeypatch):
    factories.tool(organization, "slowly", rate_limit_per_minute=1)
    undo = {"tool_name": "slowly", "parameters": {"text": "x"}}
    chain(
        organization,
        step("one", compensate_with=undo),
        step("two", compensate_with=undo),
        step("three", "fail", on_error="compensate"),
    )
    execution = done(agent)
    assert (execution.stage, places(execution)["undo:one"]) == ("Running", "PermissionDenied")
    changed(organization, {"rate_limit_per_minute": 10}, name="slowly")
    pause_over(execution, monkeypatch)
    assert steps(execution, "compensated") == ["two", "one"]


def pause_over(execution, monkeypatch):
    """Perform the run at the time at which its pause ends."""
    due = reload(execution).wake_at
    monkeypatch.setattr(call_attempts, "clock", lambda: due)
    Execution.objects.filter(pk=execution.pk).update(wake_at=Now())
    work_off(execution.organization)


def changed(organization, fields, name):
    tool = Tool.objects.present().get(organization=organization, name=name)
    definition = catalog.amended(tool.version.definition, fields)
    catalog.update_tool(tool=tool, definition=definition, by=factories.actor(organization))
