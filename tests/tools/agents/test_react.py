"""ReAct: think, act, observe. Whatever a model replies, the gates decide (specification S1,
4.3)."""

import json
from decimal import Decimal

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from audit.models import AuditRecord
from tests import factories
from tests.stubs.llm import STREAM, called, calls, end, event, piece
from tests.stubs.web import Reply
from tests.tools.agents.conftest import SAYS, begin_request, reported
from tests.tools.approval_requests import approve, approver, at_the_browser, word
from tests.tools.execution.in_process_worker import calls_of, work_off
from tools import metrics
from tools.accounts.grants import grant_actions
from tools.agents import runs
from tools.approvals import decisions
from tools.errors import Refused
from tools.execution import answer as actions
from tools.execution.perform import perform
from tools.models import Confirmation, Execution, Session
from tools.shapes.executions import agent_request_shape
from tools.workflows.session_actions import open_session

pytestmark = pytest.mark.usefixtures("without_workers")
SAY = ("say", '{"text": "hello"}')


def test_it_acts_observes_and_answers(perform_request, model):
    model.plays(calls(*SAY, thought="I say it."), "It was said.")
    report = perform_request()
    assert (report.run.status, report.answer) == ("Success", "It was said.")
    act, answer = report.steps
    assert (act.move.thought, act.move.action.name) == ("I say it.", "say")
    assert (act.observation, act.status) == ('{"said": "hello"}', "Success")
    assert answer.move.action is None and report.run.output["iterations"] == 2


@pytest.mark.part("agents")
def test_observations_are_sent_to_the_model(perform_request, model):
    model.plays(calls(*SAY), "Done.")
    perform_request()
    tool = model.questions[1]["messages"][-1]
    assert tool["role"] == "tool" and '{"said": "hello"}' in tool["content"]


def test_only_tools_that_the_filter_leaves_are_offered(perform_request, model):
    model.plays("Nothing to do.")
    perform_request()
    names = {tool["function"]["name"] for tool in model.questions[0]["tools"]}
    assert {"say", "fail", "open"} <= names
    assert not names & {"hidden", "inner", "ask_model", "run_agent"}


@pytest.mark.part("agents")
def test_a_state_counts_from_the_next_step(perform_request, model):
    model.plays(calls("open", '{"text": "o"}'), calls("inner", '{"text": "i"}'), "Inside.")
    report = perform_request()
    first, second = ({t["function"]["name"] for t in q["tools"]} for q in model.questions[:2])
    assert "inner" not in first and "inner" in second and "open" not in second
    assert report.state == "inside" and report.steps[1].status == "Success"


@pytest.mark.part("agents")
@pytest.mark.parametrize(
    ("call", "observed", "status"),
    [
        (("hidden", "{}"), "tool_not_in_group", "PermissionDenied"),
        (("inner", '{"text": "x"}'), "tool_not_in_state", "PermissionDenied"),
        (("fail", '{"text": "x"}'), "NOT_THERE: there is none", "Failed"),
        (("say", "{}"), "invalid_parameters", "ValidationError"),
        (("no_such", "{}"), "tool_not_found", "ValidationError"),
        (("say", "not json"), "were not taken", "Success"),
    ],
)
def test_what_goes_wrong_is_an_observation_and_the_loop_goes_on(
    perform_request, model, call, observed, status
):
    model.plays(calls(*call), "I could not.")
    report = perform_request()
    assert report.answer == "I could not."
    assert observed in report.steps[0].observation and report.steps[0].status == status
    assert observed in json.dumps(model.questions[1]["messages"])


def test_a_group_beyond_the_grants_refuses_the_request(agent, model):
    with pytest.raises(Refused) as refusal:
        begin_request(agent, group=["secret"])
    assert refusal.value.code == "group_not_granted" and model.questions == []


def test_no_groups_are_no_tools(perform_request, model):
    model.plays(calls(*SAY), "By myself.")
    report = perform_request(group=[])
    assert "tools" not in model.questions[0] or model.questions[0]["tools"] == []
    assert report.steps[0].status == "PermissionDenied" and report.answer == "By myself."


@pytest.mark.part("agents")
def test_the_last_iteration_asks_for_the_best_answer(perform_request, model):
    model.plays(calls(*SAY), calls(*SAY), "As far as I know.")
    report = perform_request(max_iterations=3)
    assert report.answer == "As far as I know."
    assert not model.questions[2].get("tools")
    assert "last turn" in model.questions[2]["messages"][-1]["content"]


@pytest.mark.part("agents")
def test_an_action_in_the_last_iteration_leaves_no_answer(perform_request, model):
    model.plays(calls(*SAY))
    report = perform_request(max_iterations=2)
    assert (report.run.status, report.run.error_code) == ("Failed", "NO_ANSWER")
    assert len(calls_of(report.run).filter(tool_name="say")) == 1


@pytest.mark.part("agents")
def test_a_session_of_its_own_is_closed_at_its_end(perform_request, model):
    model.plays("Yes.")
    session = Session.objects.get(pk=perform_request().session)
    assert session.closed_at is not None and session.groups == ["default"]


@pytest.mark.part("agents")
def test_a_session_of_its_callers_moves_and_stays_open(agent, perform_request, model):
    mine, _ = open_session(caller=factories.caller(agent), group=["default"], state=None)
    model.plays(calls("open", '{"text": "o"}'), "Inside.")
    report = perform_request(session=str(mine.pk))
    mine.refresh_from_db()
    assert (mine.state, mine.closed_at, report.state) == ("inside", None, "inside")


def test_a_call_that_needs_consent_suspends_the_run_and_resumes_it(agent, organization, model):
    factories.tool(
        organization, "risky", implementation={"source": "def main(p):\n    return 1\n"},
        requires_confirmation=True,
    )  # fmt: skip
    model.plays(calls("risky", '{"text": "x"}'), "It was done.")
    run = begin_request(agent)
    work_off(organization)
    waiting = reported(agent, run)
    assert waiting.run.status == "Pending" and waiting.steps[0].status == "RequiresConfirmation"
    approve(Confirmation.objects.get(execution__parent=run.pk), approver(organization))
    work_off(organization)
    report = reported(agent, run)
    assert (report.answer, report.steps[0].observation) == ("It was done.", "1")


def test_a_no_is_an_observation(agent, organization, model):
    factories.tool(
        organization, "risky", implementation={"source": "def main(p):\n    return 1\n"},
        requires_confirmation=True,
    )  # fmt: skip
    model.plays(calls("risky", '{"text": "x"}'), "It was refused.")
    run = begin_request(agent)
    work_off(organization)
    no = word(Confirmation.objects.get(execution__parent=run.pk), approve=False, reason="No.")
    decisions.decide(caller=at_the_browser(approver(organization)), word=no)
    work_off(organization)
    report = reported(agent, run)
    assert report.answer == "It was refused." and report.steps[0].status == "PermissionDenied"


def test_a_cancelled_run_ends_with_its_calls(agent, organization, model):
    factories.tool(
        organization, "risky", implementation={"source": "def main(p):\n    return 1\n"},
        requires_confirmation=True,
    )  # fmt: skip
    model.plays(calls("risky", '{"text": "x"}'))
    run = begin_request(agent)
    work_off(organization)
    actions.cancel(caller=factories.caller(agent), execution=Execution.objects.get(pk=run.pk))
    work_off(organization)
    report = reported(agent, run)
    assert (report.run.status, report.steps[0].status) == ("Cancelled", "Cancelled")
    assert Session.objects.get(pk=report.session).closed_at is not None


@pytest.mark.part("agents")
def test_tokens_are_a_bound(perform_request, model):
    model.plays(calls(*SAY), "Nearly.", tokens=(900, 100))
    report = perform_request(max_tokens=1_100)
    assert report.answer == "Nearly." and not model.questions[1].get("tools")
    assert (report.spent.input_tokens, report.spent.output_tokens) == (1_800, 200)


@pytest.mark.part("agents")
def test_beyond_the_tokens_nothing_is_asked(perform_request, model):
    model.plays(calls(*SAY), "Too late.", tokens=(900, 100))
    report = perform_request(max_tokens=1_000)
    assert (report.run.status, report.run.error_code) == ("Failed", "TOKENS_SPENT")
    assert len(model.questions) == 1


@pytest.mark.part("agents")
def test_money_is_a_bound(perform_request, model, settings):
    settings.LLM_PRICES = {"small": (Decimal(1_000), Decimal(1_000))}
    model.plays(calls(*SAY), "Too late.", tokens=(900, 100))
    report = perform_request(max_cost="0.9")
    assert report.run.error_code == "MONEY_SPENT" and report.spent.cost >= 1


@pytest.mark.part("agents")
def test_what_a_batch_spends_is_spent_by_the_run(agent, organization, model):
    factories.tool(organization, "dear", implementation={"source": SAYS}, cost_per_invocation="0.5")
    several = {"inputs": [{"tool_name": "dear", "parameters": {"text": "x"}}] * 2}
    grant_actions.set_grants(
        agent=agent, by=factories.actor(organization), groups=["default", "composition"]
    )
    model.plays(calls("run_batch", json.dumps(several)), "Too late.")
    run = begin_request(agent, group=["default", "composition"], max_cost="0.9")
    work_off(organization)
    report = reported(agent, run)
    assert (report.run.error_code, report.spent.cost) == ("MONEY_SPENT", Decimal("1.0"))


def test_an_endpoint_without_tool_calls_is_asked_in_the_text_form(perform_request, model):
    model.answers_by(lambda question: Reply(400) if question.get("tools") else "Answer: in words.")
    report = perform_request()
    assert report.answer == "in words." and len(report.steps) == 1


@pytest.mark.part("agents")
def test_a_busy_endpoint_is_asked_again_after_a_while(agent, organization, model, monkeypatch):
    said = iter([Reply(503)] * 3)  # one question is asked so often without the product's retries
    model.answers_by(lambda _: next(said, "There."))
    run = begin_request(agent)
    work_off(organization)
    row = Execution.objects.get(pk=run.pk)
    assert row.status == "Pending" and row.wake_at > timezone.now()
    monkeypatch.setattr(runs, "clock", lambda: row.wake_at)
    Execution.objects.filter(pk=run.pk).update(wake_at=Now())
    work_off(organization)
    assert reported(agent, run).answer == "There."


def test_an_installation_without_a_model_says_so(perform_request, model, settings):
    settings.LLM_BASE_URL = ""
    report = perform_request()
    assert (report.run.status, report.run.error_code) == ("Failed", "MODEL_NOT_CONFIGURED")


def test_everything_is_in_the_evidence(perform_request, model):
    model.plays(calls(*SAY), "Done.")
    report = perform_request()
    tools = calls_of(report.run).values_list("pk", "tool_name")
    for pk, _ in tools:
        codes = set(AuditRecord.objects.filter(execution_id=pk).values_list("code", flat=True))
        assert {"TOOL.ACCEPT", "TOOL.START", "TOOL.END"} <= codes
    assert [name for _, name in tools] == ["ask_model", "say", "ask_model"]


def test_a_grant_that_is_taken_away_counts_at_once(agent, organization, model):
    """The grant is revoked between the prompt and the model's reply."""
    model.plays(calls(*SAY), "Not any more.")
    run = begin_request(agent)
    perform(run.pk)  # the turn that asks the model
    (question,) = calls_of(run)
    grant_actions.set_grants(agent=agent, by=factories.actor(organization), groups=[])
    work_off(organization)
    assert not calls_of(run).filter(tool_name="say", status="Success").exists()
    assert Execution.objects.get(pk=question.pk).status != "Running"
    assert reported(agent, run).run.is_final


@pytest.mark.part("agents")
def test_what_runs_use_is_counted(perform_request, model):
    tokens, over = metrics.agent_tokens.labels("in"), metrics.agent_runs.labels("react", "Success")
    before = tokens._value.get(), over._value.get()
    model.plays(calls(*SAY), "Done.", tokens=(70, 3))
    perform_request()
    assert (tokens._value.get() - before[0], over._value.get() - before[1]) == (140, 1)


def _cut(*pieces):
    end = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
    return Reply(200, STREAM, [*pieces, end, b"data: [DONE]\n\n"])


def test_an_answer_that_was_cut_is_a_warning_on_its_step(perform_request, model):
    model.plays(_cut(piece("It is no")))
    report = perform_request()
    (step,) = report.steps
    assert report.answer == "It is no" and "finish_reason length" in step.move.warnings[0]
    assert agent_request_shape(report)["steps"][0]["warnings"] == [*step.move.warnings]


def test_an_empty_truncated_reply_is_reported_and_the_loop_continues(perform_request, model):
    model.plays(_cut(piece("<think>on and on")), "Short.")
    report = perform_request()
    assert report.answer == "Short." and "too long" in report.steps[0].observation


def test_a_model_reads_what_is_wrong_with_each_argument(perform_request, model):
    model.plays(calls("say", '{"text": 5, "extra": 1}'), "I could not.")
    report = perform_request()
    seen = report.steps[0].observation
    assert "extra" in seen and "/text: " in seen
    assert "/text: " in json.dumps(model.questions[1]["messages"])


def test_a_tool_without_parameters_is_called_with_empty_arguments(perform_request, model):
    model.plays(calls("say", ""), "I could not.")
    report = perform_request()
    assert report.steps[0].move.action.arguments == {}
    assert "text" in report.steps[0].observation


def test_each_call_of_one_turn_has_an_answer_in_the_transcript(perform_request, model):
    pieces = [
        called({"index": at, "id": f"c{at}", "function": {"name": "say", "arguments": given}})
        for at, given in enumerate(('{"text": "a"}', '{"text": "b"}', '{"text": '))
    ]
    model.plays(Reply(200, STREAM, [*pieces, end((1, 1))]), "Done.")
    report = perform_request()
    assert report.answer == "Done." and calls_of(report.run).filter(tool_name="say").count() == 1
    asked_for, *answers = model.questions[1]["messages"][-4:]
    made = asked_for["tool_calls"]
    assert [one["function"]["arguments"] for one in made] == [
        '{"text": "a"}', '{"text": "b"}', '{"text": ',
    ]  # fmt: skip
    assert [one["tool_call_id"] for one in answers] == [one["id"] for one in made]
    assert "said" in answers[0]["content"] and "not made" in answers[1]["content"]
    assert agent_request_shape(report)["steps"][0]["not_called"] == ["say", "say"]


def test_each_action_of_one_reply_is_answered_in_the_text_form(perform_request, model, settings):
    settings.LLM_TOOL_CALLS = False
    said = "".join(f'Action: say\nArguments: {{"text": "{one}"}}\n' for one in "ab")
    model.plays(said + "Action: <<fetch>>\nArguments: {", "Answer: Done.")
    report = perform_request()
    assert report.answer == "Done." and calls_of(report.run).filter(tool_name="say").count() == 1
    observed = model.questions[1]["messages"][-1]["content"]
    assert observed.startswith("Observation:\n") and "said" in observed
    assert "Not made: say, __fetch___" in observed and "<<fetch>>" not in observed
    assert agent_request_shape(report)["steps"][0]["not_called"] == ["say", "<<fetch>>"]


def test_one_action_of_a_reply_is_answered_without_a_word_of_others(
    perform_request, model, settings
):
    settings.LLM_TOOL_CALLS = False
    model.plays('Action: say\nArguments: {"text": "a"}\n', "Answer: Done.")
    report = perform_request()
    assert "Not made" not in json.dumps(model.questions[1])
    assert agent_request_shape(report)["steps"][0]["not_called"] == []


@pytest.mark.parametrize("native", [True, False])
def test_what_a_model_weighs_is_not_done(perform_request, model, settings, native):
    settings.LLM_TOOL_CALLS = native
    weighed = '<think>\nI could.\nAction: say\nArguments: {"text": "x"}\n</think>\n'
    model.plays(weighed + ("noon" if native else "Answer: noon"))
    report = perform_request()
    assert report.answer == "noon" and not calls_of(report.run).filter(tool_name="say").exists()
