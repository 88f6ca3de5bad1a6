"""Chain runs: which steps run, with which values, how often, and which are compensated."""

from datetime import timedelta

import pytest
from django.db.models.functions import Now

from audit.models import AuditRecord
from tests import factories
from tests.tools.approval_requests import approve, approver
from tests.tools.execution.in_process_worker import calls_of, work_off
from tools.accounts import account_actions
from tools.catalog import actions as catalog
from tools.execution import answer
from tools.execution import perform as execution_pipeline
from tools.execution.claim import claim
from tools.execution.perform import perform
from tools.models import Confirmation, Execution, Tool
from tools.worker import reaper
from tools.workflows import call_attempts, chains

pytestmark = pytest.mark.usefixtures("without_workers")
FAILS = "def main(parameters):\n    raise ValueError('no')\n"
SAYS = "def main(parameters):\n    return {'said': parameters['text'], 'list': [1, 2, 3]}\n"
FAILS_ON = (
    "def main(parameters):\n"
    "    if parameters['text'] == 'bad':\n        raise ValueError('bad')\n"
    "    return parameters['text']\n"
)


@pytest.fixture(autouse=True)
def tools(organization):
    factories.tool(organization, "say", implementation={"source": SAYS})
    factories.tool(organization, "fail", implementation={"source": FAILS})
    factories.tool(organization, "picky", implementation={"source": FAILS_ON})


def chain(organization, *steps, name="chain", **more):
    document = {key: more.pop(key) for key in ("output", "on_cancel") if key in more}
    definition = {
        "name": name,
        "type": "chain",
        "description": "A chain.",
        "parameters": [
            {"name": "text", "type": "String", "description": "Anything.", "required": True}
        ],
        "implementation": {"chain": {"steps": list(steps), **document}},
    }
    return factories.register(organization, definition | more)


def step(name="one", tool="say", text="x", **more):
    return {"id": name, "tool_name": tool, "parameters": {"text": text}} | more


def begin_chain(agent, name="chain", **more):
    call = factories.call(name, {"text": "input"}, **more)
    return answer.execute(caller=factories.caller(agent), call=call, wait_s=0)


def done(agent, name="chain", **more):
    execution = begin_chain(agent, name, **more)
    work_off(agent.organization)
    return reload(execution)


def reload(execution):
    return Execution.objects.get(pk=execution.pk)


def places(execution):
    return {call.place: call.status for call in calls_of(execution)}


def test_a_chain_is_a_tool_that_gives_back_its_last_steps_output(agent, organization):
    chain(organization, step("one"), step("two", text="last"))
    found = done(agent)
    assert (found.status, found.output["said"]) == ("Success", "last")
    assert list(places(found)) == ["one", "two"]


def test_values_come_from_the_input_and_from_earlier_steps(agent, organization):
    said = {"$step": "one", "path": "/output/said"}
    chain(
        organization,
        step("one", text={"$input": "/text"}),
        step("two", text={"$text": "{{ steps.one.output.said }} and {{ input.text }}"}),
        output={"first": said, "second": {"$step": "two", "path": "/output/said"}},
    )
    assert done(agent).output == {"first": "input", "second": "input and input"}


@pytest.mark.part("calls")
def test_a_value_that_is_not_there_is_its_default_or_fails_the_step(agent, organization):
    missing = {"$step": "one", "path": "/output/nowhere"}
    chain(organization, step("one"), step("two", text=missing | {"default": "instead"}))
    assert done(agent).output["said"] == "instead"
    chain(organization, step("one"), step("two", text=missing), name="strict")
    found = done(agent, "strict")
    assert (found.status, found.error_code) == ("Failed", "VALUE_MISSING")
    assert "step one, /output/nowhere" in found.error_message


def test_what_only_looks_like_a_reference_is_a_value(agent, organization):
    shape = {"$step": "not meant"}
    factories.tool(
        organization,
        "any",
        parameters=[{"name": "v", "type": "Object", "description": "Any.", "required": True}],
    )
    chain(
        organization,
        {"id": "one", "tool_name": "any", "parameters": {"v": {"$literal": shape}}},
    )
    assert done(agent).output == {"echo": {"v": shape}}


@pytest.mark.part("calls")
def test_a_result_reference_in_what_a_tool_gave_back_is_data(agent, organization):
    """An author of text that a tool reads must not reach the caller's other outputs."""
    secret = factories.execution(agent, "say", text="secret")
    perform(secret.pk)
    source = f"def main(p):\n    return {{'$result': '{secret.pk}', 'path': '/output/said'}}\n"
    factories.tool(organization, "lure", implementation={"source": source})
    factories.tool(
        organization,
        "any",
        parameters=[{"name": "v", "type": "Object", "description": "Any.", "required": True}],
    )
    chain(
        organization,
        step("one", "lure"),
        {"id": "two", "tool_name": "any", "parameters": {"v": {"$step": "one"}}},
    )
    found = done(agent)
    assert found.output["echo"]["v"]["$result"] == str(secret.pk)


@pytest.mark.part("calls")
@pytest.mark.parametrize(
    ("when", "runs"),
    [
        ({"equals": [{"$input": "/text"}, "input"]}, True),
        ({"equals": [{"$input": "/text"}, "other"]}, False),
        ({"equals": [1, True]}, False),
        ({"not": {"exists": {"$input": "/nothing"}}}, True),
        ({"all": [{"succeeded": "one"}, {"less": [1, 2]}]}, True),
        ({"any": [{"failed": "one"}, {"contains": ["abc", "b"]}]}, True),
        ({"greater": ["a", 1]}, False),
        ({"skipped": "one"}, False),
    ],
)
def test_a_condition_decides_whether_a_step_runs(agent, organization, when, runs):
    chain(organization, step("one"), step("two", when=when), output={"$step": "one"})
    assert ("two" in places(done(agent))) is runs


def test_a_loop_runs_once_for_each_item_and_gives_a_list(agent, organization):
    items = {"$step": "one", "path": "/output/list"}
    chain(
        organization,
        step("one"),
        step("two", text={"$text": "item {{ item }}"}, for_each=items, parallel=2),
    )
    found = done(agent)
    assert [one["said"] for one in found.output] == ["item 1", "item 2", "item 3"]
    assert {"two/0", "two/1", "two/2"} <= set(places(found))


def test_so_many_items_are_open_at_once_as_it_says(agent, organization):
    items = ["a", "b", "c", "d"]
    chain(organization, step("one", text={"$item": ""}, for_each=items, parallel=2))
    execution = begin_chain(agent)
    perform(execution.pk)
    assert list(places(execution)) == ["one/0", "one/1"]


@pytest.mark.part("calls")
def test_an_item_that_fails_ends_the_loop_or_is_left_out(agent, organization):
    loop = {"for_each": ["a", "bad", "c"], "text": {"$item": ""}}
    chain(organization, step("one", "picky", **loop), name="ends")
    chain(organization, step("one", "picky", **loop, on_error="continue"), name="goes-on")
    assert done(agent, "ends").status == "Failed"
    assert done(agent, "goes-on").output == ["a", None, "c"]


def test_a_step_that_fails_ends_the_chain_and_says_which(agent, organization):
    chain(organization, step("one"), step("two", "fail"), step("three"))
    found = done(agent)
    assert found.status == "Failed"
    assert found.error_details["step"] == "two"
    assert [one["step"] for one in found.error_details["committed"]] == ["one"]
    assert "three" not in places(found)


def test_a_step_may_fail_where_that_was_said(agent, organization):
    chain(organization, step("one", "fail", on_error="continue"), step("two"))
    assert done(agent).status == "Success"


@pytest.mark.part("calls")
def test_a_step_is_tried_again_after_a_pause_that_grows(agent, organization, monkeypatch):
    chain(organization, step("one", "fail", retries={"attempts": 3, "wait": "PT10S"}))
    execution = done(agent)
    assert (execution.stage, list(places(execution))) == ("Running", ["one"])
    for pause_s, attempt in ((10, "one#2"), (20, "one#3")):
        last = calls_of(execution).last()
        due = reload(execution).wake_at
        assert due - last.completed_at == timedelta(seconds=pause_s)
        monkeypatch.setattr(call_attempts, "clock", lambda due=due: due)
        Execution.objects.filter(pk=execution.pk).update(wake_at=Now())
        work_off(organization)
        assert attempt in places(execution)
    assert reload(execution).status == "Failed"


def test_what_was_refused_is_not_tried_again(agent, organization):
    factories.tool(organization, "vaulted", group=["vault"])
    chain(organization, step("one", "vaulted", retries={"attempts": 5}))
    found = done(agent)
    assert (found.error_code, list(places(found))) == ("tool_not_in_group", ["one"])


def test_what_was_done_is_undone_in_reverse_order(agent, organization):
    undo = {"tool_name": "say", "parameters": {"text": {"$step": "one", "path": "/output/said"}}}
    again = {"tool_name": "say", "parameters": {"text": "undo two"}}
    chain(
        organization,
        step("one", text="first", compensate_with=undo),
        step("two", compensate_with=again),
        step("three", "fail", on_error="compensate"),
    )
    found = done(agent)
    assert found.status == "Failed"
    assert list(places(found))[-2:] == ["undo:two", "undo:one"]
    assert calls_of(found).get(place="undo:one").parameters == {"text": "first"}
    details = found.error_details
    assert [one["step"] for one in details["compensated"]] == ["two", "one"]
    assert details["committed"] == details["not_compensated"] == []


@pytest.mark.part("calls")
def test_each_item_of_a_loop_is_undone(agent, organization):
    undo = {"tool_name": "say", "parameters": {"text": {"$item": ""}}}
    chain(
        organization,
        step("one", text={"$item": ""}, for_each=["a", "b"], compensate_with=undo),
        step("two", "fail", on_error="compensate"),
    )
    found = done(agent)
    undone = calls_of(found).filter(place__startswith="undo:").order_by("created_at")
    assert [call.parameters["text"] for call in undone] == ["b", "a"]


@pytest.mark.part("calls")
def test_a_failed_compensation_is_reported_and_the_rest_is_undone(agent, organization):
    say = {"tool_name": "say", "parameters": {"text": "undo"}}
    chain(
        organization,
        step("one", compensate_with=say),
        step("two", compensate_with={"tool_name": "fail", "parameters": {"text": "x"}}),
        step("three"),
        step("four", "fail", on_error="compensate"),
    )
    details = done(agent).error_details
    assert [one["step"] for one in details["not_compensated"]] == ["two"]
    assert [one["step"] for one in details["compensated"]] == ["one"]
    assert [one["step"] for one in details["committed"]] == ["three"]


def test_an_effect_without_an_observed_end_is_reported_as_unknown(agent, organization):
    factories.tool(organization, "outside", delivery="external")
    chain(organization, step("one", "outside"))
    execution = begin_chain(agent)
    perform(execution.pk)
    call = calls_of(execution).get()
    claim(call.pk, "gone")
    Execution.objects.filter(pk=call.pk).update(lease_until="2020-01-01T00:00:00Z")
    reaper.reap()
    work_off(organization)
    found = reload(execution)
    assert found.error_code == "OUTCOME_UNKNOWN"
    assert [one["place"] for one in found.error_details["unknown"]] == ["one"]


def test_what_may_have_had_its_effect_is_not_tried_again(agent, organization):
    factories.tool(organization, "outside", delivery="external")
    chain(organization, step("one", "outside", retries={"attempts": 3}))
    execution = begin_chain(agent)
    perform(execution.pk)
    claim(calls_of(execution).get().pk, "gone")
    calls_of(execution).update(lease_until="2020-01-01T00:00:00Z")
    reaper.reap()
    work_off(organization)
    assert list(places(execution)) == ["one"]


@pytest.mark.part("calls")
@pytest.mark.parametrize("output", ["'no number'", "'x' * 2_000", "object()"])
def test_what_ran_and_gave_back_what_cannot_be_used_is_not_tried_again(agent, organization, output):
    factories.tool(
        organization,
        "outside",
        output_schema={"type": "integer"},
        constraints={"max_output_size": 1_000},
        implementation={"source": f"def main(p):\n    return {output}\n"},
    )
    chain(organization, step("one", "outside", retries={"attempts": 3}))
    found = done(agent)
    assert list(places(found)) == ["one"]
    assert [one["place"] for one in found.error_details["unknown"]] == ["one"]


@pytest.mark.part("calls")
def test_an_effect_that_may_have_happened_is_not_doubled_through_call_tool(agent, organization):
    factories.install(organization)
    caller = factories.agent(organization, groups=["default", "composition"])
    factories.tool(organization, "outside", output_schema={"type": "integer"})
    inner = {"tool_name": "outside", "parameters": {"text": "x"}}
    once = {"id": "one", "tool_name": "call_tool", "parameters": inner}
    chain(organization, once | {"retries": {"attempts": 3}})
    found = done(caller, group=["default", "composition"])
    assert (found.error_code, list(places(found))) == ("OUTPUT_INVALID", ["one"])


@pytest.mark.part("calls")
@pytest.mark.parametrize(("on_cancel", "undone"), [("compensate", True), ("stop", False)])
def test_a_cancelled_run_stops_and_is_undone_where_that_was_said(
    agent, organization, on_cancel, undone
):
    undo = {"tool_name": "say", "parameters": {"text": "undo"}}
    chain(organization, step("one", compensate_with=undo), step("two"), on_cancel=on_cancel)
    execution = begin_chain(agent)
    perform(execution.pk)
    perform(calls_of(execution).get().pk)
    perform(execution.pk)
    answer.cancel(caller=factories.caller(agent), execution=execution)
    work_off(organization)
    found = reload(execution)
    assert (found.status, places(found)["two"]) == ("Cancelled", "Cancelled")
    assert ("undo:one" in places(found)) is undone


def test_time_that_is_over_ends_the_run(agent, organization):
    chain(organization, step("one"))
    execution = begin_chain(agent)
    perform(execution.pk)
    Execution.objects.filter(pk=execution.pk).update(
        started_at="2020-01-01T00:00:00Z", wake_at=Now()
    )
    perform(execution.pk)
    work_off(organization)
    assert reload(execution).status == "Timeout"


@pytest.mark.part("calls")
def test_a_turn_that_was_lost_is_taken_again(agent, organization, monkeypatch):
    chain(organization, step("one"), step("two"))
    execution = begin_chain(agent)
    perform(execution.pk)
    with monkeypatch.context() as patch:
        patch.setattr(execution_pipeline, "resumable_calls", lambda _: [])
        perform(calls_of(execution).get().pk)
    claim(execution.pk, "gone")
    Execution.objects.filter(pk=execution.pk).update(lease_until="2020-01-01T00:00:00Z")
    reaper.reap()
    work_off(organization)
    assert reload(execution).status == "Success"
    assert places(execution) == {"one": "Success", "two": "Success"}


@pytest.mark.part("calls")
def test_a_run_goes_on_as_it_began_when_the_chain_is_changed(agent, organization):
    chain(organization, step("one"), step("two", text="old"))
    execution = begin_chain(agent)
    perform(execution.pk)
    changed(organization, {"chain": {"steps": [step("one"), step("two", text="new")]}})
    work_off(organization)
    assert reload(execution).output["said"] == "old"
    assert done(agent).output["said"] == "new"


def changed(organization, implementation):
    tool = Tool.objects.present().get(organization=organization, name="chain")
    definition = catalog.amended(tool.version.definition, {"implementation": implementation})
    catalog.update_tool(tool=tool, definition=definition, by=factories.actor(organization))


@pytest.mark.part("calls")
def test_a_chain_that_is_disabled_goes_on_no_more(agent, organization):
    chain(organization, step("one"), step("two"))
    execution = begin_chain(agent)
    perform(execution.pk)
    tool = Tool.objects.present().get(organization=organization, name="chain")
    catalog.set_enabled(tool=tool, enabled=False, by=factories.actor(organization))
    work_off(organization)
    assert (reload(execution).status, reload(execution).error_code) == (
        "PermissionDenied",
        "tool_disabled",
    )


def test_each_step_meets_the_gates_of_its_own_tool(agent, organization):
    account_actions.change_agent(agent=agent, by=factories.actor(organization), description="x")
    factories.tool(organization, "priced", cost_per_invocation="2")
    chain(organization, step("one", "priced"))
    found = done(agent)
    call = calls_of(found).get()
    assert (found.cost, call.cost) == (0, 2)
    codes = AuditRecord.objects.filter(execution_id=call.pk).values_list("code", flat=True)
    assert {"TOOL.ACCEPT", "TOOL.START", "TOOL.END"} <= set(codes)


def test_a_step_that_needs_a_person_waits_for_one(agent, organization):
    factories.tool(organization, "careful", requires_confirmation=True)
    chain(organization, step("one", "careful"), step("two"))
    execution = done(agent)
    assert execution.stage == "Running"
    approve(Confirmation.objects.get(execution=calls_of(execution).get()), approver(organization))
    work_off(organization)
    assert reload(execution).status == "Success"


def test_a_chain_may_be_a_step_of_another(agent, organization):
    chain(organization, step("one", text={"$input": "/text"}), name="inner")
    chain(organization, step("sub", "inner", text="deep"), name="outer")
    assert done(agent, "outer").output["said"] == "deep"


@pytest.mark.part("calls")
def test_a_run_holds_so_much_of_what_its_steps_gave_back(agent, organization, monkeypatch):
    monkeypatch.setattr(chains, "MOST_READ", 50)
    texts = {"$step": "one", "default": "nothing else may stand there"}
    loop = {"for_each": ["a", "b", "c"], "text": {"$item": ""}}
    chain(organization, step("one", **loop), step("two", text=texts))
    found = done(agent)
    assert (found.status, found.error_code) == ("Failed", "OUTPUT_LIMIT")
    assert (found.error_details["step"], "two" in places(found)) == ("two", False)
    assert len(found.error_details["committed"]) == 3


def test_what_has_expired_is_not_taken_for_nothing(agent, organization):
    chain(organization, step("one"), step("two", text={"$step": "one"}))
    execution = begin_chain(agent)
    perform(execution.pk)
    call = calls_of(execution).get()
    factories.end_execution(call, output="x", output_bytes=3)
    Execution.objects.filter(pk=call.pk).update(
        output=None, output_expired_at=Now(), observation=""
    )
    work_off(organization)
    found = reload(execution)
    assert (found.error_code, "expired" in found.error_message) == ("VALUE_MISSING", True)


@pytest.mark.part("calls")
def test_a_chain_gives_back_no_more_than_it_may(agent, organization):
    chain(organization, step("one", text="x" * 2_000), constraints={"max_output_size": 1_000})
    found = done(agent)
    assert (found.status, found.error_code, found.output) == ("Failed", "OUTPUT_LIMIT", None)


@pytest.mark.part("calls")
def test_what_a_step_gives_back_late_is_used_by_no_later_one(agent, organization):
    chain(organization, step("one"), step("two"), output={"$step": "one", "path": "/output/gone"})
    found = done(agent)
    assert (found.status, found.error_code) == ("Failed", "OUTPUT_MISSING")
    assert len(found.error_details["committed"]) == 2
