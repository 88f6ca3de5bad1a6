"""Batches: each call is governed separately, results keep their order, and one approval covers
all."""

import pytest
from django.db.models.functions import Now

from audit.models import AuditRecord
from tests import factories
from tests.tools.approval_requests import approve, approver, at_the_browser, word
from tests.tools.execution.in_process_worker import calls_of, work_off
from tools.accounts import account_actions
from tools.approvals import decisions
from tools.catalog import actions as catalog
from tools.errors import Refused
from tools.execution import answer, dispatch
from tools.execution import perform as execution_pipeline
from tools.execution.claim import claim
from tools.execution.perform import perform
from tools.models import Confirmation, Execution, Tool
from tools.worker import reaper
from tools.workflows import session_actions

pytestmark = pytest.mark.usefixtures("without_workers")
BREAKS = "def main(parameters):\n    raise ValueError('no')\n"


@pytest.fixture
def agent(organization):
    factories.install(organization)
    factories.tool(organization)
    return factories.agent(organization, groups=["default", "composition"])


def call_body(text="x", tool="echo"):
    return {"tool_name": tool, "parameters": {"text": text}}


def batch(agent, *inputs, group=("default", "composition"), **options):
    session = options.pop("session", None)
    call = factories.call(
        "run_batch",
        {"inputs": list(inputs), **options},
        group=None if session else list(group),
        session=session,
    )
    return answer.execute(caller=factories.caller(agent), call=call, wait_s=0)


def done(agent, *inputs, **options):
    execution = batch(agent, *inputs, **options)
    work_off(agent.organization)
    return Execution.objects.get(pk=execution.pk)


def changed(organization, name, **fields):
    """Update a tool to its next version."""
    tool = Tool.objects.present().get(organization=organization, name=name)
    definition = catalog.amended(tool.version.definition, fields)
    catalog.update_tool(tool=tool, definition=definition, by=factories.actor(organization))


def statuses(execution):
    return [result["status"] for result in execution.output["results"]]


def test_the_results_stand_in_the_order_of_the_inputs(agent):
    found = done(agent, call_body("a"), call_body("b"), call_body("c"), mode="parallel")
    assert found.status == "Success"
    assert [result["output"] for result in found.output["results"]] == [
        {"echo": {"text": text}} for text in "abc"
    ]
    assert (found.output["succeeded"], found.output["failed"]) == (3, 0)


def test_each_call_is_an_execution_under_its_parent(agent):
    found = done(agent, call_body("a"), call_body("b"))
    calls = list(calls_of(found))
    assert [call.place for call in calls] == ["0", "1"]
    assert {call.status for call in calls} == {"Success"}
    assert {(call.user_id, call.depth) for call in calls} == {(found.user_id, 1)}
    identifiers = [result["execution_id"] for result in found.output["results"]]
    assert identifiers == [str(call.pk) for call in calls]


def test_evidence_names_the_parent(agent):
    found = done(agent, call_body("a"))
    records = AuditRecord.objects.filter(execution_id=calls_of(found).get().pk)
    parent = {"execution_id": str(found.pk), "place": "0"}
    accepted = records.get(code="TOOL.ACCEPT")
    assert accepted.details["parent"] == parent
    assert records.get(code="TOOL.START").details["parent"] == parent


def test_sequential_calls_are_open_one_after_the_other(agent):
    execution = batch(agent, call_body("a"), call_body("b"))
    perform(execution.pk)
    assert calls_of(execution).count() == 1
    perform(calls_of(execution).get().pk)
    assert [call.status for call in calls_of(execution)] == ["Success", "Pending"]


def test_so_many_are_open_at_once_as_was_asked_for(agent):
    execution = batch(agent, *map(call_body, "abcde"), mode="parallel", max_parallel=2)
    perform(execution.pk)
    assert calls_of(execution).filter(status="Pending").count() == 2


def test_a_batch_with_open_calls_is_not_claimed(agent):
    execution = batch(agent, call_body("a"))
    perform(execution.pk)
    row = Execution.objects.get(pk=execution.pk)
    assert row.parked and row.lease_until is None
    assert execution.pk not in [turn.execution_id for turn in dispatch.next_waiting(100)]
    assert perform(execution.pk) == []
    assert Execution.objects.get(pk=execution.pk).fence == row.fence


def test_who_ends_a_call_takes_the_next_turn_of_its_batch(agent):
    execution = batch(agent, call_body("a"))
    perform(execution.pk)
    perform(calls_of(execution).get().pk)
    assert Execution.objects.get(pk=execution.pk).status == "Success"


def test_a_parked_batch_never_expires_in_the_queue(agent):
    execution = batch(agent, call_body("a"))
    perform(execution.pk)
    Execution.objects.filter(pk=execution.pk).update(queued_at="2020-01-01T00:00:00Z")
    dispatch.drop_expired()
    assert Execution.objects.get(pk=execution.pk).status == "Pending"
    work_off(agent.organization)
    assert Execution.objects.get(pk=execution.pk).status == "Success"


@pytest.mark.parametrize(
    ("name", "status", "code", "begun"),
    [
        ("breaks", "Failed", "TOOL_ERROR", True),
        ("secret", "PermissionDenied", "tool_not_in_group", True),
        ("nowhere", "ValidationError", "tool_not_found", False),
    ],
)
def test_a_call_that_fails_leaves_the_others_alone(agent, organization, name, status, code, begun):
    factories.tool(organization, "breaks", implementation={"source": BREAKS})
    factories.tool(organization, "secret", group=["vault"])
    found = done(agent, call_body("a"), call_body("b", name), call_body("c"))
    assert statuses(found) == ["Success", status, "Success"]
    result = found.output["results"][1]
    assert (result["error_code"], result["execution_id"] is not None) == (code, begun)


def test_it_stops_on_an_error_where_that_was_asked_for(agent, organization):
    factories.tool(organization, "breaks", implementation={"source": BREAKS})
    found = done(
        agent, call_body("a"), call_body("b", "breaks"), call_body("c"), stop_on_error=True
    )
    assert (found.status, found.error_code) == ("Failed", "BATCH_STOPPED")
    results = found.error_details["results"]
    assert [result["status"] for result in results] == ["Success", "Failed", "Cancelled"]
    assert results[2]["error_code"] == "SKIPPED"
    assert calls_of(found).count() == 2


def test_grants_that_are_taken_back_midway_hold_for_what_comes(agent):
    execution = batch(agent, call_body("a"), call_body("b"))
    perform(execution.pk)
    account_actions.change_agent(agent=agent, by=factories.actor(agent.organization), active=False)
    work_off(agent.organization)
    row, call = Execution.objects.get(pk=execution.pk), calls_of(execution).get()
    assert (row.status, row.error_code) == ("PermissionDenied", "caller_suspended")
    assert (call.status, call.error_code) == ("PermissionDenied", "caller_suspended")


def test_cancelling_it_cancels_what_is_open_and_begins_nothing_more(agent):
    execution = batch(
        agent, call_body("a"), call_body("b"), call_body("c"), mode="parallel", max_parallel=2
    )
    perform(execution.pk)
    answer.cancel(caller=factories.caller(agent), execution=execution)
    work_off(agent.organization)
    row = Execution.objects.get(pk=execution.pk)
    assert (row.status, row.error_code) == ("Cancelled", "CANCELLED")
    assert [call.status for call in calls_of(execution)] == ["Cancelled", "Cancelled"]


def test_calls_of_a_batch_that_is_over_are_stopped(agent):
    execution = batch(agent, call_body("a"))
    perform(execution.pk)
    Execution.objects.filter(pk=execution.pk).update(
        status="Failed", completed_at=Now(), parked_below=None
    )
    reaper.reap()
    assert calls_of(execution).get().status == "Cancelled"


def test_a_call_whose_batch_is_over_does_not_begin(agent):
    execution = batch(agent, call_body("a"))
    perform(execution.pk)
    Execution.objects.filter(pk=execution.pk).update(
        status="Failed", completed_at=Now(), parked_below=None
    )
    work_off(agent.organization)
    call = calls_of(execution).get()
    assert (call.status, call.error_code) == ("PermissionDenied", "parent_over")


def test_time_that_is_over_cancels_the_rest(agent):
    execution = batch(agent, call_body("a"), call_body("b"))
    perform(execution.pk)
    Execution.objects.filter(pk=execution.pk).update(
        started_at="2020-01-01T00:00:00Z", wake_at="2020-01-01T01:00:00Z"
    )
    perform(execution.pk)
    assert Execution.objects.get(pk=execution.pk).status == "Timeout"
    assert [call.status for call in calls_of(execution)] == ["Cancelled"]


def test_a_turn_that_was_lost_is_taken_again_and_makes_no_call_twice(agent, monkeypatch):
    execution = batch(agent, call_body("a"), call_body("b"), call_body("c"))
    perform(execution.pk)
    with monkeypatch.context() as patch:
        patch.setattr(execution_pipeline, "resumable_calls", lambda _: [])
        perform(calls_of(execution).get().pk)
    assert claim(execution.pk, "gone") is not None  # and the worker is killed
    Execution.objects.filter(pk=execution.pk).update(lease_until="2020-01-01T00:00:00Z")
    reaper.reap()
    work_off(agent.organization)
    row = Execution.objects.get(pk=execution.pk)
    assert (row.status, calls_of(execution).count()) == ("Success", 3)


def test_one_batch_within_another_ends_somewhere(agent):
    inner = call_body("a")
    for _ in range(6):
        inner = {"tool_name": "run_batch", "parameters": {"inputs": [inner]}}
    execution = batch(agent, inner)
    work_off(agent.organization)
    refused = Execution.objects.get(error_code="nested_too_deep", organization=agent.organization)
    assert refused.depth == 5
    assert Execution.objects.get(pk=execution.pk).status == "Success"


def test_one_question_is_asked_for_all_its_calls(agent, organization):
    factories.tool(organization, "careful", requires_confirmation=True)
    execution = batch(agent, call_body("a", "careful"), call_body("b"), call_body("c", "careful"))
    assert execution.status == "RequiresConfirmation"
    confirmation = Confirmation.objects.get(execution=execution)
    assert "2 calls of this batch" in confirmation.reasons[0]
    approve(confirmation, approver(organization))
    work_off(organization)
    found = Execution.objects.get(pk=execution.pk)
    assert statuses(found) == ["Success"] * 3
    assert not Confirmation.objects.filter(execution__parent=execution).exists()
    spent = AuditRecord.objects.filter(
        execution_id__in=calls_of(execution).values("pk"), code="CONFIRM.SPEND"
    )
    assert spent.count() == 2


def test_the_question_is_not_good_for_a_tool_that_changed_meanwhile(agent, organization):
    factories.tool(organization, "careful", requires_confirmation=True)
    execution = batch(agent, call_body("a", "careful"))
    approve(Confirmation.objects.get(execution=execution), approver(organization))
    changed(organization, "careful", description="Other.")
    work_off(organization)
    assert calls_of(execution).get().status == "RequiresConfirmation"


def test_a_rejected_batch_makes_no_call(agent, organization):
    factories.tool(organization, "careful", requires_confirmation=True)
    execution = batch(agent, call_body("a", "careful"))
    confirmation = Confirmation.objects.get(execution=execution)
    person = at_the_browser(approver(organization))
    decisions.decide(caller=person, word=word(confirmation, approve=False))
    work_off(organization)
    row = Execution.objects.get(pk=execution.pk)
    assert (row.status, row.error_code) == ("PermissionDenied", "confirmation_rejected")
    assert not calls_of(execution).exists()


def test_no_question_is_asked_about_calls_that_would_be_refused(agent, organization):
    factories.tool(organization, "vaulted", requires_confirmation=True, group=["vault"])
    found = done(agent, call_body("a", "vaulted"))
    assert statuses(found) == ["PermissionDenied"]


def test_a_batch_whose_row_was_changed_goes_on_no_more(agent, organization):
    factories.tool(organization, "careful", requires_confirmation=True)
    execution = batch(agent, call_body("a", "careful"), call_body("b", "careful"))
    approve(Confirmation.objects.get(execution=execution), approver(organization))
    perform(execution.pk)
    forged = {"inputs": [call_body("a", "careful"), call_body("forged", "careful")]}
    Execution.objects.filter(pk=execution.pk).update(parameters=forged)
    work_off(organization)
    row = Execution.objects.get(pk=execution.pk)
    assert (row.status, row.error_code) == ("PermissionDenied", "confirmation_changed")
    assert calls_of(execution).count() == 1


def test_calls_in_a_session_move_its_state_one_by_one(agent, organization):
    factories.tool(organization, "begin", state="middle")
    factories.tool(organization, "end", available_in_states=["middle"], state="last")
    caller = factories.caller(agent)
    groups = ["default", "composition"]
    session, _ = session_actions.open_session(caller=caller, group=groups, state=None)
    found = done(agent, call_body("a", "begin"), call_body("b", "end"), session=str(session.pk))
    assert statuses(found) == ["Success", "Success"]
    session.refresh_from_db()
    assert session.state == "last"


def test_the_door_of_batches_needs_no_grant_of_its_tool(agent, organization):
    plain = factories.agent(organization, groups=["default"])
    call = factories.call("run_batch", {"inputs": [call_body("a")]}, at_its_door=True)
    execution = answer.execute(caller=factories.caller(plain), call=call, wait_s=0)
    work_off(organization)
    assert statuses(Execution.objects.get(pk=execution.pk)) == ["Success"]
    with pytest.raises(Refused):
        batch(plain, call_body("a"), group=["default"])


def test_no_other_tool_is_reached_through_that_door(organization, agent):
    factories.tool(organization, "secret", group=["vault"])
    call = factories.call("secret", {"text": "x"}, at_its_door=True)
    with pytest.raises(Refused, match="not in a requested group"):
        answer.execute(caller=factories.caller(agent), call=call, wait_s=0)


def test_events_tell_how_far_it_is(agent):
    found = done(agent, call_body("a"), call_body("b"))
    events = list(found.events.values_list("type", "message"))
    assert events[0][0] == "Started" and events[-1][0] == "Completed"
    assert ("InProgress", "1 of 2 calls are over; 1 are open.") in events
    assert [kind for kind, _ in events].count("Started") == 1


def test_a_call_knows_what_it_was_made_of_whatever_else_a_reference_stood_for(agent):
    source = done(agent, call_body("secret"))
    text = {"$result": str(source.pk), "path": "/output/results/0/output/echo/text"}
    name = {"$result": str(source.pk), "path": "/output/results/0/tool_name"}
    found = done(agent, {"tool_name": name, "parameters": {"text": text}})
    call = calls_of(found).get()
    assert (call.tool_name, call.parameters) == ("echo", {"text": "secret"})
    assert [one["place"] for one in call.refers_to] == ["/text"]
    assert call.asked == {"text": text}


def test_parameters_that_are_a_reference_as_a_whole_are_what_it_stood_for(agent):
    source = done(agent, call_body("again"))
    whole = {"$result": str(source.pk), "path": "/output/results/0/output/echo"}
    found = done(agent, {"tool_name": "echo", "parameters": whole})
    assert found.output["results"][0]["output"] == {"echo": {"text": "again"}}


def test_a_switched_off_schema_lets_nothing_else_in(agent, organization):
    changed(organization, "run_batch", argument_validation="off")
    for wrong in ({}, {"inputs": 3}, {"inputs": [1]}, {"inputs": [{"tool_name": "x"}]}):
        call = factories.call("run_batch", wrong, group=["composition"])
        execution = answer.execute(caller=factories.caller(agent), call=call, wait_s=0)
        work_off(organization)
        assert Execution.objects.get(pk=execution.pk).error_code == "INPUTS_WRONG"


def test_the_consent_to_a_batch_is_good_for_its_calls_while_a_lost_turn_waits(
    organization, monkeypatch
):
    factories.install(organization)
    factories.tool(organization, "careful", requires_confirmation=True)
    agent = factories.agent(organization, groups=["default", "composition"])
    inputs = [call_body(text, "careful") for text in "abc"]
    execution = batch(agent, *inputs, mode="parallel", max_parallel=2)
    approve(Confirmation.objects.get(execution=execution), approver(organization))
    with monkeypatch.context() as patch:
        patch.setattr(execution_pipeline, "resumable_calls", lambda _: [])
        perform(execution.pk)
        first, second = calls_of(execution)
        perform(first.pk)
        assert claim(execution.pk, "gone") is not None  # and the worker is killed
        Execution.objects.filter(pk=execution.pk).update(lease_until="2020-01-01T00:00:00Z")
        reaper.reap()
        perform(second.pk)
    work_off(organization)
    assert [call.status for call in calls_of(execution)] == ["Success"] * 3
    assert Execution.objects.get(pk=execution.pk).status == "Success"
