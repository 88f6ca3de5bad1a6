"""Runs with a plan: a plan with confidences is checked before and during its execution (S1,
4.3)."""

import json
from datetime import timedelta

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from audit.models import AuditRecord
from audit.records import payloads
from tests import factories
from tests.tools.agents.conftest import FAILS, SAYS, begin_request, reported
from tests.tools.approval_requests import approve, approver, at_the_browser, word
from tests.tools.execution.in_process_worker import calls_of, work_off
from tools.accounts.grants import grant_actions
from tools.agents.agent_requests import run_events
from tools.approvals import decisions
from tools.catalog import actions as catalog
from tools.errors import Conflict, Forbidden
from tools.execution import answer
from tools.execution.perform import perform
from tools.models import Confirmation, Execution, Session, StateTransition, Tool, queue
from tools.workflows import call_attempts

pytestmark = pytest.mark.usefixtures("without_workers")
WORKFLOW = {
    "knowledge-query": {"group": ["knowledge"], "state": "analysis", "available_in_states": None},
    "complex-analysis": {"group": ["compute"], "state": "results"},
    "reset-workflow": {"group": ["admin"], "state": "undefined"},
}
STATES = {
    "knowledge-query": ["undefined", "research"],
    "complex-analysis": ["analysis"],
    "reset-workflow": ["analysis", "results"],
}


HANGS = "import time\ndef main(p):\n    time.sleep(9)\n"
STRICT = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}


def step(name="one", tool="say", *needs, confidence=0.9, **arguments):
    given = arguments or {"text": name}
    return {
        "id": name,
        "tool": tool,
        "arguments": given,
        "depends_on": [*needs],
        "confidence": confidence,
        "why": f"for {name}",
    }


def plan(*steps):
    return json.dumps({"steps": list(steps)})


def outcomes(report):
    return {one["id"]: one["outcome"] for one in report.plan["steps"]}


def places(report):
    return [one.place for one in calls_of(report.run).exclude(tool_name="ask_model")]


def prompt_text(model, number):
    """The text of all messages of one prompt."""
    return "\n".join(one["content"] for one in model.questions[number]["messages"])


def codes(report, code):
    return list(AuditRecord.objects.filter(execution_id=report.run.pk, code=code).order_by("id"))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """No pauses between attempts."""
    monkeypatch.setattr(call_attempts, "clock", lambda: timezone.now() + timedelta(hours=1))


def strict(organization):
    """A tool that accepts one text and no other argument."""
    made = factories.definition("strict", input_schema=STRICT)
    factories.register(organization, {key: made[key] for key in made if key != "parameters"})


@pytest.fixture
def planned(perform_request):
    def ask(**wanted):
        return perform_request(pattern="plan", **wanted)

    return ask


@pytest.fixture
def waiting(agent, organization, model):
    """A run whose first step awaits approval."""

    def ask(*moves, **wanted):
        model.plays(*moves)
        run = begin_request(agent, pattern="plan", **wanted)
        work_off(organization)
        return run

    return ask


def pending_confirmation(run):
    return Confirmation.objects.get(execution__parent=run.pk, status="pending")


def decide(confirmation, organization, *, yes):
    caller = at_the_browser(approver(organization))
    decisions.decide(caller=caller, word=word(confirmation, approve=yes))


def test_a_plan_is_carried_out_and_answered_from(planned, model):
    second = step("two", text={"$step": "one", "path": "/output/said"})
    model.plays(plan(step(), second), "It was said twice.")
    report = planned()
    assert (report.run.status, report.answer) == ("Success", "It was said twice.")
    assert outcomes(report) == {"one": "succeeded", "two": "succeeded"}
    assert [one.parameters for one in calls_of(report.run)[1:3]] == [{"text": "one"}] * 2
    assert '{"said": "one"}' in prompt_text(model, 1)


@pytest.mark.part("agents")
def test_a_plan_is_in_the_result_with_what_became_of_each_step(planned, model):
    model.plays(plan(step("a", confidence=0.8), step("b", "fail", "a")), plan(), "Half of it.")
    steps = planned(thresholds={"say": 0.75}).run.output["plan"]
    first, second = steps["steps"]
    assert (first["confidence"], first["threshold"], first["why"]) == (0.8, 0.75, "for a")
    assert (first["number"], first["tool"], first["attempts"]) == (2, "say", 1)
    assert (second["depends_on"], second["threshold"]) == (["a"], 0.7)
    assert (second["outcome"], second["error_code"]) == ("failed", "NOT_THERE")


def test_a_plan_of_no_steps_leads_to_the_answer(planned, model):
    model.plays(plan(), "By myself.")
    report = planned(group=[])
    assert report.answer == "By myself." and "(none)" in prompt_text(model, 0)


@pytest.mark.part("agents")
def test_the_steps_are_reported_as_those_of_other_runs(planned, model):
    model.plays("no plan", plan(step("a"), step("b", "fail"), step("c", "say", "b")), plan(), "So.")
    steps = planned().steps
    assert [one.number for one in steps] == [1, 2, 3, 4, 5, 6, 7]
    assert steps[0].move.flaw and steps[1].move.thought.startswith("A plan of 3 steps: a (say)")
    acts = [(one.move.action.name, one.status) for one in steps if one.move.action]
    assert acts == [("say", "Success"), ("fail", "Failed"), ("say", "Skipped")]
    assert steps[6].move.answer == "So."


@pytest.mark.part("agents")
def test_events_are_only_ever_added_while_it_runs(agent, organization, model):
    model.plays("none", plan(step("a"), step("b", "fail"), step("c", "say", "b")), plan(), "So.")
    run, before = begin_request(agent, pattern="plan"), []
    while waiting := queue.next_of_organization(organization.pk):
        perform(waiting[0])
        now = [(one.kind, one.data) for one in run_events(reported(agent, run))]
        kinds = [kind for kind, _ in now]
        assert kinds[: len(before)] == before
        before = kinds
    assert before[-2:] == ["answer", "end"]


# --- groups and states ---
@pytest.fixture
def workflow(agent, organization):
    """The tools of the specification's workflow, and grants of their groups."""
    for name, more in WORKFLOW.items():
        fields = more | {"available_in_states": STATES[name], "implementation": {"source": SAYS}}
        factories.tool(organization, name, **fields)
    by = factories.actor(organization)
    grant_actions.set_grants(
        agent=agent, by=by, groups=["default", "knowledge", "compute", "admin"]
    )
    return {"group": ["knowledge", "compute", "admin"], "state": "undefined"}


CYCLE = [step("find", "knowledge-query"), step("dig", "complex-analysis", "find")]
RESET = step("back", "reset-workflow", "dig")


@pytest.mark.part("agents")
def test_a_workflow_goes_through_its_states_and_back(planned, model, workflow):
    again = step("again", "knowledge-query", "back")
    model.plays(plan(*CYCLE, RESET, again), "Through.")
    report = planned(**workflow)
    ran = calls_of(report.run).exclude(tool_name="ask_model")
    assert [(one.tool_name, one.state, one.state_after) for one in ran] == [
        ("knowledge-query", "undefined", "analysis"),
        ("complex-analysis", "analysis", "results"),
        ("reset-workflow", "results", "undefined"),
        ("knowledge-query", "undefined", "analysis"),
    ]
    assert (report.state, report.answer) == ("analysis", "Through.")


@pytest.mark.part("agents")
def test_transitions_of_a_plan_are_on_record_with_their_time(planned, model, workflow):
    model.plays(plan(*CYCLE, RESET), "Through.")
    report = planned(**workflow)
    moved = StateTransition.objects.filter(session=report.session).order_by("pk")
    assert len(moved) == 3
    ids = calls_of(report.run).values_list("pk", flat=True)
    found = AuditRecord.objects.filter(execution_id__in=list(ids), code="STATE.TRANSITION")
    steps = [(one.details["from"], one.details["to"]) for one in found.order_by("id")]
    assert steps == [
        ("undefined", "analysis"), ("analysis", "results"), ("results", "undefined"),
    ]  # fmt: skip


@pytest.mark.part("agents")
def test_the_planner_prompt_contains_the_whole_workflow_and_nothing_else(planned, model, workflow):
    model.plays(plan(), "Nothing.")
    planned(**workflow)
    text = prompt_text(model, 0)
    assert "- complex-analysis:" in text and "[available in states: analysis; leads to" in text
    assert "text (any; required)" in text or "text (" in text
    for absent in ("- say:", "- hidden:", "ask_model", "run_agent"):
        assert absent not in text


@pytest.mark.part("agents")
def test_the_prompt_omits_states_that_no_tool_of_the_caller_leads_to(planned, model, workflow):
    model.plays(plan(), "Nothing.")
    planned(group=["compute", "admin"], state="undefined")
    assert "complex-analysis" not in prompt_text(model, 0)


@pytest.mark.part("agents")
@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([step("a", "complex-analysis")], "step a: The tool complex-analysis is not available in"),
        ([*CYCLE, step("x", "knowledge-query", "dig")], "step x: The tool knowledge-query is not"),
        ([step("a", "say")], "step a: The tool say is not in a requested group"),
        ([step("a", "no-such")], "step a: There is no tool no-such"),
        ([step("a", "run_agent", question="x")], "step a: "),
        ([step("a", "ask_model", messages=[])], "step a: "),
        ([step("a", "knowledge-query", confidence=7)], "steps.0.confidence"),
    ],
)
def test_a_step_that_cannot_be_is_refused_before_anything_runs(
    planned, model, workflow, steps, words
):
    model.plays(plan(*steps))
    report = planned(**workflow)
    assert (report.run.status, report.run.error_code) == ("Failed", "PLAN_UNFIT")
    assert words in report.run.error_message and words in prompt_text(model, 1)
    assert places(report) == [] and len(model.questions) == 3


@pytest.mark.part("agents")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"text": 5}, "/text does not fit"),
        ({"other": "x"}, "does not fit"),
        ({"text": "x", "other": {"$step": "two"}}, "it has no argument other"),
        ({"other": {"$step": "two"}}, "its argument text is missing"),
    ],
)
def test_arguments_are_held_against_the_tools_schema(
    planned, model, organization, arguments, words
):
    strict(organization)
    model.plays(plan(step("one", "strict", **arguments), step("two")))
    report = planned()
    assert report.run.error_code == "PLAN_UNFIT" and words in report.run.error_message


@pytest.mark.part("agents")
def test_what_a_reference_stands_for_is_looked_at_when_it_is_known(planned, model, organization):
    strict(organization)
    wrong = step("two", "strict", text={"$step": "one"})
    model.plays(plan(step(), wrong), plan(), "It did not fit.")
    (_, steps) = planned().plan["steps"]
    assert (steps["outcome"], steps["error_code"]) == ("refused", "invalid_parameters")


def test_a_refused_plan_is_sent_back_and_replanned(planned, model):
    model.plays("I think first.", plan(step("x", "hidden")), plan(step()), "Well.")
    report = planned()
    assert report.answer == "Well." and outcomes(report) == {"one": "succeeded"}
    assert "not one JSON document" in prompt_text(model, 1)
    assert "not in a requested group" in prompt_text(model, 2)


@pytest.mark.part("agents")
def test_a_plan_has_no_more_steps_than_the_run_has_turns(planned, model):
    model.plays(plan(step("a"), step("b"), step("c")), plan(step("a")), "Shorter.")
    report = planned(max_iterations=4)
    assert report.answer == "Shorter." and "it has 3 steps, and 2 is the most" in prompt_text(
        model, 1
    )


# --- during the run --
UNSURE = step("sure-not", confidence=0.4)


@pytest.mark.part("agents")
def test_below_the_threshold_approval_is_requested_with_the_reason(waiting, agent, organization):
    run = waiting(plan(UNSURE, step("two", "say", "sure-not")), "Done.")
    report = reported(agent, run)
    assert (report.run.status, outcomes(report)["sure-not"]) == ("Pending", "waiting")
    (reason,) = pending_confirmation(run).reasons
    assert "confidence 0.40, threshold 0.70" in reason and "sure-not" in reason
    approve(pending_confirmation(run), approver(organization))
    work_off(organization)
    assert outcomes(reported(agent, run)) == {"sure-not": "succeeded", "two": "succeeded"}


def test_thresholds_are_by_tool(waiting, agent):
    run = waiting(plan(step(confidence=0.9)), "Done.", thresholds={"say": 0.95}, confidence=0.1)
    assert pending_confirmation(run).reasons and outcomes(reported(agent, run)) == {
        "one": "waiting"
    }


def test_a_rejection_is_an_outcome_and_approval_is_not_requested_again(
    waiting, agent, organization, model
):
    again = {**UNSURE, "id": "again", "arguments": {"text": "sure-not"}, "confidence": 1}
    run = waiting(plan(UNSURE, step("two", "say", "sure-not")), plan(again), "Refused.")
    decide(pending_confirmation(run), organization, yes=False)
    work_off(organization)
    report = reported(agent, run)
    assert outcomes(report) == {"sure-not": "refused", "two": "skipped", "again": "refused"}
    assert report.plan["steps"][2]["error_code"] == "REJECTED_BEFORE"
    assert report.answer == "Refused." and places(report) == ["act/2"]


@pytest.mark.part("agents")
def test_an_expiry_is_an_outcome(waiting, agent, organization):
    run = waiting(plan(UNSURE), plan(), "Nobody said yes.")
    decisions.expire(pending_confirmation(run))
    work_off(organization)
    report = reported(agent, run)
    (steps,) = report.plan["steps"]
    assert (steps["outcome"], steps["error_code"]) == ("refused", "confirmation_expired")
    assert report.answer == "Nobody said yes."


def test_what_is_revoked_while_a_plan_waits_does_not_run(waiting, agent, organization):
    run = waiting(plan(UNSURE, step("two", "open")), plan(), "Not all of it.")
    tool = Tool.objects.get(organization=organization, name="open")
    catalog.set_enabled(tool=tool, enabled=False, by=factories.actor(organization))
    approve(pending_confirmation(run), approver(organization))
    work_off(organization)
    report = reported(agent, run)
    assert report.plan["steps"][1]["error_code"] == "tool_disabled"
    assert places(report) == ["act/2"] and report.state == "undefined"


def test_groups_that_are_taken_away_count_at_once(waiting, agent, organization):
    run = waiting(plan(UNSURE, step("two")), "Not any more.")
    grant_actions.set_grants(agent=agent, by=factories.actor(organization), groups=[])
    with pytest.raises(Conflict):
        approve(pending_confirmation(run), approver(organization))
    work_off(organization)
    assert not calls_of(run).filter(tool_name="say", status="Success").exists()


@pytest.mark.part("agents")
def test_a_state_that_another_caller_changed_is_seen(agent, organization, model, waiting):
    run = waiting(plan(UNSURE, step("two", "open")), plan(), "It was elsewhere.")
    session = reported(agent, run).session
    Session.objects.filter(pk=session).update(state="inside")
    with pytest.raises(Conflict):
        approve(pending_confirmation(run), approver(organization))
    work_off(organization)
    steps = reported(agent, run).plan["steps"]
    assert [one["error_code"] for one in steps] == ["session_changed", "tool_not_in_state"]


@pytest.mark.part("agents")
def test_a_tool_that_was_added_may_be_planned_at_once(planned, model, organization):
    def reply(question):
        if len(model.questions) == 1:
            factories.tool(organization, "new", implementation={"source": SAYS})
        return plan(step("one", "new")) if len(model.questions) < 2 else "There."

    model.answers_by(reply)
    assert outcomes(planned()) == {"one": "succeeded"}


@pytest.mark.part("agents")
def test_what_depends_on_a_failure_is_skipped_and_the_rest_is_replanned(planned, model):
    first = plan(step("a"), step("b", "fail"), step("c", "say", "b"), step("d"))
    second = plan(step("e", "say", "a", text={"$step": "a", "path": "/output/said"}))
    model.plays(first, second, "In another way.")
    report = planned()
    assert outcomes(report) == {
        "a": "succeeded", "b": "failed", "c": "skipped", "d": "succeeded", "e": "succeeded",
    }  # fmt: skip
    assert report.plan["revisions"] == 2 and report.answer == "In another way."
    assert "NOT_THERE: there is none" in prompt_text(model, 1) and "use new ids" in prompt_text(
        model, 1
    )


@pytest.mark.part("agents")
def test_replanning_happens_once(planned, model):
    model.plays(plan(step("a", "fail")), plan(step("b", "fail")), "I could not.")
    report = planned()
    assert outcomes(report) == {"a": "failed", "b": "failed"} and report.answer == "I could not."


@pytest.mark.part("agents")
def test_where_no_new_plan_can_be_made_there_is_an_answer(planned, model):
    model.plays(plan(step("a", "fail")), "no", "no", "no", "I could not.")
    report = planned()
    assert (report.answer, len(model.questions)) == ("I could not.", 5)


@pytest.mark.part("agents")
def test_a_missing_value_is_an_outcome(planned, model):
    model.plays(plan(step(), step("two", text={"$step": "one", "path": "/output/x"})), plan(), "-")
    report = planned()
    assert report.plan["steps"][1]["error_code"] == "VALUE_MISSING" and places(report) == ["act/2"]


@pytest.mark.part("agents")
def test_a_step_that_may_be_repeated_is_tried_again_after_a_pause(
    agent, organization, model, monkeypatch
):
    factories.tool(organization, "shaky", delivery="idempotent", implementation={"source": FAILS})
    model.plays(plan(step("a", "shaky")), plan(), "It kept failing.")
    monkeypatch.setattr(call_attempts, "clock", timezone.now)
    run = begin_request(agent, pattern="plan")
    work_off(organization)
    for pause_s in (1, 2):
        row, last = Execution.objects.get(pk=run.pk), calls_of(run).last()
        assert (row.wake_at - last.completed_at).total_seconds() == pause_s
        assert outcomes(reported(agent, run)) == {"a": "running"}
        monkeypatch.setattr(call_attempts, "clock", lambda due=row.wake_at: due)
        Execution.objects.filter(pk=run.pk).update(wake_at=Now())
        work_off(organization)
    report = reported(agent, run)
    assert places(report) == ["act/2", "act/2#2", "act/2#3"]
    assert report.plan["steps"][0]["attempts"] == 3 and report.answer == "It kept failing."


@pytest.mark.part("agents")
def test_what_may_have_had_an_effect_is_not_repeated(planned, model, organization):
    factories.tool(
        organization, "shaky", delivery="external", implementation={"source": HANGS},
        constraints={"allow_side_effects": True, "max_execution_time": "PT1S"},
    )  # fmt: skip
    model.plays(plan(step("a", "shaky")), plan(), "Once.")
    assert places(planned()) == ["act/2"]


def test_what_the_run_may_spend_bounds_its_steps(planned, model):
    model.plays(plan(step("a"), step("b")), "Nearly.", tokens=(900, 100))
    report = planned(max_tokens=1_100)
    assert outcomes(report) == {"a": "skipped", "b": "skipped"}
    assert report.plan["steps"][0]["error_code"] == "NEARLY_SPENT" and report.answer == "Nearly."


# --- audit and memory ------
@pytest.mark.part("agents")
def test_a_plan_is_on_record_before_and_after_it_is_carried_out(planned, model):
    model.plays(plan(step("a", text="4711"), step("b", "fail", "a")), plan(), "So.")
    report = planned()
    accepted, ended = codes(report, "PLAN.ACCEPT")[0], codes(report, "PLAN.END")[0]
    steps = accepted.details["steps"]
    assert [(one["tool"], one["confidence"], one["threshold"]) for one in steps] == [
        ("say", 0.9, 0.7), ("fail", 0.9, 0.7),
    ]  # fmt: skip
    assert "4711" not in json.dumps(accepted.details) and accepted.details["a_commitment"]
    assert payloads.open_payload(accepted.pk)["payload"]["a"] == {"text": "4711"}
    assert accepted.outcome == "started" and ended.outcome == "failure"
    steps = [(one["id"], one["outcome"], one["code"]) for one in ended.details["steps"]]
    assert steps == [("a", "succeeded", ""), ("b", "failed", "NOT_THERE")]


def test_a_cancelled_run_says_what_became_of_its_plan(waiting, agent, organization):
    run = waiting(plan(UNSURE, step("two")), "Never.")
    answer.cancel(caller=factories.caller(agent), execution=Execution.objects.get(pk=run.pk))
    work_off(organization)
    report = reported(agent, run)
    (ended,) = codes(report, "PLAN.END")
    steps = [(one["outcome"], one["code"]) for one in ended.details["steps"]]
    assert report.run.status == "Cancelled" and steps[1] == ("skipped", "RUN_ENDED")
    assert steps[0][0] in ("refused", "failed")
    assert report.run.error_details["plan"]["steps"][1]["outcome"] == "skipped"


@pytest.mark.part("agents")
def test_a_run_by_a_plan_is_replayed_without_a_call(perform_request, planned, model):
    moves = plan(step("a"), step("b", text={"$step": "a", "path": "/output/said"}))
    model.plays(moves, "First.")
    first = planned()
    model.plays(moves, "Second.")
    report = perform_request(pattern="plan", replays=str(first.run.pk))
    assert (report.answer, places(report)) == ("Second.", [])
    assert outcomes(report) == {"a": "succeeded", "b": "succeeded"}


@pytest.mark.part("agents")
def test_a_run_by_a_plan_is_gone_on_from(perform_request, planned, model):
    model.plays(plan(step("a")), "First.")
    first = planned()
    model.plays(plan(), "Second.")
    perform_request(pattern="plan", continues=str(first.run.pk))
    assert '{"said": "a"}' in prompt_text(model, 2)


@pytest.mark.part("agents")
def test_who_may_not_call_what_it_called_does_not_go_on_from_it(
    planned, model, agent, perform_request
):
    model.plays(plan(step("a")), "First.")
    first = planned()
    tool = Tool.objects.get(organization=agent.organization, name="say")
    catalog.set_enabled(tool=tool, enabled=False, by=factories.actor(agent.organization))
    with pytest.raises(Forbidden, match="same rights"):
        perform_request(pattern="plan", continues=str(first.run.pk))
